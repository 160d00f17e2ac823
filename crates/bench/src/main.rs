//! `geminga-bench`: what the server does on this machine, beside what the machine itself can do.
//!
//! The client is as cheap as can be, so that two cores suffice for both: blocking sockets, frames encoded once. Each row
//! names its target, and its limit, from a probe of the same run.
//!
//! Deliberately not here: the load that an application makes (`geminga perf`), and verdicts on whether data is right
//! (`geminga-chaos`).
//!
//! With `--pulsar` the same client measures Apache Pulsar in turn (`compare.rs`).
//!
//! Start reading at `rows.rs`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // this program reports to a person

mod acks;
mod compare;
mod connection;
mod grown;
mod many;
mod probe;
mod publish;
mod pulsar;
mod rows;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// Measures a server on this machine, and the machine.
#[derive(Debug, Parser)]
#[command(name = "geminga-bench", version)]
#[command(after_help = "Example: geminga-bench --only unbatched --seconds 5")]
struct Arguments {
    /// The program to measure.
    #[arg(long, value_name = "FILE")]
    geminga: PathBuf,
    /// Where data is kept while it runs: on the disk that is to be measured.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Seconds that each throughput is measured for, after a warm-up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Topics to load for the figures per topic.
    #[arg(long, default_value_t = 100_000)]
    topics: usize,
    /// GiB of data for the start with much data, in 1,000 topics each.
    #[arg(long, default_value_t = 10)]
    gibibytes: u64,
    /// Only rows whose name has this in it.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Measure Apache Pulsar, whose distribution is unpacked there, and the program in turn.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["seconds", "topics"])]
    pulsar: Option<PathBuf>,
    /// Two rounds of 10 s of warm-up and 5 s measured for each load, not three of 30 s and 30 s.
    #[arg(long, requires = "pulsar")]
    quick: bool,
}

fn main() -> ExitCode {
    match measure(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: Arguments) -> Result<(), String> {
    if let Some(pulsar) = arguments.pulsar {
        let (rounds, warm_up, measured) = if arguments.quick { (2, 10, 5) } else { (3, 30, 30) };
        let Arguments { geminga, folder, only, .. } = arguments;
        let (warm_up, measured) = (Duration::from_secs(warm_up), Duration::from_secs(measured));
        let pulsar = std::fs::canonicalize(&pulsar).map_err(|error| format!("{}: {error}", pulsar.display()))?;
        return compare::run(&compare::Plan { geminga, pulsar, folder, only, rounds, warm_up, measured });
    }
    let plan = rows::Plan {
        geminga: arguments.geminga,
        folder: arguments.folder,
        duration: Duration::from_secs(arguments.seconds.max(1)),
        topics: arguments.topics,
        gibibytes: arguments.gibibytes.max(1),
        only: arguments.only,
    };
    rows::run(&plan)
}
