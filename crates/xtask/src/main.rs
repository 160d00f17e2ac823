//! The project's chores, on the standard library alone so that they start at once.
//!
//! `cargo xtask test` is what must be green before anything lands. It builds the workspace once and runs everything
//! from what was built. Start reading at [`test`].

#![allow(clippy::print_stdout, clippy::print_stderr)] // it talks to a person

mod bench;
mod chaos;
mod fuzz;
mod interop;
mod peers;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
Usage: cargo xtask <chore>

  test                    everything that must be green: format, lints, tidy, tests, simulations, interop, chaos
  tidy                    the rules of the house: floors, purity, file sizes, licences
  interop python [TESTS]  the scenarios of interop/python/passing.txt, or the given ones, with the official client
  interop rust [WORDS]    the scenarios of interop/rust, or those with such a word in the name, with the official client
  bench [OPTIONS]         what the server does beside what the machine can: --seconds N, --topics N, --only TEXT, --folder F
  bench compare --peers pulsar  the same load on Apache Pulsar, fetched with Maven, in turn: --quick, --only TEXT, --folder F
  fuzz [--seconds N] [TARGETS]  arbitrary bytes for all decoders, a minute each, or for the given ones; needs g++
  chaos kill [OPTIONS]    a server that is killed again and again: --cycles N, --seed X, --geminga PATH
  chaos power [OPTIONS]   one whose disk loses power, ext4 and XFS; needs root: --cuts N, --folder F, --seed X, --geminga PATH
  chaos pressure [OPTIONS]  one with little memory among clients that take nothing: --seconds N, --patience N, --mute N, --cap MIB
  chaos sync-failure [OPTIONS]  one of whose syncs one fails: --cycles N, --seed X, --geminga PATH
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test"] => test::run(),
        ["tidy"] => tidy::run(),
        ["interop", "python", tests @ ..] => interop::python(tests),
        ["interop", "rust", words @ ..] => interop::rust(words),
        ["bench", "compare", options @ ..] => bench::compare(options),
        ["bench", options @ ..] => bench::bench(options),
        ["fuzz", options @ ..] => fuzz::fuzz(options),
        ["chaos", way, options @ ..] if chaos::WAYS.contains(way) => chaos::chaos(way, options),
        // What RESTART_CMD of the scenarios calls.
        ["restart-server", state] => interop::restart(Path::new(state)),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Why a chore is not done, for the person who asked.
type Outcome = Result<(), String>;

/// The root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Where cargo puts what it builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A binary of the last build.
fn built(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

/// Runs a program to its end in the root of the workspace.
fn run(program: impl AsRef<Path>, arguments: &[&str]) -> Outcome {
    let program = program.as_ref();
    let status = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .status()
        .map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{} {} failed: {status}", program.display(), arguments.join(" ")))
    }
}
