//! A broker that does what the test says.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use geminga_env::{Env, net};
use geminga_model::Position;
use geminga_wire::{
    Command, FrameSplitter, MessageHeader, SendCommand, SendReceipt, ServerError, decode_command, encode_command,
    encode_message_header, proto,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{Client, ClientOptions};

pub(super) fn env() -> Env {
    let handle = tokio::runtime::Handle::current();
    Env::real(handle.clone(), handle)
}

pub(super) fn options() -> ClientOptions {
    ClientOptions {
        operation_timeout: Duration::from_secs(5),
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(20),
        ..ClientOptions::default()
    }
}

/// Runs both sides to their ends; a test that hangs fails.
pub(super) async fn play<A, B>(broker: impl Future<Output = A>, client: impl Future<Output = B>) -> (A, B) {
    let env = env();
    let deadline = env.clock.now() + Duration::from_secs(20);
    tokio::select! {
        biased;
        both = async { tokio::join!(broker, client) } => both,
        () = env.clock.sleep_until(deadline) => panic!("the script and the client wait for each other"),
    }
}

pub(super) struct Broker {
    pub(super) listener: TcpListener,
    /// Partitions that every topic has.
    pub(super) partitions: u32,
}

impl Broker {
    pub(super) fn start() -> Broker {
        Broker { listener: net::listen("127.0.0.1:0".parse().unwrap()).unwrap(), partitions: 0 }
    }

    pub(super) fn url(&self) -> String {
        format!("pulsar://{}", self.listener.local_addr().unwrap())
    }

    pub(super) async fn client(&self) -> Client {
        Client::with_options(&env(), &self.url(), options()).await.unwrap()
    }

    /// The next connection, after its handshake.
    pub(super) async fn accept(&self) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let (owner, partitions) = (self.url(), self.partitions);
        let mut peer = Peer { stream, input: BytesMut::new(), owner, partitions, connect: None };
        let Command::Connect(connect) = peer.next().await.0 else { panic!("not CONNECT") };
        assert_eq!(connect.protocol_version(), 21);
        peer.connect = Some(*connect);
        peer.say(Command::connected("Pulsar Server4.1.0", 21, 1_000, proto::FeatureFlags::default())).await;
        peer
    }
}

pub(super) struct Peer {
    stream: TcpStream,
    input: BytesMut,
    /// What look-ups are answered with.
    pub(super) owner: String,
    partitions: u32,
    pub(super) connect: Option<proto::CommandConnect>,
}

impl Peer {
    /// The next command; look-ups are answered on the way.
    pub(super) async fn next(&mut self) -> (Command, Bytes) {
        loop {
            let (command, payload) = self.any().await;
            match command {
                Command::Lookup(lookup) => {
                    self.say(Command::lookup_connect(lookup.request_id, Some(self.owner.clone()), None, false)).await;
                }
                Command::PartitionedMetadata(ask) => {
                    self.say(Command::partitions(ask.request_id, self.partitions)).await;
                }
                other => return (other, payload),
            }
        }
    }

    /// The next command, whatever it is.
    pub(super) async fn any(&mut self) -> (Command, Bytes) {
        loop {
            if let Some(frame) = FrameSplitter::default().split(&mut self.input).unwrap() {
                return (decode_command(&frame.command).unwrap(), frame.payload);
            }
            assert!(self.stream.read_buf(&mut self.input).await.unwrap() > 0, "the client closed the connection");
        }
    }

    /// Whether the client has closed the connection.
    pub(super) async fn is_closed(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.input).await, Ok(0) | Err(_))
    }

    pub(super) async fn say(&mut self, command: impl Into<Command>) {
        let mut out = BytesMut::new();
        encode_command(&mut out, &command.into());
        self.stream.write_all(&out).await.unwrap();
    }

    /// A producer opens.
    pub(super) async fn producer(&mut self) -> proto::CommandProducer {
        let Command::Producer(producer) = self.next().await.0 else { panic!("not PRODUCER") };
        let name = producer.producer_name.clone().unwrap_or_else(|| "made-up".into());
        self.say(Command::producer_success(producer.request_id, name, -1, Bytes::new(), None, true)).await;
        *producer
    }

    pub(super) async fn send(&mut self) -> (SendCommand, Bytes) {
        match self.next().await {
            (Command::Send(send), payload) => (send, payload),
            (other, _) => panic!("not SEND: {other:?}"),
        }
    }

    pub(super) async fn receipt(&mut self, send: &SendCommand, entry: i64) {
        self.say(SendReceipt {
            producer_id: send.producer_id,
            sequence_id: send.sequence_id,
            position: Some(Position::new(1, entry)),
            highest_sequence_id: send.highest_sequence_id,
        })
        .await;
    }

    pub(super) async fn close_producer(&mut self) {
        let Command::CloseProducer(close) = self.next().await.0 else { panic!("not CLOSE_PRODUCER") };
        self.say(Command::success(close.request_id)).await;
    }

    /// A consumer subscribes and asks for messages.
    pub(super) async fn subscribe(&mut self) -> (proto::CommandSubscribe, u32) {
        let Command::Subscribe(subscribe) = self.next().await.0 else { panic!("not SUBSCRIBE") };
        self.say(Command::success(subscribe.request_id)).await;
        let permits = self.flow().await;
        (*subscribe, permits)
    }

    pub(super) async fn flow(&mut self) -> u32 {
        match self.next().await.0 {
            Command::Flow(flow) => flow.message_permits,
            other => panic!("not FLOW: {other:?}"),
        }
    }

    /// The entries of the next ACK, and its type.
    pub(super) async fn ack(&mut self) -> (Vec<i64>, proto::command_ack::AckType, Option<u64>) {
        match self.next().await.0 {
            Command::Ack(ack) => {
                let entries = ack.message_ids.iter().map(|id| id.position.entry.0).collect();
                (entries, ack.ack_type, ack.request_id)
            }
            other => panic!("not ACK: {other:?}"),
        }
    }

    pub(super) async fn message(&mut self, consumer_id: u64, entry: i64, epoch: Option<u64>, bytes: &[u8]) {
        let header = MessageHeader {
            consumer_id,
            position: Position::new(1, entry),
            partition: -1,
            redelivery_count: 0,
            ack_set: &[],
            consumer_epoch: epoch,
        };
        let mut out = BytesMut::new();
        encode_message_header(&mut out, &header, bytes.len());
        out.extend_from_slice(bytes);
        self.stream.write_all(&out).await.unwrap();
    }

    pub(super) async fn refuse(&mut self, error: ServerError, message: &str) {
        let request_id = match self.next().await.0 {
            Command::Producer(command) => command.request_id,
            Command::Subscribe(command) => command.request_id,
            Command::Seek(command) => command.request_id,
            other => panic!("{other:?}"),
        };
        self.say(Command::error(request_id, error, message)).await;
    }
}
