//! The life of a topic: it opens, serves, closes, and is gone.
//!
//! While it opens, requests wait in its hands. When its log fails, or it is told to close, everyone connected is told
//! and looks it up again; the next open begins from what is stored. So nothing ever needs an unload to get unstuck.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_admin_model::{InternalStats, TopicReport, TopicStats};
use geminga_env::{Budget, Env, Inbox, Mailbox, OnPanic, Reply, mailbox, reply};
use geminga_managed_ledger::{
    Appender, AppenderEvent, AppenderSink, AppenderState, Log, ManagedLedgerError, ManagedLedgers, Opened,
    create_cursor, list_cursors, open,
};
use geminga_metastore::MetadataError;
use geminga_model::{Instant, LedgerId, Position, TopicName};
use geminga_session::{ConsumerKey, ProducerKey, ProducerSpec, Refusal, SubscribeSpec};
use litemap::LiteMap;

use crate::access::EPOCH_PROPERTY;
use crate::connection::{ConnectionHandle, ConnectionItem};
use crate::counts::{SubscriptionCounts, TopicCounts, TopicMeasures};
use crate::operations::TopicOrder;
use crate::publish::{NewProducer, ProducerNames, Publish, Publishing};
use crate::refusal::{closing, of_log};
use crate::subscription::{Start, SubscriptionHandle, start_subscription};
use crate::wake_round::WakeRound;

/// How long a topic may take to open (`topicLoadTimeoutSeconds`).
const OPEN_DEADLINE: Duration = Duration::from_secs(60);
/// Items an owner works off before it lets others run.
const TURN: usize = 256;

/// What all topics of a broker share.
#[derive(Clone, Debug)]
pub struct TopicOptions {
    /// Where logs are.
    pub ledgers: ManagedLedgers,
    /// Names for producers without one.
    pub producer_names: Arc<ProducerNames>,
    /// Unacked messages a consumer may hold (`maxUnackedMessagesPerConsumer`).
    pub max_unacked_per_consumer: u64,
    /// Bytes that subscriptions may have read from bookies and not handed out.
    pub read_ahead: Budget,
}

/// How a topic ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicEnd {
    /// It was told to.
    Closed,
    /// It could not be opened, or its log failed.
    Failed(ManagedLedgerError),
    /// Its task panicked.
    Panicked,
}

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

    fn push(&self, item: TopicItem) {
        if let Err(geminga_env::Closed(item)) = self.mailbox.push(item) {
            refuse(item, &closing());
        }
    }
}

