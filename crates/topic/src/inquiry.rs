//! What a topic tells about itself, and does, when an operator asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use geminga_admin_model::{
    CursorStats, InternalStats, LedgerStats, SubscriptionReport, SubscriptionStats, TopicReport, TopicStats, ratio,
};
use geminga_env::{OnPanic, Pending, Reply, reply};
use geminga_managed_ledger::{Appender, AppenderState};
use geminga_model::Position;
use geminga_session::Refusal;
use geminga_wire::ServerError;

use crate::operations::{Done, TopicOrder};
use crate::refusal::{closing, no_subscription};
use crate::subscription::{Start, SubscriptionHandle};
use crate::topic::{Phase, Topic};

impl Topic {
    pub(crate) fn explain(&self, to: Reply<TopicReport>) {
        let Phase::Serving(serving) = &self.phase else { return };
        let state = match serving.appender.state() {
            AppenderState::Idle if serving.appender.terminated().is_some() => {
                "serving; terminated: it takes no more messages".to_owned()
            }
            AppenderState::Idle => "serving; no ledger is open, the next message makes one".to_owned(),
            AppenderState::Writing(ledger) => format!("serving; writing ledger {ledger}"),
            AppenderState::Switching { since } => {
                format!("serving; changing ledgers for {:?}", self.env.clock.now().since(since))
            }
            AppenderState::Failed(error) => format!("failed: {error}"),
            AppenderState::Closed => "closed".to_owned(),
        };
        let log = serving.appender.log();
        let mut report = TopicReport {
            topic: self.name.to_string(),
            state,
            ledgers: log.with_extents(|e| e.iter().map(|(ledger, entries)| format!("{ledger} ({entries})")).collect()),
            last_confirmed: log.last_confirmed().to_string(),
            pending_publishes: serving.publishing.pending(),
            producers: serving.publishing.report(),
            subscriptions: Vec::new(),
        };
        let mut asked = Vec::new();
        for (name, subscription) in &self.subscriptions {
            let (ask, answer) = reply();
            subscription.handle.explain(ask);
            asked.push((name.to_string(), answer));
        }
        // Subscriptions answer by themselves; the topic goes on meanwhile.
        self.env.control.spawn("explain topic", OnPanic::Log, async move {
            for (name, mut answer) in asked {
                let unanswered = SubscriptionReport { name, why: Some("it is closing".into()), ..Default::default() };
                report.subscriptions.push(answer.wait().await.unwrap_or(unanswered));
            }
            to.send(report);
        });
    }

