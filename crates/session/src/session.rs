//! The session itself: handshake, keep-alive, which command goes where, the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use geminga_model::Instant;
use geminga_wire::proto::CommandConnect;
use geminga_wire::{Command, ServerError};

use crate::config::{Peer, SessionConfig};
use crate::consumers::Consumer;
use crate::effect::{CloseReason, Effect, RequestKey};
use crate::producers::Producer;
use crate::requests::Pending;
use crate::watchers::Watcher;

/// The newest version of the protocol, which this broker speaks.
const PROTOCOL_VERSION: i32 = 21;

/// Where a connection stands. Authentication would be a state between the first two.
#[derive(Debug)]
enum State {
    /// Waits for CONNECT.
    Start,
    /// CONNECTED was sent.
    Connected(Box<Peer>),
    /// Nothing is accepted or answered any more.
    Closed,
}

/// One client connection's rules. See the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Session {
    pub(crate) config: Arc<SessionConfig>,
    state: State,
    /// When the handshake must be over; then when the peer is next looked at.
    deadline: Instant,
    /// A PING was sent and nothing has come since.
    pinged: bool,
    /// Whether the connection reads from its socket.
    reading: bool,
    next_serial: u64,
    // Ordered maps, so that the same commands always have the same effects.
    pub(crate) producers: BTreeMap<u64, Producer>,
    /// Producers that the broker closed of late, and when: what a client sent before it knew is dropped.
    pub(crate) closed_producers: BTreeMap<u64, Instant>,
    pub(crate) consumers: BTreeMap<u64, Consumer>,
    pub(crate) watchers: BTreeMap<u64, Watcher>,
    /// By serial.
    pub(crate) requests: BTreeMap<u64, Pending>,
    /// Requests of every kind that wait for their final reply.
    pub(crate) in_flight: usize,
    effects: Vec<Effect>,
}

impl Session {
    /// A session for a connection that was accepted at `now`.
    #[must_use]
    pub fn new(config: Arc<SessionConfig>, now: Instant) -> Session {
        Session {
            deadline: now + config.handshake_timeout,
            config,
            state: State::Start,
            pinged: false,
            reading: true,
            next_serial: 0,
            producers: BTreeMap::new(),
            closed_producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
            watchers: BTreeMap::new(),
            requests: BTreeMap::new(),
            in_flight: 0,
            effects: Vec::new(),
        }
    }

