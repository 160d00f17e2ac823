//! `geminga perf read`.

use clap::Args;
use geminga_client::{Client, MessageId, ReaderOptions};
use geminga_env::{OnPanic, Stop};

use super::Scope;
use super::consume::{Source, receive};
use super::report::{Report, ReportArgs, Words};
use crate::client::{ToolError, start_at, unless};

#[derive(Debug, Args)]
#[command(after_help = "Example: geminga perf read load --start-message-id earliest --num-messages 100000")]
pub(super) struct ReadArgs {
    #[command(flatten)]
    scope: Scope,
    /// Where to begin: earliest, latest or <ledger>:<entry>.
    #[arg(short = 'm', long, value_name = "ID", default_value = "earliest")]
    start_message_id: MessageId,
    /// Messages that may wait here, for each reader and partition.
    #[arg(short = 'q', long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    receiver_queue_size: u32,
    /// Messages over all readers, after which it ends; 0 for no end.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 0)]
    num_messages: u64,
}

pub(super) async fn run(
    client: &Client,
    args: &ReadArgs,
    report_args: &ReportArgs,
    interrupted: &Stop,
) -> Result<(), ToolError> {
    let mut readers = Vec::new();
    for topic in args.scope.topics()? {
        let options = ReaderOptions {
            queue_size: args.receiver_queue_size,
            ..ReaderOptions::new(start_at(args.start_message_id, false))
        };
        let Some(reader) = unless(interrupted, client.reader(&topic, options)).await.transpose()? else {
            return Ok(());
        };
        readers.push(reader);
    }
    let words = Words { line: "Read throughput", total: "received", failures: false };
    let (report, stop) = (Report::new(report_args, words), Stop::new());
    let (clock, workers) = (client.env().clock, readers.len());
    for reader in readers {
        let task = receive(clock, Source::Reader(reader), report.reporter(), stop.clone());
        client.env().data.spawn("perf reader", OnPanic::Log, task);
    }
    report.run(client, workers, args.num_messages, args.scope.duration(), (interrupted, &stop)).await
}
