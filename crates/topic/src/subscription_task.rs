//! The task of a subscription: what it does in a turn.
//!
//! The task owns the cursor and the dispatcher. A turn takes what arrived, then dispatches, then saves what must be
//! saved, then sends. It waits for new entries by saying so in a flag, which the topic looks at after each commit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use geminga_admin_model::SubscriptionReport;
use geminga_cursor::{Cursor, UnackedSet};
use geminga_dispatch::{ConsumerId, ConsumerState, Dispatcher, Kind, NewConsumer};
use geminga_env::{Budget, Env, Inbox, Mailbox, OnPanic, Reply};
use geminga_managed_ledger::{CursorStore, Log};
use geminga_model::{Instant, Position, TopicName};
use geminga_session::{Answer, ConsumerKey, Refusal, SubscribeSpec};
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::command_subscribe::SubType;
use geminga_wire::{MessageId, ServerError};

use crate::connection::{ConnectionHandle, ConnectionItem};
use crate::consumers::Consumers;
use crate::counts::{SubscriptionCounts, SubscriptionNow};
use crate::delivery::Reading;
use crate::last_message;
use crate::operations::Asker;
use crate::refusal::{closing, not_in_this_version, of_busy, of_log};
use crate::saving::COALESCE_COUNTS;
use crate::subscription::{ConsumerHandle, ConsumerItem, OpenedCursor, SubscriptionItem, refuse};
use crate::topic::TopicOptions;
use crate::topic_handle::TopicItem;

/// How long a subscription that is not stored lives without a consumer after a seek.
pub(crate) const ORPHAN_DEADLINE: Duration = Duration::from_secs(60);

pub(crate) enum Phase {
    Opening(Vec<SubscriptionItem>),
    Serving(Box<Serving>),
    /// Its last state is being saved.
    Closing(Box<Serving>, Reply<()>),
    Gone(Refusal),
}

/// What a subscription that is open has.
pub(crate) struct Serving {
    pub(crate) cursor: Cursor,
    pub(crate) store: Option<CursorStore>,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) consumers: Consumers,
    pub(crate) reading: Reading,
    /// Consumers that became full while entries were handed out.
    pub(crate) full: Vec<ConsumerId>,
    pub(crate) saved: u64,
    /// The mark-delete positions of the last save, and of the one under way.
    pub(crate) saved_mark_delete: Position,
    pub(crate) saving_mark_delete: Position,
    /// Who waits until the state of a revision is durable.
    pub(crate) receipts: VecDeque<(u64, Asker)>,
    pub(crate) save_at: Option<Instant>,
    pub(crate) told_mark_delete: Option<Position>,
    /// A seek or an unsubscribe is under way: nobody may join.
    pub(crate) fenced: bool,
    /// A subscription that is not stored waits so long for its consumer to come back after a seek.
    pub(crate) orphan_until: Option<Instant>,
}

pub(crate) struct Subscription {
    pub(crate) env: Env,
    pub(crate) options: TopicOptions,
    pub(crate) topic: TopicName,
    pub(crate) name: Arc<str>,
    pub(crate) log: Arc<Log>,
    pub(crate) me: Mailbox<SubscriptionItem>,
    pub(crate) to_topic: Mailbox<TopicItem>,
    pub(crate) waiting: Arc<AtomicBool>,
    schema_bound: Arc<AtomicUsize>,
    pub(crate) durable: bool,
    /// The topic takes no more messages.
    terminated: bool,
    pub(crate) counts: SubscriptionCounts,
    pub(crate) phase: Phase,
}

impl Subscription {
    /// A subscription whose cursor is being opened.
    #[allow(clippy::too_many_arguments)] // these are what it owns
    pub(crate) fn new(
        options: TopicOptions,
        topic: TopicName,
        name: Arc<str>,
        log: Arc<Log>,
        me: Mailbox<SubscriptionItem>,
        to_topic: Mailbox<TopicItem>,
        waiting: Arc<AtomicBool>,
        schema_bound: Arc<AtomicUsize>,
        durable: bool,
        counts: SubscriptionCounts,
    ) -> Subscription {
        let env = options.ledgers.env.clone();
        let phase = Phase::Opening(Vec::new());
        let terminated = false;
        Subscription {
            env,
            options,
            topic,
            name,
            log,
            me,
            to_topic,
            waiting,
            schema_bound,
            durable,
            terminated,
            counts,
            phase,
        }
    }

