//! Connections that never read: a broker must not keep for ever growing what they do not take.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use geminga_env::{Clock, OnPanic, Scope, Stop, net};
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_wire::proto::{self, MessageMetadata};
use geminga_wire::{Command, FlowCommand, FrameSplitter, SendCommand, decode_command, encode_command, encode_send};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How often one says that it lives, so that it is not closed for being silent.
const LIFE_SIGN: Duration = Duration::from_secs(10);
/// Commands or messages that one sends whose answers it does not read.
const UNREAD: u64 = 2000;

/// What a connection does before it stops reading.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// Consumes with so many permits.
    Consumer { topic: String, subscription: String, permits: u32, durable: bool },
    /// Produces, and does not read the receipts.
    Producer { topic: String },
    /// Asks whether the broker is there, again and again.
    Pings,
}

/// How mute connections fared.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// Those that do not read now.
    pub(crate) open: AtomicU64,
    /// How often one was closed by the broker, or could not be made.
    pub(crate) closed: AtomicU64,
}

/// Keeps one up until the scope is stopped: one that the broker closes is made anew.
pub(crate) fn spawn(scope: &Scope, clock: Clock, address: SocketAddr, role: Role, fates: &Arc<Fates>) {
    let (stop, fates) = (scope.stop_signal().clone(), Arc::clone(fates));
    scope.spawn("mute connection", OnPanic::ExitProcess, async move {
        while !stop.is_stopped() {
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                _ = live(clock, address, &role, &fates) => {}
            }
            fates.closed.fetch_add(1, Ordering::Relaxed);
            pause(clock, &stop).await;
        }
    });
}

async fn pause(clock: Clock, stop: &Stop) {
    tokio::select! {
        biased;
        () = stop.stopped() => {}
        () = clock.sleep_until(clock.now() + Duration::from_millis(500)) => {}
    }
}

/// Counts as open while it is there.
struct Open<'a>(&'a Fates);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn live(clock: Clock, address: SocketAddr, role: &Role, fates: &Fates) -> std::io::Result<()> {
    let mut stream = net::dial(address).await?;
    let connect = proto::CommandConnect {
        client_version: "mute".into(),
        protocol_version: Some(21),
        ..proto::CommandConnect::default()
    };
    ask(&mut stream, &connect.into()).await?;
    let then = match role {
        Role::Consumer { topic, subscription, permits, durable } => {
            ask(&mut stream, &subscribe(topic, subscription, *durable)).await?;
            let mut flow = BytesMut::new();
            encode_command(&mut flow, &FlowCommand { consumer_id: 1, message_permits: *permits }.into());
            flow
        }
        Role::Producer { topic } => {
            let produce = proto::CommandProducer {
                topic: topic.clone(),
                producer_id: 1,
                request_id: 1,
                ..proto::CommandProducer::default()
            };
            ask(&mut stream, &produce.into()).await?;
            messages()
        }
        Role::Pings => {
            let mut pings = BytesMut::new();
            (0..UNREAD).for_each(|_| encode_command(&mut pings, &Command::PING));
            pings
        }
    };
    fates.open.fetch_add(1, Ordering::Relaxed);
    let _open = Open(fates);
    stream.write_all(&then).await?;
    let mut sign = BytesMut::new();
    encode_command(&mut sign, &Command::PONG);
    loop {
        clock.sleep_until(clock.now() + LIFE_SIGN).await;
        stream.write_all(&sign).await?;
    }
}

fn subscribe(topic: &str, subscription: &str, durable: bool) -> Command {
    proto::CommandSubscribe {
        topic: topic.to_owned(),
        subscription: subscription.to_owned(),
        sub_type: SubType::Exclusive as i32,
        consumer_id: 1,
        request_id: 1,
        durable: Some(durable),
        initial_position: Some(InitialPosition::Earliest as i32),
        ..proto::CommandSubscribe::default()
    }
    .into()
}

fn messages() -> BytesMut {
    let mut out = BytesMut::new();
    let metadata = MessageMetadata { producer_name: "mute".into(), ..MessageMetadata::default() };
    for sequence_id in 0..UNREAD {
        let send = SendCommand::new(1, sequence_id);
        encode_send(&mut out, &send, &metadata, &[b'm'; 100]);
    }
    out
}

/// Sends a command and reads until it is answered.
async fn ask(stream: &mut TcpStream, command: &Command) -> std::io::Result<()> {
    let wrong = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let mut bytes = BytesMut::new();
    encode_command(&mut bytes, command);
    stream.write_all(&bytes).await?;
    let (splitter, mut input) = (FrameSplitter::default(), BytesMut::new());
    loop {
        while let Some(frame) = splitter.split(&mut input).map_err(|error| wrong(error.to_string()))? {
            match decode_command(&frame.command).map_err(|error| wrong(error.to_string()))? {
                Command::Connected(_) | Command::Success(_) | Command::ProducerSuccess(_) => return Ok(()),
                Command::Error(error) => return Err(wrong(error.message)),
                _ => {}
            }
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}
