//! What a session wants done.

use bytes::Bytes;
use geminga_model::{NamespaceName, Position, TopicName, UnixMillis};
use geminga_wire::proto::command_ack::{AckType, ValidationError};
use geminga_wire::proto::command_get_topics_of_namespace::Mode;
use geminga_wire::proto::{KeyLongValue, Schema};
use geminga_wire::{Command, MessageId, ServerError};
use smallvec::SmallVec;

use crate::specs::{ProducerSpec, SubscribeSpec};

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            pub(crate) id: u64,
            pub(crate) serial: u64,
        }

        impl $name {
            /// The key that the client's `id` has when it is the connection's `serial`-th thing.
            #[must_use]
            pub fn new(id: u64, serial: u64) -> $name {
                $name { id, serial }
            }

            /// The id that the client chose, which commands to it carry. It may come to mean another one later.
            #[must_use]
            pub fn id(self) -> u64 {
                self.id
            }
        }
    };
}

key! {
    /// One producer of a connection, for ever: the same id opened again has another key.
    ProducerKey
}
key! {
    /// One consumer of a connection, for ever: the same id subscribed again has another key.
    ConsumerKey
}
key! {
    /// One topic-list watcher of a connection, for ever.
    WatcherKey
}
key! {
    /// One request of a connection, for ever, even if the client uses a request id twice.
    RequestKey
}

/// Where a subscription is to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// At this message; [`Position::EARLIEST`] and [`Position::LATEST`] are the ends.
    Message(MessageId),
    /// At the first message published at this time or later. Fact: C++ sends the largest number for the end.
    Time(UnixMillis),
}

