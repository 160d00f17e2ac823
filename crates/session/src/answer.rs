//! What the broker answers to effects.

use bytes::Bytes;
use geminga_model::Position;
use geminga_wire::proto;
use geminga_wire::{MessageId, ServerError};

/// Why the broker does not do what it was asked, as the client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the client acts on.
    pub error: ServerError,
    /// What its user reads. Fact: C++ clients search some of these texts, so change them with care.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(error: ServerError, message: impl Into<String>) -> Refusal {
        Refusal { error, message: message.into() }
    }
}

/// A producer that was opened, or that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerOpened {
    /// The name it has now; the broker's if the client gave none.
    pub name: String,
    /// The last sequence id that the topic knows of this name, or −1.
    pub last_sequence_id: i64,
    /// The version of the schema that was registered. Fact: empty without a schema, eight bytes big-endian with one.
    pub schema_version: Bytes,
    /// The topic's epoch, of producers that exclude others.
    pub topic_epoch: Option<u64>,
    /// False if it waits to be the only one; the session is told again when it is.
    pub ready: bool,
}

/// Where a topic is now, as far as a broker that closes something knows it. Empty: the client looks it up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewOwner {
    /// The owner's `pulsar://` address.
    pub url: Option<String>,
    /// The owner's `pulsar+ssl://` address.
    pub url_tls: Option<String>,
}

/// The broker to turn to for a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupAnswer {
    /// It owns the topic: connect to it.
    Connect {
        /// Its `pulsar://` address.
        url: Option<String>,
        /// Its `pulsar+ssl://` address.
        url_tls: Option<String>,
        /// The client is to keep to the address that it knows, because this one is not for it.
        through_service_url: bool,
    },
    /// It knows more: ask it.
    Redirect {
        /// Its `pulsar://` address.
        url: Option<String>,
        /// Its `pulsar+ssl://` address.
        url_tls: Option<String>,
        /// Whether it is to decide rather than to redirect again.
        authoritative: bool,
    },
}

/// The answer to an effect that has a request. Which one an effect wants stands at the [`Effect`](crate::Effect).
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It is done; there is nothing to tell.
    Done,
    /// Of `Lookup`.
    Lookup(LookupAnswer),
    /// Of `PartitionMetadata`: how many partitions the topic has, 0 if it is not partitioned.
    Partitions(u32),
    /// Of `TopicsOfNamespace`.
    Topics {
        /// Full names, of every partition too. Empty if not `changed`.
        topics: Vec<String>,
        /// The hash of all of them.
        hash: String,
        /// Whether the pattern was applied.
        filtered: bool,
        /// False if the client's hash was this one.
        changed: bool,
    },
    /// Of `LastMessageId`.
    LastMessageId {
        /// The last message, or [`Position::EARLIEST`] without one.
        last: MessageId,
        /// Up to where the subscription has consumed.
        mark_delete: Option<Position>,
    },
    /// Of `ConsumerStats`; the request id is filled in by the session.
    ConsumerStats(Box<proto::CommandConsumerStatsResponse>),
    /// Of `GetSchema`.
    Schema {
        /// The schema.
        schema: Box<proto::Schema>,
        /// Its version.
        version: Bytes,
    },
    /// Of `GetOrCreateSchema`: the version that the schema has.
    SchemaVersion(Bytes),
}
