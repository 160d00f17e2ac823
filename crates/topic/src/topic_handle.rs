//! A topic for others: what they may ask of it, and the answers they get when it is gone.

use std::sync::Arc;

use bytes::Bytes;
use geminga_admin_model::{InternalStats, TopicReport, TopicStats};
use geminga_env::{Mailbox, Reply};
use geminga_managed_ledger::{AppenderEvent, ManagedLedgerError, Opened};
use geminga_model::{Instant, Position, TopicName};
use geminga_session::{ConsumerKey, ProducerKey, ProducerSpec, Refusal, SubscribeSpec};

use crate::connection::{ConnectionHandle, ConnectionItem};
use crate::counts::{TopicCounts, TopicMeasures};
use crate::operations::{StillUsed, TopicOrder};
use crate::publish::{NewProducer, Publish};
use crate::refusal::closing;

#[derive(Debug)]
pub(crate) enum TopicItem {
    Opened(Box<Result<(Opened, Vec<String>), ManagedLedgerError>>),
    Appender(AppenderEvent),
    OpenProducer(NewProducer),
    CloseProducer(ProducerKey, ConnectionHandle),
    /// A subscription was made that a producer wants to be there before it is opened.
    Subscribed {
        name: String,
        result: Result<(), ManagedLedgerError>,
        producer: NewProducer,
    },
    Publish(Vec<Publish>),
    Subscribe(ConsumerKey, ConnectionHandle, Box<SubscribeSpec>),
    /// A durable subscription knows how far it has consumed.
    MarkDeleted(Arc<str>, Position),
    /// A subscription is gone: unsubscribed, or no longer needed.
    SubscriptionEnded(Arc<str>),
    /// A subscription's position is another owner's or cannot be stored.
    SubscriptionFailed(Arc<str>, ManagedLedgerError),
    IsActive(Reply<Result<bool, Refusal>>),
    Explain(Reply<TopicReport>),
    Stats(Reply<TopicStats>),
    InternalStats(Reply<InternalStats>),
    Order(TopicOrder),
    Close(Reply<()>),
    CloseIfUnused(Reply<Result<(), StillUsed>>),
    /// Nobody was let in meanwhile, and so many consumers were there.
    Looked {
        consumers: usize,
        asked: Reply<Result<(), StillUsed>>,
    },
    Closed,
}

/// A topic, for others. Clones are the same topic; what is sent after its end is refused as "being closed".
#[derive(Clone, Debug)]
pub struct TopicHandle {
    name: TopicName,
    mailbox: Mailbox<TopicItem>,
    counts: TopicCounts,
    copies: u64,
}

impl TopicHandle {
    /// Each entry is stored in `copies`.
    pub(crate) fn new(name: TopicName, mailbox: Mailbox<TopicItem>, counts: TopicCounts, copies: u64) -> TopicHandle {
        TopicHandle { name, mailbox, counts, copies }
    }

    /// The topic's name.
    #[must_use]
    pub fn name(&self) -> &TopicName {
        &self.name
    }

    /// Whether both are the same topic, opened once.
    #[must_use]
    pub fn is_same(&self, other: &TopicHandle) -> bool {
        self.mailbox.same_owner(&other.mailbox)
    }

    /// Whether the topic is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Opens a producer; answered by [`ConnectionItem::ProducerOpened`]. `schema_version` is that of its schema, empty
    /// without one.
    pub fn open_producer(
        &self,
        key: ProducerKey,
        connection: ConnectionHandle,
        spec: Box<ProducerSpec>,
        schema_version: Bytes,
    ) {
        self.push(TopicItem::OpenProducer(NewProducer { key, connection, spec, schema_version }));
    }

    /// Closes a producer, after its publishes; answered by [`ConnectionItem::ProducerClosed`].
    pub fn close_producer(&self, key: ProducerKey, connection: ConnectionHandle) {
        self.push(TopicItem::CloseProducer(key, connection));
    }

