//! Publishing: who does, what is admitted, and the receipts in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use geminga_admin_model::{ProducerReport, PublisherStats, ratio};
use geminga_managed_ledger::Appender;
use geminga_model::{Instant, Position, UnixMillis};
use geminga_session::{ProducerKey, ProducerOpened, ProducerSpec, Refusal};
use geminga_wire::proto::ProducerAccessMode;
use geminga_wire::{Entry, ServerError};
use hashbrown::HashMap;

use crate::access::{Access, Admission, EPOCH_PROPERTY};
use crate::connection::{ConnectionHandle, ConnectionItem, Receipt};
use crate::counts::{Stored, TopicCounts};
use crate::meter::Traffic;
use crate::refusal::terminated;
use crate::topic_handle::TopicHandle;

/// A producer that is to be opened.
#[derive(Debug)]
pub(crate) struct NewProducer {
    pub(crate) key: ProducerKey,
    pub(crate) connection: ConnectionHandle,
    pub(crate) spec: Box<ProducerSpec>,
    /// The version of its schema, empty if it has none.
    pub(crate) schema_version: Bytes,
}

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
    schema_version: Bytes,
    access_mode: ProducerAccessMode,
    standing: Standing,
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

/// As Pulsar's statistics name it.
fn name_of(mode: ProducerAccessMode) -> &'static str {
    match mode {
        ProducerAccessMode::Shared => "Shared",
        ProducerAccessMode::Exclusive => "Exclusive",
        ProducerAccessMode::WaitForExclusive => "WaitForExclusive",
        ProducerAccessMode::ExclusiveWithFencing => "ExclusiveWithFencing",
    }
}

/// Whether a producer may publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Others must leave first; it was told so.
    Waiting,
    /// It has the topic for itself once this epoch is stored.
    Storing(u64),
    Open,
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
    topic: TopicHandle,
    access: Access,
    producers: HashMap<ProducerId, Producer>,
    next_id: u64,
    unanswered: VecDeque<Unanswered>,
    completed: Vec<Position>,
    counts: TopicCounts,
    /// Nothing more is taken in, for ever.
    terminated: bool,
}

