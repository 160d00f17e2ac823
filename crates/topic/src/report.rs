//! What a subscription tells about itself: for `explain`, and for the statistics that a client asks of its consumer.

use geminga_admin_model::SubscriptionReport;
use geminga_dispatch::{ConsumerId, Kind, Why};
use geminga_wire::proto;

use crate::subscription_task::{Phase, Subscription};

impl Subscription {
    pub(crate) fn report(&self) -> SubscriptionReport {
        let Phase::Serving(serving) = &self.phase else { return SubscriptionReport::default() };
        let dispatcher = &serving.dispatcher;
        let none = serving.consumers.len() == 0;
        SubscriptionReport {
            name: self.name.to_string(),
            kind: kind_name(dispatcher.kind()).to_owned(),
            durable: self.durable,
            mark_delete: serving.cursor.mark_delete().to_string(),
            read_position: dispatcher.read_position().to_string(),
            backlog: self.log.with_extents(|extents| serving.cursor.backlog(extents)),
            acked_beyond: serving.cursor.acked_beyond(),
            why: none.then(|| Why::NoConsumers.to_string()).or_else(|| serving.reading.why()),
            consumers: serving.consumers.report(dispatcher),
        }
    }

    pub(crate) fn stats(&self, id: ConsumerId) -> proto::CommandConsumerStatsResponse {
        let Phase::Serving(serving) = &self.phase else { return Default::default() };
        let state = serving.dispatcher.consumers().iter().find(|state| state.id() == id);
        let consumer = serving.consumers.get(id);
        proto::CommandConsumerStatsResponse {
            consumer_name: consumer.map(|consumer| consumer.name.clone()),
            available_permits: state.map(|state| state.permits().max(0).unsigned_abs()),
            unacked_messages: state.map(geminga_dispatch::ConsumerState::unacked),
            blocked_consumer_on_unacked_msgs: state.map(geminga_dispatch::ConsumerState::is_blocked),
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
