//! The task of a connection: the one owner of its socket.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use geminga_env::{Env, Inbox, Reply, Stop, net};
use geminga_model::Instant;
use geminga_wire::{
    Command, DecodeError, Frame, FrameSplitter, LARGE_FRAME, READ_CHUNK, ServerError, decode_command, encode_ack,
    encode_command, encode_flow, proto,
};
use tokio::net::TcpStream;

use crate::error::ClientError;
use crate::link::{Answer, Hello, Item, Kind, LinkEvent, Sink};
use crate::options::ClientOptions;

/// The newest version of the protocol.
const PROTOCOL_VERSION: i32 = 21;

/// How many parts one write takes.
const WRITE_PARTS: usize = 64;

/// The least room that is read into.
const MIN_READ: usize = 4096;

/// What a connection is made with.
#[derive(Debug)]
pub(crate) struct Target {
    /// The hosts of which one is connected to, the first that answers.
    pub(crate) hosts: Vec<String>,
    /// The broker that a proxy is to pass the connection on to, `host:port`.
    pub(crate) proxy_to: Option<String>,
    /// For messages.
    pub(crate) address: Arc<str>,
}

struct Waiting {
    operation: &'static str,
    deadline: Instant,
    reply: Reply<Answer>,
}

struct LinkTask {
    env: Env,
    options: Arc<ClientOptions>,
    address: Arc<str>,
    stream: TcpStream,
    splitter: FrameSplitter,
    hello: Hello,
    input: BytesMut,
    output: VecDeque<Bytes>,
    /// Small commands on their way to `output`.
    encoded: BytesMut,
    requests: BTreeMap<u64, Waiting>,
    sinks: BTreeMap<(Kind, u64), Sink>,
    next_check: Instant,
    pinged: bool,
}

/// Connects, serves the connection to its end, and tells everyone of the end.
pub(crate) async fn run(env: Env, options: Arc<ClientOptions>, target: Target, stop: Stop, mut inbox: Inbox<Item>) {
    let deadline = env.clock.now() + options.connect_timeout;
    let connected = tokio::select! {
        biased;
        () = stop.stopped() => Err(ClientError::Closed("client")),
        connected = LinkTask::connect(&env, &options, &target) => connected,
        () = env.clock.sleep_until(deadline) => Err(ClientError::Unreachable {
            address: target.address.to_string(),
            reason: format!("no answer within {:?}", options.connect_timeout),
        }),
    };
    let (error, mut sinks) = match connected {
        Err(error) => (error, BTreeMap::new()),
        Ok(mut task) => {
            let error = task.serve(&stop, &mut inbox).await;
            tracing::debug!(address = %target.address, %error, "a connection has ended");
            for waiting in std::mem::take(&mut task.requests).into_values() {
                waiting.reply.send(Err(error.clone()));
            }
            (error, task.sinks)
        }
    };
    inbox.close();
    let mut left = Vec::new();
    inbox.take(&mut left);
    for item in left {
        match item {
            Item::Ready(reply) => reply.send(Err(error.clone())),
            Item::Request { reply, .. } => reply.send(Err(error.clone())),
            Item::Attach(kind, id, sink) => drop(sinks.insert((kind, id), sink)),
            Item::Detach(kind, id) => drop(sinks.remove(&(kind, id))),
            Item::Tell(_) | Item::Write(_) => {}
        }
    }
    for sink in sinks.values_mut() {
        sink(LinkEvent::Lost);
    }
}

impl LinkTask {
    async fn connect(env: &Env, options: &Arc<ClientOptions>, target: &Target) -> Result<LinkTask, ClientError> {
        let mut last = "no host is given".to_owned();
        for host in &target.hosts {
            let addresses = match tokio::net::lookup_host(host.as_str()).await {
                Ok(addresses) => addresses,
                Err(error) => {
                    last = format!("{host}: {error}");
                    continue;
                }
            };
            for address in addresses {
                match net::dial(address).await {
                    Ok(stream) => return LinkTask::shake_hands(env, options, target, stream).await,
                    Err(error) => last = error.to_string(),
                }
            }
        }
        Err(ClientError::Unreachable { address: target.address.to_string(), reason: last })
    }