    /// Asks every subscription, or the durable ones only; they answer by themselves, and the topic goes on meanwhile.
    pub(crate) fn ask_subscriptions<T: Send + 'static>(
        &self,
        durable_only: bool,
        ask: impl Fn(&SubscriptionHandle, Reply<T>),
    ) -> Vec<(String, Pending<T>)> {
        let mut asked = Vec::new();
        for (name, subscription) in &self.subscriptions {
            if subscription.durable || !durable_only {
                let (to, answer) = reply();
                ask(&subscription.handle, to);
                asked.push((name.to_string(), answer));
            }
        }
        asked
    }

    pub(crate) fn stats(&self, to: Reply<TopicStats>) {
        let Phase::Serving(serving) = &self.phase else { return };
        let now = self.env.clock.now();
        let measures = self.counts.measure(now, 1);
        let mut stats = TopicStats {
            msg_rate_in: measures.rate_in,
            msg_throughput_in: measures.throughput_in,
            msg_rate_out: measures.subscriptions.iter().map(|subscription| subscription.rate_out).sum(),
            msg_throughput_out: measures.subscriptions.iter().map(|subscription| subscription.throughput_out).sum(),
            bytes_in_counter: measures.in_bytes,
            msg_in_counter: measures.in_messages,
            bytes_out_counter: measures.out_bytes,
            msg_out_counter: measures.out_messages,
            average_msg_size: ratio(measures.throughput_in, measures.rate_in),
            storage_size: measures.storage_size,
            backlog_size: measures.backlog_size,
            publishers: serving.publishing.stats(now),
            deduplication_status: "Disabled".to_owned(),
            last_publish_time_stamp: self.counts.last_publish().0,
            ..TopicStats::default()
        };
        let asked = self.ask_subscriptions::<SubscriptionStats>(false, SubscriptionHandle::stats);
        self.env.control.spawn("topic stats", OnPanic::Log, async move {
            for (name, mut answer) in asked {
                // One that is gone meanwhile is left out.
                if let Ok(subscription) = answer.wait().await {
                    stats.non_contiguous_deleted_messages_ranges += subscription.non_contiguous_deleted_messages_ranges;
                    stats.subscriptions.insert(name, subscription);
                }
            }
            to.send(stats);
        });
    }

    pub(crate) fn internal_stats(&self, to: Reply<InternalStats>) {
        let Phase::Serving(serving) = &self.phase else { return };
        let mut stats = of_log(&serving.appender);
        let asked = self.ask_subscriptions::<CursorStats>(true, SubscriptionHandle::cursor_stats);
        self.env.control.spawn("internal stats", OnPanic::Log, async move {
            let mut cursors = BTreeMap::new();
            for (name, mut answer) in asked {
                if let Ok(cursor) = answer.wait().await {
                    stats.waiting_cursors_count += usize::from(cursor.waiting_read_op);
                    cursors.insert(name, cursor);
                }
            }
            stats.cursors = cursors;
            to.send(stats);
        });
    }

    pub(crate) fn order(&mut self, order: TopicOrder) {
        let Phase::Serving(serving) = &mut self.phase else { return order.refuse(&closing()) };
        match order {
            TopicOrder::Log(to) => to.send(Ok(Arc::clone(serving.appender.log()))),
            TopicOrder::Terminate(to) => self.terminate(to),
            TopicOrder::Subscriptions(to) => {
                to.send(Ok(self.subscriptions.keys().map(|name| name.to_string()).collect()))
            }
            TopicOrder::Subscribe { name, first, properties, done } => {
                self.add_subscription(name, first, properties, done)
            }
            TopicOrder::Subscription(name, order) => match self.subscriptions.get(name.as_str()) {
                Some(subscription) => subscription.handle.order(order),
                None => order.refuse(&no_subscription(&name)),
            },
        }
    }

    fn add_subscription(&mut self, name: String, first: Position, properties: Vec<(String, String)>, done: Done) {
        let Phase::Serving(serving) = &self.phase else { return done.send(Err(closing())) };
        if serving.draining.is_some() {
            return done.send(Err(closing()));
        }
        if self.subscriptions.contains_key(name.as_str()) {
            let exists = Refusal::new(ServerError::NotAllowedError, "Subscription already exists for topic");
            return done.send(Err(exists));
        }
        let log = Arc::clone(serving.appender.log());
        self.start(&log, &name, true, Start::New(first, properties));
        if let Some(subscription) = self.subscriptions.get(name.as_str()) {
            subscription.handle.ready(done);
        }
    }

    /// What was published before gets its receipts; what comes now is refused.
    fn terminate(&mut self, to: Reply<Result<Position, Refusal>>) {
        let Phase::Serving(serving) = &mut self.phase else { return to.send(Err(closing())) };
        if serving.draining.is_some() {
            return to.send(Err(closing()));
        }
        self.terminating.push(to);
        serving.publishing.terminate();
        serving.appender.terminate(self.env.clock.now());
    }

    /// The end is stored: whoever waits for it is told, and everyone connected.
    pub(crate) fn terminated(&mut self) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        let Some(end) = serving.appender.terminated() else { return };
        serving.publishing.close_all();
        self.subscriptions.values().for_each(|subscription| subscription.handle.terminated());
        self.terminating.drain(..).for_each(|to| to.send(Ok(end)));
    }
}

fn of_log(appender: &Appender) -> InternalStats {
    let log = appender.log();
    let extents: Vec<(geminga_model::LedgerId, i64)> = log.with_extents(|extents| extents.iter().collect());
    let sizes: BTreeMap<_, u64> = log.sizes().into_iter().collect();
    let ledgers: Vec<LedgerStats> = (extents.iter())
        .map(|(ledger, entries)| LedgerStats {
            ledger_id: ledger.0,
            entries: *entries,
            size: i64::try_from(sizes.get(ledger).copied().unwrap_or(0)).unwrap_or(i64::MAX),
            ..LedgerStats::default()
        })
        .collect();
    let state = match appender.state() {
        _ if appender.terminated().is_some() => "Terminated",
        AppenderState::Writing(_) => "LedgerOpened",
        // Fact: Java opens a ledger with the topic; here the first message does.
        AppenderState::Idle => "ClosedLedger",
        AppenderState::Switching { .. } => "CreatingLedger",
        AppenderState::Failed(_) => "Fenced",
        AppenderState::Closed => "Closed",
    };
    let last = ledgers.last();
    InternalStats {
        number_of_entries: ledgers.iter().map(|ledger| ledger.entries.unsigned_abs()).sum(),
        total_size: log.size(),
        current_ledger_entries: last.map_or(0, |ledger| ledger.entries.unsigned_abs()),
        current_ledger_size: last.map_or(0, |ledger| ledger.size.unsigned_abs()),
        pending_add_entries_count: appender.pending(),
        last_confirmed_entry: log.last_confirmed().to_string(),
        state: state.to_owned(),
        ledgers,
        ..InternalStats::default()
    }
}
