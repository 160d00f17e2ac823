//! `geminga perf`: load, with the options and the output of `pulsar-perf`.
//!
//! Load is open: at a rate, message *k* is due at a time that does not depend on how the ones before it fared, and its
//! latency counts from that time. So a server that stalls is seen to stall.

mod consume;
mod produce;
mod read;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use geminga_client::{Client, ClientOptions};
use geminga_env::{Env, Stop};

use self::consume::ConsumeArgs;
use self::produce::ProduceArgs;
use self::read::ReadArgs;
use self::report::ReportArgs;
use crate::client::{ToolError, run_interruptible, unless};

/// Options of `geminga perf`.
#[derive(Debug, Args)]
#[command(after_help = "Example: geminga perf produce load -r 10000 -s 1024 --test-duration 60")]
pub struct PerfArgs {
    /// Address of the broker, with several hosts if there are several.
    #[arg(short = 'u', long, value_name = "URL", default_value = "pulsar://localhost:6650", global = true)]
    service_url: String,
    /// Which of the brokers' addresses to use, where they have several.
    #[arg(long, value_name = "NAME", global = true)]
    listener_name: Option<String>,
    /// Bytes of messages that all producers together may have under way.
    #[arg(long = "memory-limit", value_name = "BYTES", default_value_t = 64 << 20, global = true)]
    memory_limit: usize,
    #[command(flatten)]
    report: ReportArgs,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Send messages at a rate, and tell how long they take until they are stored.
    Produce(ProduceArgs),
    /// Receive messages by a subscription, and tell how old they are.
    Consume(ConsumeArgs),
    /// Read topics from a message on, and tell how fast.
    Read(ReadArgs),
}

/// Does what was asked for. Exit code 1 if that failed.
#[must_use]
pub fn run_perf(args: &PerfArgs) -> ExitCode {
    run_interruptible(async |env, interrupted| run(env, args, interrupted).await)
}

async fn run(env: &Env, args: &PerfArgs, interrupted: &Stop) -> Result<(), ToolError> {
    let options = ClientOptions {
        listener: args.listener_name.clone(),
        memory_limit: args.memory_limit,
        ..ClientOptions::default()
    };
    let connecting = Client::with_options(env, &args.service_url, options);
    let Some(client) = unless(interrupted, connecting).await.transpose()? else { return Ok(()) };
    match &args.what {
        What::Produce(what) => produce::run(&client, what, &args.report, interrupted).await?,
        What::Consume(what) => consume::run(&client, what, &args.report, interrupted).await?,
        What::Read(what) => read::run(&client, what, &args.report, interrupted).await?,
    }
    client.close().await;
    Ok(())
}

/// Which topics, and for how long: what all three have in common.
#[derive(Debug, Args)]
struct Scope {
    /// Topics; with --num-topics one name, to which -0, -1 … are added.
    #[arg(required = true)]
    topics: Vec<String>,
    /// How many topics.
    #[arg(short = 't', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    num_topics: u32,
    /// Seconds until it ends by itself; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    test_duration: u64,
}

impl Scope {
    fn topics(&self) -> Result<Vec<String>, ToolError> {
        match (&self.topics[..], self.num_topics) {
            ([one], count) if count > 1 => Ok((0..count).map(|index| format!("{one}-{index}")).collect()),
            (several, count) if several.len() == count as usize || count == 1 => Ok(several.to_vec()),
            (several, count) => {
                let named = several.len();
                Err(ToolError::Usage(format!(
                    "{named} topics are named and --num-topics says {count}: name one, or all"
                )))
            }
        }
    }

    fn duration(&self) -> Option<Duration> {
        (self.test_duration > 0).then(|| Duration::from_secs(self.test_duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_named_or_numbered() {
        let topics = |names: &[&str], num_topics| {
            let topics = names.iter().map(|name| (*name).to_owned()).collect();
            Scope { topics, num_topics, test_duration: 0 }.topics().ok()
        };
        assert_eq!(topics(&["a"], 1).unwrap(), ["a"]);
        assert_eq!(topics(&["a"], 2).unwrap(), ["a-0", "a-1"]);
        assert_eq!(topics(&["a", "b"], 2).unwrap(), ["a", "b"]);
        assert_eq!(topics(&["a", "b"], 1).unwrap(), ["a", "b"]);
        assert_eq!(topics(&["a", "b"], 3), None);
    }
}