    async fn shake_hands(
        env: &Env,
        options: &Arc<ClientOptions>,
        target: &Target,
        stream: TcpStream,
    ) -> Result<LinkTask, ClientError> {
        let mut task = LinkTask {
            env: env.clone(),
            options: Arc::clone(options),
            address: Arc::clone(&target.address),
            stream,
            splitter: FrameSplitter::default(),
            hello: Hello { max_message_size: geminga_wire::DEFAULT_MAX_MESSAGE_SIZE },
            input: BytesMut::new(),
            output: VecDeque::new(),
            encoded: BytesMut::new(),
            requests: BTreeMap::new(),
            sinks: BTreeMap::new(),
            next_check: env.clock.now() + options.keep_alive,
            pinged: false,
        };
        task.send(
            &proto::CommandConnect {
                client_version: options.client_version.clone(),
                protocol_version: Some(PROTOCOL_VERSION),
                auth_method_name: Some("none".to_owned()),
                proxy_to_broker_url: target.proxy_to.clone(),
                feature_flags: Some(proto::FeatureFlags {
                    supports_broker_entry_metadata: Some(true),
                    supports_partial_producer: Some(true),
                    supports_get_partitioned_metadata_without_auto_creation: Some(true),
                    ..Default::default()
                }),
                ..Default::default()
            }
            .into(),
        );
        loop {
            task.write().map_err(|error| task.unreachable(error.to_string()))?;
            if task.output.is_empty() {
                task.stream.readable().await.map_err(|error| task.unreachable(error.to_string()))?;
            } else {
                task.stream.writable().await.map_err(|error| task.unreachable(error.to_string()))?;
            }
            task.read().map_err(|error| task.unreachable(error.to_string()))?;
            let frame = task.splitter.split(&mut task.input).map_err(|error| task.protocol(error.to_string()))?;
            let Some(frame) = frame else { continue };
            match task.decode(&frame)? {
                Command::Connected(connected) => {
                    let size = connected.max_message_size.and_then(|size| usize::try_from(size).ok());
                    if let Some(size) = size.filter(|size| *size > 0) {
                        task.hello.max_message_size = size;
                        task.splitter = FrameSplitter::new(size);
                    }
                    return Ok(task);
                }
                Command::Error(error) => {
                    let (error, message) = (error.error(), error.message);
                    return Err(ClientError::Refused { operation: "connecting".to_owned(), error, message });
                }
                Command::AuthChallenge(_) => {
                    let (error, operation) = (ServerError::AuthenticationError, "connecting".to_owned());
                    let message = "the broker wants credentials, which this version does not send".to_owned();
                    return Err(ClientError::Refused { operation, error, message });
                }
                other => return Err(task.protocol(format!("{} to CONNECT", other.command_type().as_str_name()))),
            }
        }
    }

    fn unreachable(&self, reason: String) -> ClientError {
        ClientError::Unreachable { address: self.address.to_string(), reason }
    }

    fn lost(&self, reason: String) -> ClientError {
        ClientError::Disconnected { address: self.address.to_string(), reason }
    }

    fn protocol(&self, what: String) -> ClientError {
        ClientError::Protocol { address: self.address.to_string(), what }
    }

    /// Serves until the connection ends, and says why it did.
    async fn serve(&mut self, stop: &Stop, inbox: &mut Inbox<Item>) -> ClientError {
        let mut batch = Vec::new();
        loop {
            // What was read with CONNECTED comes first.
            if let Err(error) = self.take_frames() {
                return error;
            }
            if let Err(error) = self.write() {
                return self.lost(error.to_string());
            }
            let clock = self.env.clock;
            let ready = tokio::select! {
                biased;
                () = stop.stopped() => return ClientError::Closed("client"),
                () = inbox.wait() => {
                    inbox.take(&mut batch);
                    for item in batch.drain(..) {
                        self.take_item(item);
                    }
                    Ok(())
                }
                ready = self.stream.readable() => ready.and_then(|()| self.read()),
                ready = self.stream.writable(), if !self.output.is_empty() => ready,
                () = clock.sleep_until(self.next_check) => {
                    if self.pinged {
                        return self.lost("the broker did not answer a PING".to_owned());
                    }
                    self.check();
                    Ok(())
                }
            };
            if let Err(error) = ready {
                return self.lost(error.to_string());
            }
        }
    }

    /// Asks a silent broker for a sign of life, and gives up requests that nobody waits for any more.
    fn check(&mut self) {
        let now = self.env.clock.now();
        self.pinged = true;
        self.send(&Command::PING);
        self.requests.retain(|_, waiting| waiting.deadline > now);
        self.next_check = now + self.options.keep_alive;
    }

