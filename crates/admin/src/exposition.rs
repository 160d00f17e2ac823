//! Topics and subscriptions in the text that Prometheus reads, written piece by piece while it is sent.
//!
//! Names and labels are Pulsar's, and so is it that all of them are of type gauge. Lines of a name stand together, so the
//! numbers of all topics are taken first; topics that are not open have none.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use geminga_model::TopicName;
use geminga_topic::{SubscriptionMeasures, TopicMeasures};
use http_body::Frame;

/// Bytes that are written before they are sent.
const PIECE: usize = 64 << 10;
/// Scrapes at once, because each holds the numbers of all topics.
const MAX_SCRAPES: usize = 4;

type OfTopic = (&'static str, fn(&TopicMeasures) -> f64);
type OfSubscription = (&'static str, fn(&SubscriptionMeasures) -> f64);

const TOPIC: [OfTopic; 20] = [
    ("pulsar_subscriptions_count", |topic| count(topic.subscriptions.len())),
    ("pulsar_producers_count", |topic| count(topic.producers)),
    ("pulsar_consumers_count", |topic| count(consumers(topic))),
    ("pulsar_rate_in", |topic| topic.rate_in),
    ("pulsar_rate_out", rate_out),
    ("pulsar_throughput_in", |topic| topic.throughput_in),
    ("pulsar_throughput_out", throughput_out),
    ("pulsar_average_msg_size", |topic| geminga_admin_model::ratio(topic.throughput_in, topic.rate_in)),
    ("pulsar_in_bytes_total", |topic| number(topic.in_bytes)),
    ("pulsar_in_messages_total", |topic| number(topic.in_messages)),
    ("pulsar_msg_backlog", |topic| number(backlog(topic))),
    ("pulsar_storage_size", |topic| number(topic.storage_size * topic.copies)),
    ("pulsar_storage_logical_size", |topic| number(topic.storage_size)),
    ("pulsar_storage_backlog_size", |topic| number(topic.backlog_size)),
    ("pulsar_storage_write_latency_count", |topic| of_ranges(&topic.latencies.ranges)),
    // Microseconds are counted, milliseconds are told.
    ("pulsar_storage_write_latency_sum", |topic| number(topic.latencies.sum) / 1000.0),
    ("pulsar_entry_size_count", |topic| of_ranges(&topic.sizes.ranges)),
    ("pulsar_entry_size_sum", |topic| number(topic.sizes.sum)),
    ("pulsar_out_bytes_total", |topic| number(topic.out_bytes)),
    ("pulsar_out_messages_total", |topic| number(topic.out_messages)),
];

/// Fact: these names are told of topics and of subscriptions.
const BOTH: [OfSubscription; 2] = [
    ("pulsar_out_bytes_total", |subscription| number(subscription.out_bytes)),
    ("pulsar_out_messages_total", |subscription| number(subscription.out_messages)),
];

const LATENCIES: [&str; 10] =
    ["le_0_5", "le_1", "le_5", "le_10", "le_20", "le_50", "le_100", "le_200", "le_1000", "overflow"];
/// Fact: the last one has its own name.
const SIZES: [&str; 9] =
    ["le_128", "le_512", "le_1_kb", "le_2_kb", "le_4_kb", "le_16_kb", "le_100_kb", "le_1_mb", "le_overflow"];

const SUBSCRIPTION: [OfSubscription; 14] = [
    ("pulsar_subscription_back_log", |subscription| number(subscription.backlog)),
    ("pulsar_subscription_back_log_no_delayed", |subscription| number(subscription.backlog)),
    ("pulsar_subscription_in_replay", |subscription| count(subscription.replaying)),
    ("pulsar_subscription_msg_rate_redeliver", |subscription| subscription.rate_redelivered),
    ("pulsar_subscription_unacked_messages", |subscription| number(subscription.unacked)),
    ("pulsar_subscription_blocked_on_unacked_messages", |subscription| f64::from(u8::from(subscription.blocked))),
    ("pulsar_subscription_msg_rate_out", |subscription| subscription.rate_out),
    ("pulsar_subscription_msg_throughput_out", |subscription| subscription.throughput_out),
    ("pulsar_subscription_msg_ack_rate", |subscription| subscription.rate_acked),
    ("pulsar_subscription_consumers_count", |subscription| count(subscription.consumers)),
    ("pulsar_subscription_last_acked_timestamp", |subscription| time(subscription.last_acked)),
    ("pulsar_subscription_last_consumed_flow_timestamp", |subscription| time(subscription.last_flow)),
    ("pulsar_subscription_last_consumed_timestamp", |subscription| time(subscription.last_consumed)),
    ("pulsar_subscription_last_mark_delete_advanced_timestamp", |subscription| time(subscription.last_advance)),
];

const BROKER: [OfTopic; 9] = [
    ("pulsar_broker_subscriptions_count", |topic| count(topic.subscriptions.len())),
    ("pulsar_broker_producers_count", |topic| count(topic.producers)),
    ("pulsar_broker_consumers_count", |topic| count(consumers(topic))),
    ("pulsar_broker_rate_in", |topic| topic.rate_in),
    ("pulsar_broker_rate_out", rate_out),
    ("pulsar_broker_throughput_in", |topic| topic.throughput_in),
    ("pulsar_broker_throughput_out", throughput_out),
    ("pulsar_broker_storage_size", |topic| number(topic.storage_size * topic.copies)),
    ("pulsar_broker_msg_backlog", |topic| number(backlog(topic))),
];

fn consumers(topic: &TopicMeasures) -> usize {
    topic.subscriptions.iter().map(|subscription| subscription.consumers).sum()
}

fn rate_out(topic: &TopicMeasures) -> f64 {
    topic.subscriptions.iter().map(|subscription| subscription.rate_out).sum()
}

fn throughput_out(topic: &TopicMeasures) -> f64 {
    topic.subscriptions.iter().map(|subscription| subscription.throughput_out).sum()
}

fn backlog(topic: &TopicMeasures) -> u64 {
    topic.subscriptions.iter().map(|subscription| subscription.backlog).sum()
}

#[allow(clippy::cast_precision_loss)] // Prometheus has nothing else
fn number(value: u64) -> f64 {
    value as f64
}

fn count(value: usize) -> f64 {
    number(value as u64)
}

#[allow(clippy::cast_precision_loss)] // Prometheus has nothing else
fn time(at: geminga_model::UnixMillis) -> f64 {
    at.0 as f64
}

fn of_ranges(ranges: &[u32]) -> f64 {
    ranges.iter().map(|count| f64::from(*count)).sum()
}

/// How many scrapes are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scrapes(Arc<AtomicUsize>);

/// A scrape that is under way.
#[derive(Debug)]
pub(crate) struct Scrape(Scrapes);

impl Scrapes {
    /// `None` if there are as many as there may be.
    pub(crate) fn begin(&self) -> Option<Scrape> {
        let before = self.0.fetch_add(1, Ordering::AcqRel);
        let scrape = Scrape(self.clone());
        (before < MAX_SCRAPES).then_some(scrape)
    }
}

impl Drop for Scrape {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Which lines come next.
#[derive(Clone, Copy, Debug)]
enum Part {
    Head,
    Topic(usize),
    Latency(usize),
    Size(usize),
    Subscription(usize),
    End,
}

impl Part {
    fn next(self) -> Part {
        match self {
            Part::Head => Part::Topic(0),
            Part::Topic(at) if at + 1 < TOPIC.len() => Part::Topic(at + 1),
            Part::Topic(_) => Part::Latency(0),
            Part::Latency(at) if at + 1 < LATENCIES.len() => Part::Latency(at + 1),
            Part::Latency(_) => Part::Size(0),
            Part::Size(at) if at + 1 < SIZES.len() => Part::Size(at + 1),
            Part::Size(_) => Part::Subscription(0),
            Part::Subscription(at) if at + 1 < SUBSCRIPTION.len() => Part::Subscription(at + 1),
            Part::Subscription(_) | Part::End => Part::End,
        }
    }

    fn name(self) -> Option<String> {
        Some(match self {
            Part::Head | Part::End => return None,
            Part::Topic(at) => TOPIC.get(at)?.0.to_owned(),
            Part::Latency(at) => format!("pulsar_storage_write_latency_{}", LATENCIES.get(at)?),
            Part::Size(at) => format!("pulsar_entry_size_{}", SIZES.get(at)?),
            Part::Subscription(at) => SUBSCRIPTION.get(at)?.0.to_owned(),
        })
    }
}

/// The text, as the body of an answer.
#[derive(Debug)]
pub(crate) struct Exposition {
    head: String,
    cluster: String,
    topics: Vec<(TopicName, TopicMeasures)>,
    part: Part,
    row: usize,
    _scrape: Scrape,
}

impl Exposition {
    /// What comes after `head`.
    pub(crate) fn new(
        head: String,
        cluster: &str,
        topics: Vec<(TopicName, TopicMeasures)>,
        scrape: Scrape,
    ) -> Exposition {
        let mut exposition =
            Exposition { head, cluster: escape(cluster), topics, part: Part::Head, row: 0, _scrape: scrape };
        exposition.write_totals();
        exposition
    }

    // Writing to a String cannot fail, here and below.
    fn write_totals(&mut self) {
        let cluster = &self.cluster;
        for (name, value) in BROKER {
            let total: f64 = self.topics.iter().map(|(_, topic)| value(topic)).sum();
            let _ = writeln!(self.head, "# TYPE {name} gauge\n{name}{{cluster=\"{cluster}\"}} {total}");
        }
        let mut namespaces: BTreeMap<&str, usize> = BTreeMap::new();
        for (topic, _) in &self.topics {
            *namespaces.entry(topic.namespace().as_str()).or_default() += 1;
        }
        if !namespaces.is_empty() {
            let _ = writeln!(self.head, "# TYPE pulsar_topics_count gauge");
        }
        for (namespace, topics) in namespaces {
            let labels = format!("cluster=\"{cluster}\",namespace=\"{}\"", escape(namespace));
            let _ = writeln!(self.head, "pulsar_topics_count{{{labels}}} {topics}");
        }
    }

    /// The next piece of text; `None` after the last.
    fn piece(&mut self) -> Option<String> {
        let mut text = std::mem::take(&mut self.head);
        while text.len() < PIECE && !matches!(self.part, Part::End) {
            let Some((topic, measures)) = self.topics.get(self.row) else {
                self.part = self.part.next();
                self.row = 0;
                match self.part.name() {
                    Some(name) if !self.topics.is_empty() => {
                        let _ = writeln!(text, "# TYPE {name} gauge");
                    }
                    _ => {}
                }
                continue;
            };
            self.row += 1;
            let Some(name) = self.part.name() else { continue };
            let labels = format!(
                "cluster=\"{}\",namespace=\"{}\",topic=\"{}\"",
                self.cluster,
                escape(topic.namespace().as_str()),
                escape(&topic.to_string())
            );
            let of_topic = match self.part {
                Part::Topic(at) => TOPIC.get(at).map(|(_, value)| value(measures)),
                Part::Latency(at) => measures.latencies.ranges.get(at).copied().map(f64::from),
                Part::Size(at) => measures.sizes.ranges.get(at).copied().map(f64::from),
                Part::Head | Part::Subscription(_) | Part::End => None,
            };
            if let Some(value) = of_topic {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
            let of_subscriptions = match self.part {
                Part::Topic(_) => BOTH.iter().find(|(both, _)| *both == name),
                Part::Subscription(at) => SUBSCRIPTION.get(at),
                Part::Head | Part::Latency(_) | Part::Size(_) | Part::End => None,
            };
            let Some((_, value)) = of_subscriptions else { continue };
            for subscription in &measures.subscriptions {
                let of = escape(&subscription.name);
                let _ = writeln!(text, "{name}{{{labels},subscription=\"{of}\"}} {}", value(subscription));
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

impl HttpBody for Exposition {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().piece().map(|text| Ok(Frame::data(text.into()))))
    }
}

/// A value of a label.
pub(crate) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_model::{Position, UnixMillis};
    use geminga_topic::Counts;

    fn measures(subscriptions: &[&str]) -> TopicMeasures {
        let subscription = |name: &&str| SubscriptionMeasures {
            name: (*name).into(),
            durable: true,
            mark_delete: Position::EARLIEST,
            backlog: 7,
            consumers: 2,
            unacked: 1,
            blocked: true,
            replaying: 0,
            out_messages: 5,
            out_bytes: 50,
            rate_out: 0.5,
            throughput_out: 5.0,
            rate_redelivered: 0.0,
            rate_acked: 0.0,
            last_consumed: UnixMillis(0),
            last_acked: UnixMillis(1_700_000_000_000),
            last_flow: UnixMillis(0),
            last_advance: UnixMillis(0),
        };
        TopicMeasures {
            in_messages: 12,
            in_bytes: 120,
            rate_in: 0.2,
            throughput_in: 2.0,
            out_messages: 5,
            out_bytes: 50,
            producers: 1,
            storage_size: 120,
            copies: 2,
            backlog_size: 70,
            latencies: Counts { ranges: [1, 2, 0, 0, 0, 0, 0, 0, 0, 1], sum: 2_500 },
            sizes: Counts { ranges: [4, 0, 0, 0, 0, 0, 0, 0, 0], sum: 40 },
            subscriptions: subscriptions.iter().map(subscription).collect(),
        }
    }

    fn text(topics: Vec<(TopicName, TopicMeasures)>) -> (String, usize) {
        let scrape = Scrapes::default().begin().unwrap();
        let mut exposition = Exposition::new("head 1\n".into(), "c", topics, scrape);
        let mut pieces = 0;
        let text: String = std::iter::from_fn(|| exposition.piece()).inspect(|_| pieces += 1).collect();
        (text, pieces)
    }

    #[test]
    fn names_and_labels_are_pulsars() {
        let topic: TopicName = "persistent://t/n/a\"b".parse().unwrap();
        let (text, _) = text(vec![(topic, measures(&["s", "r"]))]);
        let labels = r#"cluster="c",namespace="t/n",topic="persistent://t/n/a\"b""#;
        for line in [
            "head 1".to_owned(),
            "# TYPE pulsar_rate_in gauge".to_owned(),
            "pulsar_topics_count{cluster=\"c\",namespace=\"t/n\"} 1".to_owned(),
            "pulsar_broker_msg_backlog{cluster=\"c\"} 14".to_owned(),
            format!("pulsar_rate_in{{{labels}}} 0.2"),
            format!("pulsar_rate_out{{{labels}}} 1"),
            format!("pulsar_storage_size{{{labels}}} 240"),
            format!("pulsar_in_messages_total{{{labels}}} 12"),
            format!("pulsar_storage_write_latency_le_1{{{labels}}} 2"),
            format!("pulsar_storage_write_latency_overflow{{{labels}}} 1"),
            format!("pulsar_storage_write_latency_count{{{labels}}} 4"),
            format!("pulsar_storage_write_latency_sum{{{labels}}} 2.5"),
            format!("pulsar_entry_size_le_128{{{labels}}} 4"),
            format!("pulsar_out_bytes_total{{{labels}}} 50"),
            format!("pulsar_out_bytes_total{{{labels},subscription=\"r\"}} 50"),
            format!("pulsar_subscription_back_log{{{labels},subscription=\"s\"}} 7"),
            format!("pulsar_subscription_last_acked_timestamp{{{labels},subscription=\"r\"}} 1700000000000"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        let types = text.lines().filter(|line| line.starts_with("# TYPE"));
        let names: std::collections::BTreeSet<&str> = types.clone().collect();
        assert_eq!(names.len(), types.count(), "a name stands once");
    }

    #[test]
    fn many_topics_come_in_pieces() {
        let topic = |i: usize| (format!("persistent://t/n/{i}").parse().unwrap(), measures(&["s"]));
        let (text, pieces) = text((0..1000).map(topic).collect());
        let lines = text.lines().filter(|line| line.starts_with("pulsar_msg_backlog{")).count();
        assert_eq!(lines, 1000);
        assert!(pieces > 10 && text.len() / pieces < 2 * PIECE, "{pieces} of {}", text.len());
    }

    #[test]
    fn scrapes_are_bounded() {
        let scrapes = Scrapes::default();
        let mut under_way: Vec<Scrape> = (0..MAX_SCRAPES).filter_map(|_| scrapes.begin()).collect();
        assert_eq!((under_way.len(), scrapes.begin().is_none()), (MAX_SCRAPES, true));
        under_way.pop();
        assert!(scrapes.begin().is_some());
    }
}
