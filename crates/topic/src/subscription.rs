//! A subscription, as others see it: what it can be asked, how it begins, and who is answered when it is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use geminga_admin_model::{CursorStats, SubscriptionReport, SubscriptionStats};
use geminga_cursor::{Cursor, Extents};
use geminga_dispatch::ConsumerId;
use geminga_env::{Mailbox, OnPanic, Reply, mailbox};
use geminga_managed_ledger::{
    CursorEvent, CursorSink, CursorStore, Log, ManagedLedgerError, create_cursor, open_cursor,
};
use geminga_model::{Position, TopicName};
use geminga_session::{ConsumerKey, Refusal, RequestKey, SeekTarget, SubscribeSpec};
use geminga_wire::MessageId;
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::command_subscribe::InitialPosition;

use crate::connection::{ConnectionHandle, ConnectionItem};
use crate::counts::SubscriptionCounts;
use crate::delivery::ReadAhead;
use crate::operations::{Asker, Done, SubscriptionOrder};
use crate::refusal::closing;
use crate::subscription_task::Subscription;
use crate::topic::TopicOptions;
use crate::topic_handle::TopicItem;

/// How a subscription begins.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// It is stored.
    Existing,
    /// It is new, and begins with this message, or at this end of the topic.
    New(Position, Vec<(String, String)>),
    /// It is not stored, and begins with this message; `None` for what comes next.
    Unstored(Option<Position>),
}

impl Start {
    pub(crate) fn of(spec: &SubscribeSpec) -> Start {
        if spec.durable {
            let first = match spec.initial_position {
                InitialPosition::Earliest => Position::EARLIEST,
                InitialPosition::Latest => Position::LATEST,
            };
            return Start::New(first, spec.subscription_properties.clone());
        }
        let start = spec.start.as_ref().map(|message| message.position);
        // Fact: without a message to start at, the initial position decides here too. The Rust client's readers rely on it.
        Start::Unstored(start.or(match spec.initial_position {
            InitialPosition::Earliest => Some(Position::EARLIEST),
            InitialPosition::Latest => None,
        }))
    }
}

/// What a consumer asks of its subscription.
#[derive(Debug)]
pub enum ConsumerItem {
    /// Let it have more messages.
    Flow(u32),
    /// Acknowledge these, or all up to the one; with a receipt to `request`.
    Ack {
        /// These, or all up to the one.
        ack_type: AckType,
        /// The messages.
        message_ids: Vec<MessageId>,
        /// Who waits until it is stored.
        request: Option<RequestKey>,
    },
    /// Deliver these again, or all if empty.
    Redeliver {
        /// These.
        positions: Vec<Position>,
        /// The epoch that later deliveries carry.
        epoch: Option<u64>,
    },
    /// Move the subscription.
    Seek(RequestKey, SeekTarget),
    /// Delete the subscription, if this is its only consumer or by force.
    Unsubscribe(RequestKey, bool),
    /// The last message of the topic.
    LastMessageId(RequestKey),
    /// About the consumer.
    Stats(RequestKey),
    /// It leaves.
    Close,
}

/// A cursor and where it is stored, if it is.
pub(crate) type OpenedCursor = Result<(Option<CursorStore>, Cursor), ManagedLedgerError>;

#[derive(Debug)]
pub(crate) enum SubscriptionItem {
    Opened(Box<OpenedCursor>),
    Subscribe(ConsumerKey, ConnectionHandle, Box<SubscribeSpec>),
    Consumer(ConsumerId, ConnectionHandle, ConsumerItem),
    NewEntries,
    Read(ReadAhead),
    Drained(ConsumerId),
    Cursor(CursorEvent),
    Sought(Asker, Result<Position, ManagedLedgerError>),
    Deleted(Asker, Result<(), ManagedLedgerError>),
    Explain(Reply<SubscriptionReport>),
    Stats(Reply<SubscriptionStats>),
    CursorStats(Reply<CursorStats>),
    /// Tell when it is open.
    Ready(Done),
    Order(SubscriptionOrder),
    /// The topic is terminated.
    Terminated,
    Close(Reply<()>),
    Abandon,
}

