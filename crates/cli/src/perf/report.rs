//! What is told of a load while it runs and when it ends. Scripts read these lines: they are those of `pulsar-perf`.

use std::time::Duration;

use clap::Args;
use geminga_client::Client;
use geminga_env::{Inbox, Mailbox, Stop, mailbox};
use geminga_model::Instant;
use hdrhistogram::Histogram;

use crate::client::ToolError;

/// How it is told.
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Seconds between two lines; 0 for the original's ten.
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 0, global = true)]
    stats_interval_seconds: u64,
    /// At the end, print one JSON text instead of lines: counts, seconds, and latencies in microseconds.
    #[arg(long, global = true)]
    json: bool,
}

/// What a worker saw since it told last.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Latencies of messages in microseconds.
    pub(super) latencies: Vec<u64>,
    /// Bytes of their payloads.
    pub(super) bytes: u64,
    /// Messages that failed.
    pub(super) failed: u64,
    /// The worker has ended, after this if something went wrong.
    pub(super) ended: Option<Result<(), ToolError>>,
}

/// Where a worker tells what it saw.
#[derive(Clone, Debug)]
pub(super) struct Reporter(Mailbox<Samples>);

impl Reporter {
    pub(super) fn tell(&self, samples: &mut Samples) {
        // When nobody listens any more, the worker is told to stop.
        drop(self.0.push(std::mem::take(samples)));
    }

    pub(super) fn end(&self, mut samples: Samples, outcome: Result<(), ToolError>) {
        samples.ended = Some(outcome);
        self.tell(&mut samples);
    }
}

/// The words of one kind of load.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) line: &'static str,
    pub(super) total: &'static str,
    /// Whether failures are part of a line.
    pub(super) failures: bool,
}

struct Window {
    since: Instant,
    latencies: Histogram<u64>,
    messages: u64,
    bytes: u64,
    failed: u64,
}

impl Window {
    fn new(since: Instant) -> Result<Window, ToolError> {
        // Up to an hour with three digits.
        let latencies = Histogram::new_with_bounds(1, 3_600_000_000, 3)
            .map_err(|error| ToolError::Usage(format!("cannot count latencies: {error}")))?;
        Ok(Window { since, latencies, messages: 0, bytes: 0, failed: 0 })
    }

    fn add(&mut self, samples: &Samples) {
        self.messages += samples.latencies.len() as u64;
        self.bytes += samples.bytes;
        self.failed += samples.failed;
        for latency in &samples.latencies {
            self.latencies.saturating_record((*latency).max(1));
        }
    }

    fn restart(&mut self, since: Instant) {
        self.latencies.reset();
        (self.since, self.messages, self.bytes, self.failed) = (since, 0, 0, 0);
    }

    fn rates(&self, now: Instant) -> (f64, f64, f64) {
        let seconds = now.since(self.since).as_secs_f64().max(1e-9);
        let a_second = |count: u64| count as f64 / seconds;
        (a_second(self.messages), a_second(self.bytes) * 8.0 / 1e6, a_second(self.failed))
    }

    fn latencies(&self, names: &[(&str, f64)]) -> String {
        let millis = |micros: f64| format!("{:7.3}", micros / 1000.0);
        let of = |(name, percentile): &(&str, f64)| {
            format!(" - {name}: {}", millis(self.latencies.value_at_percentile(*percentile) as f64))
        };
        let points: String = names.iter().map(of).collect();
        let max = if self.latencies.is_empty() { 0.0 } else { self.latencies.max() as f64 };
        format!("Latency: mean: {} ms{points} - Max: {}", millis(self.latencies.mean()), millis(max))
    }
}

const LINE: [(&str, f64); 5] =
    [("med", 50.0), ("95pct", 95.0), ("99pct", 99.0), ("99.9pct", 99.9), ("99.99pct", 99.99)];
const TOTAL: [(&str, f64); 6] =
    [("med", 50.0), ("95pct", 95.0), ("99pct", 99.0), ("99.9pct", 99.9), ("99.99pct", 99.99), ("99.999pct", 99.999)];

/// Collects what workers saw and tells it, until all have ended.
pub(super) struct Report<'a> {
    args: &'a ReportArgs,
    words: Words,
    inbox: Inbox<Samples>,
    reporter: Reporter,
}

