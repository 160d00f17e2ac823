//! What topics and subscriptions count where others can read it, so that a scrape of many topics wakes none of them.
//!
//! Each is written by its owner alone, once a turn; the lock is held for a few additions.

use std::sync::Arc;
use std::time::Duration;

use geminga_managed_ledger::Log;
use geminga_model::{Instant, Position, UnixMillis};
use litemap::LiteMap;
use parking_lot::Mutex;

use crate::meter::{Counts, Histogram, Meter, Traffic};

/// Upper ends of the ranges of `pulsar_storage_write_latency_le_*`, in microseconds.
const LATENCIES: [u64; 9] = [500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000];
/// Upper ends of the ranges of `pulsar_entry_size_le_*`, in bytes.
const SIZES: [u64; 8] = [128, 512, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 100 << 10, 1 << 20];

/// What a topic counts. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopicCounts(Arc<Mutex<OfTopic>>);

#[derive(Debug, Default)]
struct OfTopic {
    log: Option<Arc<Log>>,
    incoming: Traffic,
    latencies: Histogram<10>,
    sizes: Histogram<9>,
    last_publish: UnixMillis,
    producers: usize,
    subscriptions: LiteMap<Arc<str>, SubscriptionCounts>,
    /// Messages and bytes that went to subscriptions that are gone.
    gone: (u64, u64),
}

/// An entry that was published and stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) messages: u32,
    pub(crate) bytes: usize,
    pub(crate) took: Duration,
}

impl TopicCounts {
    pub(crate) fn opened(&self, log: &Arc<Log>) {
        self.0.lock().log = Some(Arc::clone(log));
    }

    pub(crate) fn stored(&self, now: Instant, wall: UnixMillis, entries: &[Stored]) {
        let mut counts = self.0.lock();
        let messages = entries.iter().map(|entry| u64::from(entry.messages)).sum();
        counts.incoming.add(now, messages, entries.iter().map(|entry| entry.bytes as u64).sum());
        let micros = |entry: &Stored| u64::try_from(entry.took.as_micros()).unwrap_or(u64::MAX);
        counts.latencies.add(now, &LATENCIES, entries.iter().map(micros));
        counts.sizes.add(now, &SIZES, entries.iter().map(|entry| entry.bytes as u64));
        counts.last_publish = wall;
    }

    pub(crate) fn set_producers(&self, producers: usize) {
        self.0.lock().producers = producers;
    }

    pub(crate) fn add_subscription(&self, name: &Arc<str>, counts: SubscriptionCounts) {
        self.0.lock().subscriptions.insert(Arc::clone(name), counts);
    }

    pub(crate) fn remove_subscription(&self, name: &str) {
        let mut counts = self.0.lock();
        if let Some(gone) = counts.subscriptions.remove(name) {
            let out = gone.0.lock().out;
            counts.gone.0 += out.messages.total();
            counts.gone.1 += out.bytes.total();
        }
    }

    pub(crate) fn last_publish(&self) -> UnixMillis {
        self.0.lock().last_publish
    }

    /// Everything, as of now.
    pub(crate) fn measure(&self, now: Instant, copies: u64) -> TopicMeasures {
        let counts = self.0.lock();
        let log = counts.log.clone();
        let end = |position: Position| match &log {
            Some(log) => log.with_extents(|extents| extents.count(position, extents.end())),
            None => 0,
        };
        let subscriptions: Vec<SubscriptionMeasures> = (counts.subscriptions.iter())
            .map(|(name, subscription)| subscription.measure(now, Arc::clone(name), end))
            .collect();
        let behind = subscriptions.iter().filter(|measures| measures.durable).map(|measures| measures.mark_delete);
        let backlog_size = behind.min().zip(log.as_ref()).map_or(0, |(position, log)| log.size_after(position));
        TopicMeasures {
            in_messages: counts.incoming.messages.total(),
            in_bytes: counts.incoming.bytes.total(),
            rate_in: counts.incoming.messages.rate(now),
            throughput_in: counts.incoming.bytes.rate(now),
            out_messages: counts.gone.0 + subscriptions.iter().map(|measures| measures.out_messages).sum::<u64>(),
            out_bytes: counts.gone.1 + subscriptions.iter().map(|measures| measures.out_bytes).sum::<u64>(),
            producers: counts.producers,
            storage_size: log.as_ref().map_or(0, |log| log.size()),
            copies,
            backlog_size,
            latencies: counts.latencies.last(now),
            sizes: counts.sizes.last(now),
            subscriptions,
        }
    }
}

/// What a subscription counts. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionCounts(Arc<Mutex<OfSubscription>>);

#[derive(Debug)]
struct OfSubscription {
    out: Traffic,
    redelivered: Meter,
    acked: Meter,
    last_consumed: UnixMillis,
    last_acked: UnixMillis,
    last_flow: UnixMillis,
    last_advance: UnixMillis,
    now: SubscriptionNow,
}

/// How a subscription is at the end of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubscriptionNow {
    pub(crate) durable: bool,
    pub(crate) mark_delete: Position,
    pub(crate) acked_beyond: u64,
    pub(crate) consumers: usize,
    pub(crate) unacked: u64,
    pub(crate) blocked: bool,
    pub(crate) replaying: usize,
}

/// What a turn of a subscription did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) redelivered: u64,
    pub(crate) acked: u64,
    pub(crate) flow: bool,
}

