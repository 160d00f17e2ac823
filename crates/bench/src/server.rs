//! The process that is measured, and what it costs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// A standalone of its own data directory, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) broker: SocketAddr,
    web: Option<SocketAddr>,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(geminga: &Path, data: &Path) -> Result<Server, String> {
        Server::start_with(geminga, data, &[])
    }

    /// The same, with options of `standalone`.
    pub(crate) fn start_with(geminga: &Path, data: &Path, options: &[&str]) -> Result<Server, String> {
        let mut child = Command::new(geminga)
            .args(["standalone", "--broker-port", "0", "--web-port", "0", "--data-dir"])
            .arg(data)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", geminga.display()))?;
        let stderr = child.stderr.take().ok_or("the server has no standard error")?;
        let mut lines = BufReader::new(stderr);
        let mut said = String::new();
        loop {
            let before = said.len();
            let got = lines.read_line(&mut said).map_err(|error| error.to_string())?;
            let line = said.get(before..).unwrap_or_default();
            if line.contains("pulsar://127.0.0.1:") {
                let broker = address(line, "pulsar://127.0.0.1:").ok_or_else(|| format!("no port in: {line}"))?;
                let web = address(line, "http://127.0.0.1:");
                // What it says later must not fill the pipe.
                thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                return Ok(Server { child, broker, web });
            }
            if got == 0 {
                return Err(format!("the server ended before it was ready: {said}"));
            }
        }
    }

    /// A process that somebody else started, and that may not be ready yet.
    pub(crate) fn of(child: Child, broker: SocketAddr) -> Server {
        Server { child, broker, web: None }
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Processor time that it has used.
    pub(crate) fn cpu(&self) -> Result<Duration, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        // Fields are counted behind the name, which is in brackets and may hold anything.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)))
    }

    /// Bytes that it has written to files.
    pub(crate) fn written(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/io", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        line.and_then(|bytes| bytes.parse().ok()).ok_or_else(|| format!("no bytes in {path}"))
    }

    /// Metadata nodes that it has written or deleted; `None` if it does not tell.
    pub(crate) fn metadata_writes(&self) -> Option<u64> {
        let mut stream = TcpStream::connect(self.web?).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let line = answer.lines().find(|line| line.starts_with("geminga_metadata_writes_total"))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// Memory that it holds, in bytes.
    pub(crate) fn rss(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/statm", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let pages: u64 = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
        Ok(pages * rustix::param::page_size() as u64)
    }

    /// Memory that it holds, in bytes, with pages that are mapped several times counted once: a Java heap may be.
    pub(crate) fn memory(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.ok_or_else(|| format!("no memory in {path}"))? * 1024)
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> Result<Duration, String> {
        let started = std::time::Instant::now();
        let status = Command::new("kill").arg(self.child.id().to_string()).status();
        status.map_err(|error| format!("cannot stop the server: {error}"))?;
        self.child.wait().map_err(|error| error.to_string())?;
        Ok(started.elapsed())
    }

    /// Kills it.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| error.to_string())
    }
}

fn address(line: &str, before: &str) -> Option<SocketAddr> {
    let digits: String = line.split(before).nth(1)?.chars().take_while(char::is_ascii_digit).collect();
    Some(SocketAddr::from(([127, 0, 0, 1], digits.parse().ok()?)))
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