    fn read(&mut self) -> io::Result<()> {
        let (held, frame) = (self.input.len(), self.splitter.frame_len(&self.input).ok().flatten().unwrap_or(0));
        // The rest of a large frame, or as much as makes a read worth it. Messages keep the buffer they came in, so
        // that it is used up before there is another.
        let wanted = if frame > LARGE_FRAME { frame.saturating_sub(held) } else { MIN_READ };
        if self.input.capacity() - held < wanted {
            self.input.reserve(if frame > LARGE_FRAME { wanted } else { READ_CHUNK });
        }
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the broker closed it")),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.encoded.is_empty() {
            let encoded = self.encoded.split().freeze();
            self.output.push_back(encoded);
        }
        while !self.output.is_empty() {
            let parts: Vec<io::IoSlice<'_>> =
                self.output.iter().take(WRITE_PARTS).map(|part| io::IoSlice::new(part)).collect();
            let mut written = match self.stream.try_write_vectored(&parts) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            while let Some(part) = self.output.front_mut() {
                let here = written.min(part.len());
                part.advance(here);
                written -= here;
                if !part.is_empty() {
                    break;
                }
                self.output.pop_front();
            }
        }
        Ok(())
    }

    fn send(&mut self, command: &Command) {
        match command {
            Command::Ack(ack) => encode_ack(&mut self.encoded, ack),
            Command::Flow(flow) => encode_flow(&mut self.encoded, flow),
            other => encode_command(&mut self.encoded, other),
        }
    }

    fn take_item(&mut self, item: Item) {
        match item {
            Item::Ready(reply) => reply.send(Ok(self.hello)),
            Item::Request { id, operation, command, deadline, reply } => {
                self.requests.insert(id, Waiting { operation, deadline, reply });
                self.send(&command);
            }
            Item::Tell(command) => self.send(&command),
            Item::Write(parts) => {
                if !self.encoded.is_empty() {
                    let encoded = self.encoded.split().freeze();
                    self.output.push_back(encoded);
                }
                self.output.extend(parts.into_iter().filter(|part| !part.is_empty()));
            }
            Item::Attach(kind, id, sink) => drop(self.sinks.insert((kind, id), sink)),
            Item::Detach(kind, id) => drop(self.sinks.remove(&(kind, id))),
        }
    }

    fn take_frames(&mut self) -> Result<(), ClientError> {
        loop {
            let frame = self.splitter.split(&mut self.input).map_err(|error| self.protocol(error.to_string()))?;
            let Some(frame) = frame else { return Ok(()) };
            self.pinged = false;
            match decode_command(&frame.command) {
                Ok(command) => self.take_command(command, frame.payload)?,
                // A newer broker may say what need not be understood.
                Err(DecodeError::UnknownCommand(number)) => tracing::debug!(number, "an unknown command"),
                Err(error) => return Err(self.protocol(error.to_string())),
            }
        }
    }

    fn decode(&self, frame: &Frame) -> Result<Command, ClientError> {
        decode_command(&frame.command).map_err(|error| self.protocol(error.to_string()))
    }

    fn event(&mut self, kind: Kind, id: u64, event: LinkEvent) {
        if let Some(sink) = self.sinks.get_mut(&(kind, id)) {
            sink(event);
        }
    }

    /// The last event of a producer or consumer.
    fn close(&mut self, kind: Kind, id: u64, url: Option<String>) {
        if let Some(mut sink) = self.sinks.remove(&(kind, id)) {
            sink(LinkEvent::Closed { url });
        }
    }

    fn answer(&mut self, request_id: u64, command: Command) {
        if let Some(waiting) = self.requests.remove(&request_id) {
            waiting.reply.send(Ok(command));
        }
    }

    fn take_command(&mut self, command: Command, payload: Bytes) -> Result<(), ClientError> {
        match command {
            Command::Message(command) => {
                let id = command.consumer_id;
                self.event(Kind::Consumer, id, LinkEvent::Message { command, entry: payload });
            }
            Command::SendReceipt(receipt) => {
                self.event(Kind::Producer, receipt.producer_id, LinkEvent::Receipt(receipt));
            }
            Command::SendError(error) => {
                let (id, sequence_id, code) = (error.producer_id, error.sequence_id, error.error());
                let event = LinkEvent::SendError { sequence_id, error: code, message: error.message };
                self.event(Kind::Producer, id, event);
            }
            Command::Ping(_) => self.send(&Command::PONG),
            Command::CloseProducer(close) => {
                self.close(Kind::Producer, close.producer_id, close.assigned_broker_service_url);
            }
            Command::CloseConsumer(close) => {
                self.close(Kind::Consumer, close.consumer_id, close.assigned_broker_service_url);
            }
            Command::ReachedEndOfTopic(end) => self.event(Kind::Consumer, end.consumer_id, LinkEvent::EndOfTopic),
            Command::Error(error) if error.request_id == u64::MAX => {
                let (error, message) = (error.error().as_str_name(), error.message);
                return Err(self.lost(format!("the broker said {error}: {message}")));
            }
            Command::Error(error) => {
                if let Some(waiting) = self.requests.remove(&error.request_id) {
                    let operation = waiting.operation.to_owned();
                    let (error, message) = (error.error(), error.message);
                    waiting.reply.send(Err(ClientError::Refused { operation, error, message }));
                }
            }
            // The first of two answers: the producer waits for its turn.
            Command::ProducerSuccess(success) if !success.producer_ready() => {}
            Command::ProducerSuccess(ref reply) => self.answer(reply.request_id, command),
            Command::Success(ref reply) => self.answer(reply.request_id, command),
            Command::LookupResponse(ref reply) => self.answer(reply.request_id, command),
            Command::PartitionedMetadataResponse(ref reply) => self.answer(reply.request_id, command),
            Command::GetLastMessageIdResponse(ref reply) => self.answer(reply.request_id, command),
            Command::GetTopicsOfNamespaceResponse(ref reply) => self.answer(reply.request_id, command),
            Command::AckResponse(ref reply) => self.answer(reply.request_id.unwrap_or(u64::MAX), command),
            other => tracing::debug!(command = other.command_type().as_str_name(), "a command without a use"),
        }
        Ok(())
    }
}
