//! Apache Pulsar standalone as a peer: its settings, and its process.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::server::Server;

/// What is set in the shipped `standalone.conf`. It has `journalSyncData=false`, which acknowledges what only the page
/// cache holds: not what Geminga promises. The rest is shipped so, and is here for the reader.
const DURABILITY: &str = "\
journalSyncData=true
journalWriteData=true
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
";

/// Heap and direct memory: a GiB together. What the virtual machine needs for itself comes on top.
const MEMORY: &str = "-Xms512m -Xmx512m -XX:MaxDirectMemorySize=512m";

/// Functions, their worker and table service are off: nothing here uses them.
const FLAGS: [&str; 2] = ["--no-functions-worker", "--no-stream-storage"];

/// The variable with which users of Pulsar's script choose their collector.
const COLLECTOR: &str = "PULSAR_GC";

/// What is set, for the reader of the table.
pub(crate) fn settings(home: &Path) -> String {
    let name = home.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let java = Command::new(java()).arg("-version").output();
    let java = java.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default();
    let collector = std::env::var(COLLECTOR).unwrap_or_else(|_| "collector and other flags as shipped".into());
    format!(
        "{name}, {}; standalone.conf as shipped (with journalMaxGroupWaitMSec=1) and {}; {MEMORY}, {collector}; {}",
        java.lines().next().unwrap_or("Java of unknown version"),
        DURABILITY.trim_end().replace('\n', ", "),
        FLAGS.join(" ")
    )
}

fn java() -> std::path::PathBuf {
    std::env::var_os("JAVA_HOME").map_or_else(|| "java".into(), |home| Path::new(&home).join("bin/java"))
}

/// Starts it on an empty folder; does not wait.
pub(crate) fn start(home: &Path, folder: &Path) -> Result<Server, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let [broker, web, bookie] = free_ports().map_err(|error| format!("no free ports: {error}"))?;
    fs::create_dir_all(folder.join("logs")).map_err(fail)?;
    let shipped = home.join("conf/standalone.conf");
    let shipped = fs::read_to_string(&shipped).map_err(|error| format!("{}: {error}", shipped.display()))?;
    let conf = folder.join("standalone.conf");
    let addresses = "bindAddress=127.0.0.1\nadvertisedAddress=127.0.0.1\n";
    let ports = format!("brokerServicePort={broker}\nwebServicePort={web}\n");
    fs::write(&conf, with_settings(&shipped, &format!("{DURABILITY}{addresses}{ports}"))).map_err(fail)?;
    let out = File::create(folder.join(OUTPUT)).map_err(fail)?;
    let script = home.join("bin/pulsar");
    // The script replaces itself by Java, so that its process is the server's.
    let child = Command::new(&script)
        .arg("standalone")
        .args(FLAGS)
        .arg("--metadata-dir")
        .arg(folder.join("metadata"))
        .arg("--bookkeeper-dir")
        .arg(folder.join("bookkeeper"))
        .args(["--bookkeeper-port", &bookie.to_string()])
        .current_dir(folder)
        .env("PULSAR_STANDALONE_CONF", &conf)
        .env("PULSAR_LOG_DIR", folder.join("logs"))
        .env("PULSAR_MEM", MEMORY)
        .stdin(Stdio::null())
        .stderr(out.try_clone().map_err(fail)?)
        .stdout(out)
        .spawn()
        .map_err(|error| format!("{}: {error}", script.display()))?;
    Ok(Server::of(child, SocketAddr::from(([127, 0, 0, 1], broker))))
}

/// The shipped settings but for those that are set anew. They must go: of a key that is there twice the broker takes
/// the last value, and the bookie the first.
fn with_settings(shipped: &str, settings: &str) -> String {
    let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
    let anew: Vec<String> = settings.lines().map(key).collect();
    let kept = shipped.lines().filter(|line| !anew.contains(&key(line)));
    kept.chain(settings.lines()).flat_map(|line| [line, "\n"]).collect()
}

const OUTPUT: &str = "output";

/// The last lines of what it printed, to say why it does not work.
pub(crate) fn last_words(folder: &Path) -> String {
    let said = fs::read(folder.join(OUTPUT)).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n")
}

/// Ports that nobody listened on a moment ago.
fn free_ports() -> std::io::Result<[u16; 3]> {
    let bind = || TcpListener::bind(("127.0.0.1", 0));
    let held = [bind()?, bind()?, bind()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_setting_replaces_the_shipped_one() {
        let shipped = "# synced\njournalSyncData=false\njournalMaxGroupWaitMSec=1\n brokerServicePort = 6650\n\nend=";
        assert_eq!(
            super::with_settings(shipped, "journalSyncData=true\nbrokerServicePort=1\n"),
            "# synced\njournalMaxGroupWaitMSec=1\n\nend=\njournalSyncData=true\nbrokerServicePort=1\n"
        );
    }
}
