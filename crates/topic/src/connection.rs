//! What a topic knows of a client connection: where to put what is for it, and whether it takes more.

use std::sync::Arc;

use bytes::Bytes;
use geminga_env::Mailbox;
use geminga_model::Position;
use geminga_session::{Answer, ConsumerKey, ProducerKey, ProducerOpened, Refusal, RequestKey, WatcherKey};
use geminga_wire::ServerError;

use crate::outbox_gauge::OutboxGauge;
use crate::publish::ProducerId;
use crate::subscription::ConsumerHandle;
use crate::topic_handle::TopicHandle;

/// Something for a connection, put into its outbox.
#[derive(Debug)]
pub enum ConnectionItem {
    /// A producer was opened, or not. With it, what to name in [`Publish`](crate::Publish).
    ProducerOpened {
        /// The producer.
        producer: ProducerKey,
        /// How it was opened, and its topic.
        result: Result<(ProducerOpened, TopicHandle, ProducerId), Refusal>,
    },
    /// A producer is closed, because it asked or because its topic closed.
    ProducerClosed(ProducerKey),
    /// A producer was fenced by another, which now has the topic for itself.
    ProducerFenced(ProducerKey),
    /// Outcomes of publishes, in the order of each producer's.
    Receipts(Vec<Receipt>),
    /// A consumer was added, or not.
    ConsumerSubscribed {
        /// The consumer.
        consumer: ConsumerKey,
        /// Where its commands go.
        result: Result<ConsumerHandle, Refusal>,
    },
    /// A consumer is closed, because it asked or because its subscription closed.
    ConsumerClosed(ConsumerKey),
    /// A consumer of a Failover subscription became the active one, or stands by.
    ActiveConsumer(ConsumerKey, bool),
    /// The topic is terminated, and the consumer's subscription has nothing left.
    EndOfTopic(ConsumerKey),
    /// Entries for a consumer, in order.
    Deliver(ConsumerKey, Vec<Delivery>),
    /// A watcher of topics has started, with these and the hash of all; or has not.
    WatchStarted {
        /// The watcher.
        watcher: WatcherKey,
        /// None if the client knows them by the hash.
        result: Result<(Vec<String>, String), Refusal>,
    },
    /// Topics that a watcher watches were created or deleted.
    TopicsChanged {
        /// The watcher.
        watcher: WatcherKey,
        /// Those created.
        new: Vec<String>,
        /// Those deleted.
        deleted: Vec<String>,
        /// The hash of all that there are.
        hash: String,
    },
    /// The answer to a request.
    Answer(RequestKey, Result<Answer, Refusal>),
}

/// The outcome of a publish.
#[derive(Debug)]
pub struct Receipt {
    /// The producer.
    pub producer: ProducerKey,
    /// The sequence id of the SEND.
    pub sequence_id: u64,
    /// Its highest sequence id, if it said one.
    pub highest_sequence_id: Option<u64>,
    /// Where it is stored, or why not.
    pub result: Result<Position, (ServerError, String)>,
}

/// An entry for a consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Where it is stored.
    pub position: Position,
    /// What was published.
    pub payload: Bytes,
    /// How often it was asked for again.
    pub redelivery_count: u32,
    /// Of a batch acked in part: what is left.
    pub ack_set: Vec<i64>,
    /// The epoch the consumer asked deliveries to carry.
    pub consumer_epoch: Option<u64>,
}

/// What statistics show of a client, and what decides how entries are sent to it.
#[derive(Clone, Debug, Default)]
pub struct PeerInfo {
    /// Its address.
    pub address: String,
    /// Its library and version.
    pub client_version: String,
}

/// A connection, as seen from a topic. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct ConnectionHandle {
    /// Its number, for grouping.
    pub id: u64,
    /// Who is at the other end.
    pub peer: Arc<PeerInfo>,
    outbox: Mailbox<ConnectionItem>,
    gauge: Arc<OutboxGauge>,
}

impl ConnectionHandle {
    /// The handle of a connection that reads its outbox from `outbox`'s inbox.
    #[must_use]
    pub fn new(id: u64, peer: PeerInfo, outbox: Mailbox<ConnectionItem>, gauge: Arc<OutboxGauge>) -> ConnectionHandle {
        ConnectionHandle { id, peer: Arc::new(peer), outbox, gauge }
    }

    /// Puts an item into the outbox. If the connection is gone nobody needs it.
    pub fn push(&self, item: ConnectionItem) {
        drop(self.outbox.push(item));
    }

    /// As [`ConnectionHandle::push`]. False if the connection is gone: nobody will ever close what the item tells of.
    pub(crate) fn offer(&self, item: ConnectionItem) -> bool {
        self.outbox.push(item).is_ok()
    }

    /// Counts an entry that will be delivered. Tells whether there is room for another.
    pub(crate) fn count(&self, entry: &Delivery) -> bool {
        self.gauge.add(entry.payload.len());
        !self.gauge.is_full()
    }

    /// Puts entries into the outbox, each of which was counted.
    pub(crate) fn deliver(&self, consumer: ConsumerKey, entries: Vec<Delivery>) {
        self.push(ConnectionItem::Deliver(consumer, entries));
    }

    /// Entries that were counted are not delivered.
    pub(crate) fn withdraw(&self, entries: &[Delivery]) {
        self.gauge.sent(entries.iter().map(|entry| entry.payload.len()).sum());
    }

    /// Answers a request.
    pub fn answer(&self, request: RequestKey, answer: Result<Answer, Refusal>) {
        self.push(ConnectionItem::Answer(request, answer));
    }

    /// Whether more may be delivered. If not, `drained` is called once when there is room again.
    pub fn room_or(&self, drained: impl FnOnce() -> Box<dyn FnOnce() + Send>) -> bool {
        self.gauge.room_or(drained)
    }
}
