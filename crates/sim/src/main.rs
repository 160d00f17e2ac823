//! The command line of the simulations.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program reports to a person")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use geminga_sim::{crash, ledger};

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
    Crash {
        #[command(flatten)]
        seeds: Seeds,
        /// Instead, try every crash image of this many short traces.
        #[arg(long)]
        exhaustive: Option<u64>,
    },
    /// Writers, racing recoveries and readers of ledgers, over bookies that crash and a network that loses and delays.
    Ledger {
        #[command(flatten)]
        seeds: Seeds,
        /// Print what happens. Needs --seed.
        #[arg(long, requires = "seed")]
        trace: bool,
    },
}

#[derive(Clone, Debug, clap::Args)]
struct Seeds {
    /// How many seeds to run [default: 1000, or the one of --seed].
    #[arg(long)]
    seeds: Option<u64>,
    /// Run for this long instead.
    #[arg(long)]
    seconds: Option<u64>,
    /// The first seed; alone, the only one.
    #[arg(long)]
    seed: Option<u64>,
    /// Commit this known bug, and succeed only if it is found. Needs the cargo feature `canary`.
    #[arg(long)]
    canary: Option<String>,
}

/// Below this many seeds a rare fault may be missed by chance.
const ENOUGH_SEEDS: u64 = 200;

fn main() -> ExitCode {
    let Arguments { simulation } = Arguments::parse();
    let (seeds, canaries) = match &simulation {
        Simulation::Crash { seeds, .. } => (seeds, &crash::CANARIES[..]),
        Simulation::Ledger { seeds, .. } => (seeds, &ledger::CANARIES[..]),
    };
    if let Some(name) = &seeds.canary
        && let Err(why) = choose_canary(name, canaries)
    {
        eprintln!("{why}");
        return ExitCode::from(2);
    }
    let canary = seeds.canary.clone();
    match (run(&simulation), canary) {
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
fn choose_canary(name: &str, canaries: &[&str]) -> Result<(), String> {
    if !canaries.contains(&name) {
        return Err(format!("there is no canary {name}; there are {}", canaries.join(", ")));
    }
    geminga_model::choose_canary(Some(name));
    Ok(())
}

#[cfg(not(feature = "canary"))]
fn choose_canary(name: &str, _canaries: &[&str]) -> Result<(), String> {
    Err(format!("the canary {name} is not compiled in: build with --features canary"))
}

/// Runs the seeds asked for, prints what happened in them, and says if that was too little.
fn run(simulation: &Simulation) -> Result<(), String> {
    match simulation {
        Simulation::Crash { seeds, exhaustive: Some(traces) } => {
            let mut tally = crash::Tally::default();
            let seeds = Seeds { seeds: Some(*traces), seconds: None, ..seeds.clone() };
            let done = seeds.run(|seed| crash::run_exhaustive(seed, &mut tally))?;
            print(&tally.counts(), done);
            Ok(())
        }
        Simulation::Crash { seeds, exhaustive: None } => {
            let mut tally = crash::Tally::default();
            let done = seeds.run(|seed| crash::run_seed(seed, &mut tally))?;
            print(&tally.counts(), done);
            if done < ENOUGH_SEEDS { Ok(()) } else { tally.check_that_all_happened() }
        }
        Simulation::Ledger { seeds, trace } => {
            if let (true, Some(seed)) = (trace, seeds.seed) {
                ledger::trace_seed(seed).iter().for_each(|line| println!("{line}"));
            }
            let mut tally = ledger::Tally::default();
            let done = seeds.run(|seed| ledger::run_seed(seed, &mut tally).map(drop))?;
            print(&tally.counts(), done);
            if done < ENOUGH_SEEDS { Ok(()) } else { tally.check_that_enough_happened(done) }
        }
    }
}

impl Seeds {
    /// Runs seed after seed until one fails; how many there were.
    fn run(&self, mut run: impl FnMut(u64) -> Result<(), String>) -> Result<u64, String> {
        let started = Instant::now();
        let first = self.seed.unwrap_or(0);
        println!("from seed {first}");
        let seeds = match (self.seconds, self.seeds, self.seed) {
            (Some(_), ..) => u64::MAX - first,
            (None, Some(seeds), _) => seeds,
            (None, None, Some(_)) => 1,
            (None, None, None) => 1000,
        };
        let deadline = self.seconds.map(Duration::from_secs);
        let mut done = 0;
        for seed in first..first + seeds {
            if deadline.is_some_and(|deadline| started.elapsed() >= deadline) {
                break;
            }
            run(seed).map_err(|violation| format!("seed {seed}: {violation}"))?;
            done += 1;
        }
        println!("{done} seeds in {:.1} s", started.elapsed().as_secs_f64());
        Ok(done)
    }
}

fn print(counts: &[(&str, u64)], done: u64) {
    for (name, count) in counts {
        println!("{name:>24} {count:>12} {:>10.2} a seed", *count as f64 / done.max(1) as f64);
    }
}
