//! `geminga perf produce`.

use std::time::Duration;

use bytes::Bytes;
use clap::{Args, ValueEnum};
use geminga_client::{Batching, Client, Message, Producer, ProducerOptions, Receipt};
use geminga_env::{Clock, Inbox, Mailbox, OnPanic, Stop, mailbox};
use geminga_model::Instant;
use geminga_wire::CompressionType;

use super::Scope;
use super::report::{Report, ReportArgs, Reporter, Samples, Words};
use crate::client::{ToolError, rate, unless};

#[derive(Debug, Args)]
#[command(after_help = "Example: geminga perf produce load -r 0 -o 1000 --disable-batching --num-messages 1000000")]
pub(super) struct ProduceArgs {
    #[command(flatten)]
    scope: Scope,
    /// Messages a second over all producers; 0 for as many as go.
    #[arg(short, long, value_name = "RATE", default_value = "100", value_parser = rate)]
    rate: f64,
    /// Bytes of a message.
    #[arg(short, long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Producers on each topic.
    #[arg(short, long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    num_producers: u32,
    /// Messages over all producers, after which it ends; 0 for no end.
    #[arg(short = 'm', long, value_name = "COUNT", default_value_t = 0)]
    num_messages: u64,
    /// Messages that may be under way on each topic or partition.
    #[arg(short = 'o', long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    max_outstanding: u32,
    /// How entries are compressed.
    #[arg(short = 'z', long, value_name = "CODEC", default_value = "NONE", ignore_case = true)]
    compression: Compression,
    /// Milliseconds that a message may wait for others to be batched with.
    #[arg(short, long, value_name = "MILLISECONDS", default_value_t = 1.0, value_parser = milliseconds)]
    batch_time_window: f64,
    /// Messages of a batch at most.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    batch_max_messages: u32,
    /// Bytes of a batch at most.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    batch_max_bytes: usize,
    /// Send each message as an entry of its own. Also -db.
    #[arg(long)]
    disable_batching: bool,
    /// Seconds until a message that is not stored has failed; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    send_timeout: u64,
    /// End at the first message that fails.
    #[arg(long)]
    exit_on_failure: bool,
}

/// Names are Pulsar's.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "UPPER")]
enum Compression {
    None,
    Lz4,
    Zlib,
    Zstd,
    Snappy,
}

fn milliseconds(text: &str) -> Result<f64, String> {
    let millis: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.0..=60_000.0).contains(&millis).then_some(millis).ok_or_else(|| "expected 0 to 60000".to_owned())
}

/// When each message of one producer is due.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    start: Instant,
    /// Between two messages; `None`: as soon as there is room.
    period: Option<Duration>,
    /// How many; `None`: no end.
    count: Option<u64>,
}

