//! `geminga-chaos power`: the power is cut under load.

use std::path::Path;

use crate::blow::{Blow, Failure};
use crate::machine::{Cut, FileSystem, Machine};
use crate::plan::Setting;
use crate::run::{Run, Summary, env, free_port, runtime};
use crate::server::Server;

/// Within so many cuts a server whose syncs do nothing must be found out.
const CUTS_WITHOUT_SYNCS: u32 = 5;

/// What a run of the command is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    pub(crate) geminga: &'a Path,
    /// Where images are kept while it runs.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) cuts: u32,
    pub(crate) seed: u64,
}

/// Why the command fails.
#[derive(Debug)]
pub(crate) enum NotDone {
    /// This system cannot do it: what is missing.
    Unable(String),
    Failed(Failure),
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> NotDone {
        NotDone::Failed(failure)
    }
}

/// Half of the cuts on each file system; then, on each, whether the check finds what syncs are for.
pub(crate) fn run(options: Options<'_>) -> Result<(), NotDone> {
    let Options { cuts, seed, .. } = options;
    let halves = [(FileSystem::Ext4, cuts.div_ceil(2)), (FileSystem::Xfs, cuts / 2)];
    for (file_system, cuts) in halves.into_iter().filter(|(_, cuts)| *cuts > 0) {
        let summary = on(options, file_system, cuts, Syncs::Done)?;
        say(&format!("{file_system}: {summary}"));
    }
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        match on(options, file_system, CUTS_WITHOUT_SYNCS, Syncs::Skipped) {
            Err(NotDone::Failed(Failure::Server(why))) => {
                let first = why.lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ");
                say(&format!("{file_system}, syncs that do nothing: found as they must be: {first}"));
            }
            Ok(summary) => {
                let what = format!("{file_system}: syncs that do nothing were not found in seed {seed}: {summary}");
                return Err(Failure::Server(what).into());
            }
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "results, for the person who waits")]
fn say(text: &str) {
    println!("{text}");
}

/// What the server's syncs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syncs {
    Done,
    Skipped,
}

fn on(options: Options<'_>, file_system: FileSystem, cuts: u32, syncs: Syncs) -> Result<Summary, NotDone> {
    let Options { geminga, seed, .. } = options;
    let runtime = runtime()?;
    let mut builder = tempfile::Builder::new();
    builder.prefix("geminga-chaos-");
    let folder = options.folder.map_or_else(|| builder.tempdir(), |folder| builder.tempdir_in(folder));
    let folder = folder.map_err(|error| Failure::Run(format!("cannot make a folder for the images: {error}")))?;
    let env = env(&runtime, seed);
    let machine = Machine::new(folder.path(), file_system, env.clock).map_err(NotDone::Unable)?;
    let (data, log) = (machine.path().join("data"), folder.path().join("server.log"));
    let arguments = if syncs == Syncs::Skipped { vec!["--inject".into(), "no-sync".into()] } else { vec![] };
    let server = Server::new(geminga, &data, &log, free_port(&runtime)?, env.clock).with(arguments);
    let blow = PowerCut { machine, rng: fastrand::Rng::with_seed(!seed), syncs };
    let mut run = Run::new(env, seed, server, blow);
    let outcome = runtime.block_on(run.all(cuts));
    drop(run);
    match outcome {
        Err(Failure::Server(why)) if syncs == Syncs::Done => {
            let kept = folder.keep();
            let kept = format!("kept in {}: server.log, and device.img with disk.img inside", kept.display());
            Err(Failure::Server(format!("{file_system}: {why}\n{kept}")).into())
        }
        outcome => Ok(outcome?),
    }
}

/// See [`Machine`].
#[derive(Debug)]
struct PowerCut {
    machine: Machine,
    rng: fastrand::Rng,
    syncs: Syncs,
}

impl Blow for PowerCut {
    async fn strike(&mut self, server: &mut Server, _under_load: Option<&Setting>) -> Result<(), Failure> {
        let cut = if self.rng.u8(..4) == 0 { Cut::Host } else { Cut::Device };
        // Either the process is gone when the disk goes, or it sees the disk go and must not answer any more. A server
        // that does not sync would answer on, which is not what is to be found in it.
        if self.syncs == Syncs::Skipped || self.rng.bool() {
            server.kill_without_disk()?;
            self.machine.cut(cut)
        } else {
            self.machine.cut(cut)?;
            server.kill_without_disk()
        }
    }

    async fn mend(&mut self) -> Result<(), Failure> {
        self.machine.power_on().await
    }
}
