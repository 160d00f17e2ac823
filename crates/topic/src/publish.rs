//! Publishing: who may, what is admitted, and the receipts in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use geminga_admin_model::{ProducerReport, PublisherStats, ratio};
use geminga_managed_ledger::Appender;
use geminga_model::{Instant, Position, UnixMillis};
use geminga_session::{ProducerKey, ProducerOpened, ProducerSpec, Refusal};
use geminga_wire::proto::{ProducerAccessMode, schema};
use geminga_wire::{Entry, ServerError};
use hashbrown::HashMap;

use crate::connection::{ConnectionHandle, ConnectionItem, Receipt};
use crate::counts::{Stored, TopicCounts};
use crate::meter::Traffic;
use crate::refusal::{not_in_this_version, terminated};

/// A producer of a topic, for as long as it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub(crate) u64);

/// An entry to append for a producer.
#[derive(Debug)]
pub struct Publish {
    /// The producer.
    pub producer: ProducerId,
    /// The sequence id, repeated by the receipt.
    pub sequence_id: u64,
    /// The highest sequence id, if the client said one.
    pub highest_sequence_id: Option<u64>,
    /// The entry, or why it is refused before it is looked at.
    pub payload: Result<Bytes, (ServerError, &'static str)>,
}

/// Makes up names of producers that have none: `<cluster>-<broker number>-<n>`.
#[derive(Debug)]
pub struct ProducerNames {
    prefix: String,
    next: AtomicU64,
}

impl ProducerNames {
    /// Names that begin with `<cluster>-<broker number>`.
    #[must_use]
    pub fn new(prefix: String) -> ProducerNames {
        ProducerNames { prefix, next: AtomicU64::new(0) }
    }