impl Schedule {
    fn due(&self, index: u64) -> Option<Instant> {
        let nanos = self.period?.as_nanos().saturating_mul(index.into());
        Some(self.start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

pub(super) async fn run(
    client: &Client,
    args: &ProduceArgs,
    report_args: &ReportArgs,
    interrupted: &Stop,
) -> Result<(), ToolError> {
    let topics = args.scope.topics()?;
    let options = options(args);
    let mut producers = Vec::new();
    for topic in &topics {
        for _ in 0..args.num_producers {
            let Some(producer) = unless(interrupted, client.producer(topic, options.clone())).await.transpose()? else {
                return Ok(());
            };
            producers.push(producer);
        }
    }
    let words = Words { line: "Throughput produced", total: "sent", failures: true };
    let (report, stop) = (Report::new(report_args, words), Stop::new());
    let payload = Bytes::from(vec![b'x'; args.size]);
    let (clock, workers) = (client.env().clock, producers.len());
    let start = clock.now();
    for (index, producer) in producers.into_iter().enumerate() {
        let schedule = schedule(args, start, index as u64, workers as u64);
        let (to, inbox) = mailbox();
        let collector = Collector { clock, exit_on_failure: args.exit_on_failure, stop: stop.clone() };
        client.env().data.spawn("perf receipts", OnPanic::Log, collector.run(inbox, report.reporter()));
        let sending = send(clock, producer, schedule, payload.clone(), to, stop.clone());
        client.env().data.spawn("perf producer", OnPanic::Log, sending);
    }
    report.run(client, workers, 0, args.scope.duration(), (interrupted, &stop)).await
}

/// Producers take turns: the messages of all are evenly spread in time.
fn schedule(args: &ProduceArgs, start: Instant, index: u64, workers: u64) -> Schedule {
    let period = (args.rate > 0.0).then(|| Duration::from_secs_f64(workers as f64 / args.rate));
    let offset = period.map_or(Duration::ZERO, |period| period.mul_f64(index as f64 / workers as f64));
    let share = args.num_messages / workers + u64::from(index < args.num_messages % workers);
    Schedule { start: start + offset, period, count: (args.num_messages > 0).then_some(share) }
}

fn options(args: &ProduceArgs) -> ProducerOptions {
    let batching = Batching {
        max_messages: args.batch_max_messages as usize,
        max_bytes: args.batch_max_bytes,
        delay: Duration::from_secs_f64(args.batch_time_window / 1000.0),
    };
    ProducerOptions {
        batching: (!args.disable_batching).then_some(batching),
        compression: match args.compression {
            Compression::None => CompressionType::None,
            Compression::Lz4 => CompressionType::Lz4,
            Compression::Zlib => CompressionType::Zlib,
            Compression::Zstd => CompressionType::Zstd,
            Compression::Snappy => CompressionType::Snappy,
        },
        send_timeout: (args.send_timeout > 0).then(|| Duration::from_secs(args.send_timeout)),
        max_pending: args.max_outstanding as usize,
        ..ProducerOptions::default()
    }
}

/// A message under way: when it was due, its size, and what comes of it.
type UnderWay = Option<(Instant, usize, Receipt)>;

async fn send(clock: Clock, producer: Producer, schedule: Schedule, payload: Bytes, to: Mailbox<UnderWay>, stop: Stop) {
    let all = async {
        let mut index = 0;
        while schedule.count.is_none_or(|count| index < count) {
            let due = schedule.due(index);
            if due.is_some_and(|due| due > clock.now()) {
                clock.sleep_until_some(due).await;
            }
            // Without a rate a message is due when there is room for it.
            let early = clock.now();
            let Ok(receipt) = producer.send(Message::new(payload.clone())).await else { return };
            let due = due.unwrap_or_else(|| if schedule.period.is_some() { early } else { clock.now() });
            drop(to.push(Some((due, payload.len(), receipt))));
            index += 1;
        }
    };
    unless(&stop, all).await;
    drop(to.push(None));
    // What was handed over is told by its receipt.
    let _ = producer.close().await;
}

struct Collector {
    clock: Clock,
    exit_on_failure: bool,
    stop: Stop,
}

impl Collector {
    async fn run(self, mut inbox: Inbox<UnderWay>, reporter: Reporter) {
        let (mut batch, mut samples) = (Vec::new(), Samples::default());
        let mut outcome = Ok(());
        loop {
            inbox.wait().await;
            inbox.take(&mut batch);
            for under_way in batch.drain(..) {
                let Some((due, bytes, mut receipt)) = under_way else { return reporter.end(samples, outcome) };
                match receipt.wait().await {
                    Ok(_) => {
                        let latency = self.clock.now().since(due).as_micros();
                        samples.latencies.push(u64::try_from(latency).unwrap_or(u64::MAX));
                        samples.bytes += bytes as u64;
                    }
                    Err(error) => {
                        samples.failed += 1;
                        if self.exit_on_failure {
                            self.stop.stop();
                            outcome = outcome.and(Err(error.into()));
                        }
                    }
                }
            }
            reporter.tell(&mut samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ProduceArgs,
    }

    fn parse(words: &[&str]) -> Result<ProduceArgs, clap::Error> {
        Line::try_parse_from(["produce", "t"].iter().chain(words)).map(|line| line.args)
    }

    #[test]
    fn messages_of_all_producers_are_evenly_spread() {
        let args = parse(&["-r", "10", "-n", "2", "-m", "5"]).unwrap();
        let start = Clock::simulated().now();
        let due = |worker, index| schedule(&args, start, worker, 2).due(index).unwrap().since(start).as_millis();
        assert_eq!((due(0, 0), due(1, 0), due(0, 1), due(1, 1)), (0, 100, 200, 300));
        let counts = [0, 1].map(|worker| schedule(&args, start, worker, 2).count);
        assert_eq!(counts, [Some(3), Some(2)]);
        let fast = parse(&["-r", "0"]).unwrap();
        assert_eq!(schedule(&fast, start, 0, 1).due(7), None);
    }

    #[test]
    fn options_as_the_original_names_them() {
        let args = parse(&["--disable-batching", "-z", "lz4", "-o", "7", "--send-timeout", "3", "-b", "0.5"]).unwrap();
        let told = options(&args);
        assert_eq!((told.batching, told.compression, told.max_pending), (None, CompressionType::Lz4, 7));
        assert_eq!(told.send_timeout, Some(Duration::from_secs(3)));
        let plain = options(&parse(&[]).unwrap());
        assert_eq!((plain.batching.unwrap().delay, plain.send_timeout), (Duration::from_millis(1), None));
        assert!(parse(&["-b", "-1"]).is_err() && parse(&["-n", "0"]).is_err() && parse(&["-z", "some"]).is_err());
    }
}
