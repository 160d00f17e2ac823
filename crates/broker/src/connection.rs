//! One client connection: the task that owns its socket and its session.
//!
//! A turn takes what topics put into the outbox's mailbox, reads what the socket has, hands the session's effects on,
//! and writes. It never waits for a topic. While it may not read, because too much of what it read has no receipt or the
//! client takes nothing, it still writes.

mod reading;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use geminga_env::{Inbox, Mailbox, OnPanic, Stop, mailbox};
use geminga_model::Instant;
use geminga_session::{
    Answer, CloseReason, ConsumerKey, Effect, NewOwner, ProducerKey, Refusal, RequestKey, Session, WatcherKey,
};
use geminga_topic::{
    ConnectionHandle, ConnectionItem, ConsumerHandle, ConsumerItem, Delivery, OutboxGauge, PeerInfo, ProducerId,
    Publish, Receipt, TopicHandle,
};
use geminga_wire::{Command, Entry, FrameSplitter, READ_CHUNK, SendReceipt, ServerError, encode_send_receipt};
use hashbrown::HashMap;
use tokio::net::TcpStream;

use crate::broker::Broker;
use crate::ingress::{Held, Ingress};
use crate::outbox::Outbox;
use crate::topic_watcher::TopicWatcher;

/// Bytes on their way to a client above which nothing more is read from it.
const MAX_OUTBOX: usize = 8 << 20;

/// How long a client may take to read the last words before its connection is closed.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);

/// Serves one connection to its end.
pub(crate) async fn run_connection(broker: Broker, id: u64, socket: TcpStream, address: SocketAddr, stop: Stop) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%address, %error, "the connection is gone already");
        return;
    }
    let (items, inbox) = mailbox();
    let connection = Connection::new(broker, id, socket, address, items);
    connection.run(inbox, stop).await;
}

struct Connection {
    broker: Broker,
    id: u64,
    address: SocketAddr,
    socket: TcpStream,
    session: Session,
    splitter: FrameSplitter,
    split_for: usize,
    buffer: BytesMut,
    outbox: Outbox,
    gauge: Arc<OutboxGauge>,
    items: Mailbox<ConnectionItem>,
    handle: ConnectionHandle,
    producers: HashMap<ProducerKey, Producer>,
    consumers: HashMap<ConsumerKey, Consumer>,
    watchers: HashMap<WatcherKey, TopicWatcher>,
    /// Those with an update in the outbox.
    told_watchers: Vec<WatcherKey>,
    effects: Vec<Effect>,
    /// Publishes of this turn, consecutive ones to a topic together.
    publishes: Vec<(TopicHandle, Vec<Publish>)>,
    published_bytes: usize,
    ingress: Ingress,
    /// There are frames in the buffer for which there was no memory.
    backlog: bool,
    /// When more of a large frame must have come.
    frame_until: Option<Instant>,
    reading: bool,
    ending: Option<Ending>,
}

/// How the connection ends.
enum Ending {
    /// After what is in the outbox was written, or at this time if the client does not take it.
    Flush(Instant),
    /// At once.
    Now,
}

enum Producer {
    Opening { close: bool },
    Open { topic: TopicHandle, id: ProducerId, unanswered: std::collections::VecDeque<Held> },
}

enum Consumer {
    Opening { close: bool, partition: i32, early: Vec<ConsumerItem> },
    Open { handle: ConsumerHandle, partition: i32 },
}

impl Connection {
    fn new(
        broker: Broker,
        id: u64,
        socket: TcpStream,
        address: SocketAddr,
        items: Mailbox<ConnectionItem>,
    ) -> Connection {
        let memory = broker.options().memory.clone();
        let gauge = OutboxGauge::new(memory.outbox_each, memory.outboxes.clone());
        let peer = PeerInfo { address: address.to_string(), client_version: String::new() };
        let session = Session::new(Arc::clone(broker.session()), broker.env().clock.now());
        let split_for = session.max_message_size();
        Connection {
            handle: ConnectionHandle::new(id, peer, items.clone(), Arc::clone(&gauge)),
            outbox: Outbox::new(Arc::clone(&gauge)),
            splitter: FrameSplitter::new(split_for),
            split_for,
            broker,
            backlog: false,
            id,
            address,
            socket,
            session,
            buffer: BytesMut::new(),
            gauge,
            items,
            producers: HashMap::new(),
            consumers: HashMap::new(),
            watchers: HashMap::new(),
            told_watchers: Vec::new(),
            effects: Vec::new(),
            publishes: Vec::new(),
            published_bytes: 0,
            ingress: Ingress::new(memory),
            frame_until: None,
            reading: true,
            ending: None,
        }
    }

