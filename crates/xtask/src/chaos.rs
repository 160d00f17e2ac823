//! `cargo xtask chaos`: the real process, broken on purpose.

use crate::{Outcome, built, run, test};

/// What `geminga-chaos` can do.
pub(crate) const WAYS: [&str; 4] = ["kill", "power", "pressure", "sync-failure"];

/// Builds the server and its tormentor, and runs it.
pub(crate) fn chaos(way: &str, options: &[&str]) -> Outcome {
    test::build_programs()?;
    run_built(way, options)
}

/// Runs what is built.
pub(crate) fn run_built(way: &str, options: &[&str]) -> Outcome {
    run(built("geminga-chaos"), &[&[way], options].concat())
}
