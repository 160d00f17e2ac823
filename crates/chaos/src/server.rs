//! The process under test.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use geminga_env::Clock;

use crate::blow::Failure;

/// How long a start may take.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often the log is looked at during a start; bounds how exact the figure of the slowest start is.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What the server logs when clients may come.
const READY: &str = "ready after";
/// The signal of `kill -9`.
const SIGKILL: i32 = 9;

/// A standalone on one data directory, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    geminga: PathBuf,
    arguments: Vec<OsString>,
    log: PathBuf,
    port: u16,
    clock: Clock,
    child: Option<Child>,
    web: Option<SocketAddr>,
}

impl Server {
    /// Of a data directory and a log. It always has the same port, so that clients find it again.
    pub(crate) fn new(geminga: &Path, data: &Path, log: &Path, port: u16, clock: Clock) -> Server {
        let mut arguments: Vec<OsString> = ["standalone", "--web-port", "0", "--broker-port"].map(Into::into).into();
        arguments.extend([port.to_string().into(), "--data-dir".into(), data.into()]);
        Server { geminga: geminga.to_owned(), arguments, log: log.to_owned(), port, clock, child: None, web: None }
    }

    /// With more on its command line from its next start on.
    pub(crate) fn with(mut self, arguments: impl IntoIterator<Item = OsString>) -> Server {
        self.arguments.extend(arguments);
        self
    }

    /// Where its REST is, once it is ready.
    pub(crate) fn web(&self) -> Option<SocketAddr> {
        self.web
    }

    /// Where its clients connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Its number, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub(crate) fn url(&self) -> String {
        format!("pulsar://127.0.0.1:{}", self.port)
    }

    fn spawn(&mut self) -> Result<File, Failure> {
        let fail = |what: &Path, error: std::io::Error| Failure::Run(format!("{}: {error}", what.display()));
        let open = |options: &mut OpenOptions| options.open(&self.log).map_err(|error| fail(&self.log, error));
        let log = open(OpenOptions::new().create(true).append(true))?;
        let mut reader = open(OpenOptions::new().read(true))?;
        reader.seek(SeekFrom::End(0)).map_err(|error| fail(&self.log, error))?;
        let child = Command::new(&self.geminga)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| fail(&self.geminga, error))?;
        self.child = Some(child);
        Ok(reader)
    }

    /// Starts it, and says how long it took until it was ready.
    pub(crate) async fn start(&mut self) -> Result<Duration, Failure> {
        let started = self.clock.now();
        let mut log = self.spawn()?;
        let mut said = String::new();
        loop {
            let read = log.read_to_string(&mut said);
            read.map_err(|error| Failure::Run(format!("{}: {error}", self.log.display())))?;
            let took = self.clock.now().since(started);
            if let Some((_, ready)) = said.split_once(READY)
                && let Some((line, _)) = ready.split_once('\n')
            {
                self.web = line.rsplit_once("http://").and_then(|(_, address)| address.trim().parse().ok());
                return Ok(took);
            }
            if let Some(status) = self.ended() {
                if said.contains("unexpected argument '--inject'") {
                    let advice = "build it with cargo build --bins --features geminga-server/canary";
                    return Err(Failure::Run(format!("this server cannot be told to fail: {advice}")));
                }
                let last = said.lines().last().unwrap_or("it said nothing");
                return Err(Failure::Server(format!("the server does not start, {status}: {last}")));
            }
            if took > READY_WITHIN {
                return Err(Failure::Server(format!("the server is not ready after {took:?}")));
            }
            self.clock.sleep_until(self.clock.now() + LOOK_EVERY).await;
        }
    }

    /// Starts it and lets it live so long, whether it is ready then or not.
    pub(crate) async fn start_in_vain(&mut self, life: Duration) -> Result<(), Failure> {
        let end_at = self.clock.now() + life;
        drop(self.spawn()?);
        self.clock.sleep_until(end_at).await;
        Ok(())
    }

    /// How it ended, if it did.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Fails if it ended by itself.
    pub(crate) fn check_runs(&mut self) -> Result<(), Failure> {
        self.ended().map_or(Ok(()), |status| Err(Failure::Server(format!("the server ended by itself: {status}"))))
    }

    /// Kills it with SIGKILL. Fails if it was not there to be killed.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.check_runs()?;
        self.end().map(drop)
    }

    /// Kills it with SIGKILL when its disk is gone: it may have noticed and ended by itself before, with exit code 1.
    pub(crate) fn kill_without_disk(&mut self) -> Result<(), Failure> {
        match self.end()? {
            Some(status) if status.code() != Some(1) && status.signal() != Some(SIGKILL) => {
                Err(Failure::Server(format!("the server whose disk is gone ended with {status}, not with exit code 1")))
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(mut child) = self.child.take() else { return Ok(None) };
        let ended = child.kill().and_then(|()| child.wait());
        ended.map(Some).map_err(|error| Failure::Run(format!("cannot kill the server: {error}")))
    }

    /// Waits until it ended by itself, for so long at most.
    pub(crate) async fn wait(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let deadline = self.clock.now() + within;
        loop {
            if let Some(status) = self.ended() {
                self.child = None;
                return Ok(status);
            }
            if self.clock.now() > deadline {
                return Err(Failure::Server(format!("the server goes on for {within:?} after that")));
            }
            self.clock.sleep_until(self.clock.now() + LOOK_EVERY).await;
        }
    }

    /// Bytes that its log has.
    pub(crate) fn log_length(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |log| log.len())
    }

    /// What it logged behind so many bytes.
    pub(crate) fn log_from(&self, start: u64) -> Result<String, Failure> {
        let log = fs::read(&self.log).map_err(|error| Failure::Run(format!("{}: {error}", self.log.display())))?;
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        Ok(String::from_utf8_lossy(log.get(start..).unwrap_or_default()).into_owned())
    }

    /// Fails if a task of it panicked, which the process survives.
    pub(crate) fn check_log(&self) -> Result<(), Failure> {
        let log = self.log_from(0)?;
        log.lines()
            .find(|line| line.contains("panicked"))
            .map_or(Ok(()), |line| Err(Failure::Server(format!("the server says: {line}"))))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended, which is as good.
        drop(self.end());
    }
}
