//! The command line of the simulations.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program reports to a person")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use geminga_sim::crash;

/// Runs the real code on simulated disks, with faults chosen by seed, and checks it against naive models.
#[derive(Debug, Parser)]
#[command(name = "geminga-sim", version)]
struct Arguments {
    #[command(subcommand)]
    simulation: Simulation,
}

#[derive(Debug, Subcommand)]
enum Simulation {
    /// The bookie's store on a disk that loses power, tears writes, fails syncs and runs full.
    Crash(CrashArguments),
}

#[derive(Debug, clap::Args)]
struct CrashArguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// Run for this long instead.
    #[arg(long)]
    seconds: Option<u64>,
    /// The first seed; alone, the only one.
    #[arg(long)]
    seed: Option<u64>,
    /// Commit this known bug, and succeed only if it is found. Needs the cargo feature `canary`.
    #[arg(long)]
    canary: Option<String>,
    /// Instead, try every crash image of this many short traces.
    #[arg(long)]
    exhaustive: Option<u64>,
}

fn main() -> ExitCode {
    let Arguments { simulation: Simulation::Crash(arguments) } = Arguments::parse();
    if let Some(name) = &arguments.canary
        && let Err(why) = choose_canary(name)
    {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    match (run(&arguments), &arguments.canary) {
        (Ok(()), None) => ExitCode::SUCCESS,
        (Err(failure), None) => {
            eprintln!("FAILED: {failure}");
            ExitCode::FAILURE
        }
        (Ok(()), Some(name)) => {
            eprintln!("FAILED: the canary {name} was not found");
            ExitCode::FAILURE
        }
        (Err(failure), Some(name)) => {
            println!("the canary {name} was found: {failure}");
            ExitCode::SUCCESS
        }
    }
}

#[cfg(feature = "canary")]
fn choose_canary(name: &str) -> Result<(), String> {
    if !crash::CANARIES.contains(&name) {
        return Err(format!("there is no canary {name}; there are {}", crash::CANARIES.join(", ")));
    }
    geminga_model::choose_canary(Some(name));
    Ok(())
}

#[cfg(not(feature = "canary"))]
fn choose_canary(name: &str) -> Result<(), String> {
    Err(format!("the canary {name} is not compiled in: build with --features canary"))
}

/// Runs the seeds asked for and prints what happened in them.
fn run(arguments: &CrashArguments) -> Result<(), String> {
    let started = Instant::now();
    let first = arguments.seed.unwrap_or(0);
    let seeds = match (arguments.exhaustive, arguments.seconds, arguments.seed) {
        (Some(traces), ..) => traces,
        (None, Some(_), _) => u64::MAX - first,
        (None, None, Some(_)) => 1,
        (None, None, None) => arguments.seeds,
    };
    let deadline = arguments.seconds.map(Duration::from_secs);
    let mut tally = crash::Tally::default();
    let mut done = 0;
    for seed in first..first + seeds {
        if deadline.is_some_and(|deadline| started.elapsed() >= deadline) {
            break;
        }
        let result = match arguments.exhaustive {
            Some(_) => crash::run_exhaustive(seed, &mut tally),
            None => crash::run_seed(seed, &mut tally),
        };
        if let Err(violation) = result {
            return Err(format!("seed {seed}: {violation}"));
        }
        done += 1;
    }
    println!("{done} seeds in {:.1} s", started.elapsed().as_secs_f64());
    for (name, count) in tally.counts() {
        println!("{name:>24} {count:>12} {:>10.2} a seed", count as f64 / done.max(1) as f64);
    }
    // Fewer seeds may miss a rare fault by chance.
    if arguments.exhaustive.is_none() && done >= 200 {
        tally.check_that_all_happened()?;
    }
    Ok(())
}