/// A subscription, for its topic.
#[derive(Clone, Debug)]
pub(crate) struct SubscriptionHandle {
    mailbox: Mailbox<SubscriptionItem>,
    waiting: Arc<AtomicBool>,
    schema_bound: Arc<AtomicUsize>,
}

impl SubscriptionHandle {
    pub(crate) fn subscribe(&self, key: ConsumerKey, connection: ConnectionHandle, spec: Box<SubscribeSpec>) {
        self.push(SubscriptionItem::Subscribe(key, connection, spec));
    }

    pub(crate) fn wake_if_waiting(&self) {
        if self.waiting.swap(false, Ordering::AcqRel) {
            self.push(SubscriptionItem::NewEntries);
        }
    }

    /// Whether it has consumers that a new schema of the topic would concern.
    pub(crate) fn has_schema_bound_consumers(&self) -> bool {
        self.schema_bound.load(Ordering::Acquire) > 0
    }

    pub(crate) fn explain(&self, to: Reply<SubscriptionReport>) {
        self.push(SubscriptionItem::Explain(to));
    }

    pub(crate) fn stats(&self, to: Reply<SubscriptionStats>) {
        self.push(SubscriptionItem::Stats(to));
    }

    pub(crate) fn cursor_stats(&self, to: Reply<CursorStats>) {
        self.push(SubscriptionItem::CursorStats(to));
    }

    pub(crate) fn ready(&self, done: Done) {
        self.push(SubscriptionItem::Ready(done));
    }

    pub(crate) fn order(&self, order: SubscriptionOrder) {
        self.push(SubscriptionItem::Order(order));
    }

    pub(crate) fn terminated(&self) {
        self.push(SubscriptionItem::Terminated);
    }

    pub(crate) fn close(&self, done: Reply<()>) {
        self.push(SubscriptionItem::Close(done));
    }

    pub(crate) fn abandon(&self) {
        self.push(SubscriptionItem::Abandon);
    }

    fn push(&self, item: SubscriptionItem) {
        if let Err(geminga_env::Closed(item)) = self.mailbox.push(item) {
            refuse(item, &closing());
        }
    }
}

/// A consumer's way to its subscription.
#[derive(Clone, Debug)]
pub struct ConsumerHandle {
    id: ConsumerId,
    key: ConsumerKey,
    connection: ConnectionHandle,
    mailbox: Mailbox<SubscriptionItem>,
}

impl ConsumerHandle {
    pub(crate) fn new(
        id: ConsumerId,
        key: ConsumerKey,
        connection: ConnectionHandle,
        mailbox: Mailbox<SubscriptionItem>,
    ) -> ConsumerHandle {
        ConsumerHandle { id, key, connection, mailbox }
    }

    pub(crate) fn id(&self) -> ConsumerId {
        self.id
    }

    /// Asks something of the subscription. If it is gone, a request is refused and a close is confirmed.
    pub fn push(&self, item: ConsumerItem) {
        let item = SubscriptionItem::Consumer(self.id, self.connection.clone(), item);
        if let Err(geminga_env::Closed(item)) = self.mailbox.push(item) {
            match item {
                SubscriptionItem::Consumer(_, connection, ConsumerItem::Close) => {
                    connection.push(ConnectionItem::ConsumerClosed(self.key));
                }
                item => refuse(item, &closing()),
            }
        }
    }
}