    pub(crate) fn read_ahead(&self) -> &Budget {
        &self.options.read_ahead
    }

    pub(crate) async fn run(mut self: Box<Self>, mut inbox: Inbox<SubscriptionItem>) {
        let clock = self.env.clock;
        loop {
            // An idle subscription keeps no room for items.
            let mut batch = Vec::new();
            tokio::select! {
                biased;
                () = inbox.wait() => {}
                () = clock.sleep_until_some(self.deadline()) => {}
            }
            inbox.take(&mut batch);
            batch.drain(..).for_each(|item| self.handle(item));
            let more = self.flush();
            if let Phase::Gone(why) = &self.phase {
                let why = why.clone();
                inbox.close();
                inbox.take(&mut batch);
                batch.drain(..).for_each(|item| refuse(item, &why));
                return;
            }
            if more {
                // Others first; then this subscription goes on as if new entries had come.
                tokio::task::yield_now().await;
                drop(self.me.push(SubscriptionItem::NewEntries));
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let (Phase::Serving(serving) | Phase::Closing(serving, _)) = &self.phase else { return None };
        let store = serving.store.as_ref();
        let save_at = serving.save_at.filter(|_| store.is_some_and(|store| !store.is_busy()));
        let store_deadline = store.and_then(CursorStore::deadline);
        [save_at, store_deadline, serving.reading.retry_at(), serving.orphan_until].into_iter().flatten().min()
    }

    fn handle(&mut self, item: SubscriptionItem) {
        match (&mut self.phase, item) {
            (Phase::Opening(_), SubscriptionItem::Opened(opened)) => self.opened(*opened),
            (Phase::Opening(_), SubscriptionItem::Abandon) => self.gone(closing()),
            (Phase::Opening(_), SubscriptionItem::Explain(to)) => {
                to.send(SubscriptionReport {
                    name: self.name.to_string(),
                    durable: self.durable,
                    why: Some("opening: taking over its cursor".to_owned()),
                    ..SubscriptionReport::default()
                });
            }
            (_, SubscriptionItem::Terminated) => self.terminated = true,
            (Phase::Opening(waiting), item) => waiting.push(item),
            (Phase::Closing(..), SubscriptionItem::Cursor(event)) => self.cursor_event(event),
            (Phase::Closing(..), SubscriptionItem::Abandon) => self.gone(closing()),
            (Phase::Closing(..), item) => refuse(item, &closing()),
            (Phase::Gone(why), item) => refuse(item, why),
            (Phase::Serving(_), item) => self.serve(item),
        }
    }

    fn opened(&mut self, opened: OpenedCursor) {
        let Phase::Opening(waiting) = &mut self.phase else { return };
        let waiting = std::mem::take(waiting);
        match opened {
            Ok((store, cursor)) => {
                let dispatcher = Dispatcher::new(Kind::Shared, cursor.mark_delete());
                let (saved, mark_delete) = (cursor.revision(), cursor.mark_delete());
                self.phase = Phase::Serving(Box::new(Serving {
                    cursor,
                    store,
                    dispatcher,
                    consumers: Consumers::new(Arc::clone(&self.schema_bound)),
                    reading: Reading::default(),
                    full: Vec::new(),
                    saved,
                    saved_mark_delete: mark_delete,
                    saving_mark_delete: mark_delete,
                    receipts: VecDeque::new(),
                    save_at: None,
                    told_mark_delete: None,
                    fenced: false,
                    orphan_until: None,
                }));
                waiting.into_iter().for_each(|item| self.handle(item));
            }
            Err(error) => {
                let why = of_log(&error);
                waiting.into_iter().for_each(|item| refuse(item, &why));
                drop(self.to_topic.push(TopicItem::SubscriptionFailed(Arc::clone(&self.name), error)));
                self.gone(why);
            }
        }
    }

    fn serve(&mut self, item: SubscriptionItem) {
        let now = self.env.clock.now();
        match item {
            SubscriptionItem::Subscribe(key, connection, spec) => self.subscribe(key, connection, &spec),
            SubscriptionItem::Consumer(id, connection, item) => self.consumer(id, connection, item),
            SubscriptionItem::Cursor(event) => self.cursor_event(event),
            SubscriptionItem::Explain(to) => to.send(self.report()),
            SubscriptionItem::Stats(to) => to.send(self.stats()),
            SubscriptionItem::CursorStats(to) => to.send(self.cursor_stats()),
            SubscriptionItem::Ready(done) => done.send(Ok(())),
            SubscriptionItem::Order(order) => self.order(order),
            SubscriptionItem::Sought(asker, target) => self.sought(asker, target),
            SubscriptionItem::Deleted(asker, result) => self.deleted(asker, result),
            SubscriptionItem::Close(done) => self.close(done),
            SubscriptionItem::Abandon => {
                if let Phase::Serving(serving) = &mut self.phase {
                    serving.consumers.close_all();
                }
                self.gone(closing());
            }
            SubscriptionItem::Read(read) => {
                if let Phase::Serving(serving) = &mut self.phase {
                    serving.reading.finished(now, read);
                }
            }
            SubscriptionItem::Drained(id) => {
                if let Phase::Serving(serving) = &mut self.phase {
                    serving.dispatcher.set_room(id, true);
                }
            }
            SubscriptionItem::NewEntries | SubscriptionItem::Opened(_) | SubscriptionItem::Terminated => {}
        }
    }

    fn subscribe(&mut self, key: ConsumerKey, connection: ConnectionHandle, spec: &SubscribeSpec) {
        let result = self.admit(key, &connection, spec);
        let added = result.as_ref().ok().map(ConsumerHandle::id);
        if !connection.offer(ConnectionItem::ConsumerSubscribed { consumer: key, result })
            && let Some(id) = added
        {
            // Its connection ended while it was added.
            return self.remove(id);
        }
        let empty = matches!(&self.phase, Phase::Serving(serving) if serving.consumers.len() == 0);
        if empty && !self.durable {
            self.end();
        }
        if let Phase::Serving(serving) = &mut self.phase
            && serving.dispatcher.kind() == Kind::Failover
        {
            serving.consumers.tell_active(serving.dispatcher.active());
        }
    }

    fn admit(
        &mut self,
        key: ConsumerKey,
        connection: &ConnectionHandle,
        spec: &SubscribeSpec,
    ) -> Result<ConsumerHandle, Refusal> {
        let Phase::Serving(serving) = &mut self.phase else { return Err(closing()) };
        let kind = match spec.sub_type {
            SubType::Exclusive => Kind::Exclusive,
            SubType::Failover => Kind::Failover,
            SubType::Shared => Kind::Shared,
            SubType::KeyShared => Kind::KeyShared {
                sticky: spec.key_shared.as_ref().is_some_and(|keys| keys.sticky.is_some()),
                out_of_order: spec.key_shared.as_ref().is_some_and(|keys| keys.allow_out_of_order),
            },
        };
        // Nothing is compacted in this version, so what a compacted read delivers is everything.
        for (asked, what) in [
            (spec.replicate_state, "replicated subscriptions"),
            (!spec.start_rollback.is_zero(), "starting a subscription at a time"),
        ] {
            if asked {
                return Err(not_in_this_version(what));
            }
        }
        if serving.fenced {
            return Err(Refusal::new(ServerError::ConsumerBusy, "the subscription is being moved; try again"));
        }
        if spec.durable != self.durable {
            let message = "the subscription exists both as durable and not: choose another name";
            return Err(Refusal::new(ServerError::NotAllowedError, message));
        }
        let id = serving.consumers.next_id();
        let consumer = NewConsumer {
            id,
            name: spec.consumer_name.clone(),
            priority: spec.priority_level,
            max_unacked: self.options.max_unacked_per_consumer,
            ranges: spec.key_shared.as_ref().and_then(|keys| keys.sticky.clone()).unwrap_or_default(),
        };
        serving.dispatcher.add_consumer(kind, consumer, serving.cursor.mark_delete()).map_err(of_busy)?;
        serving.consumers.add(self.env.clock.wall(), id, key, connection.clone(), spec);
        serving.orphan_until = None;
        Ok(ConsumerHandle::new(id, key, connection.clone(), self.me.clone()))
    }

    fn consumer(&mut self, id: ConsumerId, connection: ConnectionHandle, item: ConsumerItem) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        if serving.consumers.get(id).is_none() {
            // It was cut off before the command arrived.
            let gone = Refusal::new(ServerError::MetadataError, "Consumer not found");
            return refuse(SubscriptionItem::Consumer(id, connection, item), &gone);
        }
        match item {
            ConsumerItem::Flow(permits) => {
                serving.consumers.flowed(id, self.env.clock.wall());
                serving.dispatcher.flow(id, permits);
            }
            ConsumerItem::Ack { ack_type, message_ids, request } => {
                let single = matches!(serving.dispatcher.kind(), Kind::Exclusive | Kind::Failover);
                let before = serving.cursor.mark_delete();
                match ack_type {
                    AckType::Individual => self.ack(&message_ids),
                    AckType::Cumulative if single => self.ack_cumulative(&message_ids),
                    AckType::Cumulative => {
                        tracing::warn!(topic = %self.topic, subscription = %self.name, "a cumulative ack is ignored: several consumers share the subscription");
                    }
                }
                self.count_acks(id, ack_type, message_ids.len(), before);
                self.acked(request.map(|request| Asker::Client(request, connection)));
            }
            ConsumerItem::Redeliver { positions, epoch } => {
                if let (Some(epoch), Some(consumer)) = (epoch, serving.consumers.get_mut(id)) {
                    consumer.epoch = consumer.epoch.max(Some(epoch));
                }
                let again = serving.dispatcher.redeliver(id, &positions, serving.cursor.mark_delete());
                serving.cursor.redelivered(again);
                serving.reading.restart();
                self.save_within(COALESCE_COUNTS);
            }
            ConsumerItem::Seek(request, target) => self.seek(Asker::Client(request, connection), target),
            ConsumerItem::Unsubscribe(request, force) => self.unsubscribe(Asker::Client(request, connection), force),
            ConsumerItem::LastMessageId(request) => {
                let mark_delete = serving.cursor.mark_delete();
                let task = last_message::answer(Arc::clone(&self.log), mark_delete, connection, request);
                self.env.control.spawn("last message id", OnPanic::Log, task);
            }
            ConsumerItem::Stats(request) => {
                let stats = self.consumer_stats(id);
                connection.answer(request, Ok(Answer::ConsumerStats(Box::new(stats))));
            }
            ConsumerItem::Close => self.remove(id),
        }
    }

    fn remove(&mut self, id: ConsumerId) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        if let Some(consumer) = serving.consumers.remove(id) {
            serving.dispatcher.remove_consumer(id, serving.cursor.mark_delete());
            serving.reading.restart();
            consumer.connection.push(ConnectionItem::ConsumerClosed(consumer.key));
        }
        if serving.dispatcher.kind() == Kind::Failover {
            serving.consumers.tell_active(serving.dispatcher.active());
        }
        if serving.consumers.len() == 0 && !self.durable && !serving.fenced {
            self.end();
        }
    }