/// What the owner of a session does next.
///
/// Those with a `request` are answered by [`Session::handle_answer`](crate::Session::handle_answer) with the answer
/// named here or a refusal, once. Requests of a connection that closed need no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send the command.
    Send(Command),
    /// Close the socket once what was sent before is written. Nothing comes after it but the ends of what is open.
    Close(CloseReason),

    /// Open a producer. Wants `handle_producer_opened`, unless `CloseProducer` follows before it was given.
    OpenProducer {
        /// The producer.
        producer: ProducerKey,
        /// Its topic.
        topic: TopicName,
        /// All else.
        spec: Box<ProducerSpec>,
    },
    /// Append an entry for an open producer. The receipt or SEND_ERROR goes to the outbox, in the producer's order.
    Publish {
        /// The producer.
        producer: ProducerKey,
        /// The (lowest) sequence id; the receipt repeats it.
        sequence_id: u64,
        /// The highest sequence id of a batch, if it said one; the receipt repeats it, else 0.
        highest_sequence_id: Option<u64>,
        /// How many messages the entry claims to have, at least 1. The metadata decide.
        messages: u32,
        /// Whether it claims to be a part of a message.
        is_chunk: bool,
        /// The entry, checksum first; not looked into.
        payload: Bytes,
    },
    /// Answer a SEND with SEND_ERROR after the receipts of those before it. Fact: a Java client overlooks the error
    /// of a message that is not the oldest it waits for.
    FailPublish {
        /// The producer.
        producer: ProducerKey,
        /// The highest sequence id of the SEND.
        sequence_id: u64,
        /// What the client acts on.
        error: ServerError,
        /// What its user reads.
        message: &'static str,
    },
    /// Close a producer, open or still being opened, once its publishes are done. Wants `handle_producer_closed`.
    CloseProducer {
        /// The producer.
        producer: ProducerKey,
    },

    /// Add a consumer to a subscription. Wants `handle_consumer_subscribed`, unless `CloseConsumer` follows before.
    Subscribe {
        /// The consumer.
        consumer: ConsumerKey,
        /// The topic.
        topic: TopicName,
        /// All else.
        spec: Box<SubscribeSpec>,
    },
    /// Let a consumer have more messages.
    Flow {
        /// The consumer.
        consumer: ConsumerKey,
        /// How many messages more, at least 1.
        permits: u32,
    },
    /// Acknowledge. Wants `Done` if there is a request, when the acknowledgement is stored.
    Ack {
        /// The consumer.
        consumer: ConsumerKey,
        /// The request, if a receipt is wanted.
        request: Option<RequestKey>,
        /// These messages, or all up to the one.
        ack_type: AckType,
        /// The messages; of a cumulative one exactly one.
        message_ids: SmallVec<[MessageId; 1]>,
        /// Why the consumer could not use them; for the log.
        validation_error: Option<ValidationError>,
        /// What is to be stored with the position.
        properties: Vec<KeyLongValue>,
    },
    /// Deliver again what was delivered and not acknowledged.
    Redeliver {
        /// The consumer.
        consumer: ConsumerKey,
        /// Only these; all if empty.
        positions: Vec<Position>,
        /// The epoch that later deliveries are to carry.
        epoch: Option<u64>,
    },
    /// Move the subscription. Its consumers are cut off first and reported by `handle_consumer_closed`, then the cursor
    /// is moved, and then `Done` answers.
    Seek {
        /// The request.
        request: RequestKey,
        /// The consumer.
        consumer: ConsumerKey,
        /// Where to.
        target: SeekTarget,
    },
    /// Delete the subscription. `Done` means that the consumer is gone as well; it is not closed any more.
    Unsubscribe {
        /// The request.
        request: RequestKey,
        /// The consumer.
        consumer: ConsumerKey,
        /// Even if it has other consumers.
        force: bool,
    },
    /// Take a consumer, subscribed or still being added, from its subscription. Wants `handle_consumer_closed`.
    CloseConsumer {
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// Tell the id of the last message. Wants `LastMessageId`.
    LastMessageId {
        /// The request.
        request: RequestKey,
        /// The consumer.
        consumer: ConsumerKey,
    },
    /// Tell about the consumer. Wants `ConsumerStats`.
    ConsumerStats {
        /// The request.
        request: RequestKey,
        /// The consumer.
        consumer: ConsumerKey,
    },

    /// Tell which broker owns the topic. Wants `Lookup`.
    Lookup {
        /// The request.
        request: RequestKey,
        /// The topic.
        topic: TopicName,
        /// Whether this broker is to decide, because another sent the client here.
        authoritative: bool,
        /// Which of the broker's addresses the client can reach.
        listener: Option<String>,
        /// What the client says for the choice of the broker.
        properties: Vec<(String, String)>,
    },
    /// Tell how many partitions the topic has. Wants `Partitions`.
    PartitionMetadata {
        /// The request.
        request: RequestKey,
        /// The topic.
        topic: TopicName,
        /// Create it if it is missing and policies allow.
        auto_create: bool,
    },
    /// List the topics of a namespace. Wants `Topics`; those of a missing namespace are none.
    TopicsOfNamespace {
        /// The request.
        request: RequestKey,
        /// The namespace.
        namespace: NamespaceName,
        /// Of which domain.
        mode: Mode,
        /// What they must match; `None` if the client filters itself.
        pattern: Option<String>,
        /// The hash of those that the client knows.
        hash: Option<String>,
    },
    /// Watch the topics of a namespace. Wants `handle_watch_started`.
    WatchTopicList {
        /// The watcher.
        watcher: WatcherKey,
        /// The namespace.
        namespace: NamespaceName,
        /// What the topics must match.
        pattern: String,
        /// The hash of those that the client knows.
        hash: Option<String>,
    },
    /// Forget a watcher, even one that did not start yet. Wants no answer.
    CloseWatcher {
        /// The watcher.
        watcher: WatcherKey,
    },
    /// Tell a schema. Wants `Schema`.
    GetSchema {
        /// The request.
        request: RequestKey,
        /// The topic.
        topic: TopicName,
        /// Which version; the latest without one.
        version: Option<Bytes>,
    },
    /// Register a schema unless it is known. Wants `SchemaVersion`.
    GetOrCreateSchema {
        /// The request.
        request: RequestKey,
        /// The topic.
        topic: TopicName,
        /// The schema.
        schema: Box<Schema>,
    },
}

/// Why a session closes its connection; the text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// No CONNECT in time.
    #[error("no CONNECT within the time for the handshake")]
    HandshakeTimeout,
    /// A PING and the time after it went unanswered.
    #[error("the peer did not answer a PING")]
    KeepAliveTimeout,
    /// A command that needs CONNECT before it.
    #[error("{0} before CONNECT")]
    NotConnected(&'static str),
    /// A command that only brokers send, or that answers nothing this broker asked, or CONNECT again.
    #[error("unexpected {0}")]
    Unexpected(&'static str),
    /// SEND for a producer that is not open. Fact: also what a producer meets that was fenced off.
    #[error("SEND for producer {producer_id}, which is not open")]
    NoProducer {
        /// The id in the command.
        producer_id: u64,
    },
    /// FLOW of nothing.
    #[error("FLOW with 0 permits for consumer {consumer_id}")]
    NoPermits {
        /// The id in the command.
        consumer_id: u64,
    },
    /// Something of a peer below protocol version 5 must close, and it cannot be told otherwise.
    #[error("a client of protocol version {0} cannot be told to reconnect one producer or consumer")]
    OldClient(i32),
    /// The broker does not take the connection.
    #[error("refused: {0}")]
    Refused(String),
}
