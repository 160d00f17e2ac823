//! Chaos: what the clients of a real process were told must hold whatever happens to it.
//!
//! `geminga-chaos kill` lets real clients produce and consume, kills the server at random moments, starts it again on
//! the same data, and compares what it then gives with what it had promised: receipts of messages and of acks. `power`
//! does so with power cuts (a killed process leaves its writes to the kernel, so `kill` tests no syncs), `sync-failure`
//! with syncs that fail. `pressure` asks for something else: that a server with little memory goes on.
//!
//! Deliberately not here: several brokers, and exact repetition: a seed repeats the plan of a run, not the moments
//! at which processes are scheduled.
//!
//! How data enters and leaves: a command line in; counts, or what is wrong, out. Start reading at [`run`] and [`blow`],
//! then [`history`], which is pure and decides what is wrong.

mod blow;
mod cap;
mod consuming;
mod drain;
mod history;
#[cfg(test)]
mod history_tests;
mod kill;
mod load;
mod machine;
mod mute;
mod payload;
mod plan;
mod power;
mod pressure;
mod producing;
mod run;
mod server;
mod sync_failure;
mod violation;
mod web;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::blow::Failure;
use crate::power::NotDone;
use crate::run::Summary;

/// Breaks a real server on purpose, and checks that it keeps what it promised.
#[derive(Debug, Parser)]
#[command(name = "geminga-chaos", version)]
struct Arguments {
    #[command(subcommand)]
    chaos: Chaos,
}

#[derive(Debug, Subcommand)]
enum Chaos {
    /// A standalone that is killed with SIGKILL again and again, on one data directory.
    Kill(KillArgs),
    /// A standalone whose disk loses power again and again, half of the cuts on ext4 and half on XFS. The same without
    /// syncs must be found out. Needs root, loop devices, and the packages e2fsprogs, xfsprogs and mount.
    Power(PowerArgs),
    /// A standalone of whose syncs one fails again and again: it must say so, end, and lose nothing.
    SyncFailure(KillArgs),
    /// A standalone with little memory and slow syncs, at full speed, among clients that take nothing.
    Pressure(PressureArgs),
}

#[derive(Debug, clap::Args)]
struct KillArgs {
    /// How often to break it.
    #[arg(long, default_value_t = 20)]
    cycles: u32,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, clap::Args)]
struct PowerArgs {
    /// How often to cut the power.
    #[arg(long, default_value_t = 50)]
    cuts: u32,
    /// Succeed, and say so, where this system cannot do it.
    #[arg(long)]
    skip_if_unable: bool,
    /// Where images are kept meanwhile, about 1 GiB [default: the folder for temporary files].
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, clap::Args)]
struct PressureArgs {
    /// How long it is under load, over all kinds of messages.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seconds within which every producer and consumer must get on.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    patience: u64,
    /// Connections that never read.
    #[arg(long, default_value_t = 1000)]
    mute: u32,
    /// MiB that the server may use; it is told to use 256.
    #[arg(long, default_value_t = 320, value_parser = clap::value_parser!(u64).range(1..1 << 20))]
    cap: u64,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Repeats the plan of a run [default: a new one, which is printed].
    #[arg(long)]
    seed: Option<u64>,
    /// The server [default: `geminga` beside this binary]. All but `kill` need one with the cargo feature `canary`.
    #[arg(long, value_name = "PATH")]
    geminga: Option<PathBuf>,
}

impl RunArgs {
    fn geminga(&self) -> Result<PathBuf, String> {
        self.geminga.clone().map_or_else(beside_this, Ok)
    }
}

fn beside_this() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|error| format!("where is this binary? {error}; give --geminga"))?;
    let geminga = here.with_file_name("geminga");
    if geminga.is_file() {
        Ok(geminga)
    } else {
        Err(format!("there is no {}: build it with cargo build --package geminga-server", geminga.display()))
    }
}

#[expect(clippy::print_stderr, reason = "this program reports to a person")]
fn main() -> ExitCode {
    let done = match Arguments::parse().chaos {
        Chaos::Kill(args) => cycles("kill", &args, kill::run),
        Chaos::SyncFailure(args) => cycles("sync-failure", &args, kill::run_sync_failure),
        Chaos::Power(args) => cut_power(&args),
        Chaos::Pressure(args) => press(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

type RunCycles = fn(&std::path::Path, u32, u64) -> Result<Summary, Failure>;

#[expect(clippy::print_stdout, reason = "this program reports to a person")]
fn cycles(name: &str, args: &KillArgs, run: RunCycles) -> Result<(), String> {
    let (geminga, seed) = (args.run.geminga()?, args.run.seed.unwrap_or_else(|| fastrand::u64(..)));
    println!("chaos {name}: {} cycles, seed {seed}", args.cycles);
    let summary = run(&geminga, args.cycles, seed).map_err(|failure| format!("FAILED, seed {seed}: {failure}"))?;
    println!("{summary}");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this program reports to a person")]
fn cut_power(args: &PowerArgs) -> Result<(), String> {
    let (geminga, seed) = (args.run.geminga()?, args.run.seed.unwrap_or_else(|| fastrand::u64(..)));
    println!("chaos power: {} cuts, seed {seed}", args.cuts);
    let options = power::Options { geminga: &geminga, folder: args.folder.as_deref(), cuts: args.cuts, seed };
    match power::run(options) {
        Ok(()) => Ok(()),
        Err(NotDone::Unable(why)) if args.skip_if_unable => {
            println!("SKIPPED: power cannot be cut here: {why}");
            Ok(())
        }
        Err(NotDone::Unable(why)) => Err(format!("power cannot be cut here: {why}")),
        Err(NotDone::Failed(failure)) => Err(format!("FAILED, seed {seed}: {failure}")),
    }
}

#[expect(clippy::print_stdout, reason = "this program reports to a person")]
fn press(args: &PressureArgs) -> Result<(), String> {
    let options = pressure::Options {
        geminga: &args.run.geminga()?,
        time: Duration::from_secs(args.seconds),
        patience: Duration::from_secs(args.patience),
        mute: args.mute,
        cap: args.cap << 20,
    };
    let summary = pressure::run(options).map_err(|failure| format!("FAILED: {failure}"))?;
    println!("{summary}");
    Ok(())
}
