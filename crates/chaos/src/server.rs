//! The process under test.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use geminga_env::Clock;

/// How long a start may take.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often the log is looked at during a start; bounds how exact the figure of the slowest start is.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What the server logs when clients may come.
const READY: &str = "ready after";

/// A standalone on one data directory, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    geminga: PathBuf,
    data: PathBuf,
    log: PathBuf,
    port: u16,
    clock: Clock,
    child: Option<Child>,
}

impl Server {
    /// Of a folder that will hold its data and log. It always has the same port, so that clients find it again.
    pub(crate) fn new(geminga: &Path, folder: &Path, port: u16, clock: Clock) -> Server {
        let (data, log) = (folder.join("data"), folder.join("server.log"));
        Server { geminga: geminga.to_owned(), data, log, port, clock, child: None }
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn url(&self) -> String {
        format!("pulsar://127.0.0.1:{}", self.port)
    }

    fn spawn(&mut self) -> Result<File, String> {
        let fail = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
        let open = |options: &mut OpenOptions| options.open(&self.log).map_err(|error| fail(&self.log, error));
        let log = open(OpenOptions::new().create(true).append(true))?;
        let mut reader = open(OpenOptions::new().read(true))?;
        reader.seek(SeekFrom::End(0)).map_err(|error| fail(&self.log, error))?;
        let child = Command::new(&self.geminga)
            .args(["standalone", "--web-port", "0", "--broker-port", &self.port.to_string(), "--data-dir"])
            .arg(&self.data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| fail(&self.geminga, error))?;
        self.child = Some(child);
        Ok(reader)
    }

    /// Starts it, and says how long it took until it was ready.
    pub(crate) async fn start(&mut self) -> Result<Duration, String> {
        let started = self.clock.now();
        let mut log = self.spawn()?;
        let mut said = String::new();
        loop {
            log.read_to_string(&mut said).map_err(|error| format!("{}: {error}", self.log.display()))?;
            let took = self.clock.now().since(started);
            if said.contains(READY) {
                return Ok(took);
            }
            self.check_runs()?;
            if took > READY_WITHIN {
                return Err(format!("the server is not ready after {took:?}"));
            }
            self.clock.sleep_until(self.clock.now() + LOOK_EVERY).await;
        }
    }

    /// Starts it and kills it before it may be ready.
    pub(crate) async fn start_in_vain(&mut self, kill_after: Duration) -> Result<(), String> {
        let kill_at = self.clock.now() + kill_after;
        drop(self.spawn()?);
        self.clock.sleep_until(kill_at).await;
        self.kill()
    }

    /// Fails if it ended by itself.
    pub(crate) fn check_runs(&mut self) -> Result<(), String> {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        ended.map_or(Ok(()), |status| Err(format!("the server ended by itself: {status}")))
    }

    /// Kills it with SIGKILL. Fails if it was not there to be killed.
    pub(crate) fn kill(&mut self) -> Result<(), String> {
        self.check_runs()?;
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).map(drop).map_err(|error| format!("cannot kill the server: {error}"))
    }

    /// Fails if a task of it panicked, which the process survives.
    pub(crate) fn check_log(&self) -> Result<(), String> {
        let log = fs::read(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))?;
        let log = String::from_utf8_lossy(&log);
        log.lines()
            .find(|line| line.contains("panicked"))
            .map_or(Ok(()), |line| Err(format!("the server says: {line}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended, which is as good.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
