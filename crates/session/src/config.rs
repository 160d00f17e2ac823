//! What a session is told about its broker, and what it learns about its peer.

use std::time::Duration;

use geminga_wire::proto::FeatureFlags;
use geminga_wire::{DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING};

/// What a broker sets for all its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// What CONNECTED says. Fact: `Pulsar Server` and the version, with nothing in between; clients parse it.
    pub server_version: String,
    /// The largest message in bytes: metadata, checksum and payload.
    pub max_message_size: usize,
    /// How long the peer may be silent before it is asked, and again before it is given up.
    pub keep_alive: Duration,
    /// How long a peer may take from connecting to CONNECT.
    pub handshake_timeout: Duration,
    /// The largest frame before CONNECTED, when nothing is known of the peer.
    pub max_handshake_frame: usize,
    /// The largest command, without payload, after CONNECTED. Commands may take tens of times their size in memory.
    pub max_command_len: usize,
    /// Producers of a connection, open or being opened.
    pub max_producers: usize,
    /// Consumers of a connection, open or being opened.
    pub max_consumers: usize,
    /// Topic-list watchers of a connection.
    pub max_watchers: usize,
    /// Requests of a connection that wait for an answer.
    pub max_requests: usize,
    /// Bytes of keys and values that a consumer may be described with.
    pub max_consumer_metadata: usize,
    /// Whether the broker filters topics by the pattern of a client and lets it watch them.
    pub topic_watchers: bool,
    /// The longest pattern that the broker filters by.
    pub max_pattern_len: usize,
}

impl Default for SessionConfig {
    /// Pulsar's defaults; where it knows no bound, one that no client of good will reaches.
    fn default() -> SessionConfig {
        SessionConfig {
            server_version: "Pulsar Server".to_owned(),
            max_message_size: DEFAULT_MAX_MESSAGE_SIZE,
            keep_alive: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            max_handshake_frame: 128 * 1024,
            max_command_len: 1024 * 1024,
            max_producers: 50_000,
            max_consumers: 50_000,
            max_watchers: 1_000,
            max_requests: 10_000,
            max_consumer_metadata: 1_024,
            topic_watchers: true,
            max_pattern_len: 50,
        }
    }
}

impl SessionConfig {
    /// The message size that the frames before CONNECTED are split for.
    pub(crate) fn handshake_message_size(&self) -> usize {
        self.max_handshake_frame.saturating_sub(FRAME_PADDING)
    }

    /// What the broker says of itself in CONNECTED. Fact: it never sets the first three flags.
    pub(crate) fn features(&self) -> FeatureFlags {
        FeatureFlags {
            supports_topic_watchers: Some(self.topic_watchers),
            supports_get_partitioned_metadata_without_auto_creation: Some(true),
            supports_repl_dedup_by_lid_and_eid: Some(true),
            supports_topic_watcher_reconcile: Some(self.topic_watchers),
            ..FeatureFlags::default()
        }
    }
}

/// What CONNECT told about the peer.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// The protocol version that both sides speak.
    pub protocol_version: i32,
    /// The client library and its version, as statistics show it.
    pub client_version: String,
    /// The version of the proxy that connected on behalf of a client.
    pub proxy_version: Option<String>,
    /// What the client can do.
    pub features: FeatureFlags,
}

impl Peer {
    /// Whether the peer is to see what brokers put in front of entries, if the broker shows it at all.
    #[must_use]
    pub fn reads_broker_entry_metadata(&self) -> bool {
        self.protocol_version >= 18 && self.features.supports_broker_entry_metadata()
    }

    /// Whether the peer understands entries with a checksum; else they are sent without.
    #[must_use]
    pub fn reads_checksums(&self) -> bool {
        self.protocol_version >= 11
    }
}