    fn next(&self) -> String {
        format!("{}-{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct Producer {
    key: ProducerKey,
    connection: ConnectionHandle,
    name: String,
    epoch: u64,
    metadata: Vec<(String, String)>,
    since: UnixMillis,
    messages: u64,
    /// What it published and is stored.
    stored: Traffic,
    /// Publishes without a receipt.
    unanswered: usize,
    /// It closes when it has all its receipts.
    closing: bool,
}

/// A publish without a receipt. One that was refused waits for its turn, because receipts keep their order.
#[derive(Debug)]
struct Unanswered {
    producer: ProducerId,
    sequence_id: u64,
    highest_sequence_id: Option<u64>,
    messages: u32,
    bytes: usize,
    at: Instant,
    refused: Option<(ServerError, String)>,
}

/// The producers of a topic and what they published.
#[derive(Debug)]
pub(crate) struct Publishing {
    names: Arc<ProducerNames>,
    producers: HashMap<ProducerId, Producer>,
    next_id: u64,
    unanswered: VecDeque<Unanswered>,
    completed: Vec<Position>,
    counts: TopicCounts,
    /// Nothing more is taken in, for ever.
    terminated: bool,
}

impl Publishing {
    pub(crate) fn new(names: Arc<ProducerNames>, counts: TopicCounts, terminated: bool) -> Publishing {
        Publishing {
            names,
            producers: HashMap::new(),
            next_id: 0,
            unanswered: VecDeque::new(),
            completed: Vec::new(),
            counts,
            terminated,
        }
    }

    /// Takes nothing more in, for ever.
    pub(crate) fn terminate(&mut self) {
        self.terminated = true;
    }

    /// Opens a producer.
    pub(crate) fn open(
        &mut self,
        wall: UnixMillis,
        key: ProducerKey,
        connection: ConnectionHandle,
        spec: &ProducerSpec,
    ) -> Result<(ProducerOpened, ProducerId), Refusal> {
        if self.terminated {
            return Err(terminated());
        }
        if spec.access_mode != ProducerAccessMode::Shared {
            return Err(not_in_this_version("producer access modes other than Shared"));
        }
        if spec.schema.as_ref().is_some_and(|schema| schema.r#type != schema::Type::None as i32) {
            return Err(not_in_this_version("schemas"));
        }
        if spec.initial_subscription.is_some() {
            return Err(not_in_this_version("initial subscriptions of producers"));
        }
        let name = spec.name.clone().unwrap_or_else(|| self.names.next());
        if let Some((id, holder)) = self.producers.iter().find(|(_, producer)| producer.name == name) {
            // The same client connects anew over the same connection: its new self replaces the old one.
            let replaces =
                holder.connection.id == connection.id && holder.key.id() == key.id() && holder.epoch < spec.epoch;
            if !replaces {
                let message = format!("Producer with name '{name}' is already connected to topic");
                return Err(Refusal::new(ServerError::ProducerBusy, message));
            }
            let id = *id;
            self.producers.remove(&id);
        }
        self.next_id += 1;
        let id = ProducerId(self.next_id);
        let opened = ProducerOpened {
            name: name.clone(),
            last_sequence_id: -1,
            schema_version: Bytes::new(),
            topic_epoch: None,
            ready: true,
        };
        self.producers.insert(
            id,
            Producer {
                key,
                connection,
                name,
                epoch: spec.epoch,
                metadata: spec.metadata.clone(),
                since: wall,
                messages: 0,
                stored: Traffic::default(),
                unanswered: 0,
                closing: false,
            },
        );
        self.counts.set_producers(self.producers.len());
        Ok((opened, id))
    }

    /// Closes a producer, once its publishes have their receipts.
    pub(crate) fn close(&mut self, key: ProducerKey, connection: &ConnectionHandle) {
        let its = |producer: &&mut Producer| producer.key == key && producer.connection.id == connection.id;
        match self.producers.values_mut().find(its) {
            Some(producer) if producer.unanswered > 0 => producer.closing = true,
            _ => {
                self.producers.retain(|_, producer| producer.key != key || producer.connection.id != connection.id);
                self.counts.set_producers(self.producers.len());
                connection.push(ConnectionItem::ProducerClosed(key));
            }
        }
    }

    /// Tells every producer that the topic closes. What they published and has no receipt they send again.
    pub(crate) fn close_all(&mut self) {
        for (_, producer) in self.producers.drain() {
            producer.connection.push(ConnectionItem::ProducerClosed(producer.key));
        }
        self.unanswered.clear();
        self.counts.set_producers(0);
    }

    pub(crate) fn len(&self) -> usize {
        self.producers.len()
    }

    /// Publishes without a receipt.
    pub(crate) fn pending(&self) -> usize {
        self.unanswered.len()
    }

    pub(crate) fn report(&self) -> Vec<ProducerReport> {
        let mut reports: Vec<ProducerReport> = (self.producers.values())
            .map(|producer| ProducerReport {
                name: producer.name.clone(),
                address: producer.connection.peer.address.clone(),
                messages: producer.messages,
            })
            .collect();
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    pub(crate) fn stats(&self, now: Instant) -> Vec<PublisherStats> {
        let mut stats: Vec<PublisherStats> = (self.producers.values())
            .map(|producer| {
                let (messages, bytes) = (producer.stored.messages.rate(now), producer.stored.bytes.rate(now));
                PublisherStats {
                    access_mode: "Shared".to_owned(),
                    msg_rate_in: messages,
                    msg_throughput_in: bytes,
                    average_msg_size: ratio(bytes, messages),
                    producer_id: producer.key.id(),
                    producer_name: producer.name.clone(),
                    address: producer.connection.peer.address.clone(),
                    connected_since: producer.since.iso8601(),
                    client_version: producer.connection.peer.client_version.clone(),
                    metadata: producer.metadata.iter().cloned().collect(),
                }
            })
            .collect();
        stats.sort_by(|a, b| a.producer_name.cmp(&b.producer_name));
        stats
    }

    /// Takes an entry in.
    pub(crate) fn publish(&mut self, now: Instant, publish: Publish, appender: &mut Appender) {
        let Publish { producer, sequence_id, highest_sequence_id, payload } = publish;
        let Some(known) = self.producers.get_mut(&producer) else { return };
        known.messages += 1;
        known.unanswered += 1;
        let bytes = payload.as_ref().map_or(0, Bytes::len);
        let admitted = payload.map_err(|(error, text)| (error, text.to_owned())).and_then(|payload| {
            if self.terminated {
                let Refusal { error, message } = terminated();
                return Err((error, message));
            }
            let messages = admit(&payload)?;
            appender
                .append(now, payload)
                .map(|()| messages)
                .map_err(|_| (ServerError::ServiceNotReady, "the topic is being closed".to_owned()))
        });
        let messages = admitted.as_ref().copied().unwrap_or(0);
        let refused = admitted.err();
        let unanswered = Unanswered { producer, sequence_id, highest_sequence_id, messages, bytes, at: now, refused };
        self.unanswered.push_back(unanswered);
    }

    /// Sends receipts for what the appender completed, grouped by connection. Tells whether there was any.
    pub(crate) fn send_receipts(&mut self, now: Instant, wall: UnixMillis, appender: &mut Appender) -> bool {
        appender.take_completed(&mut self.completed);
        let any = !self.completed.is_empty();
        let mut stored: Vec<Stored> = Vec::with_capacity(self.completed.len());
        let mut positions = self.completed.drain(..);
        let mut outgoing: Vec<(ConnectionHandle, Vec<Receipt>)> = Vec::new();
        let mut closed: Vec<ProducerId> = Vec::new();
        while let Some(next) = self.unanswered.front_mut() {
            let result = match next.refused.take() {
                Some(refused) => Err(refused),
                None => match positions.next() {
                    Some(position) => Ok(position),
                    None => break,
                },
            };
            let Unanswered { producer, sequence_id, highest_sequence_id, messages, bytes, at, .. } = *next;
            self.unanswered.pop_front();
            if result.is_ok() {
                stored.push(Stored { messages, bytes, took: now.since(at) });
            }
            // A producer that was replaced meanwhile is not told: it is gone.
            let Some(to) = self.producers.get_mut(&producer) else { continue };
            to.unanswered -= 1;
            if result.is_ok() {
                to.stored.add(now, messages.into(), bytes as u64);
            }
            if to.closing && to.unanswered == 0 {
                closed.push(producer);
            }
            let receipt = Receipt { producer: to.key, sequence_id, highest_sequence_id, result };
            match outgoing.iter_mut().rev().find(|(connection, _)| connection.id == to.connection.id) {
                Some((_, receipts)) => receipts.push(receipt),
                None => outgoing.push((to.connection.clone(), vec![receipt])),
            }
        }
        if any {
            self.counts.stored(now, wall, &stored);
        }
        for (connection, receipts) in outgoing {
            connection.push(ConnectionItem::Receipts(receipts));
        }
        let some_closed = !closed.is_empty();
        for producer in closed.into_iter().filter_map(|id| self.producers.remove(&id)) {
            producer.connection.push(ConnectionItem::ProducerClosed(producer.key));
        }
        if some_closed {
            self.counts.set_producers(self.producers.len());
        }
        any
    }
}

/// However a topic ends, also by a panic, its producers are told and come back.
impl Drop for Publishing {
    fn drop(&mut self) {
        self.close_all();
    }
}

/// What every entry must be: readable, and as its checksum says. Gives the number of its messages.
///
/// Its size is bounded by the frame it came in. Fact: a C++ client fills a chunk so that the entry exceeds the message
/// size by its ten bytes of magic, checksum and length.
fn admit(payload: &Bytes) -> Result<u32, (ServerError, String)> {
    let corrupt =
        |error: &dyn std::fmt::Display| (ServerError::ChecksumError, format!("the message is corrupt: {error}"));
    let entry = Entry::parse(payload.clone()).map_err(|error| corrupt(&error))?;
    entry.verify_checksum().map_err(|error| corrupt(&error))?;
    Ok(entry.summary().map_err(|error| corrupt(&error))?.messages())
}
