//! What moves a subscription or ends it, asked by a consumer or by an operator.

use std::sync::Arc;

use geminga_env::OnPanic;
use geminga_managed_ledger::{ManagedLedgerError, delete_cursor};
use geminga_model::Position;
use geminga_session::{Refusal, SeekTarget};
use geminga_wire::ServerError;

use crate::operations::{Asker, Done, SubscriptionOrder};
use crate::refusal::{closing, of_log};
use crate::seek;
use crate::subscription::{SubscriptionItem, refuse};
use crate::subscription_task::{ORPHAN_DEADLINE, Phase, Subscription};

impl Subscription {
    pub(crate) fn order(&mut self, order: SubscriptionOrder) {
        let Phase::Serving(serving) = &mut self.phase else { return order.refuse(&closing()) };
        match order {
            SubscriptionOrder::Skip(count, done) => {
                let (cursor, log) = (&serving.cursor, &self.log);
                let to = log.with_extents(|e| cursor.nth_unacked(count, e).unwrap_or_else(|| e.end()));
                self.skip_through(if count == 0 { Position::EARLIEST } else { to }, done);
            }
            SubscriptionOrder::SkipAll(done) => self.skip_through(Position::LATEST, done),
            SubscriptionOrder::Reset(target, done) => self.seek(Asker::Operator(done), target),
            SubscriptionOrder::Delete(force, done) => self.unsubscribe(Asker::Operator(done), force),
            SubscriptionOrder::Nth(n, to) => {
                let nth = self.log.with_extents(|extents| serving.cursor.nth_unacked(n, extents));
                to.send(Ok(nth));
            }
        }
    }

    /// Acks everything up to and including `position`, or up to the end of the topic if that is earlier.
    fn skip_through(&mut self, position: Position, done: Done) {
        let Phase::Serving(serving) = &mut self.phase else { return done.send(Err(closing())) };
        if serving.fenced {
            let busy = Refusal::new(ServerError::ConsumerBusy, "Subscription is busy: it is being moved");
            return done.send(Err(busy));
        }
        self.log.with_extents(|extents| serving.cursor.ack_cumulative(position, extents));
        serving.dispatcher.acked_through(serving.cursor.mark_delete());
        self.acked(Some(Asker::Operator(done)));
    }

    pub(crate) fn seek(&mut self, asker: Asker, target: SeekTarget) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        if serving.fenced {
            let busy = Refusal::new(ServerError::ConsumerBusy, "Subscription is busy: another seek is under way");
            return asker.answer(Err(busy));
        }
        // Fact: clients expect their consumers to be cut off before the answer.
        for id in serving.consumers.close_all() {
            serving.dispatcher.remove_consumer(id, serving.cursor.mark_delete());
        }
        serving.fenced = true;
        let (log, me) = (Arc::clone(&self.log), self.me.clone());
        self.env.control.spawn("seek", OnPanic::ExitProcess, async move {
            let sought = seek::find(&log, &target).await;
            if let Err(geminga_env::Closed(item)) = me.push(SubscriptionItem::Sought(asker, sought)) {
                refuse(item, &closing());
            }
        });
    }

    pub(crate) fn sought(&mut self, asker: Asker, target: Result<Position, ManagedLedgerError>) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        serving.fenced = false;
        if !self.durable {
            serving.orphan_until = Some(self.env.clock.now() + ORPHAN_DEADLINE);
        }
        match target {
            Ok(mark_delete) => {
                serving.cursor.reset(mark_delete);
                serving.dispatcher.rewind(mark_delete);
                serving.reading.restart();
                self.acked(Some(asker));
            }
            Err(error) => asker.answer(Err(of_log(&error))),
        }
    }

    pub(crate) fn unsubscribe(&mut self, asker: Asker, force: bool) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        // A consumer may be the one that unsubscribes; an operator is none of them.
        let others = match &asker {
            Asker::Client(..) => serving.consumers.len() > 1,
            Asker::Operator(_) => serving.consumers.len() > 0,
        };
        if serving.fenced || (others && !force) {
            let refusal = match &asker {
                Asker::Client(..) => {
                    let message = "Unconnected or shared consumer attempting to unsubscribe";
                    Refusal::new(ServerError::MetadataError, message)
                }
                Asker::Operator(_) => {
                    Refusal::new(ServerError::ConsumerBusy, "Subscription has active connected consumers")
                }
            };
            return asker.answer(Err(refusal));
        }
        serving.fenced = true;
        if !self.durable {
            return self.deleted(asker, Ok(()));
        }
        let (ledgers, topic, name) = (self.options.ledgers.clone(), self.topic.clone(), Arc::clone(&self.name));
        let me = self.me.clone();
        self.env.control.spawn("unsubscribe", OnPanic::ExitProcess, async move {
            let result = delete_cursor(&ledgers, &topic, &name).await;
            if let Err(geminga_env::Closed(item)) = me.push(SubscriptionItem::Deleted(asker, result)) {
                refuse(item, &closing());
            }
        });
    }

    pub(crate) fn deleted(&mut self, asker: Asker, result: Result<(), ManagedLedgerError>) {
        let Phase::Serving(serving) = &mut self.phase else { return };
        match result {
            Ok(()) | Err(ManagedLedgerError::CursorNotFound) => {
                asker.answer(Ok(()));
                serving.consumers.close_all();
                self.end();
            }
            Err(error) => {
                serving.fenced = false;
                asker.answer(Err(of_log(&error)));
            }
        }
    }
}