    async fn run(mut self, mut inbox: Inbox<ConnectionItem>, stop: Stop) {
        let clock = self.broker.env().clock;
        let mut batch = Vec::new();
        loop {
            let deadline = match self.ending {
                Some(Ending::Flush(until)) => Some(until),
                _ => [self.session.deadline(), self.frame_until].into_iter().flatten().min(),
            };
            let (waiting, writing) = (self.ingress.waits(), !self.outbox.is_empty());
            let reading = self.reading && !waiting;
            tokio::select! {
                biased;
                () = stop.stopped() => self.ending = Some(Ending::Now),
                () = inbox.wait() => {}
                () = self.ingress.room(), if waiting => {}
                () = std::future::ready(()), if reading && self.backlog => {}
                ready = self.socket.readable(), if reading => self.note_error(ready),
                ready = self.socket.writable(), if writing => self.note_error(ready),
                () = clock.sleep_until_some(deadline) => self.session.handle_timeout(clock.now()),
            }
            self.check_frame(clock.now());
            inbox.take(&mut batch);
            batch.drain(..).for_each(|item| self.handle_item(item));
            if self.reading && !self.ingress.waits() && self.ending.is_none() {
                let read = self.read(clock.now());
                self.note_error(read);
            }
            self.apply_effects();
            self.submit();
            let written = self.outbox.write(&self.socket);
            self.note_error(written);
            if self.outbox.is_empty() {
                self.told_watchers.drain(..).filter_map(|key| self.watchers.get(&key)).for_each(TopicWatcher::written);
            }
            self.ingress.settle();
            let may_read = !self.ingress.is_full() && self.outbox.len() < MAX_OUTBOX;
            if may_read != self.reading {
                self.reading = may_read;
                self.session.set_reading(clock.now(), may_read);
            }
            match self.ending {
                Some(Ending::Now) => break,
                Some(Ending::Flush(until)) if self.outbox.is_empty() || until <= clock.now() => break,
                _ => {}
            }
        }
        self.end(inbox);
    }