/// Answers a request that the subscription will not do.
pub(crate) fn refuse(item: SubscriptionItem, why: &Refusal) {
    match item {
        SubscriptionItem::Subscribe(consumer, connection, _) => {
            connection.push(ConnectionItem::ConsumerSubscribed { consumer, result: Err(why.clone()) });
        }
        SubscriptionItem::Consumer(_, connection, item) => match item {
            ConsumerItem::Ack { request: Some(request), .. }
            | ConsumerItem::Seek(request, _)
            | ConsumerItem::Unsubscribe(request, _)
            | ConsumerItem::LastMessageId(request)
            | ConsumerItem::Stats(request) => connection.answer(request, Err(why.clone())),
            ConsumerItem::Flow(_)
            | ConsumerItem::Ack { request: None, .. }
            | ConsumerItem::Redeliver { .. }
            | ConsumerItem::Close => {}
        },
        SubscriptionItem::Sought(asker, _) | SubscriptionItem::Deleted(asker, _) => asker.answer(Err(why.clone())),
        SubscriptionItem::Ready(done) => done.send(Err(why.clone())),
        SubscriptionItem::Order(order) => order.refuse(why),
        SubscriptionItem::Close(done) => done.send(()),
        SubscriptionItem::Opened(_)
        | SubscriptionItem::NewEntries
        | SubscriptionItem::Read(_)
        | SubscriptionItem::Drained(_)
        | SubscriptionItem::Cursor(_)
        | SubscriptionItem::Explain(_)
        | SubscriptionItem::Stats(_)
        | SubscriptionItem::CursorStats(_)
        | SubscriptionItem::Terminated
        | SubscriptionItem::Abandon => {}
    }
}

struct ToSubscription(Mailbox<SubscriptionItem>);

impl CursorSink for ToSubscription {
    fn deliver(&self, event: CursorEvent) {
        drop(self.0.push(SubscriptionItem::Cursor(event)));
    }
}

/// Starts a subscription of an open topic.
#[allow(clippy::too_many_arguments)] // these are what it is made of
pub(crate) fn start_subscription(
    options: TopicOptions,
    topic: TopicName,
    name: Arc<str>,
    log: Arc<Log>,
    to_topic: Mailbox<TopicItem>,
    durable: bool,
    start: Start,
    counts: SubscriptionCounts,
) -> SubscriptionHandle {
    let (mailbox, inbox) = mailbox();
    let waiting = Arc::new(AtomicBool::new(false));
    let schema_bound = Arc::new(AtomicUsize::new(0));
    let handle = SubscriptionHandle {
        mailbox: mailbox.clone(),
        waiting: Arc::clone(&waiting),
        schema_bound: Arc::clone(&schema_bound),
    };
    let env = options.ledgers.env.clone();
    let opening = open(options.clone(), topic.clone(), Arc::clone(&name), Arc::clone(&log), start, mailbox.clone());
    env.control.spawn("open subscription", OnPanic::ExitProcess, opening);
    let (panicked, of) = (to_topic.clone(), Arc::clone(&name));
    // The topic is opened anew: what its subscriptions hold cannot be trusted any more.
    let on_panic = OnPanic::Tell(Box::new(move || {
        drop(panicked.push(TopicItem::SubscriptionFailed(of, ManagedLedgerError::Fenced)));
    }));
    let task = Subscription::new(options, topic, name, log, mailbox, to_topic, waiting, schema_bound, durable, counts);
    env.data.spawn("subscription", on_panic, Box::new(task).run(inbox));
    handle
}

async fn open(
    options: TopicOptions,
    topic: TopicName,
    name: Arc<str>,
    log: Arc<Log>,
    start: Start,
    to: Mailbox<SubscriptionItem>,
) {
    let ledgers = &options.ledgers;
    let opened = async {
        match start {
            Start::Unstored(first) => {
                let mark_delete = log.with_extents(|extents| before(first.unwrap_or(Position::LATEST), extents));
                return Ok((None, Cursor::at(mark_delete)));
            }
            Start::New(first, properties) => {
                let mark_delete = log.with_extents(|extents| before(first, extents));
                create_cursor(ledgers, &topic, &name, mark_delete, &properties).await?;
            }
            Start::Existing => {}
        }
        let sink = Arc::new(ToSubscription(to.clone()));
        let (store, stored) = open_cursor(ledgers, &topic, &name, sink).await?;
        let mut cursor = log.with_extents(|extents| stored.restore(extents));
        cursor.keep_changes();
        Ok((Some(store), cursor))
    };
    let opened = opened.await;
    drop(to.push(SubscriptionItem::Opened(Box::new(opened))));
}

/// The mark-delete position from which `first` is the next to be delivered, within the topic.
pub(crate) fn before(first: Position, extents: &Extents) -> Position {
    if first == Position::EARLIEST {
        extents.start()
    } else if first > extents.end() {
        extents.end()
    } else {
        extents.previous(first)
    }
}
