//! What a producer can be told.

use std::time::Duration;

use geminga_model::{java_string_hash, murmur3_32};
use geminga_wire::CompressionType;
use geminga_wire::proto::{ProducerAccessMode, Schema};

/// How many messages go into one entry, whichever bound is met first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Messages.
    pub max_messages: usize,
    /// Bytes of their payloads, keys and properties.
    pub max_bytes: usize,
    /// How long the first one waits for others; zero: only those are put together that come together.
    pub delay: Duration,
}

impl Default for Batching {
    fn default() -> Batching {
        Batching { max_messages: 1000, max_bytes: 128 * 1024, delay: Duration::from_millis(1) }
    }
}

/// The hash that decides which partition a key belongs to. All producers of a topic must use the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyHash {
    /// Java's `String.hashCode`, the default of every client.
    #[default]
    JavaStringHash,
    /// Murmur3, 32 bits.
    Murmur3,
}

impl KeyHash {
    /// The partition of a key; there is at least one.
    pub(crate) fn partition(self, key: &str, partitions: usize) -> usize {
        let hash = match self {
            KeyHash::JavaStringHash => java_string_hash(key).cast_unsigned(),
            KeyHash::Murmur3 => murmur3_32(key.as_bytes()),
        };
        // The mask is what Java's signed modulo needs.
        (hash & 0x7FFF_FFFF) as usize % partitions.max(1)
    }
}

/// Settings of a producer; the defaults are those of Java's.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducerOptions {
    /// Its name; the broker makes one up if it is not given.
    pub name: Option<String>,
    /// Whether it lets others produce. Waiting to be the only one is bounded by the operation timeout.
    pub access_mode: ProducerAccessMode,
    /// How messages are put together; `None`: each is an entry of its own.
    pub batching: Option<Batching>,
    /// How entries are compressed.
    pub compression: CompressionType,
    /// How long a message may take until it is stored, with all attempts; `None` for as long as it takes.
    pub send_timeout: Option<Duration>,
    /// Messages that may be under way on each partition; [`send`](crate::Producer::send) waits above it.
    pub max_pending: usize,
    /// How keys are divided among partitions.
    pub key_hash: KeyHash,
    /// The schema of the messages.
    pub schema: Option<Schema>,
    /// What statistics of the broker show.
    pub metadata: Vec<(String, String)>,
    /// A subscription to create before the first message is sent.
    pub initial_subscription: Option<String>,
}

impl Default for ProducerOptions {
    fn default() -> ProducerOptions {
        ProducerOptions {
            name: None,
            access_mode: ProducerAccessMode::Shared,
            batching: Some(Batching::default()),
            compression: CompressionType::None,
            send_timeout: Some(Duration::from_secs(30)),
            max_pending: 10_000,
            key_hash: KeyHash::default(),
            schema: None,
            metadata: Vec::new(),
            initial_subscription: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_where_other_clients_send_them() {
        assert_eq!(KeyHash::JavaStringHash.partition("key-1", 4), 3);
        assert_eq!(KeyHash::Murmur3.partition("key-1", 1_000_000_000), 414_258_592);
        assert_eq!(KeyHash::Murmur3.partition("key-1", 0), 0);
    }
}
