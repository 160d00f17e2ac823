//! The consumers of a subscription: who they are, and what is on its way to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use geminga_admin_model::ConsumerReport;
use geminga_dispatch::{ConsumerId, Dispatcher};
use geminga_session::{ConsumerKey, SubscribeSpec};
use geminga_wire::proto;

use crate::connection::{ConnectionHandle, ConnectionItem, Delivery};

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) key: ConsumerKey,
    pub(crate) connection: ConnectionHandle,
    pub(crate) name: String,
    pub(crate) epoch: Option<u64>,
    /// Assigned in this turn.
    outgoing: Vec<Delivery>,
    /// Whether it does not take any schema that the topic may have.
    schema_bound: bool,
    /// Whether it knows that it is the active one, of Failover subscriptions.
    told_active: Option<bool>,
}

/// By the id that the dispatcher knows them by.
#[derive(Debug)]
pub(crate) struct Consumers {
    by_id: BTreeMap<ConsumerId, Consumer>,
    last_id: u64,
    /// How many of them do not take any schema, for the topic to see.
    schema_bound: Arc<AtomicUsize>,
}

impl Consumers {
    /// No consumers yet; `schema_bound` counts those that do not take any schema.
    pub(crate) fn new(schema_bound: Arc<AtomicUsize>) -> Consumers {
        Consumers { by_id: BTreeMap::new(), last_id: 0, schema_bound }
    }

    pub(crate) fn next_id(&mut self) -> ConsumerId {
        self.last_id += 1;
        ConsumerId(self.last_id)
    }

    pub(crate) fn add(&mut self, id: ConsumerId, key: ConsumerKey, connection: ConnectionHandle, spec: &SubscribeSpec) {
        let (name, epoch) = (spec.consumer_name.clone(), spec.epoch);
        let any = proto::schema::Type::AutoConsume as i32;
        let schema_bound = spec.schema.as_ref().is_none_or(|schema| schema.r#type != any);
        self.schema_bound.fetch_add(usize::from(schema_bound), Ordering::Release);
        let consumer = Consumer { key, connection, name, epoch, outgoing: vec![], schema_bound, told_active: None };
        self.by_id.insert(id, consumer);
    }

    pub(crate) fn get(&self, id: ConsumerId) -> Option<&Consumer> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ConsumerId) -> Option<&mut Consumer> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: ConsumerId) -> Option<Consumer> {
        let consumer = self.by_id.remove(&id)?;
        self.schema_bound.fetch_sub(usize::from(consumer.schema_bound), Ordering::Release);
        Some(consumer)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn ids(&self) -> Vec<ConsumerId> {
        self.by_id.keys().copied().collect()
    }

    /// Takes an entry for a consumer; it leaves with [`Consumers::flush`]. Tells whether there is room for another.
    pub(crate) fn push(&mut self, id: ConsumerId, mut delivery: Delivery) -> bool {
        let Some(consumer) = self.by_id.get_mut(&id) else { return true };
        let room = consumer.connection.count(&delivery);
        delivery.consumer_epoch = consumer.epoch;
        consumer.outgoing.push(delivery);
        room
    }

    /// Sends what a turn assigned.
    pub(crate) fn flush(&mut self) {
        for consumer in self.by_id.values_mut().filter(|consumer| !consumer.outgoing.is_empty()) {
            consumer.connection.deliver(consumer.key, std::mem::take(&mut consumer.outgoing));
        }
    }

    /// Tells the consumers of a Failover subscription who of them is the active one, where that changed.
    pub(crate) fn tell_active(&mut self, active: Option<ConsumerId>) {
        for (id, consumer) in &mut self.by_id {
            let is_active = active == Some(*id);
            if consumer.told_active != Some(is_active) {
                consumer.told_active = Some(is_active);
                consumer.connection.push(ConnectionItem::ActiveConsumer(consumer.key, is_active));
            }
        }
    }

    /// Cuts everyone off.
    pub(crate) fn close_all(&mut self) -> Vec<ConsumerId> {
        let ids = self.ids();
        for consumer in std::mem::take(&mut self.by_id).into_values() {
            self.schema_bound.fetch_sub(usize::from(consumer.schema_bound), Ordering::Release);
            consumer.connection.push(ConnectionItem::ConsumerClosed(consumer.key));
        }
        ids
    }

    pub(crate) fn report(&self, dispatcher: &Dispatcher) -> Vec<ConsumerReport> {
        let report = |state: &geminga_dispatch::ConsumerState| {
            let consumer = self.by_id.get(&state.id())?;
            Some(ConsumerReport {
                name: consumer.name.clone(),
                address: consumer.connection.peer.address.clone(),
                permits: state.permits(),
                unacked: state.unacked(),
                why: dispatcher.why(state.id()).map(|why| why.to_string()).unwrap_or_default(),
            })
        };
        dispatcher.consumers().iter().filter_map(report).collect()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.outgoing.is_empty() {
            self.connection.withdraw(&self.outgoing);
        }
    }
}

/// However a subscription ends, also by a panic, its consumers are told and come back.
impl Drop for Consumers {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// How long acks without a receipt wait for others, so that they are stored together.
pub(crate) const COALESCE: Duration = Duration::from_millis(100);