    fn ack(&mut self, message_ids: &[MessageId]) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let Serving { cursor, dispatcher, .. } = &mut **serving;
        self.log.with_extents(|extents| {
            for id in message_ids {
                if id.ack_set.is_empty() {
                    cursor.ack([id.position], extents);
                } else {
                    cursor.ack_in_batch(id.position, &UnackedSet::from_words(&id.ack_set), extents);
                }
                if cursor.is_acked(id.position) {
                    dispatcher.acked(id.position);
                }
            }
        });
    }

    /// Entries of a cumulative ack are those that the mark-delete position passed.
    fn count_acks(&mut self, id: ConsumerId, ack_type: AckType, listed: usize, before: Position) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let entries = match ack_type {
            AckType::Individual => listed as u64,
            AckType::Cumulative => self.log.with_extents(|extents| extents.count(before, serving.cursor.mark_delete())),
        };
        serving.consumers.acked(id, self.env.clock.now(), self.env.clock.wall(), entries);
    }

    fn ack_cumulative(&mut self, message_ids: &[MessageId]) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let [id] = message_ids else { return };
        let cursor = &mut serving.cursor;
        self.log.with_extents(|extents| {
            if id.ack_set.is_empty() {
                cursor.ack_cumulative(id.position, extents);
            } else {
                cursor.ack_cumulative(extents.previous(id.position), extents);
                cursor.ack_in_batch(id.position, &UnackedSet::from_words(&id.ack_set), extents);
            }
        });
        serving.dispatcher.acked_through(cursor.mark_delete());
    }

    /// Nothing is left of the subscription.
    pub(crate) fn end(&mut self) {
        drop(self.to_topic.push(TopicItem::SubscriptionEnded(Arc::clone(&self.name))));
        self.gone(closing());
    }

    /// The topic closes: consumers are cut off, and the last state is stored.
    fn close(&mut self, done: Reply<()>) {
        if let Phase::Serving(mut serving) = std::mem::replace(&mut self.phase, Phase::Gone(closing())) {
            serving.consumers.close_all();
            serving.save_at = Some(Instant::default());
            self.phase = Phase::Closing(serving, done);
        }
    }

    pub(crate) fn gone(&mut self, why: Refusal) {
        if let Phase::Opening(waiting) = &mut self.phase {
            waiting.drain(..).for_each(|item| refuse(item, &why));
        }
        self.phase = Phase::Gone(why);
    }

    /// The end of a turn. Tells whether there is more to dispatch at once.
    fn flush(&mut self) -> bool {
        let now = self.env.clock.now();
        let more = self.dispatch(now);
        let closes = matches!(self.phase, Phase::Closing(..));
        let (Phase::Serving(serving) | Phase::Closing(serving, _)) = &mut self.phase else { return false };
        serving.save(now, closes);
        serving.consumers.flush();
        if self.terminated && self.log.with_extents(|extents| serving.cursor.backlog(extents)) == 0 {
            serving.consumers.tell_end();
        }
        count(&self.counts, &self.env, serving, self.durable);
        if serving.orphan_until.is_some_and(|until| until <= now) {
            self.end();
            return false;
        }
        self.tell_mark_delete();
        self.finish_close();
        more
    }

    fn dispatch(&mut self, now: Instant) -> bool {
        let mut phase = std::mem::replace(&mut self.phase, Phase::Gone(closing()));
        let more = match &mut phase {
            Phase::Serving(serving) => serving.dispatch(now, self),
            _ => false,
        };
        self.phase = phase;
        more
    }

    fn finish_close(&mut self) {
        if !matches!(&self.phase, Phase::Closing(serving, _) if serving.is_saved(true)) {
            return;
        }
        if let Phase::Closing(_, done) = std::mem::replace(&mut self.phase, Phase::Gone(closing())) {
            done.send(());
        }
    }
}

/// Brings up to date what others read of the subscription.
fn count(counts: &SubscriptionCounts, env: &Env, serving: &mut Serving, durable: bool) {
    let states = serving.dispatcher.consumers();
    let state = SubscriptionNow {
        durable,
        mark_delete: serving.cursor.mark_delete(),
        acked_beyond: serving.cursor.acked_beyond(),
        consumers: states.len(),
        unacked: states.iter().map(ConsumerState::unacked).sum(),
        blocked: states.iter().any(ConsumerState::is_blocked),
        replaying: serving.dispatcher.replaying(),
    };
    let turn = serving.consumers.take_turn();
    counts.turn(env.clock.now(), env.clock.wall(), &turn, state);
}
