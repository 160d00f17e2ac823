//! A `geminga standalone` in a directory of its own, and commands that talk to it.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A running server. Dropped, it is killed.
pub(crate) struct Server {
    process: Child,
    stderr: BufReader<ChildStderr>,
    /// Address of the binary protocol.
    pub(crate) service_url: String,
    /// Address of REST.
    pub(crate) web_url: String,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A directory for a server's data.
pub(crate) fn data_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

impl Server {
    /// Starts a server, and waits until it is ready.
    pub(crate) fn start(data: &Path) -> Server {
        Server::start_with(data, &[])
    }

    /// Starts a server with more options, and waits until it is ready.
    pub(crate) fn start_with(data: &Path, options: &[&str]) -> Server {
        // From a shell that allows fewer files than there may be clients.
        let mut process = Command::new("sh")
            .args(["-c", r#"ulimit -S -n 200; exec "$0" "$@""#, env!("CARGO_BIN_EXE_geminga")])
            .args(["standalone", "--broker-port", "0", "--web-port", "0", "--data-dir"])
            .arg(data)
            .args(options)
            .env("NO_COLOR", "1")
            .env_remove("GEMINGA_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut server = Server { process, stderr, service_url: String::new(), web_url: String::new() };
        let mut log = String::new();
        loop {
            let before = log.len();
            assert!(server.stderr.read_line(&mut log).unwrap() > 0, "the server ended before it was ready:\n{log}");
            if let Some((_, ready)) = log[before..].trim_end().split_once("ready after ") {
                let (service, web) = ready.split_once(": ").and_then(|(_, urls)| urls.split_once(" and ")).unwrap();
                (server.service_url, server.web_url) = (service.to_owned(), web.to_owned());
                return server;
            }
        }
    }

    /// What the system says of the process in a file of `/proc/<pid>`.
    pub(crate) fn proc(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.process.id());
        let shown = Command::new("cat").arg(path).output().unwrap();
        String::from_utf8(shown.stdout).unwrap()
    }

    /// Ends it as a power failure of the process would.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Asks it to stop, and waits for it. What it wrote meanwhile is the answer's `stderr`.
    pub(crate) fn stop(mut self) -> Output {
        signal(&self.process, Signal::TERM);
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        Output { status: self.process.wait().unwrap(), stdout: String::new(), stderr }
    }

    /// Asks REST; gives the status and the body.
    pub(crate) fn rest(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true).build().into();
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.web_url));
        let mut response = agent.run(request.body(body.to_owned()).unwrap()).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    /// Starts `geminga client` with `words`.
    pub(crate) fn client(&self, words: &[&str]) -> Running {
        let words = [&["client", "--url", &self.service_url], words].concat();
        Running::start(&words)
    }

    /// Runs `geminga client` with `words` to its end, which must be a good one.
    pub(crate) fn client_ok(&self, words: &[&str]) -> Output {
        self.client(words).succeeded()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command under way. Dropped, it is killed.
pub(crate) struct Running {
    process: Child,
    stdout: ChildStdout,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Running {
    /// Starts the binary with `words`.
    pub(crate) fn start(words: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_geminga"));
        let mut process = command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (process.stdout.take().unwrap(), process.stderr.take().unwrap());
        Running { process, stdout, stderr: BufReader::new(stderr), said: String::new() }
    }

    /// Waits for a line on standard error with `text` in it.
    pub(crate) fn wait_for(mut self, text: &str) -> Running {
        loop {
            let before = self.said.len();
            let read = self.stderr.read_line(&mut self.said).unwrap();
            assert!(read > 0, "it ended without '{text}':\n{}", self.said);
            if self.said[before..].contains(text) {
                return self;
            }
        }
    }

    /// What Ctrl-C does.
    pub(crate) fn interrupt(self) -> Running {
        signal(&self.process, Signal::INT);
        self
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Output {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let mut stderr = std::mem::take(&mut self.said);
        self.stderr.read_to_string(&mut stderr).unwrap();
        Output { status: self.process.wait().unwrap(), stdout, stderr }
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn succeeded(self) -> Output {
        let output = self.finish();
        assert!(output.status.success(), "{output:?}");
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn signal(process: &Child, signal: Signal) {
    let id = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
    kill_process(id, signal).unwrap();
}
