//! The tools behind `geminga`'s sub-commands: what they ask a server, and how they show the answer to a person.
//!
//! Deliberately not here: anything that serves. Tools stand on the client library (`client.rs`) and on REST
//! (`admin.rs`, `explain.rs`). Messages go to standard output, all else to standard error.

#![allow(clippy::print_stdout, clippy::print_stderr)] // printing is what tools do

mod admin;
mod client;
mod explain;
mod perf;
mod words;

use std::process::ExitCode;

pub use admin::{AdminArgs, run_admin};
pub use client::{ClientArgs, run_client};
pub use explain::{ExplainArgs, run_explain};
pub use perf::{PerfArgs, run_perf};
pub use words::words;

/// Prints the version of the binary.
#[must_use]
pub fn print_version(version: &str) -> ExitCode {
    println!("geminga {version}");
    ExitCode::SUCCESS
}
