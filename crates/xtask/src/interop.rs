//! The scenarios with official clients, against a server of this build.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{Outcome, built, root, target};

/// How long a server may take to be ready.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Runs the scenarios that must pass, or the given ones.
pub(crate) fn python(tests: &[&str]) -> Outcome {
    let folder = root().join("interop/python");
    let python = environment(&folder)?;
    let listed = fs::read_to_string(folder.join("passing.txt")).map_err(|error| format!("passing.txt: {error}"))?;
    let chosen: Vec<&str> = if tests.is_empty() {
        listed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
    } else {
        tests.to_vec()
    };
    let server = Server::start(&target().join("interop-python"))?;
    let restart = std::env::current_exe().map_err(|error| error.to_string())?;
    let status = Command::new(python)
        .args(["-m", "pytest", "-q"])
        .args(&chosen)
        .current_dir(&folder)
        .envs(server.addresses())
        .env("RESTART_CMD", format!("'{}' restart-server '{}'", restart.display(), server.state.display()))
        .status()
        .map_err(|error| format!("cannot run pytest: {error}"))?;
    server.outcome(status)
}

/// Builds and runs the scenarios in Rust, or those whose names contain one of the given words. They are a workspace of
/// their own, so that the client's libraries are not the product's.
pub(crate) fn rust(words: &[&str]) -> Outcome {
    if Command::new("protoc").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err("there is no protoc, which the client's build needs: install the package protobuf-compiler".into());
    }
    let manifest = root().join("interop/rust/Cargo.toml").display().to_string();
    let built = target().join("interop-rust").display().to_string();
    let test = ["test", "--locked", "--quiet", "--manifest-path", &manifest, "--target-dir", &built];
    crate::run("cargo", &[&test[..], &["--no-run"]].concat())?;
    let server = Server::start(&target().join("interop-rust-server"))?;
    let status = Command::new("cargo")
        .args(test)
        .arg("--")
        .args(words)
        .current_dir(root())
        .envs(server.addresses())
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    server.outcome(status)
}

/// A virtual environment with what the scenarios need, made once.
fn environment(folder: &Path) -> Result<PathBuf, String> {
    let venv = target().join("python");
    let python = venv.join("bin/python");
    let wanted = fs::read_to_string(folder.join("requirements.txt")).map_err(|error| error.to_string())?;
    let installed = venv.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let venv = venv.display().to_string();
    let requirements = folder.join("requirements.txt").display().to_string();
    crate::run("python3", &["-m", "venv", &venv])?;
    crate::run(&python, &["-m", "pip", "install", "--quiet", "--requirement", &requirements])?;
    fs::write(&installed, wanted).map_err(|error| error.to_string())?;
    Ok(python)
}

/// A standalone with empty data, stopped when this is dropped. `state` holds its ports, process id, data and log, so
/// that a restart finds them.
struct Server {
    state: PathBuf,
    broker_port: u16,
    web_port: u16,
}

impl Server {
    fn start(state: &Path) -> Result<Server, String> {
        if state.exists() {
            fs::remove_dir_all(state).map_err(|error| format!("{}: {error}", state.display()))?;
        }
        fs::create_dir_all(state).map_err(|error| format!("{}: {error}", state.display()))?;
        let (broker_port, web_port) = (free_port()?, free_port()?);
        fs::write(state.join("ports"), format!("{broker_port} {web_port}")).map_err(|error| error.to_string())?;
        let server = Server { state: state.to_owned(), broker_port, web_port };
        launch(state)?;
        Ok(server)
    }

    /// Where scenarios find it: variables for their environment.
    fn addresses(&self) -> [(&'static str, String); 2] {
        [
            ("SERVICE_URL", format!("pulsar://127.0.0.1:{}", self.broker_port)),
            ("ADMIN_URL", format!("http://127.0.0.1:{}", self.web_port)),
        ]
    }

    /// What scenarios that ended so say about it.
    fn outcome(&self, scenarios: ExitStatus) -> Outcome {
        if scenarios.success() {
            Ok(())
        } else {
            Err(format!("scenarios failed; the server's log is {}", self.state.join("log").display()))
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(kill(&self.state));
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Kills the server hard and starts it again on the same data.
pub(crate) fn restart(state: &Path) -> Outcome {
    kill(state)?;
    launch(state)
}

fn launch(state: &Path) -> Outcome {
    let ports = fs::read_to_string(state.join("ports")).map_err(|error| error.to_string())?;
    let (broker, web) = ports.split_once(' ').ok_or("no ports")?;
    let log = fs::OpenOptions::new().create(true).append(true).open(state.join("log")).map_err(|e| e.to_string())?;
    let child: Child = Command::new(built("geminga"))
        .arg("standalone")
        .arg("--data-dir")
        .arg(state.join("data"))
        .args(["--broker-port", broker, "--web-port", web])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", built("geminga").display()))?;
    fs::write(state.join("pid"), child.id().to_string()).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + READY_DEADLINE;
    while !answers(web) {
        if Instant::now() > deadline {
            return Err(format!(
                "the server is not ready after {READY_DEADLINE:?}; see {}",
                state.join("log").display()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn kill(state: &Path) -> Outcome {
    let pid = fs::read_to_string(state.join("pid")).map_err(|error| error.to_string())?;
    // It may be gone already, which is as good.
    drop(Command::new("kill").args(["-9", &pid]).stderr(Stdio::null()).status());
    let deadline = Instant::now() + READY_DEADLINE;
    let running = |pid: &str| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while running(&pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn answers(web_port: &str) -> bool {
    use std::io::Write;
    let Ok(mut stream) = std::net::TcpStream::connect(format!("127.0.0.1:{web_port}")) else { return false };
    let mut answer = String::new();
    stream.write_all(b"GET /status.html HTTP/1.0\r\n\r\n").is_ok()
        && stream.read_to_string(&mut answer).is_ok()
        && answer.contains(" 200 ")
}
