//! The consumers of a subscription: who they are, and what is on its way to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use geminga_admin_model::{ConsumerReport, ConsumerStats};
use geminga_dispatch::{ConsumerId, ConsumerState, Dispatcher, Why};
use geminga_model::{Instant, UnixMillis};
use geminga_session::{ConsumerKey, SubscribeSpec};
use geminga_wire::proto;

use crate::connection::{ConnectionHandle, ConnectionItem, Delivery};
use crate::counts::Turn;
use crate::meter::{Meter, Traffic};

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
    /// Whether it knows that the topic is terminated and nothing is left.
    told_end: bool,
    metadata: Vec<(String, String)>,
    since: UnixMillis,
    out: Traffic,
    redelivered: Meter,
    acked: Meter,
    last_consumed: UnixMillis,
    last_acked: UnixMillis,
    last_flow: UnixMillis,
}

/// By the id that the dispatcher knows them by.
#[derive(Debug)]
pub(crate) struct Consumers {
    /// Boxed: a map of one has room for eleven.
    by_id: BTreeMap<ConsumerId, Box<Consumer>>,
    last_id: u64,
    /// How many of them do not take any schema, for the topic to see.
    schema_bound: Arc<AtomicUsize>,
    /// What was done since the counts were last brought up to date.
    turn: Turn,
}

impl Consumers {
    /// No consumers yet; `schema_bound` counts those that do not take any schema.
    pub(crate) fn new(schema_bound: Arc<AtomicUsize>) -> Consumers {
        Consumers { by_id: BTreeMap::new(), last_id: 0, schema_bound, turn: Turn::default() }
    }

    pub(crate) fn next_id(&mut self) -> ConsumerId {
        self.last_id += 1;
        ConsumerId(self.last_id)
    }

    pub(crate) fn add(
        &mut self,
        wall: UnixMillis,
        id: ConsumerId,
        key: ConsumerKey,
        connection: ConnectionHandle,
        spec: &SubscribeSpec,
    ) {
        let any = proto::schema::Type::AutoConsume as i32;
        let schema_bound = spec.schema.as_ref().is_none_or(|schema| schema.r#type != any);
        self.schema_bound.fetch_add(usize::from(schema_bound), Ordering::Release);
        let consumer = Consumer {
            key,
            connection,
            name: spec.consumer_name.clone(),
            epoch: spec.epoch,
            outgoing: vec![],
            schema_bound,
            told_active: None,
            told_end: false,
            metadata: spec.metadata.clone(),
            since: wall,
            out: Traffic::default(),
            redelivered: Meter::default(),
            acked: Meter::default(),
            last_consumed: UnixMillis(0),
            last_acked: UnixMillis(0),
            last_flow: UnixMillis(0),
        };
        self.by_id.insert(id, Box::new(consumer));
    }

    /// A consumer asked for messages.
    pub(crate) fn flowed(&mut self, id: ConsumerId, wall: UnixMillis) {
        self.turn.flow = true;
        if let Some(consumer) = self.by_id.get_mut(&id) {
            consumer.last_flow = wall;
        }
    }

    /// A consumer acknowledged so many entries.
    pub(crate) fn acked(&mut self, id: ConsumerId, now: Instant, wall: UnixMillis, entries: u64) {
        self.turn.acked += entries;
        if let Some(consumer) = self.by_id.get_mut(&id) {
            consumer.acked.add(now, entries);
            consumer.last_acked = wall;
        }
    }

    /// What was done since it was last asked.
    pub(crate) fn take_turn(&mut self) -> Turn {
        std::mem::take(&mut self.turn)
    }

    /// Tells everyone that the topic has ended and nothing is left.
    pub(crate) fn tell_end(&mut self) {
        for consumer in self.by_id.values_mut().filter(|consumer| !consumer.told_end) {
            consumer.told_end = true;
            consumer.connection.push(ConnectionItem::EndOfTopic(consumer.key));
        }
    }

    pub(crate) fn get(&self, id: ConsumerId) -> Option<&Consumer> {
        self.by_id.get(&id).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: ConsumerId) -> Option<&mut Consumer> {
        self.by_id.get_mut(&id).map(Box::as_mut)
    }

    pub(crate) fn remove(&mut self, id: ConsumerId) -> Option<Consumer> {
        let consumer = self.by_id.remove(&id)?;
        self.schema_bound.fetch_sub(usize::from(consumer.schema_bound), Ordering::Release);
        if self.by_id.is_empty() {
            // An empty map keeps its room.
            self.by_id = BTreeMap::new();
        }
        Some(*consumer)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn ids(&self) -> Vec<ConsumerId> {
        self.by_id.keys().copied().collect()
    }

    /// Takes an entry for a consumer; it leaves with [`Consumers::flush`]. Tells whether there is room for another.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        wall: UnixMillis,
        id: ConsumerId,
        messages: u32,
        mut delivery: Delivery,
    ) -> bool {
        let Some(consumer) = self.by_id.get_mut(&id) else { return true };
        let (messages, bytes) = (u64::from(messages), delivery.payload.len() as u64);
        let again = if delivery.redelivery_count > 0 { messages } else { 0 };
        consumer.out.add(now, messages, bytes);
        consumer.redelivered.add(now, again);
        consumer.last_consumed = wall;
        self.turn.messages += messages;
        self.turn.bytes += bytes;
        self.turn.redelivered += again;
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

    pub(crate) fn stats(&self, now: Instant, dispatcher: &Dispatcher) -> Vec<ConsumerStats> {
        let stats = |state: &ConsumerState| {
            let consumer = self.by_id.get(&state.id())?;
            Some(ConsumerStats {
                msg_rate_out: consumer.out.messages.rate(now),
                msg_throughput_out: consumer.out.bytes.rate(now),
                bytes_out_counter: consumer.out.bytes.total(),
                msg_out_counter: consumer.out.messages.total(),
                msg_rate_redeliver: consumer.redelivered.rate(now),
                message_ack_rate: consumer.acked.rate(now),
                consumer_name: consumer.name.clone(),
                available_permits: state.permits(),
                unacked_messages: state.unacked(),
                blocked_consumer_on_unacked_msgs: state.is_blocked(),
                address: consumer.connection.peer.address.clone(),
                connected_since: consumer.since.iso8601(),
                client_version: consumer.connection.peer.client_version.clone(),
                last_acked_timestamp: consumer.last_acked.0,
                last_consumed_timestamp: consumer.last_consumed.0,
                last_consumed_flow_timestamp: consumer.last_flow.0,
                metadata: consumer.metadata.iter().cloned().collect(),
            })
        };
        dispatcher.consumers().iter().filter_map(stats).collect()
    }

    /// `reading` says what is read for them, if that is so: then what a consumer could take is not there yet.
    pub(crate) fn report(&self, dispatcher: &Dispatcher, reading: Option<&str>) -> Vec<ConsumerReport> {
        let why = |why: Why| match (reading, why) {
            (Some(reading), Why::NothingNew(_) | Why::Replaying(..)) => reading.to_owned(),
            (_, why) => why.to_string(),
        };
        let report = |state: &ConsumerState| {
            let consumer = self.by_id.get(&state.id())?;
            Some(ConsumerReport {
                name: consumer.name.clone(),
                address: consumer.connection.peer.address.clone(),
                permits: state.permits(),
                unacked: state.unacked(),
                why: dispatcher.why(state.id()).map(why).unwrap_or_default(),
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
