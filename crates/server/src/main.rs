//! `geminga`: one binary, many roles.
//!
//! This crate reads the command line, starts roles in their order and stops them in theirs. What a role does is below.
//!
//! Start reading at `standalone.rs`.

mod bookie;
mod bootstrap;
mod commit_size;
mod config;
mod failed;
mod memory;
mod standalone;
mod wipe;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::standalone::StandaloneArgs;

/// Apache Pulsar, rebuilt in Rust: a broker and its replicated storage in one binary.
#[derive(Debug, Parser)]
#[command(name = "geminga", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Run everything in one process: metadata, storage, broker and REST. For development and small installations.
    Standalone(StandaloneArgs),
    /// Ask a running server what something is doing, and why it is not going on.
    Explain(geminga_cli::ExplainArgs),
    /// Send and receive messages, with the options and the output of pulsar-client.
    Client(geminga_cli::ClientArgs),
    /// Administer clusters, tenants, namespaces and topics, with the commands and output of pulsar-admin.
    Admin(geminga_cli::AdminArgs),
    /// Put load on a server and measure it, with the options and the output of pulsar-perf.
    Perf(geminga_cli::PerfArgs),
    /// Print the version.
    Version,
}

/// Many small things live and die on different threads here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse_from(geminga_cli::words(std::env::args_os()));
    match cli.role {
        Role::Standalone(args) => standalone::run(&args),
        Role::Explain(args) => geminga_cli::run_explain(&args),
        Role::Client(args) => geminga_cli::run_client(&args),
        Role::Admin(args) => geminga_cli::run_admin(&args),
        Role::Perf(args) => geminga_cli::run_perf(&args),
        Role::Version => geminga_cli::print_version(env!("CARGO_PKG_VERSION")),
    }
}
