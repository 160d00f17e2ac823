//! `geminga perf consume`.

use clap::Args;
use geminga_client::{Client, ClientError, Consumer, ConsumerOptions, Reader, Received};
use geminga_env::{Clock, OnPanic, Stop};

use super::Scope;
use super::report::{Report, ReportArgs, Reporter, Samples, Words};
use crate::client::{Position, SubscriptionType, ToolError, unless};

/// Messages that a worker looks at before it tells what it saw.
const TELL_EVERY: usize = 1000;

#[derive(Debug, Args)]
#[command(after_help = "Example: geminga perf consume load -s readers --subscription-type Shared -n 2")]
pub(super) struct ConsumeArgs {
    #[command(flatten)]
    scope: Scope,
    /// Consumers of each subscription.
    #[arg(short, long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    num_consumers: u32,
    /// Subscriptions of each topic; with several, -0, -1 … are added to the name.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    num_subscriptions: u32,
    /// Name of the subscription.
    #[arg(short = 's', long, value_name = "NAME", default_value = "sub")]
    subscriptions: String,
    /// How the subscription divides messages among its consumers.
    #[arg(long, value_name = "TYPE", default_value = "Exclusive", ignore_case = true)]
    subscription_type: SubscriptionType,
    /// Where the subscription starts if this creates it.
    #[arg(long, value_name = "POSITION", default_value = "Latest", ignore_case = true)]
    subscription_position: Position,
    /// Messages that may wait here, for each consumer and partition.
    #[arg(short = 'q', long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    receiver_queue_size: u32,
    /// Messages over all consumers, after which it ends; 0 for no end.
    #[arg(short = 'm', long, value_name = "COUNT", default_value_t = 0)]
    num_messages: u64,
}

pub(super) async fn run(
    client: &Client,
    args: &ConsumeArgs,
    report_args: &ReportArgs,
    interrupted: &Stop,
) -> Result<(), ToolError> {
    let mut consumers = Vec::new();
    for topic in args.scope.topics()? {
        for index in 0..args.num_subscriptions {
            for _ in 0..args.num_consumers {
                let subscribing = client.subscribe(&topic, options(args, index));
                let Some(consumer) = unless(interrupted, subscribing).await.transpose()? else { return Ok(()) };
                consumers.push(consumer);
            }
        }
    }
    let words = Words { line: "Throughput received", total: "received", failures: false };
    let (report, stop) = (Report::new(report_args, words), Stop::new());
    let (clock, workers) = (client.env().clock, consumers.len());
    for consumer in consumers {
        let task = receive(clock, Source::Consumer(consumer), report.reporter(), stop.clone());
        client.env().data.spawn("perf consumer", OnPanic::Log, task);
    }
    report.run(client, workers, args.num_messages, args.scope.duration(), (interrupted, &stop)).await
}

fn options(args: &ConsumeArgs, index: u32) -> ConsumerOptions {
    let name =
        if args.num_subscriptions > 1 { format!("{}-{index}", args.subscriptions) } else { args.subscriptions.clone() };
    ConsumerOptions {
        sub_type: args.subscription_type.into(),
        initial_position: args.subscription_position.into(),
        queue_size: args.receiver_queue_size,
        ..ConsumerOptions::new(name)
    }
}

/// Where messages come from.
#[derive(Debug)]
pub(super) enum Source {
    Consumer(Consumer),
    Reader(Reader),
}

impl Source {
    /// A message, if there is one here already.
    async fn try_next(&mut self, clock: Clock) -> Result<Option<Received>, ClientError> {
        match self {
            Source::Consumer(consumer) => {
                let Some(message) = consumer.try_receive().transpose()? else { return Ok(None) };
                consumer.ack(&message.id)?;
                Ok(Some(message))
            }
            Source::Reader(reader) => reader.read_before(clock.now()).await,
        }
    }

    async fn next(&mut self) -> Result<Received, ClientError> {
        match self {
            Source::Consumer(consumer) => {
                let message = consumer.receive().await?;
                consumer.ack(&message.id)?;
                Ok(message)
            }
            Source::Reader(reader) => reader.read().await,
        }
    }

    async fn close(self) -> Result<(), ClientError> {
        match self {
            Source::Consumer(consumer) => consumer.close().await,
            Source::Reader(reader) => reader.close().await,
        }
    }
}

/// Receives until told to stop, and tells what it saw.
pub(super) async fn receive(clock: Clock, mut source: Source, reporter: Reporter, stop: Stop) {
    let mut samples = Samples::default();
    let received: Result<(), ClientError> = unless(&stop, async {
        loop {
            let message = match source.try_next(clock).await? {
                Some(message) => message,
                None => {
                    reporter.tell(&mut samples);
                    source.next().await?
                }
            };
            // Fact: messages carry the time at which they were published in milliseconds.
            let age = u64::try_from(clock.wall().0.saturating_sub(message.publish_time.0)).unwrap_or(0);
            samples.latencies.push(age.saturating_mul(1000));
            samples.bytes += message.payload.len() as u64;
            if samples.latencies.len() >= TELL_EVERY {
                reporter.tell(&mut samples);
                // One that has messages enough must still hear that it is to stop.
                tokio::task::yield_now().await;
            }
        }
    })
    .await
    .unwrap_or(Ok(()));
    let closed = source.close().await;
    reporter.end(samples, received.and(closed).map_err(ToolError::from));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ConsumeArgs,
    }

    #[test]
    fn subscriptions_are_numbered_if_there_are_several() {
        let parse = |words: &[&str]| Line::try_parse_from(["consume", "t"].iter().chain(words)).unwrap().args;
        assert_eq!(options(&parse(&[]), 0), ConsumerOptions::new("sub"));
        let several = [
            "-s",
            "x",
            "--num-subscriptions",
            "2",
            "--subscription-type",
            "Shared",
            "--subscription-position",
            "earliest",
            "-q",
            "5",
        ];
        let told = options(&parse(&several), 1);
        assert_eq!((told.subscription.as_str(), told.sub_type, told.queue_size), ("x-1", SubType::Shared, 5));
        assert_eq!(told.initial_position, InitialPosition::Earliest);
    }
}
