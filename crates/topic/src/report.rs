//! What a subscription tells about itself: for `explain`, and for the statistics that a client asks of its consumer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use geminga_admin_model::{CursorStats, SubscriptionReport, SubscriptionStats};
use geminga_dispatch::{ConsumerId, ConsumerState, Kind, Why};
use geminga_managed_ledger::CursorStore;
use geminga_model::LedgerId;
use geminga_records::AckedRange;
use geminga_wire::proto;

use crate::subscription_task::{Phase, Subscription};

impl Subscription {
    pub(crate) fn report(&self) -> SubscriptionReport {
        let Phase::Serving(serving) = &self.phase else { return SubscriptionReport::default() };
        let dispatcher = &serving.dispatcher;
        let none = serving.consumers.len() == 0;
        let reading = serving.reading.why(self.env.clock.now());
        SubscriptionReport {
            name: self.name.to_string(),
            kind: kind_name(dispatcher.kind()).to_owned(),
            durable: self.durable,
            mark_delete: serving.cursor.mark_delete().to_string(),
            read_position: dispatcher.read_position().to_string(),
            backlog: self.log.with_extents(|extents| serving.cursor.backlog(extents)),
            acked_beyond: serving.cursor.acked_beyond(),
            consumers: serving.consumers.report(dispatcher, reading.as_deref()),
            why: none.then(|| Why::NoConsumers.to_string()).or(reading),
        }
    }

    pub(crate) fn stats(&self) -> SubscriptionStats {
        let Phase::Serving(serving) = &self.phase else { return SubscriptionStats::default() };
        let now = self.env.clock.now();
        let dispatcher = &serving.dispatcher;
        let backlog = self.log.with_extents(|extents| serving.cursor.backlog(extents));
        let measures = self.counts.measure(now, Arc::clone(&self.name), |_| backlog);
        let states = dispatcher.consumers();
        let active = dispatcher.active().and_then(|id| serving.consumers.get(id));
        let (mode, out_of_order) = match dispatcher.kind() {
            Kind::KeyShared { sticky, out_of_order } => {
                (Some(if sticky { "STICKY" } else { "AUTO_SPLIT" }), out_of_order)
            }
            Kind::Exclusive | Kind::Failover | Kind::Shared => (None, false),
        };
        let properties = serving.store.as_ref().map(|store| store.properties().iter().cloned().collect());
        SubscriptionStats {
            msg_rate_out: measures.rate_out,
            msg_throughput_out: measures.throughput_out,
            bytes_out_counter: measures.out_bytes,
            msg_out_counter: measures.out_messages,
            msg_rate_redeliver: measures.rate_redelivered,
            message_ack_rate: measures.rate_acked,
            msg_backlog: Some(backlog),
            backlog_size: i64::try_from(self.log.size_after(serving.cursor.mark_delete())).unwrap_or(i64::MAX),
            msg_backlog_no_delayed: Some(backlog),
            blocked_subscription_on_unacked_msgs: states.iter().any(ConsumerState::is_blocked),
            msg_delayed: 0,
            msg_in_replay: dispatcher.replaying() as u64,
            unacked_messages: states.iter().map(ConsumerState::unacked).sum(),
            kind: (!states.is_empty()).then(|| kind_name(dispatcher.kind()).to_owned()),
            active_consumer_name: active.map(|consumer| consumer.name.clone()),
            last_consumed_flow_timestamp: measures.last_flow.0,
            last_consumed_timestamp: measures.last_consumed.0,
            last_acked_timestamp: measures.last_acked.0,
            last_mark_delete_advanced_timestamp: measures.last_advance.0,
            consumers: serving.consumers.stats(now, dispatcher),
            is_durable: self.durable,
            durable: self.durable,
            is_replicated: false,
            replicated: false,
            allow_out_of_order_delivery: out_of_order,
            key_shared_mode: mode.map(str::to_owned),
            non_contiguous_deleted_messages_ranges: serving.cursor.range_count() as u64,
            subscription_properties: properties.unwrap_or_default(),
        }
    }

    pub(crate) fn cursor_stats(&self) -> CursorStats {
        let Phase::Serving(serving) = &self.phase else { return CursorStats::default() };
        let snapshot = serving.cursor.snapshot();
        let range = |range: &AckedRange| format!("({}..{}]", range.lower, range.upper);
        let ranges: Vec<String> = snapshot.acked_ranges().iter().map(range).collect();
        let mark_delete = serving.cursor.mark_delete();
        let read_after = serving.dispatcher.read_position();
        let (next, since) = self.log.with_extents(|extents| {
            (extents.next(read_after).unwrap_or(read_after.next()), extents.count(mark_delete, extents.end()))
        });
        let ledger = serving.store.as_ref().and_then(CursorStore::ledger);
        CursorStats {
            mark_delete_position: mark_delete.to_string(),
            read_position: next.to_string(),
            waiting_read_op: self.waiting.load(Ordering::Acquire),
            pending_read_ops: u32::from(serving.reading.is_under_way()),
            cursor_ledger: ledger.unwrap_or(LedgerId::NONE).0,
            total_non_contiguous_deleted_messages_range: ranges.len() as u64,
            individually_deleted_messages: format!("[{}]", ranges.join(", ")),
            state: if ledger.is_some() { "Open" } else { "NoLedger" }.to_owned(),
            number_of_entries_since_first_not_acked_message: since,
            properties: snapshot.properties.iter().cloned().collect(),
        }
    }

    pub(crate) fn consumer_stats(&self, id: ConsumerId) -> proto::CommandConsumerStatsResponse {
        let Phase::Serving(serving) = &self.phase else { return Default::default() };
        let state = serving.dispatcher.consumers().iter().find(|state| state.id() == id);
        let consumer = serving.consumers.get(id);
        proto::CommandConsumerStatsResponse {
            consumer_name: consumer.map(|consumer| consumer.name.clone()),
            available_permits: state.map(|state| state.permits().max(0).unsigned_abs()),
            unacked_messages: state.map(ConsumerState::unacked),
            blocked_consumer_on_unacked_msgs: state.map(ConsumerState::is_blocked),
            address: consumer.map(|consumer| consumer.connection.peer.address.clone()),
            r#type: Some(kind_name(serving.dispatcher.kind()).to_owned()),
            msg_backlog: Some(self.log.with_extents(|extents| serving.cursor.backlog(extents))),
            ..Default::default()
        }
    }
}

/// Pulsar's name of a subscription type.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Exclusive => "Exclusive",
        Kind::Failover => "Failover",
        Kind::Shared => "Shared",
        Kind::KeyShared { .. } => "Key_Shared",
    }
}
