//! How a standalone is configured, and what it does not start with.

use std::path::Path;
use std::process::{Command, Output};

use geminga_disk::{Disk, OpenMode, RealDisk};

use crate::server::{Server, data_dir};

fn standalone(words: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_geminga"));
    command.arg("standalone").args(words).envs(environment.iter().copied()).env("NO_COLOR", "1").output().unwrap()
}

fn write(path: &Path, text: &str) {
    let file = RealDisk.open(path, OpenMode::OpenOrCreate).unwrap();
    file.set_len(0).unwrap();
    file.write_at(0, text.as_bytes()).unwrap();
}

#[test]
fn values_are_shown_with_where_they_come_from() {
    let dir = data_dir();
    let conf = dir.path().join("standalone.conf");
    write(
        &conf,
        "# as Pulsar's\nclusterName=mine\nwebServicePort=1\nkeepAliveIntervalSeconds=9\nauthenticationEnabled=false\n",
    );
    let words = ["--conf", conf.to_str().unwrap(), "--web-port", "3", "--print-config"];
    let printed = standalone(&words, &[("PULSAR_PREFIX_webServicePort", "2"), ("maxMessageSize", "1024000")]);
    let stdout = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.status.success(), "{stdout}");
    for (value, origin) in [
        ("clusterName=mine", "file"),
        ("webServicePort=3", "flag"),
        ("maxMessageSize=1024000", "environment"),
        ("brokerServicePort=6650", "default"),
    ] {
        let line = stdout.lines().find(|line| line.split_whitespace().next() == Some(value));
        assert!(line.is_some_and(|line| line.ends_with(&format!("# {origin}"))), "{value}\n{stdout}");
    }
}

#[test]
fn bad_values_and_protection_that_is_not_there_stop_the_start() {
    let dir = data_dir();
    let conf = dir.path().join("broker.conf");
    write(&conf, "managedLedgerDefaultWriteQuorum=2\nmaxMessageSize=big\nnosuch=1\nmanagedLedgerPassword=hunter2\n");
    let words = ["--data-dir", dir.path().to_str().unwrap(), "-c", conf.to_str().unwrap()];
    let refused = standalone(&words, &[("PULSAR_PREFIX_authenticationEnabled", "true")]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    for name in ["managedLedgerDefaultWriteQuorum (file)", "maxMessageSize=big", "authenticationEnabled (environment)"]
    {
        assert!(said.contains(name), "{name}\n{said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    let missing = standalone(&["--conf", "/nonexistent/x.conf"], &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("/nonexistent/x.conf"));
}

#[test]
fn the_largest_message_is_what_was_configured() {
    let data = data_dir();
    let conf = data.path().join("small.conf");
    write(&conf, "maxMessageSize=4096\nallowAutoTopicCreation=false\n");
    let dir = data.path().join("data");
    let server = Server::start_with(&dir, &["--conf", conf.to_str().unwrap()]);
    let refused = server.client(&["produce", "t", "-m", "x"]).finish();
    assert!(!refused.status.success() && refused.stderr.contains("not found"), "{refused:?}");
    assert_eq!(server.rest("PUT", "/admin/v2/persistent/public/default/t", "").0, 204);
    let message = "x".repeat(3000);
    server.client_ok(&["produce", "t", "-m", &message]);
    let message = "x".repeat(5000);
    let refused = server.client(&["produce", "t", "-m", &message]).finish();
    assert!(refused.stderr.contains("0 messages successfully produced"), "{refused:?}");
    drop(server);

    // The cluster of a directory is what it was made with.
    write(&conf, "clusterName=other\n");
    let other = standalone(
        &[
            "--conf",
            conf.to_str().unwrap(),
            "--data-dir",
            dir.to_str().unwrap(),
            "--broker-port",
            "0",
            "--web-port",
            "0",
        ],
        &[],
    );
    assert_eq!(other.status.code(), Some(1));
    assert!(String::from_utf8(other.stderr).unwrap().contains("clusterName=standalone"));
}

#[test]
fn it_takes_as_many_files_as_it_is_allowed() {
    let data = data_dir();
    let limits = Server::start(data.path()).proc("limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = [3, 4].map(|at| files.split_whitespace().nth(at).unwrap());
    assert_ne!(soft, "200");
    assert_eq!(soft, hard);
}

#[test]
fn only_what_a_standalone_made_is_wiped() {
    let data = data_dir();
    let dir = data.path().join("data");
    let server = Server::start(&dir);
    server.client_ok(&["produce", "t", "-m", "x"]);
    drop(server);
    let server = Server::start_with(&dir, &["--wipe-data"]);
    assert_eq!(server.rest("GET", "/admin/v2/persistent/public/default", ""), (200, "[]".to_owned()));
    drop(server);
    let kept = data.path().join("kept");
    write(&kept, "kept");
    let refuses = |path: &Path| {
        let words = ["--wipe-data", "--data-dir", dir.to_str().unwrap(), "--broker-port", "0", "--web-port", "0"];
        let refused = standalone(&words, &[]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("is not wiped") && said.contains(path.to_str().unwrap()), "{said}");
    };
    for foreign in [dir.join("notes"), dir.join("bookie").join("notes")] {
        write(&foreign, "");
        refuses(&foreign);
        RealDisk.unlink(&foreign).unwrap();
        std::os::unix::fs::symlink(&kept, &foreign).unwrap();
        refuses(&foreign);
        RealDisk.unlink(&foreign).unwrap();
        RealDisk.create_dir(&foreign).unwrap();
        refuses(&foreign);
        // Only an empty directory can be removed so.
        rustix::fs::rmdir(&foreign).unwrap();
    }
    // A store without anything that says it is one.
    RealDisk.unlink(&dir.join("bookie").join("INSTANCE")).unwrap();
    refuses(&dir.join("bookie"));
    assert_eq!(RealDisk.open(&kept, OpenMode::Read).unwrap().len().unwrap(), 4);
}