    /// The peer, once it has connected and until the end.
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        match &self.state {
            State::Connected(peer) => Some(peer),
            State::Start | State::Closed => None,
        }
    }

    /// Whether the end has come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// The message size that frames are to be split for now. Look again after CONNECT.
    #[must_use]
    pub fn max_message_size(&self) -> usize {
        match self.state {
            State::Start => self.config.handshake_message_size(),
            State::Connected(_) | State::Closed => self.config.max_message_size,
        }
    }

    /// The largest command, without its payload, that is worth decoding now; close the connection on a larger one.
    #[must_use]
    pub fn max_command_len(&self) -> usize {
        match self.state {
            State::Start => self.config.max_handshake_frame,
            State::Connected(_) | State::Closed => self.config.max_command_len,
        }
    }

    /// When to call [`handle_timeout`](Session::handle_timeout); `None` once it is closed.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_closed()).then_some(self.deadline)
    }

    /// Moves the effects since the last call into `effects`, which keeps what it has. Hand in the same vector again
    /// and again, so that neither side allocates.
    pub fn take_effects(&mut self, effects: &mut Vec<Effect>) {
        if effects.is_empty() {
            std::mem::swap(&mut self.effects, effects);
        } else {
            effects.append(&mut self.effects);
        }
    }

    /// A command came, with what followed it in its frame.
    pub fn handle_command(&mut self, now: Instant, command: Command, payload: Bytes) {
        // Any command shows that the peer is alive.
        self.pinged = false;
        match self.state {
            State::Connected(_) => self.dispatch(now, command, payload),
            State::Closed => {}
            State::Start => match command {
                Command::Connect(connect) => self.connect(now, *connect),
                Command::Ping(_) => self.send(Command::PONG),
                Command::Pong(_) => {}
                other => self.fail(CloseReason::NotConnected(other.command_type().as_str_name())),
            },
        }
    }

    /// It is [`deadline`](Session::deadline). Earlier calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_closed() || now < self.deadline {
            return;
        }
        let Some(peer) = self.peer() else { return self.fail(CloseReason::HandshakeTimeout) };
        let answers_pings = peer.protocol_version >= 1;
        if self.pinged && self.reading {
            return self.fail(CloseReason::KeepAliveTimeout);
        }
        if answers_pings {
            self.send(Command::PING);
            self.pinged = true;
        }
        let keep_alive = self.config.keep_alive;
        self.closed_producers.retain(|_, closed| *closed + keep_alive > now);
        self.deadline = now + keep_alive;
    }

    /// The connection stops reading from its socket, or goes on. While it does not read, silence means nothing.
    pub fn set_reading(&mut self, now: Instant, reading: bool) {
        if reading && !self.reading && self.peer().is_some() {
            // What the peer sent meanwhile must have time to be read.
            self.pinged = false;
            self.deadline = now + self.config.keep_alive;
        }
        self.reading = reading;
    }

    /// The broker does not take the connection, or does not keep it: the client is told why, and it closes.
    pub fn refuse(&mut self, error: ServerError, message: &str) {
        if !self.is_closed() {
            self.send(Command::connection_error(error, message));
            self.fail(CloseReason::Refused(message.to_owned()));
        }
    }

    /// The socket is gone. What is open gets its end.
    pub fn close(&mut self) {
        self.state = State::Closed;
        self.requests.clear();
        self.closed_producers.clear();
        self.in_flight = 0;
        for producer in std::mem::take(&mut self.producers).into_values().filter(|producer| !producer.is_closing()) {
            self.push(Effect::CloseProducer { producer: producer.key });
        }
        for consumer in std::mem::take(&mut self.consumers).into_values().filter(|consumer| !consumer.is_closing()) {
            self.push(Effect::CloseConsumer { consumer: consumer.key });
        }
        for watcher in std::mem::take(&mut self.watchers).into_values() {
            self.push(Effect::CloseWatcher { watcher: watcher.key });
        }
    }

    /// Closes the connection from this side.
    pub(crate) fn fail(&mut self, reason: CloseReason) {
        if !self.is_closed() {
            self.push(Effect::Close(reason));
            self.close();
        }
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn send(&mut self, command: impl Into<Command>) {
        self.effects.push(Effect::Send(command.into()));
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    pub(crate) fn protocol_version(&self) -> i32 {
        self.peer().map_or(0, |peer| peer.protocol_version)
    }

    /// Whether one more request may wait; if not, the caller answers at once.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.config.max_requests
    }

    /// Remembers a request, which the caller then hands on.
    pub(crate) fn begin(&mut self, request_id: u64, pending: Pending) -> RequestKey {
        let serial = self.serial();
        self.in_flight += 1;
        self.requests.insert(serial, pending);
        RequestKey { id: request_id, serial }
    }

    fn connect(&mut self, now: Instant, connect: CommandConnect) {
        let protocol_version = connect.protocol_version().clamp(0, PROTOCOL_VERSION);
        let max_message_size = i32::try_from(self.config.max_message_size).unwrap_or(i32::MAX);
        let features = self.config.features();
        let server_version = self.config.server_version.clone();
        self.send(Command::connected(server_version, protocol_version, max_message_size, features));
        // Fact: without authentication any method and credentials are let in, even nonsense.
        self.state = State::Connected(Box::new(Peer {
            protocol_version,
            client_version: connect.client_version,
            proxy_version: connect.proxy_version,
            features: connect.feature_flags.unwrap_or_default(),
        }));
        self.deadline = now + self.config.keep_alive;
    }

    fn dispatch(&mut self, now: Instant, command: Command, payload: Bytes) {
        match command {
            Command::Send(send) => self.on_send(now, &send, payload),
            Command::Ack(ack) => self.on_ack(ack),
            Command::Flow(flow) => self.on_flow(flow),
            Command::Ping(_) => self.send(Command::PONG),
            Command::Pong(_) => {}
            Command::Producer(producer) => self.on_producer(*producer),
            Command::CloseProducer(close) => self.on_close_producer(&close),
            Command::Subscribe(subscribe) => self.on_subscribe(*subscribe),
            Command::RedeliverUnacknowledgedMessages(redeliver) => self.on_redeliver(redeliver),
            Command::Seek(seek) => self.on_seek(&seek),
            Command::Unsubscribe(unsubscribe) => self.on_unsubscribe(unsubscribe),
            Command::CloseConsumer(close) => self.on_close_consumer(&close),
            Command::GetLastMessageId(get) => self.on_get_last_message_id(get),
            Command::ConsumerStats(stats) => self.on_consumer_stats(stats),
            Command::Lookup(lookup) => self.on_lookup(*lookup),
            Command::PartitionedMetadata(partitions) => self.on_partitions(&partitions),
            Command::GetTopicsOfNamespace(get) => self.on_topics_of_namespace(get),
            Command::WatchTopicList(watch) => self.on_watch(watch),
            Command::WatchTopicListClose(close) => self.on_close_watcher(close),
            Command::GetSchema(get) => self.on_get_schema(get),
            Command::GetOrCreateSchema(get) => self.on_get_or_create_schema(*get),
            Command::NewTxn(txn) => self.no_transactions(txn.request_id),
            Command::AddPartitionToTxn(txn) => self.no_transactions(txn.request_id),
            Command::AddSubscriptionToTxn(txn) => self.no_transactions(txn.request_id),
            Command::EndTxn(txn) => self.no_transactions(txn.request_id),
            Command::EndTxnOnPartition(txn) => self.no_transactions(txn.request_id),
            Command::EndTxnOnSubscription(txn) => self.no_transactions(txn.request_id),
            Command::TcClientConnectRequest(txn) => self.no_transactions(txn.request_id),
            unexpected @ (Command::Connect(_)
            | Command::AuthResponse(_)
            | Command::Connected(_)
            | Command::SendReceipt(_)
            | Command::Message(_)
            | Command::Success(_)
            | Command::Error(_)
            | Command::ProducerSuccess(_)
            | Command::PartitionedMetadataResponse(_)
            | Command::LookupResponse(_)
            | Command::ConsumerStatsResponse(_)
            | Command::ReachedEndOfTopic(_)
            | Command::GetLastMessageIdResponse(_)
            | Command::ActiveConsumerChange(_)
            | Command::GetTopicsOfNamespaceResponse(_)
            | Command::GetSchemaResponse(_)
            | Command::AuthChallenge(_)
            | Command::AckResponse(_)
            | Command::GetOrCreateSchemaResponse(_)
            | Command::NewTxnResponse(_)
            | Command::AddPartitionToTxnResponse(_)
            | Command::AddSubscriptionToTxnResponse(_)
            | Command::EndTxnResponse(_)
            | Command::EndTxnOnPartitionResponse(_)
            | Command::EndTxnOnSubscriptionResponse(_)
            | Command::TcClientConnectResponse(_)
            | Command::WatchTopicListSuccess(_)
            | Command::WatchTopicUpdate(_)
            | Command::TopicMigrated(_)
            | Command::SendError(_)) => {
                self.fail(CloseReason::Unexpected(unexpected.command_type().as_str_name()));
            }
        }
    }

    fn no_transactions(&mut self, request_id: u64) {
        let message = "Transactions are not enabled on this broker";
        self.send(Command::error(request_id, ServerError::NotAllowedError, message));
    }
}
