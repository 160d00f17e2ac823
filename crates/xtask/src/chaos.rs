//! `cargo xtask chaos`: the real process, broken on purpose.

use crate::{Outcome, built, run, test};

/// Builds the server and its tormentor, and runs it.
pub(crate) fn kill(options: &[&str]) -> Outcome {
    test::build_programs()?;
    run_kill(options)
}

/// Runs what is built.
pub(crate) fn run_kill(options: &[&str]) -> Outcome {
    run(built("geminga-chaos"), &[&["kill"], options].concat())
}
