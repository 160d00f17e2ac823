//! A connection to a broker, as the rest of the client sees it: requests, frames, and what the broker says by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use geminga_env::{Clock, Mailbox, Reply, reply};
use geminga_model::Instant;
use geminga_wire::{Command, MessageCommand, SendReceipt, ServerError};
use smallvec::SmallVec;

use crate::error::ClientError;

/// What the broker said when the connection began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    /// The largest message that it takes.
    pub(crate) max_message_size: usize,
}

/// What the broker says to a producer or consumer.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// To a producer: an entry is stored.
    Receipt(SendReceipt),
    /// To a producer: an entry is not.
    SendError { sequence_id: u64, error: ServerError, message: String },
    /// To a consumer: an entry.
    Message { command: MessageCommand, entry: Bytes },
    /// To a consumer: nothing more will come.
    EndOfTopic,
    /// It is closed; open it again, at the URL if there is one.
    Closed { url: Option<String> },
    /// The connection is gone.
    Lost,
}

/// Where events of one producer or consumer go.
pub(crate) type Sink = Box<dyn FnMut(LinkEvent) + Send>;

/// Producers and consumers have ids of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Producer,
    Consumer,
}

/// The answer to a request.
pub(crate) type Answer = Result<Command, ClientError>;

/// What the task of a connection is told.
pub(crate) enum Item {
    /// Tell when the connection is there.
    Ready(Reply<Result<Hello, ClientError>>),
    /// Send the command, and pass on the answer.
    Request { id: u64, operation: &'static str, command: Command, deadline: Instant, reply: Reply<Answer> },
    /// Send the command.
    Tell(Command),
    /// Write these parts of a frame.
    Write(SmallVec<[Bytes; 2]>),
    /// Pass on what is said to this one.
    Attach(Kind, u64, Sink),
    /// Stop that.
    Detach(Kind, u64),
}

/// A connection, shared by clones. It connects when it is made; what is asked meanwhile waits.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) address: Arc<str>,
    pub(crate) mailbox: Mailbox<Item>,
    pub(crate) clock: Clock,
    pub(crate) request_ids: Arc<AtomicU64>,
}

impl Link {
    fn push(&self, item: Item) -> Result<(), ClientError> {
        self.mailbox.push(item).map_err(|_| self.gone())
    }

    fn gone(&self) -> ClientError {
        ClientError::Disconnected { address: self.address.to_string(), reason: "it has ended".to_owned() }
    }

    /// Whether the connection has ended; a new one takes its place when it is needed.
    pub(crate) fn is_gone(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Waits until the connection is there.
    pub(crate) async fn ready(&self) -> Result<Hello, ClientError> {
        let (to, mut from) = reply();
        self.push(Item::Ready(to))?;
        from.wait().await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Sends a command that has a request id, and hands the answer to `reply`. An ERROR is an `Err`.
    pub(crate) fn start_request(
        &self,
        operation: &'static str,
        deadline: Instant,
        build: impl FnOnce(u64) -> Command,
        reply: Reply<Answer>,
    ) {
        let id = self.request_ids.fetch_add(1, Ordering::Relaxed);
        let item = Item::Request { id, operation, command: build(id), deadline, reply };
        if let Err(geminga_env::Closed(Item::Request { reply, .. })) = self.mailbox.push(item) {
            reply.send(Err(self.gone()));
        }
    }

    /// Sends a command that has a request id, and waits for the answer. An ERROR is an `Err`.
    pub(crate) async fn request(
        &self,
        operation: &'static str,
        deadline: Instant,
        build: impl FnOnce(u64) -> Command,
    ) -> Answer {
        let (to, mut from) = reply();
        let begun = self.clock.now();
        self.start_request(operation, deadline, build, to);
        tokio::select! {
            biased;
            answer = from.wait() => answer.unwrap_or_else(|_| Err(self.gone())),
            () = self.clock.sleep_until(deadline) => Err(ClientError::Timeout {
                operation: operation.to_owned(),
                after: deadline.since(begun),
                last: format!("the broker at {} did not answer", self.address),
            }),
        }
    }

    /// Sends a command that has no answer. If the connection is gone, whoever cares hears so by its sink.
    pub(crate) fn tell(&self, command: impl Into<Command>) {
        let _ = self.push(Item::Tell(command.into()));
    }

    /// Writes a frame, in parts. If the connection is gone, the sink hears so.
    pub(crate) fn write(&self, parts: SmallVec<[Bytes; 2]>) {
        let _ = self.push(Item::Write(parts));
    }

    /// Sends what the broker says to this producer or consumer to `sink`, the last of it being `Closed` or `Lost`.
    pub(crate) fn attach(&self, kind: Kind, id: u64, sink: Sink) -> Result<(), ClientError> {
        self.push(Item::Attach(kind, id, sink))
    }

    pub(crate) fn detach(&self, kind: Kind, id: u64) {
        let _ = self.push(Item::Detach(kind, id));
    }

    /// An answer that the request cannot have.
    pub(crate) fn unexpected(&self, operation: &str, answer: &Command) -> ClientError {
        let what = format!("{} to {operation}", answer.command_type().as_str_name());
        ClientError::Protocol { address: self.address.to_string(), what }
    }
}