impl<'a> Report<'a> {
    pub(super) fn new(args: &'a ReportArgs, words: Words) -> Report<'a> {
        let (to, inbox) = mailbox();
        Report { args, words, inbox, reporter: Reporter(to) }
    }

    pub(super) fn reporter(&self) -> Reporter {
        self.reporter.clone()
    }

    /// Runs until `workers` have ended. They are told to when `limit` messages were seen, the time is over or the
    /// person at the keyboard wants an end.
    pub(super) async fn run(
        mut self,
        client: &Client,
        workers: usize,
        limit: u64,
        duration: Option<Duration>,
        (interrupted, stop): (&Stop, &Stop),
    ) -> Result<(), ToolError> {
        let clock = client.env().clock;
        let start = clock.now();
        let interval = Duration::from_secs(if self.args.stats_interval_seconds == 0 {
            10
        } else {
            self.args.stats_interval_seconds
        });
        let (mut total, mut window) = (Window::new(start)?, Window::new(start)?);
        let (mut left, mut next_line, mut last) = (workers, start + interval, start);
        let mut until = duration.map(|duration| start + duration);
        let (mut outcome, mut batch) = (Ok(()), Vec::new());
        while left > 0 {
            let stopping = stop.is_stopped();
            tokio::select! {
                biased;
                () = interrupted.stopped(), if !stopping => stop.stop(),
                () = self.inbox.wait() => {}
                () = clock.sleep_until(next_line) => {}
                () = clock.sleep_until_some(until) => {
                    until = None;
                    stop.stop();
                }
            }
            self.inbox.take(&mut batch);
            for mut samples in batch.drain(..) {
                if !samples.latencies.is_empty() {
                    last = clock.now();
                }
                total.add(&samples);
                window.add(&samples);
                if let Some(ended) = samples.ended.take() {
                    left -= 1;
                    outcome = outcome.and(ended);
                }
            }
            if limit > 0 && total.messages >= limit {
                stop.stop();
            }
            let now = clock.now();
            if now >= next_line {
                self.line(&window, total.messages, now);
                window.restart(now);
                next_line = now + interval;
            }
        }
        // What comes after the last message is waiting for goodbyes.
        self.total(&total, last);
        outcome
    }

    fn line(&self, window: &Window, messages: u64, now: Instant) {
        let Words { line, failures, .. } = self.words;
        let (rate, mbit, failed) = window.rates(now);
        let failures = if failures { format!(" --- failure {failed:8.1} msg/s") } else { String::new() };
        // Of a run that ends in JSON, lines are for the person who waits.
        let text = format!(
            "{line}: {messages:>8} msg --- {rate:8.1} msg/s --- {mbit:8.1} Mbit/s{failures} --- {}",
            window.latencies(&LINE)
        );
        if self.args.json { eprintln!("{text}") } else { println!("{text}") }
    }

    fn total(&self, total: &Window, last: Instant) {
        let (rate, mbit, _) = total.rates(last);
        if self.args.json {
            let at = |percentile| total.latencies.value_at_percentile(percentile);
            let json = serde_json::json!({
                "messages": total.messages, "failed": total.failed, "seconds": last.since(total.since).as_secs_f64(),
                "msgPerSecond": rate, "mbitPerSecond": mbit,
                "latencyMicros": {
                    "mean": total.latencies.mean(), "p50": at(50.0), "p95": at(95.0), "p99": at(99.0), "p999": at(99.9),
                    "max": if total.latencies.is_empty() { 0 } else { total.latencies.max() },
                },
            });
            return println!("{json}");
        }
        println!(
            "Aggregated throughput stats --- {} records {} --- {rate:.3} msg/s --- {mbit:.3} Mbit/s",
            total.messages, self.words.total
        );
        println!("Aggregated latency stats --- {}", total.latencies(&TOTAL));
        if total.failed > 0 {
            eprintln!("{} messages failed", total.failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_env::Clock;

    #[test]
    fn lines_are_the_originals() {
        let clock = Clock::simulated();
        let start = clock.now();
        let mut window = Window::new(start).unwrap();
        window.add(&Samples { latencies: vec![1000, 2000, 3000], bytes: 750_000, failed: 1, ended: None });
        assert_eq!(window.rates(start + Duration::from_secs(2)), (1.5, 3.0, 0.5));
        let line = window.latencies(&LINE);
        assert!(line.starts_with("Latency: mean:   2.000 ms - med:   2.000 - 95pct:   3.0"), "{line}");
        assert!(line.ends_with("99.99pct:   3.001 - Max:   3.001"), "{line}");
        window.restart(start);
        assert!(window.latencies(&LINE).ends_with("Max:   0.000"), "an interval may be empty");
    }
}