impl SubscriptionCounts {
    pub(crate) fn new(durable: bool) -> SubscriptionCounts {
        let now = SubscriptionNow {
            durable,
            mark_delete: Position::LATEST,
            acked_beyond: 0,
            consumers: 0,
            unacked: 0,
            blocked: false,
            replaying: 0,
        };
        SubscriptionCounts(Arc::new(Mutex::new(OfSubscription {
            out: Traffic::default(),
            redelivered: Meter::default(),
            acked: Meter::default(),
            last_consumed: UnixMillis(0),
            last_acked: UnixMillis(0),
            last_flow: UnixMillis(0),
            last_advance: UnixMillis(0),
            now,
        })))
    }

    pub(crate) fn turn(&self, now: Instant, wall: UnixMillis, turn: &Turn, state: SubscriptionNow) {
        let mut counts = self.0.lock();
        counts.out.add(now, turn.messages, turn.bytes);
        counts.redelivered.add(now, turn.redelivered);
        counts.acked.add(now, turn.acked);
        for (did, last) in [
            (turn.messages > 0, Last::Consumed),
            (turn.acked > 0, Last::Acked),
            (turn.flow, Last::Flow),
            // Until it is open nothing is known of its position.
            (state.mark_delete > counts.now.mark_delete && counts.now.mark_delete != Position::LATEST, Last::Advance),
        ] {
            if did {
                *match last {
                    Last::Consumed => &mut counts.last_consumed,
                    Last::Acked => &mut counts.last_acked,
                    Last::Flow => &mut counts.last_flow,
                    Last::Advance => &mut counts.last_advance,
                } = wall;
            }
        }
        counts.now = state;
    }

    /// `entries_after` counts the topic's entries after a position.
    pub(crate) fn measure(
        &self,
        now: Instant,
        name: Arc<str>,
        entries_after: impl Fn(Position) -> u64,
    ) -> SubscriptionMeasures {
        let counts = self.0.lock();
        SubscriptionMeasures {
            name,
            durable: counts.now.durable,
            mark_delete: counts.now.mark_delete,
            backlog: entries_after(counts.now.mark_delete).saturating_sub(counts.now.acked_beyond),
            consumers: counts.now.consumers,
            unacked: counts.now.unacked,
            blocked: counts.now.blocked,
            replaying: counts.now.replaying,
            out_messages: counts.out.messages.total(),
            out_bytes: counts.out.bytes.total(),
            rate_out: counts.out.messages.rate(now),
            throughput_out: counts.out.bytes.rate(now),
            rate_redelivered: counts.redelivered.rate(now),
            rate_acked: counts.acked.rate(now),
            last_consumed: counts.last_consumed,
            last_acked: counts.last_acked,
            last_flow: counts.last_flow,
            last_advance: counts.last_advance,
        }
    }
}

#[derive(Clone, Copy)]
enum Last {
    Consumed,
    Acked,
    Flow,
    Advance,
}

/// A topic in numbers. Rates are of the last whole minute, counters since it was opened.
#[derive(Clone, Debug)]
pub struct TopicMeasures {
    /// Messages that came in.
    pub in_messages: u64,
    /// Their bytes.
    pub in_bytes: u64,
    /// Messages a second that came in.
    pub rate_in: f64,
    /// Bytes a second that came in.
    pub throughput_in: f64,
    /// Messages that went out, also to subscriptions that are gone.
    pub out_messages: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Connected producers.
    pub producers: usize,
    /// Bytes that are stored, not counting copies.
    pub storage_size: u64,
    /// Copies of each entry.
    pub copies: u64,
    /// About how many bytes the durable subscription that is furthest behind has not consumed.
    pub backlog_size: u64,
    /// How long entries took to be stored, in microseconds.
    pub latencies: Counts<10>,
    /// How large entries were, in bytes.
    pub sizes: Counts<9>,
    /// Its subscriptions.
    pub subscriptions: Vec<SubscriptionMeasures>,
}

/// A subscription in numbers.
#[derive(Clone, Debug)]
pub struct SubscriptionMeasures {
    /// Its name.
    pub name: Arc<str>,
    /// Whether its position is stored.
    pub durable: bool,
    /// Everything up to here is acknowledged; [`Position::LATEST`] until it is open.
    pub mark_delete: Position,
    /// Entries that are not acknowledged.
    pub backlog: u64,
    /// Connected consumers.
    pub consumers: usize,
    /// Messages that they hold unacknowledged.
    pub unacked: u64,
    /// Whether one of them is sent nothing because it holds too much.
    pub blocked: bool,
    /// Entries that wait to be delivered again.
    pub replaying: usize,
    /// Messages that went out.
    pub out_messages: u64,
    /// Their bytes.
    pub out_bytes: u64,
    /// Messages a second that went out.
    pub rate_out: f64,
    /// Bytes a second that went out.
    pub throughput_out: f64,
    /// Messages a second that went out again.
    pub rate_redelivered: f64,
    /// Entries a second that were acknowledged.
    pub rate_acked: f64,
    /// When messages last went out; 0 for never, as with the other times.
    pub last_consumed: UnixMillis,
    /// When something was last acknowledged.
    pub last_acked: UnixMillis,
    /// When a consumer last asked for messages.
    pub last_flow: UnixMillis,
    /// When the mark-delete position last moved.
    pub last_advance: UnixMillis,
}