/// Answers a request that the topic will not do.
fn refuse(item: TopicItem, why: &Refusal) {
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

pub(crate) struct ToTopic(pub(crate) Mailbox<TopicItem>);

impl AppenderSink for ToTopic {
    fn deliver(&self, event: AppenderEvent) {
        // After its end a topic's log belongs to whoever opens it next.
        drop(self.0.push(TopicItem::Appender(event)));
    }
}

/// Starts a topic. `create` makes it if it does not exist. `ended` is told once, when nothing of it is left.
pub fn open_topic(
    options: TopicOptions,
    name: TopicName,
    create: bool,
    ended: impl FnOnce(TopicEnd) + Send + 'static,
) -> TopicHandle {
    let (mailbox, inbox) = mailbox();
    let counts = TopicCounts::default();
    let copies = options.ledgers.quorum.write as u64;
    let handle = TopicHandle { name: name.clone(), mailbox: mailbox.clone(), counts: counts.clone(), copies };
    let env = options.ledgers.env.clone();
    let (opening, to) = (options.ledgers.clone(), mailbox.clone());
    let topic = name.clone();
    env.control.spawn("open topic", OnPanic::ExitProcess, async move {
        let opened = async {
            let opened = open(&opening, &topic, create).await?;
            let cursors = list_cursors(&opening, &topic).await?;
            Ok((opened, cursors))
        };
        drop(to.push(TopicItem::Opened(Box::new(opened.await))));
    });
    let ended = Arc::new(Ended(parking_lot::Mutex::new(Some(Box::new(ended)))));
    let told = Arc::clone(&ended);
    let on_panic = OnPanic::Tell(Box::new(move || told.tell(TopicEnd::Panicked)));
    // Boxed, because a future holds what it is made of twice.
    let task = Box::new(Topic {
        env: env.clone(),
        options,
        name,
        me: mailbox,
        phase: Phase::Opening(env.clock.now() + OPEN_DEADLINE, Vec::new()),
        subscriptions: LiteMap::new(),
        waking: WakeRound::default(),
        counts,
        terminating: Vec::new(),
    });
    env.data.spawn("topic", on_panic, async move {
        let end = task.run(inbox).await;
        ended.tell(end);
    });
    handle
}

/// Tells the end of a topic once, whichever way it comes.
struct Ended(parking_lot::Mutex<Option<TellEnd>>);

type TellEnd = Box<dyn FnOnce(TopicEnd) + Send>;

impl Ended {
    fn tell(&self, end: TopicEnd) {
        let tell = self.0.lock().take();
        if let Some(tell) = tell {
            tell(end);
        }
    }
}

pub(crate) enum Phase {
    /// The log is being opened, until then; these wait for it.
    Opening(Instant, Vec<TopicItem>),
    Serving(Box<Serving>),
    /// Subscriptions and log store what they have; these are answered then.
    Closing(Vec<Reply<()>>),
    Gone(TopicEnd),
}

pub(crate) struct Serving {
    pub(crate) appender: Appender,
    pub(crate) publishing: Publishing,
    /// It is to close when what was published has its receipts; nothing new is admitted. These are answered then.
    pub(crate) draining: Option<Vec<Reply<()>>>,
}

pub(crate) struct Subscription {
    pub(crate) handle: SubscriptionHandle,
    pub(crate) durable: bool,
    mark_delete: Option<Position>,
}

pub(crate) struct Topic {
    pub(crate) env: Env,
    options: TopicOptions,
    pub(crate) name: TopicName,
    me: Mailbox<TopicItem>,
    pub(crate) phase: Phase,
    pub(crate) subscriptions: LiteMap<Arc<str>, Subscription>,
    waking: WakeRound,
    pub(crate) counts: TopicCounts,
    /// Who waits for the topic to be terminated.
    pub(crate) terminating: Vec<Reply<Result<Position, Refusal>>>,
}

impl Topic {
    async fn run(mut self: Box<Self>, mut inbox: Inbox<TopicItem>) -> TopicEnd {
        let clock = self.env.clock;
        loop {
            // An idle topic keeps no room for items.
            let mut batch = Vec::new();
            let deadline = match &self.phase {
                Phase::Serving(serving) => serving.appender.deadline(),
                Phase::Opening(until, _) => Some(*until),
                Phase::Closing(_) | Phase::Gone(_) => None,
            };
            if self.waking.is_over() {
                tokio::select! {
                    biased;
                    () = inbox.wait() => {}
                    () = clock.sleep_until_some(deadline) => {}
                }
            } else {
                // Connections send the receipts first.
                tokio::task::yield_now().await;
                self.wake_some();
            }
            inbox.take(&mut batch);
            loop {
                let turn = batch.len().min(TURN);
                batch.drain(..turn).for_each(|item| self.handle(item));
                self.flush();
                if batch.is_empty() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if let Phase::Gone(end) = &self.phase {
                let end = end.clone();
                self.refuse_rest(&mut inbox, &end);
                return end;
            }
        }
    }

    /// Whoever asked while the topic went away is answered.
    fn refuse_rest(&self, inbox: &mut Inbox<TopicItem>, end: &TopicEnd) {
        let why = match end {
            TopicEnd::Failed(error) => of_log(error),
            TopicEnd::Closed | TopicEnd::Panicked => closing(),
        };
        inbox.close();
        let mut left = Vec::new();
        inbox.take(&mut left);
        left.into_iter().for_each(|item| refuse(item, &why));
    }

    fn handle(&mut self, item: TopicItem) {
        match (&mut self.phase, item) {
            (_, TopicItem::Opened(opened)) => self.opened(*opened),
            (Phase::Opening(_, waiting), TopicItem::Explain(to)) => {
                to.send(TopicReport {
                    topic: self.name.to_string(),
                    state: format!("opening: taking over its log; {} requests wait", waiting.len()),
                    ..TopicReport::default()
                });
            }
            (Phase::Opening(_, waiting), item) => waiting.push(item),
            (Phase::Closing(done), TopicItem::Close(reply)) => done.push(reply),
            (Phase::Closing(_), TopicItem::Closed) => self.gone(TopicEnd::Closed),
            (Phase::Closing(_), TopicItem::SubscriptionEnded(name)) => self.remove_subscription(&name),
            (Phase::Closing(_), item) => refuse(item, &closing()),
            (Phase::Gone(TopicEnd::Failed(error)), item) => refuse(item, &of_log(error)),
            (Phase::Gone(_), item) => refuse(item, &closing()),
            (Phase::Serving(_), item) => self.serve(item),
        }
    }

    fn opened(&mut self, opened: Result<(Opened, Vec<String>), ManagedLedgerError>) {
        let Phase::Opening(_, waiting) = &mut self.phase else { return };
        let waiting = std::mem::take(waiting);
        match opened {
            Ok((opened, cursors)) => {
                let log = Arc::clone(&opened.log);
                let appender = opened.appender(Arc::new(ToTopic(self.me.clone())));
                let terminated = appender.terminated().is_some();
                let names = Arc::clone(&self.options.producer_names);
                let epoch = appender.info().property(EPOCH_PROPERTY);
                let publishing = Publishing::new(names, self.to_others(), epoch, self.counts.clone(), terminated);
                self.counts.opened(&log);
                self.phase = Phase::Serving(Box::new(Serving { appender, publishing, draining: None }));
                for cursor in cursors {
                    self.start(&log, &cursor, true, Start::Existing);
                }
                waiting.into_iter().for_each(|item| self.handle(item));
            }
            Err(error) => {
                tracing::warn!(topic = %self.name, %error, "the topic cannot be opened");
                let why = of_log(&error);
                waiting.into_iter().for_each(|item| refuse(item, &why));
                self.gone(TopicEnd::Failed(error));
            }
        }
    }

    fn serve(&mut self, item: TopicItem) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let now = self.env.clock.now();
        if serving.draining.is_some()
            && matches!(
                item,
                TopicItem::Publish(_)
                    | TopicItem::OpenProducer(..)
                    | TopicItem::Subscribed { .. }
                    | TopicItem::Subscribe(..)
            )
        {
            return refuse(item, &closing());
        }
        match item {
            TopicItem::Appender(event) => serving.appender.handle_event(now, event),
            TopicItem::Publish(batch) => {
                batch.into_iter().for_each(|publish| serving.publishing.publish(now, publish, &mut serving.appender));
            }
            TopicItem::OpenProducer(producer) => self.open_producer(producer),
            TopicItem::Subscribed { name, result, producer } => self.initial_subscription(&name, result, producer),
            TopicItem::CloseProducer(key, connection) => serving.publishing.close(key, &connection),
            TopicItem::Subscribe(key, connection, spec) => {
                let log = Arc::clone(serving.appender.log());
                self.subscribe(&log, key, connection, spec);
            }
            TopicItem::MarkDeleted(name, position) => {
                if let Some(subscription) = self.subscriptions.get_mut(&name) {
                    subscription.mark_delete = Some(position);
                }
                self.trim();
            }
            TopicItem::SubscriptionEnded(name) => {
                self.remove_subscription(&name);
                self.counts.remove_subscription(&name);
                self.trim();
            }
            TopicItem::SubscriptionFailed(name, error) => {
                tracing::warn!(topic = %self.name, subscription = %name, %error, "a subscription failed: the topic is opened anew");
                self.remove_subscription(&name);
                self.fail(error);
            }
            TopicItem::IsActive(to) => {
                let has_messages = serving.appender.log().with_extents(|e| e.iter().any(|(_, entries)| entries > 0));
                let mut subscriptions = self.subscriptions.values();
                let has_consumers = subscriptions.any(|subscription| subscription.handle.has_schema_bound_consumers());
                to.send(Ok(has_messages || serving.publishing.len() > 0 || has_consumers));
            }
            TopicItem::Explain(to) => self.explain(to),
            TopicItem::Stats(to) => self.stats(to),
            TopicItem::InternalStats(to) => self.internal_stats(to),
            TopicItem::Order(order) => self.order(order),
            TopicItem::Close(done) => serving.draining.get_or_insert_default().push(done),
            TopicItem::Opened(_) | TopicItem::Closed => {}
        }
    }

    /// Opens a producer, after the subscription that it wants to be there first.
    fn open_producer(&mut self, mut producer: NewProducer) {
        let wall = self.env.clock.wall();
        let Phase::Serving(serving) = &mut self.phase else { return };
        let there = |name: &String| self.subscriptions.contains_key(name.as_str());
        let Some(name) = producer.spec.initial_subscription.take().filter(|name| !there(name)) else {
            return serving.publishing.open(wall, producer, &mut serving.appender);
        };
        let (ledgers, topic, me) = (self.options.ledgers.clone(), self.name.clone(), self.me.clone());
        self.env.control.spawn("initial subscription", OnPanic::ExitProcess, async move {
            let result = create_cursor(&ledgers, &topic, &name, Position::EARLIEST, &[]).await;
            if let Err(geminga_env::Closed(item)) = me.push(TopicItem::Subscribed { name, result, producer }) {
                refuse(item, &closing());
            }
        });
    }

    fn initial_subscription(&mut self, name: &str, result: Result<(), ManagedLedgerError>, producer: NewProducer) {
        let wall = self.env.clock.wall();
        let Phase::Serving(serving) = &mut self.phase else { return };
        match result {
            // Fenced: somebody else made it meanwhile.
            Ok(()) | Err(ManagedLedgerError::Fenced) => {
                let log = Arc::clone(serving.appender.log());
                serving.publishing.open(wall, producer, &mut serving.appender);
                if !self.subscriptions.contains_key(name) {
                    self.start(&log, name, true, Start::Existing);
                }
            }
            Err(error) => refuse(TopicItem::OpenProducer(producer), &of_log(&error)),
        }
    }

    fn to_others(&self) -> TopicHandle {
        let copies = self.options.ledgers.quorum.write as u64;
        TopicHandle { name: self.name.clone(), mailbox: self.me.clone(), counts: self.counts.clone(), copies }
    }

    fn subscribe(&mut self, log: &Arc<Log>, key: ConsumerKey, connection: ConnectionHandle, spec: Box<SubscribeSpec>) {
        let name = spec.subscription.clone();
        if !self.subscriptions.contains_key(name.as_str()) {
            self.start(log, &name, spec.durable, Start::of(&spec));
        }
        if let Some(subscription) = self.subscriptions.get(name.as_str()) {
            subscription.handle.subscribe(key, connection, spec);
        }
    }

    pub(crate) fn start(&mut self, log: &Arc<Log>, name: &str, durable: bool, start: Start) {
        let name: Arc<str> = name.into();
        let counts = SubscriptionCounts::new(durable);
        let handle = start_subscription(
            self.options.clone(),
            self.name.clone(),
            Arc::clone(&name),
            Arc::clone(log),
            self.me.clone(),
            durable,
            start,
            counts.clone(),
        );
        if matches!(&self.phase, Phase::Serving(serving) if serving.appender.terminated().is_some()) {
            handle.terminated();
        }
        self.counts.add_subscription(&name, counts);
        if self.subscriptions.is_empty() {
            // Most topics have one.
            self.subscriptions = LiteMap::with_capacity(1);
        }
        self.subscriptions.insert(name, Subscription { handle, durable, mark_delete: None });
        self.waking.places_changed(self.subscriptions.len());
    }

    fn remove_subscription(&mut self, name: &str) {
        self.subscriptions.remove(name);
        self.waking.places_changed(self.subscriptions.len());
    }

    /// Wakes some of those that wait for new entries.
    fn wake_some(&mut self) {
        for place in self.waking.step(self.subscriptions.len()) {
            if let Some((_, subscription)) = self.subscriptions.get_indexed(place) {
                subscription.handle.wake_if_waiting();
            }
        }
    }

    /// The end of a turn: submit, then receipts, then wake those that wait for new entries.
    fn flush(&mut self) {
        let now = self.env.clock.now();
        if matches!(&self.phase, Phase::Opening(until, _) if *until <= now) {
            // Whoever asks next opens it anew.
            let late = MetadataError::Unavailable(format!("its log could not be taken over within {OPEN_DEADLINE:?}"));
            return self.opened(Err(ManagedLedgerError::Metadata(late)));
        }
        let Phase::Serving(serving) = &mut self.phase else { return };
        if serving.appender.deadline().is_some_and(|deadline| deadline <= now) {
            serving.appender.handle_timeout(now);
        }
        serving.publishing.give_turns(&mut serving.appender);
        serving.appender.flush();
        let stored = serving.publishing.send_receipts(now, self.env.clock.wall(), &mut serving.appender);
        if stored && self.waking.begin(self.subscriptions.len()) {
            self.wake_some();
        }
        let Phase::Serving(serving) = &mut self.phase else { return };
        if let AppenderState::Failed(error) = serving.appender.state() {
            self.fail(error);
            return;
        }
        if !self.terminating.is_empty() && serving.appender.terminated().is_some() {
            self.terminated();
        }
        let Phase::Serving(serving) = &mut self.phase else { return };
        if serving.draining.is_some() && serving.publishing.pending() == 0 {
            self.close();
        }
    }

    /// Drops ledgers that every durable subscription has consumed; with none, all but the one that is written.
    fn trim(&mut self) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let mut first_kept = LedgerId(i64::MAX);
        for subscription in self.subscriptions.values().filter(|subscription| subscription.durable) {
            // One that does not know yet how far it is keeps everything.
            let Some(mark_delete) = subscription.mark_delete else { return };
            let next = serving.appender.log().with_extents(|extents| extents.next(mark_delete));
            first_kept = first_kept.min(next.map_or(LedgerId(i64::MAX), |next| next.ledger));
        }
        serving.appender.trim(first_kept);
    }

    /// Tells everyone connected, stores positions, closes the ledger.
    fn close(&mut self) {
        let Phase::Serving(mut serving) = std::mem::replace(&mut self.phase, Phase::Closing(vec![])) else { return };
        self.phase = Phase::Closing(serving.draining.take().unwrap_or_default());
        let producers = serving.publishing.len();
        serving.publishing.close_all();
        let closing_log = serving.appender.close();
        let mut ending = Vec::new();
        for subscription in self.subscriptions.values() {
            let (ask, answer) = reply();
            subscription.handle.close(ask);
            ending.push(answer);
        }
        let (me, name) = (self.me.clone(), self.name.clone());
        tracing::debug!(topic = %name, producers, subscriptions = ending.len(), "closing");
        self.env.control.spawn("close topic", OnPanic::ExitProcess, async move {
            for mut answer in ending {
                // A subscription that went away without an answer has nothing more to store.
                let _ = answer.wait().await;
            }
            if let Err(error) = closing_log.await {
                tracing::warn!(topic = %name, %error, "the last ledger is left to the next open");
            }
            drop(me.push(TopicItem::Closed));
        });
    }

    fn fail(&mut self, error: ManagedLedgerError) {
        if let Phase::Serving(serving) = &mut self.phase {
            serving.publishing.close_all();
            serving.draining.take().into_iter().flatten().for_each(|done| done.send(()));
        }
        for subscription in self.subscriptions.values() {
            subscription.handle.abandon();
        }
        self.gone(TopicEnd::Failed(error));
    }

    fn gone(&mut self, end: TopicEnd) {
        if let Phase::Closing(done) = std::mem::replace(&mut self.phase, Phase::Gone(end)) {
            done.into_iter().for_each(|done| done.send(()));
        }
    }
}