    fn note_error(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            if error.kind() != io::ErrorKind::UnexpectedEof {
                tracing::debug!(address = %self.address, %error, "the connection broke");
            }
            self.ending = Some(Ending::Now);
        }
    }

    /// Whatever is open is closed; topics and subscriptions need no connection to finish that.
    fn end(&mut self, mut inbox: Inbox<ConnectionItem>) {
        self.session.close();
        self.apply_effects();
        self.submit();
        // What was opened meanwhile is closed too. Whoever comes later learns that the connection is gone.
        inbox.close();
        let mut left = Vec::new();
        inbox.take(&mut left);
        left.into_iter().for_each(|item| self.handle_item(item));
        tracing::debug!(connection = self.id, address = %self.address, "closed");
    }

    /// The size limit and what statistics show of the peer are known from CONNECT on.
    fn connected(&mut self) {
        if self.session.max_message_size() != self.split_for {
            self.split_for = self.session.max_message_size();
            self.splitter = FrameSplitter::new(self.split_for);
        }
        if let Some(peer) = self.session.peer() {
            let peer = PeerInfo { address: self.address.to_string(), client_version: peer.client_version.clone() };
            self.handle = ConnectionHandle::new(self.id, peer, self.items.clone(), Arc::clone(&self.gauge));
        }
    }

    fn apply_effects(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        self.session.take_effects(&mut effects);
        effects.drain(..).for_each(|effect| self.apply(effect));
        self.effects = effects;
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Send(command) => self.outbox.command(&command),
            Effect::Close(reason) => self.close(&reason),
            Effect::Publish { producer, sequence_id, highest_sequence_id, payload, .. } => {
                self.publish(producer, sequence_id, highest_sequence_id, Ok(payload));
            }
            Effect::FailPublish { producer, sequence_id, error, message } => {
                self.publish(producer, sequence_id, None, Err((error, message)));
            }
            Effect::OpenProducer { producer, topic, spec } => {
                self.producers.insert(producer, Producer::Opening { close: false });
                let (to, broker) = (self.handle.clone(), self.broker.clone());
                self.broker.env().control.spawn("admit", OnPanic::Log, async move {
                    match broker.admit_producer(&topic, &spec).await {
                        Ok((topic, version)) => topic.open_producer(producer, to, spec, version),
                        Err(refusal) => to.push(ConnectionItem::ProducerOpened { producer, result: Err(refusal) }),
                    }
                });
            }
            Effect::CloseProducer { producer } => self.close_producer(producer),
            Effect::Subscribe { consumer, topic, spec } => {
                let partition = topic.partition().and_then(|index| i32::try_from(index).ok()).unwrap_or(-1);
                let opening = Consumer::Opening { close: false, partition, early: Vec::new() };
                self.consumers.insert(consumer, opening);
                let (to, broker) = (self.handle.clone(), self.broker.clone());
                self.broker.env().control.spawn("admit", OnPanic::Log, async move {
                    match broker.admit_consumer(&topic, &spec).await {
                        Ok(topic) => topic.subscribe(consumer, to, spec),
                        Err(refusal) => to.push(ConnectionItem::ConsumerSubscribed { consumer, result: Err(refusal) }),
                    }
                });
            }
            Effect::CloseConsumer { consumer } => self.close_consumer(consumer),
            Effect::Flow { consumer, permits } => self.tell_consumer(consumer, ConsumerItem::Flow(permits)),
            Effect::Ack { consumer, request, ack_type, message_ids, .. } => {
                let message_ids = message_ids.into_vec();
                self.tell_consumer(consumer, ConsumerItem::Ack { ack_type, message_ids, request });
            }
            Effect::Redeliver { consumer, positions, epoch } => {
                self.tell_consumer(consumer, ConsumerItem::Redeliver { positions, epoch });
            }
            Effect::Seek { request, consumer, target } => {
                self.tell_consumer(consumer, ConsumerItem::Seek(request, target))
            }
            Effect::Unsubscribe { request, consumer, force } => {
                self.tell_consumer(consumer, ConsumerItem::Unsubscribe(request, force));
            }
            Effect::LastMessageId { request, consumer } => {
                self.tell_consumer(consumer, ConsumerItem::LastMessageId(request));
            }
            Effect::ConsumerStats { request, consumer } => self.tell_consumer(consumer, ConsumerItem::Stats(request)),
            Effect::Lookup { request, topic, listener, .. } => {
                let broker = self.broker.clone();
                self.answer_later(request, async move {
                    broker.lookup(&topic, listener.as_deref()).await.map(Answer::Lookup)
                });
            }
            Effect::PartitionMetadata { request, topic, auto_create } => {
                let broker = self.broker.clone();
                self.answer_later(request, async move {
                    Ok(Answer::Partitions(broker.partitions(&topic, auto_create).await?.partitions))
                });
            }
            Effect::TopicsOfNamespace { request, namespace, mode, pattern, hash } => {
                let broker = self.broker.clone();
                self.answer_later(request, async move {
                    broker.topic_list(&namespace, mode, pattern.as_deref(), hash.as_deref()).await
                });
            }
            Effect::GetSchema { request, topic, version } => {
                let broker = self.broker.clone();
                self.answer_later(request, async move { broker.find_schema(&topic, version.as_deref()).await });
            }
            Effect::GetOrCreateSchema { request, topic, schema } => {
                let broker = self.broker.clone();
                self.answer_later(request, async move { broker.create_schema(&topic, &schema).await });
            }
            Effect::WatchTopicList { watcher, namespace, pattern, hash } => {
                let to = self.handle.clone();
                let started = TopicWatcher::start(&self.broker, watcher, namespace, &pattern, hash, to);
                self.watchers.insert(watcher, started);
            }
            Effect::CloseWatcher { watcher } => drop(self.watchers.remove(&watcher)),
        }
    }

    fn close(&mut self, reason: &CloseReason) {
        tracing::debug!(address = %self.address, %reason, "closing the connection");
        let until = self.broker.env().clock.now() + FLUSH_DEADLINE;
        self.ending.get_or_insert(Ending::Flush(until));
    }

    /// Answers a request from metadata.
    fn answer_later(
        &self,
        request: RequestKey,
        answer: impl Future<Output = Result<Answer, Refusal>> + Send + 'static,
    ) {
        let to = self.handle.clone();
        self.broker.env().control.spawn("request", OnPanic::Log, async move { to.answer(request, answer.await) });
    }

    fn publish(
        &mut self,
        producer: ProducerKey,
        sequence_id: u64,
        highest_sequence_id: Option<u64>,
        payload: Result<Bytes, (ServerError, &'static str)>,
    ) {
        let Some(Producer::Open { topic, id, unanswered }) = self.producers.get_mut(&producer) else { return };
        let bytes = payload.as_ref().map_or(0, Bytes::len);
        unanswered.push_back(self.ingress.published(bytes));
        self.published_bytes += bytes;
        let publish = Publish { producer: *id, sequence_id, highest_sequence_id, payload };
        match self.publishes.last_mut() {
            Some((last, batch)) if last.is_same(topic) => batch.push(publish),
            _ => self.publishes.push((topic.clone(), vec![publish])),
        }
    }

    /// Hands the turn's publishes to their topics.
    fn submit(&mut self) {
        // What outlives the turn must fill at least half of its backing buffer; else it is copied out.
        let sparse = std::mem::take(&mut self.published_bytes) < READ_CHUNK / 2;
        for (topic, mut batch) in self.publishes.drain(..) {
            if sparse {
                for publish in &mut batch {
                    if let Ok(payload) = &mut publish.payload {
                        *payload = Bytes::copy_from_slice(payload);
                    }
                }
            }
            topic.publish(batch);
        }
    }

    fn close_producer(&mut self, key: ProducerKey) {
        self.submit();
        match self.producers.get_mut(&key) {
            Some(Producer::Opening { close }) => *close = true,
            Some(Producer::Open { topic, .. }) => topic.close_producer(key, self.handle.clone()),
            None => self.session.handle_producer_closed(self.broker.env().clock.now(), key, NewOwner::default()),
        }
    }

    fn close_consumer(&mut self, key: ConsumerKey) {
        match self.consumers.get_mut(&key) {
            Some(Consumer::Opening { close, .. }) => *close = true,
            Some(Consumer::Open { handle, .. }) => handle.push(ConsumerItem::Close),
            None => self.session.handle_consumer_closed(key, NewOwner::default()),
        }
    }

    fn tell_consumer(&mut self, key: ConsumerKey, item: ConsumerItem) {
        match self.consumers.get_mut(&key) {
            Some(Consumer::Open { handle, .. }) => handle.push(item),
            Some(Consumer::Opening { early, .. }) => keep_early(early, item),
            None => {
                if let ConsumerItem::Ack { request: Some(request), .. }
                | ConsumerItem::Seek(request, _)
                | ConsumerItem::Unsubscribe(request, _)
                | ConsumerItem::LastMessageId(request)
                | ConsumerItem::Stats(request) = item
                {
                    let gone = Refusal::new(ServerError::MetadataError, "Consumer not found");
                    self.session.handle_answer(request, Err(gone));
                }
            }
        }
    }

    fn handle_item(&mut self, item: ConnectionItem) {
        let now = self.broker.env().clock.now();
        match item {
            ConnectionItem::Receipts(receipts) => receipts.into_iter().for_each(|receipt| self.receipt(receipt)),
            ConnectionItem::Deliver(consumer, entries) => self.deliver(consumer, entries),
            ConnectionItem::ProducerOpened { producer, result } => self.producer_opened(producer, result),
            ConnectionItem::ProducerClosed(key) => {
                self.forget_producer(key);
                self.session.handle_producer_closed(now, key, NewOwner::default());
            }
            ConnectionItem::ProducerFenced(key) => {
                self.forget_producer(key);
                self.session.handle_producer_fenced(key);
            }
            ConnectionItem::ConsumerSubscribed { consumer, result } => self.consumer_subscribed(consumer, result),
            ConnectionItem::ConsumerClosed(key) => {
                self.consumers.remove(&key);
                self.session.handle_consumer_closed(key, NewOwner::default());
            }
            ConnectionItem::ActiveConsumer(key, active) => self.session.handle_active_consumer(key, active),
            ConnectionItem::WatchStarted { watcher, result } => {
                if result.is_err() {
                    self.watchers.remove(&watcher);
                }
                self.session.handle_watch_started(watcher, result);
            }
            ConnectionItem::TopicsChanged { watcher, new, deleted, hash } => {
                self.session.handle_topics_changed(watcher, new, deleted, hash);
                self.told_watchers.push(watcher);
            }
            ConnectionItem::EndOfTopic(key) => self.session.handle_end_of_topic(key),
            ConnectionItem::Answer(request, answer) => self.session.handle_answer(request, answer),
        }
        // Replies of the session and deliveries share the outbox, in the order in which they came.
        self.apply_effects();
    }

    fn producer_opened(
        &mut self,
        key: ProducerKey,
        result: Result<(geminga_session::ProducerOpened, TopicHandle, ProducerId), Refusal>,
    ) {
        let close = matches!(self.producers.get(&key), Some(Producer::Opening { close: true }));
        match result {
            Ok((opened, topic, id)) => {
                if close {
                    topic.close_producer(key, self.handle.clone());
                } else {
                    self.session.handle_producer_opened(key, Ok(opened));
                }
                self.producers.insert(key, Producer::Open { topic, id, unanswered: Default::default() });
            }
            Err(refusal) => {
                self.producers.remove(&key);
                if close {
                    let now = self.broker.env().clock.now();
                    self.session.handle_producer_closed(now, key, NewOwner::default());
                } else {
                    self.session.handle_producer_opened(key, Err(refusal));
                }
            }
        }
    }

    fn consumer_subscribed(&mut self, key: ConsumerKey, result: Result<ConsumerHandle, Refusal>) {
        let Some(Consumer::Opening { close, partition, early }) = self.consumers.remove(&key) else { return };
        match result {
            Ok(handle) => {
                early.into_iter().for_each(|item| handle.push(item));
                if close {
                    handle.push(ConsumerItem::Close);
                } else {
                    self.session.handle_consumer_subscribed(key, Ok(()));
                }
                self.consumers.insert(key, Consumer::Open { handle, partition });
            }
            Err(_) if close => self.session.handle_consumer_closed(key, NewOwner::default()),
            Err(refusal) => self.session.handle_consumer_subscribed(key, Err(refusal)),
        }
    }

    fn forget_producer(&mut self, key: ProducerKey) {
        if let Some(Producer::Open { unanswered, .. }) = self.producers.remove(&key) {
            unanswered.iter().for_each(|held| self.ingress.answered(held));
        }
    }

    fn receipt(&mut self, receipt: Receipt) {
        let Receipt { producer, sequence_id, highest_sequence_id, result } = receipt;
        if let Some(Producer::Open { unanswered, .. }) = self.producers.get_mut(&producer)
            && let Some(held) = unanswered.pop_front()
        {
            self.ingress.answered(&held);
        }
        match result {
            Ok(position) => {
                let receipt = SendReceipt {
                    producer_id: producer.id(),
                    sequence_id,
                    position: Some(position),
                    highest_sequence_id: highest_sequence_id.unwrap_or(0),
                };
                self.outbox.encode(|out| encode_send_receipt(out, &receipt));
            }
            Err((error, message)) => {
                self.outbox.command(&Command::send_error(producer.id(), sequence_id, error, message));
            }
        }
    }

    fn deliver(&mut self, consumer: ConsumerKey, entries: Vec<Delivery>) {
        let peer = self.session.peer();
        let checksums = peer.is_none_or(geminga_session::Peer::reads_checksums);
        let partition = match self.consumers.get(&consumer) {
            Some(Consumer::Open { partition, .. } | Consumer::Opening { partition, .. }) => *partition,
            // It left; what was on its way is delivered to others by its subscription.
            None => {
                self.gauge.sent(entries.iter().map(|entry| entry.payload.len()).sum());
                return;
            }
        };
        for mut entry in entries {
            if !checksums && let Ok(parsed) = Entry::parse(entry.payload.clone()) {
                let before = entry.payload.len();
                entry.payload = parsed.without_checksum();
                self.gauge.sent(before - entry.payload.len());
            }
            self.outbox.deliver(consumer, partition, entry);
        }
    }
}

/// Keeps what a client asks of a consumer that is still being added. Permits are summed, and what is about messages that it
/// cannot have yet is left out, so that only requests take room, whose number is bounded.
fn keep_early(early: &mut Vec<ConsumerItem>, item: ConsumerItem) {
    match (early.last_mut(), item) {
        (Some(ConsumerItem::Flow(before)), ConsumerItem::Flow(more)) => *before = before.saturating_add(more),
        (_, ConsumerItem::Ack { request: None, .. } | ConsumerItem::Redeliver { .. }) => {}
        (_, item) => early.push(item),
    }
}
