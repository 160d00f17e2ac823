//! The first minutes with Geminga, and the first bad ones.

use std::time::Duration;

use geminga_disk::{Disk, OpenMode, RealDisk};
use geminga_env::Clock;

use crate::server::{Running, Server, data_dir};

const MESSAGE: &str = r#"{"model":"churn-v3","split":"train","rows":512}"#;

/// The contents of the messages that a client showed.
fn contents(stdout: &str) -> Vec<&str> {
    stdout.lines().filter_map(|line| line.split_once("content:").map(|(_, content)| content)).collect()
}

#[test]
fn a_message_goes_from_one_shell_to_another() {
    let data = data_dir();
    let server = Server::start(data.path());
    let consumer = server.client(&["consume", "ml-events", "-s", "trainer-sub", "-n", "1"]).wait_for("Subscribed");
    let produced = server.client_ok(&["produce", "ml-events", "-s", "|", "--messages", MESSAGE]);
    assert!(produced.stderr.contains("1 messages successfully produced"), "{produced:?}");
    let consumed = consumer.succeeded();
    let lines: Vec<&str> = consumed.stdout.lines().collect();
    assert!(lines[0] == "----- got message -----" && lines.len() == 2, "{consumed:?}");
    assert!(lines[1].contains(", key:[null], properties:[], content:{\"model\""), "{consumed:?}");
    assert_eq!(contents(&consumed.stdout), [MESSAGE]);

    // What was acknowledged is not delivered again; a reader sees it all the same.
    server.client_ok(&["produce", "ml-events", "-m", "a,b", "-k", "key", "-p", "p=1"]);
    let consumed = server.client_ok(&["consume", "ml-events", "-s", "trainer-sub", "-n", "2", "-t", "Shared"]);
    assert_eq!(contents(&consumed.stdout), ["a", "b"]);
    assert!(consumed.stdout.contains("key:[key], properties:[p=1], content:a"), "{consumed:?}");
    let read = server.client_ok(&["read", "ml-events", "-m", "earliest", "-n", "3"]);
    assert_eq!(contents(&read.stdout), [MESSAGE, "a", "b"]);

    let report = Running::start(&["explain", "topic", "ml-events", "--admin-url", &server.web_url]).succeeded();
    assert!(report.stdout.contains("persistent://public/default/ml-events"), "{report:?}");
    assert!(report.stdout.contains("subscription   trainer-sub") && report.stdout.contains("backlog 0 "), "{report:?}");
}

#[test]
fn messages_wait_for_a_subscription_that_starts_at_the_earliest() {
    let data = data_dir();
    let server = Server::start(data.path());
    let produced = server.client_ok(&["produce", "early", "-m", MESSAGE]);
    assert!(produced.stderr.contains("sent as 3 messages") && produced.stderr.contains("--separator"), "{produced:?}");
    server.client_ok(&["produce", "early", "-s", "", "-m", MESSAGE, "-n", "2", "-db"]);
    let consumed = server.client_ok(&["consume", "early", "-s", "late", "-n", "5", "-p", "Earliest"]);
    let parts = [r#"{"model":"churn-v3""#, r#""split":"train""#, r#""rows":512}"#];
    assert_eq!(contents(&consumed.stdout), [&parts[..], &[MESSAGE, MESSAGE]].concat());
}

#[test]
fn an_interrupted_consumer_ends_well() {
    let data = data_dir();
    let server = Server::start(data.path());
    let consumer = server.client(&["consume", "endless", "-s", "s", "-n", "0"]).wait_for("Subscribed");
    let consumed = consumer.interrupt().succeeded();
    assert!(consumed.stderr.contains("0 messages successfully consumed"), "{consumed:?}");
}

#[test]
fn a_refusal_says_what_to_try() {
    let data = data_dir();
    let server = Server::start(data.path());
    let _first = server.client(&["consume", "t", "-s", "s", "-n", "0"]).wait_for("Subscribed");
    // Whichever type is asked for, the one that is there is Exclusive.
    for sub_type in ["Exclusive", "Key_Shared"] {
        let refused = server.client(&["consume", "t", "-s", "s", "-t", sub_type]).finish();
        assert!(!refused.status.success() && refused.stderr.contains("use another subscription"), "{refused:?}");
    }
}

#[test]
fn a_message_that_is_not_stored_is_not_passed_over() {
    let data = data_dir();
    let server = Server::start(data.path());
    let large = data.path().join("large");
    let file = RealDisk.open(&large, OpenMode::Create).unwrap();
    file.set_len(6 << 20).unwrap();
    let produced = server.client(&["produce", "t", "-f", large.to_str().unwrap()]).finish();
    assert!(!produced.status.success() && produced.stderr.contains("0 messages successfully produced"), "{produced:?}");
    assert!(produced.stderr.lines().count() > 1, "{produced:?}");
}

#[test]
fn nothing_is_lost_when_the_server_is_killed() {
    let data = data_dir();
    let server = Server::start(data.path());
    // The subscription is there before, and has consumed a part.
    let consumer = server.client(&["consume", "t", "-s", "s", "-n", "1"]).wait_for("Subscribed");
    server.client_ok(&["produce", "t", "-m", "0,1,2", "-db"]);
    assert_eq!(contents(&consumer.succeeded().stdout), ["0"]);
    server.client_ok(&["produce", "t", "-m", "3,4"]);
    server.kill();

    let server = Server::start(data.path());
    let read = server.client_ok(&["read", "t", "-m", "earliest", "-n", "5"]);
    assert_eq!(contents(&read.stdout), ["0", "1", "2", "3", "4"]);
    let consumed = server.client_ok(&["consume", "t", "-s", "s", "-n", "4", "-t", "Failover"]);
    assert_eq!(contents(&consumed.stdout), ["1", "2", "3", "4"]);
    // New messages find their place behind the old ones, of which nobody needs any.
    server.client_ok(&["produce", "t", "-m", "5"]);
    let consumed = server.client_ok(&["consume", "t", "-s", "s", "-n", "1", "-t", "Failover"]);
    assert_eq!(contents(&consumed.stdout), ["5"]);
}

#[test]
fn it_stops_when_it_is_asked_to() {
    let data = data_dir();
    let server = Server::start(data.path());
    server.client_ok(&["produce", "t", "-m", "0,1,2"]);
    // A client that stays does not hold the stop up.
    let idle = server.client(&["consume", "t", "-s", "s", "-n", "0"]).wait_for("Subscribed");
    let clock = Clock::real();
    let asked = clock.now();
    let stopped = server.stop();
    assert!(stopped.status.success() && clock.now().since(asked) < Duration::from_secs(5), "{stopped:?}");
    assert!(stopped.stderr.contains("stopped\n") && !stopped.stderr.contains("not stopped"), "{stopped:?}");
    idle.interrupt().succeeded();

    let server = Server::start(data.path());
    let consumed = server.client_ok(&["consume", "t", "-s", "new", "-n", "3", "-p", "Earliest"]);
    assert_eq!(contents(&consumed.stdout), ["0", "1", "2"]);
}
