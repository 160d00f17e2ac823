//! The life of a topic: it opens, serves, closes, and is gone.
//!
//! While it opens, requests wait in its hands. When its log fails, or it is told to close, everyone connected is told
//! and looks it up again; the next open begins from what is stored. So nothing ever needs an unload to get unstuck.

use std::sync::Arc;
use std::time::Duration;

use geminga_admin_model::{SubscriptionReport, TopicReport};
use geminga_env::{Budget, Env, Inbox, Mailbox, OnPanic, Reply, mailbox, reply};
use geminga_managed_ledger::{
    Appender, AppenderEvent, AppenderSink, AppenderState, Log, ManagedLedgerError, ManagedLedgers, Opened,
    create_cursor, list_cursors, open,
};
use geminga_metastore::MetadataError;
use geminga_model::{Instant, LedgerId, Position, TopicName};
use geminga_session::{ConsumerKey, Refusal, SubscribeSpec};
use litemap::LiteMap;

use crate::access::EPOCH_PROPERTY;
use crate::connection::ConnectionHandle;
use crate::counts::{SubscriptionCounts, TopicCounts};
use crate::operations::StillUsed;
use crate::publish::{NewProducer, ProducerNames, Publishing};
use crate::refusal::{closing, of_log};
use crate::subscription::{Start, SubscriptionHandle, start_subscription};
use crate::topic_handle::{TopicHandle, TopicItem, refuse};
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

/// Whoever asked for the topic to be closed if it is not used is told when it is closed.
fn told_unused(to: Reply<Result<(), StillUsed>>) -> Reply<()> {
    Reply::to(move |_| to.send(Ok(())))
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
    let handle = TopicHandle::new(name.clone(), mailbox.clone(), counts.clone(), copies);
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
    /// So many look whether it is used: nobody is let in meanwhile.
    looking: usize,
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
            (Phase::Opening(..), TopicItem::CloseIfUnused(done)) => done.send(Err(StillUsed::Opening)),
            (Phase::Opening(_, waiting), item) => waiting.push(item),
            (Phase::Closing(done), TopicItem::Close(reply)) => done.push(reply),
            (Phase::Closing(done), TopicItem::CloseIfUnused(reply) | TopicItem::Looked { asked: reply, .. }) => {
                done.push(told_unused(reply));
            }
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
                self.phase = Phase::Serving(Box::new(Serving { appender, publishing, draining: None, looking: 0 }));
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
        if (serving.draining.is_some() || serving.looking > 0)
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
            TopicItem::CloseIfUnused(asked) => self.look_whether_used(asked),
            TopicItem::Looked { consumers, asked } => {
                serving.looking -= 1;
                let producers = serving.publishing.len();
                if producers + consumers > 0 && serving.draining.is_none() {
                    asked.send(Err(StillUsed::Clients { producers, consumers }));
                } else {
                    serving.draining.get_or_insert_default().push(told_unused(asked));
                }
            }
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
        TopicHandle::new(self.name.clone(), self.me.clone(), self.counts.clone(), copies)
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

    /// Counts the consumers. Nobody is let in until that is known, so that nobody is acknowledged anything afterwards.
    fn look_whether_used(&mut self, asked: Reply<Result<(), StillUsed>>) {
        let answers = self.ask_subscriptions::<SubscriptionReport>(false, SubscriptionHandle::explain);
        let Phase::Serving(serving) = &mut self.phase else { return };
        serving.looking += 1;
        let me = self.me.clone();
        self.env.control.spawn("look whether used", OnPanic::ExitProcess, async move {
            let mut consumers = 0;
            for (_, mut answer) in answers {
                // One that went away has none.
                consumers += answer.wait().await.map_or(0, |report| report.consumers.len());
            }
            if let Err(geminga_env::Closed(item)) = me.push(TopicItem::Looked { consumers, asked }) {
                refuse(item, &closing());
            }
        });
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
