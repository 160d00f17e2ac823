//! `cargo xtask test`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::{Outcome, built, chaos, fuzz, interop, run as run_program, tidy};

/// With the known bugs of `canary!` and faults of the real disk compiled in, to be chosen at run time: by simulations and
/// chaos, and by nothing else.
const FEATURES: &str = "geminga-sim/canary,geminga-server/canary";

/// Not the 1,000 mute connections, 320 MiB and one second of the full run: these are not reached yet, see docs/chaos.md.
const PRESSURE: &[&str] = &["--seconds", "8", "--patience", "4", "--mute", "50", "--cap", "400"];

/// Runs every step, prints what each took, and stops at the first that fails.
pub(crate) fn run() -> Outcome {
    let workspace = ["--workspace", "--all-targets", "--features", FEATURES];
    let cargo = |words: &[&str]| run_program("cargo", words);
    let sim = |words: &[&str]| run_program(built("geminga-sim"), words);
    let seed = fresh_seed().to_string();
    let steps: &[(&str, &dyn Fn() -> Outcome)] = &[
        ("format", &|| cargo(&["fmt", "--all", "--check"])),
        ("format of interop/rust", &|| cargo(&["fmt", "--manifest-path", "interop/rust/Cargo.toml", "--check"])),
        ("format of fuzz", &fuzz::format),
        ("lints", &|| cargo(&[&["clippy"], &workspace[..], &["--", "-D", "warnings"]].concat())),
        ("tidy", &tidy::run),
        ("build", &|| cargo(&[&["test", "--no-run"], &workspace[..]].concat())),
        ("programs", &build_programs),
        ("tests", &|| cargo(&[&["test"], &workspace[..]].concat())),
        ("simulated crashes", &|| sim(&["crash", "--seed", &seed, "--seconds", "60"])),
        ("simulated ledgers", &|| sim(&["ledger", "--seed", &seed, "--seconds", "60"])),
        ("canaries", &canaries),
        ("interop python", &|| interop::python(&[])),
        ("interop rust", &|| interop::rust(&[])),
        ("chaos kill", &|| chaos::run_built("kill", &["--cycles", "20"])),
        ("chaos sync failure", &|| chaos::run_built("sync-failure", &["--cycles", "6"])),
        ("chaos pressure", &|| chaos::run_built("pressure", PRESSURE)),
        ("chaos power", &|| chaos::run_built("power", &["--cuts", "6", "--skip-if-unable"])),
    ];
    let all = Instant::now();
    let mut took = Vec::new();
    for (name, step) in steps {
        println!("== {name}");
        let start = Instant::now();
        step().map_err(|why| format!("{name}: {why}"))?;
        took.push(format!("{name} {} s", start.elapsed().as_secs()));
    }
    println!("== all green in {} s: {}", all.elapsed().as_secs(), took.join(", "));
    Ok(())
}

/// Where the simulations begin: farther from any other run's than they come. They print it.
fn fresh_seed() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_millis() % 1_000_000_000_000 * 1_000
}

/// Builds the programs that steps run. `cargo test` builds those only of packages that have integration tests.
pub(crate) fn build_programs() -> Outcome {
    run_program("cargo", &["build", "--workspace", "--bins", "--features", FEATURES])
}

/// Each known bug is found by the simulation that is there for it.
fn canaries() -> Outcome {
    let canaries = [
        ("crash", "ack_beyond_durable_prefix"),
        ("crash", "BOO-1"),
        ("crash", "drop_segment_with_fence"),
        ("crash", "drop_delete_record"),
        ("ledger", "LED-1"),
        ("ledger", "LED-5"),
    ];
    for (simulation, canary) in canaries {
        run_program(built("geminga-sim"), &[simulation, "--canary", canary, "--seconds", "60"])?;
    }
    Ok(())
}
