//! `cargo xtask chaos`: the real process, broken on purpose.

use crate::{Outcome, built, run, test};

/// Builds the server and its tormentor, and runs it.
pub(crate) fn kill(options: &[&str]) -> Outcome {
    // As the tests build them, so that going from one to the other compiles nothing again.
    run("cargo", &["build", "--workspace", "--bins", "--features", test::FEATURES])?;
    run_kill(options)
}

/// Runs what is built.
pub(crate) fn run_kill(options: &[&str]) -> Outcome {
    run(built("geminga-chaos"), &[&["kill"], options].concat())
}
