//! `geminga-chaos kill` and `geminga-chaos sync-failure`: on a data directory in a temporary folder.

use std::ffi::OsString;
use std::path::Path;

use crate::blow::{Blow, Failure, Kill};
use crate::run::{Run, Summary, env, free_port, runtime};
use crate::server::Server;
use crate::sync_failure::SyncFailure;

/// Kills it with SIGKILL, again and again.
pub(crate) fn run(geminga: &Path, cycles: u32, seed: u64) -> Result<Summary, Failure> {
    in_folder(geminga, cycles, seed, |_| (Kill, Vec::new()))
}

/// Lets a sync fail, again and again.
pub(crate) fn run_sync_failure(geminga: &Path, cycles: u32, seed: u64) -> Result<Summary, Failure> {
    in_folder(geminga, cycles, seed, |folder| {
        let trigger = folder.join("sync-failure");
        let mut fault = OsString::from("sync-failure=");
        fault.push(&trigger);
        (SyncFailure::new(trigger, seed), vec!["--inject".into(), fault])
    })
}

/// Runs it all; what happened, or what is wrong and where the evidence is.
fn in_folder<B: Blow>(
    geminga: &Path,
    cycles: u32,
    seed: u64,
    blow: impl FnOnce(&Path) -> (B, Vec<OsString>),
) -> Result<Summary, Failure> {
    let runtime = runtime()?;
    let folder = tempfile::Builder::new().prefix("geminga-chaos-").tempdir();
    let folder = folder.map_err(|error| Failure::Run(format!("cannot make a folder for the data: {error}")))?;
    let env = env(&runtime, seed);
    let (data, log) = (folder.path().join("data"), folder.path().join("server.log"));
    let (blow, arguments) = blow(folder.path());
    let server = Server::new(geminga, &data, &log, free_port(&runtime)?, env.clock).with(arguments);
    let mut run = Run::new(env, seed, server, blow);
    let outcome = runtime.block_on(run.all(cycles));
    drop(run);
    outcome.map_err(|why| {
        drop(folder.keep());
        let kept = format!("data and log are kept: {} and {}", data.display(), log.display());
        match why {
            Failure::Server(why) => Failure::Server(format!("{why}\n{kept}")),
            Failure::Run(why) => Failure::Run(format!("{why}\n{kept}")),
        }
    })
}