    /// Publishes, in order; answered by [`ConnectionItem::Receipts`] in each producer's order.
    pub fn publish(&self, batch: Vec<Publish>) {
        self.push(TopicItem::Publish(batch));
    }

    /// Adds a consumer; answered by [`ConnectionItem::ConsumerSubscribed`].
    pub fn subscribe(&self, key: ConsumerKey, connection: ConnectionHandle, spec: Box<SubscribeSpec>) {
        self.push(TopicItem::Subscribe(key, connection, spec));
    }

    /// Tells, once the topic is open, whether it is used by anybody whom a schema would concern: it has messages,
    /// producers, or consumers that do not take any schema. If it cannot be opened, tells why.
    pub fn is_active(&self, to: Reply<Result<bool, Refusal>>) {
        self.push(TopicItem::IsActive(to));
    }

    /// Tells what the topic is doing.
    pub fn explain(&self, to: Reply<TopicReport>) {
        self.push(TopicItem::Explain(to));
    }

    /// The topic in numbers, at once: nothing is woken for it.
    #[must_use]
    pub fn measure(&self, now: Instant) -> TopicMeasures {
        self.counts.measure(now, self.copies)
    }

    /// Tells the topic's statistics, with those of its subscriptions, producers and consumers.
    pub fn stats(&self, to: Reply<TopicStats>) {
        self.push(TopicItem::Stats(to));
    }

    /// Tells what the topic's ledgers and cursors are.
    pub fn internal_stats(&self, to: Reply<InternalStats>) {
        self.push(TopicItem::InternalStats(to));
    }

    /// Does something for an operator.
    pub fn order(&self, order: TopicOrder) {
        self.push(TopicItem::Order(order));
    }

    /// Closes the topic: positions are stored, the ledger is closed, everyone connected is told.
    pub fn close(&self, done: Reply<()>) {
        self.push(TopicItem::Close(done));
    }

    /// As [`TopicHandle::close`], unless clients are connected or the topic is being opened. Who comes while that is looked
    /// at is refused, and finds the topic opened anew or not at all.
    pub fn close_if_unused(&self, done: Reply<Result<(), StillUsed>>) {
        self.push(TopicItem::CloseIfUnused(done));
    }

    fn push(&self, item: TopicItem) {
        if let Err(geminga_env::Closed(item)) = self.mailbox.push(item) {
            refuse(item, &closing());
        }
    }
}

/// Answers a request that the topic will not do.
pub(crate) fn refuse(item: TopicItem, why: &Refusal) {
    match item {
        TopicItem::OpenProducer(NewProducer { key: producer, connection, .. })
        | TopicItem::Subscribed { producer: NewProducer { key: producer, connection, .. }, .. } => {
            connection.push(ConnectionItem::ProducerOpened { producer, result: Err(why.clone()) });
        }
        TopicItem::CloseProducer(key, connection) => connection.push(ConnectionItem::ProducerClosed(key)),
        TopicItem::Subscribe(consumer, connection, _) => {
            connection.push(ConnectionItem::ConsumerSubscribed { consumer, result: Err(why.clone()) });
        }
        TopicItem::IsActive(to) => to.send(Err(why.clone())),
        TopicItem::Close(done) => done.send(()),
        TopicItem::CloseIfUnused(done) | TopicItem::Looked { asked: done, .. } => done.send(Ok(())),
        TopicItem::Order(order) => order.refuse(why),
        // Producers of these are told that they are closed; an explanation answers by being dropped.
        TopicItem::Publish(_)
        | TopicItem::Explain(_)
        | TopicItem::Stats(_)
        | TopicItem::InternalStats(_)
        | TopicItem::Opened(_)
        | TopicItem::Appender(_)
        | TopicItem::MarkDeleted(..)
        | TopicItem::SubscriptionEnded(_)
        | TopicItem::SubscriptionFailed(..)
        | TopicItem::Closed => {}
    }
}
