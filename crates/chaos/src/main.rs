//! Chaos: what the clients of a real process were told must hold after `kill -9`.
//!
//! `geminga-chaos kill` lets real clients produce and consume, kills the server at random moments, starts it again on
//! the same data, and compares what it then gives with what it had promised: receipts of messages and of acks.
//!
//! Deliberately not here: power cuts (a killed process leaves its writes to the kernel, so syncs are not tested here;
//! the simulations do that), several brokers, and exact repetition: a seed repeats the plan of a run, not the moments
//! at which processes are scheduled.
//!
//! How data enters and leaves: a command line in; counts, or what is wrong, out. Start reading at [`kill`], then
//! [`history`], which is pure and decides what is wrong.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program reports to a person")]

mod consuming;
mod drain;
mod history;
#[cfg(test)]
mod history_tests;
mod kill;
mod payload;
mod plan;
mod producing;
mod server;
mod violation;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

#[derive(Debug, clap::Args)]
struct KillArgs {
    /// How often to kill it.
    #[arg(long, default_value_t = 20)]
    cycles: u32,
    /// Repeats the plan of a run [default: a new one, which is printed].
    #[arg(long)]
    seed: Option<u64>,
    /// The server [default: `geminga` beside this binary].
    #[arg(long, value_name = "PATH")]
    geminga: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Arguments { chaos: Chaos::Kill(args) } = Arguments::parse();
    let geminga = match args.geminga.map_or_else(beside_this, Ok) {
        Ok(path) => path,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("chaos kill: {} cycles, seed {seed}", args.cycles);
    match kill::run(&geminga, args.cycles, seed) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("FAILED, seed {seed}: {failure}");
            ExitCode::FAILURE
        }
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