impl Publishing {
    /// Nobody publishes yet to `topic`, in whose node `epoch` is stored.
    pub(crate) fn new(
        names: Arc<ProducerNames>,
        topic: TopicHandle,
        epoch: Option<&str>,
        counts: TopicCounts,
        terminated: bool,
    ) -> Publishing {
        Publishing {
            names,
            topic,
            access: Access::new(epoch),
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

    /// Opens a producer, and tells it so: at once, when its epoch is stored, or when others have left.
    pub(crate) fn open(&mut self, wall: UnixMillis, producer: NewProducer, appender: &mut Appender) {
        let (key, connection) = (producer.key, producer.connection.clone());
        if let Err(refusal) = self.let_in(wall, producer, appender) {
            connection.push(ConnectionItem::ProducerOpened { producer: key, result: Err(refusal) });
        }
    }

    fn let_in(&mut self, wall: UnixMillis, producer: NewProducer, appender: &mut Appender) -> Result<(), Refusal> {
        let NewProducer { key, connection, spec, schema_version } = producer;
        if self.terminated {
            return Err(terminated());
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
            self.access.remove(id);
        }
        self.next_id += 1;
        let id = ProducerId(self.next_id);
        let admission = self.access.admit(id, spec.access_mode, spec.topic_epoch)?;
        if matches!(admission, Admission::AloneByForce(_)) {
            for (_, fenced) in self.producers.drain() {
                fenced.connection.push(ConnectionItem::ProducerFenced(fenced.key));
            }
        }
        let standing = match admission {
            Admission::Shared => Standing::Open,
            Admission::Alone(epoch) | Admission::AloneByForce(epoch) => Standing::Storing(epoch),
            Admission::Waiting => Standing::Waiting,
        };
        let producer = Producer {
            key,
            connection,
            name,
            epoch: spec.epoch,
            schema_version,
            access_mode: spec.access_mode,
            standing,
            metadata: spec.metadata,
            since: wall,
            messages: 0,
            stored: Traffic::default(),
            unanswered: 0,
            closing: false,
        };
        self.producers.insert(id, producer);
        self.counts.set_producers(self.producers.len());
        match standing {
            Standing::Open | Standing::Waiting => self.tell_opened(id, None),
            Standing::Storing(epoch) => appender.set_property(EPOCH_PROPERTY, epoch.to_string()),
        }
        Ok(())
    }

    fn tell_opened(&mut self, id: ProducerId, topic_epoch: Option<u64>) {
        let Some(producer) = self.producers.get(&id) else { return };
        let opened = ProducerOpened {
            name: producer.name.clone(),
            last_sequence_id: -1,
            schema_version: producer.schema_version.clone(),
            topic_epoch,
            ready: producer.standing != Standing::Waiting,
        };
        let result = Ok((opened, self.topic.clone(), id));
        if !producer.connection.offer(ConnectionItem::ProducerOpened { producer: producer.key, result }) {
            // Its connection ended while it was opened.
            self.remove(id);
        }
    }

    /// Lets in whose turn it is, and tells who has the topic for itself once its epoch is stored. If that one is gone it
    /// is the next one's turn.
    pub(crate) fn give_turns(&mut self, appender: &mut Appender) {
        while self.give_turn(appender) {}
    }

    /// Tells whether to do it again.
    fn give_turn(&mut self, appender: &mut Appender) -> bool {
        while let Some((id, turn)) = self.access.poll_turn() {
            match (turn, self.producers.get_mut(&id)) {
                (Ok(epoch), Some(producer)) => {
                    producer.standing = Standing::Storing(epoch);
                    appender.set_property(EPOCH_PROPERTY, epoch.to_string());
                }
                (Ok(_), None) => self.access.remove(id),
                (Err(_), _) => {
                    if let Some(fenced) = self.producers.remove(&id) {
                        fenced.connection.push(ConnectionItem::ProducerFenced(fenced.key));
                    }
                }
            }
        }
        let Some(alone) = self.access.exclusive() else { return false };
        let Some(producer) = self.producers.get_mut(&alone) else { return false };
        let Standing::Storing(epoch) = producer.standing else { return false };
        let stored = appender.info().property(EPOCH_PROPERTY).and_then(|text| text.parse().ok());
        if stored != Some(epoch) {
            return false;
        }
        producer.standing = Standing::Open;
        self.tell_opened(alone, Some(epoch));
        !self.producers.contains_key(&alone)
    }

    fn remove(&mut self, id: ProducerId) -> Option<Producer> {
        self.access.remove(id);
        let removed = self.producers.remove(&id);
        if self.producers.is_empty() {
            self.producers.shrink_to_fit();
        }
        self.counts.set_producers(self.producers.len());
        removed
    }

    /// Closes a producer, once its publishes have their receipts.
    pub(crate) fn close(&mut self, key: ProducerKey, connection: &ConnectionHandle) {
        let its = |producer: &Producer| producer.key == key && producer.connection.id == connection.id;
        match self.producers.iter_mut().find(|(_, producer)| its(producer)).map(|(id, producer)| (*id, producer)) {
            Some((_, producer)) if producer.unanswered > 0 => producer.closing = true,
            found => {
                if let Some((id, _)) = found {
                    self.remove(id);
                }
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
        let let_in = self.producers.values().filter(|producer| producer.standing != Standing::Waiting);
        let mut stats: Vec<PublisherStats> = let_in
            .map(|producer| {
                let (messages, bytes) = (producer.stored.messages.rate(now), producer.stored.bytes.rate(now));
                PublisherStats {
                    access_mode: name_of(producer.access_mode).to_owned(),
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
        // Of one that was fenced nothing is taken: somebody else has the topic for itself.
        let open = |known: &&mut Producer| known.standing == Standing::Open;
        let Some(known) = self.producers.get_mut(&producer).filter(open) else { return };
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
        drop(positions);
        if self.unanswered.is_empty() {
            // An idle topic keeps no room for entries.
            self.unanswered = VecDeque::new();
            self.completed = Vec::new();
        }
        for producer in closed.into_iter().filter_map(|id| self.remove(id)) {
            producer.connection.push(ConnectionItem::ProducerClosed(producer.key));
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
    Ok(Entry::check(payload).map_err(|error| corrupt(&error))?.messages())
}
