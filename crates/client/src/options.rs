//! What a client can be told.

use std::time::Duration;

/// Settings of a client; the defaults are those of Java's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// How long look-ups, opening, seeking and the like may take, with all attempts.
    pub operation_timeout: Duration,
    /// How long connecting may take, with the handshake.
    pub connect_timeout: Duration,
    /// How long a broker may be silent before it is asked, and again before it is given up.
    pub keep_alive: Duration,
    /// The wait before the second attempt; it doubles from there.
    pub backoff_min: Duration,
    /// The longest wait between attempts.
    pub backoff_max: Duration,
    /// Bytes of messages that all producers of the client may have under way.
    pub memory_limit: usize,
    /// Which of the brokers' addresses this client can reach, where they have several.
    pub listener: Option<String>,
    /// How the client calls itself; statistics of brokers show it.
    pub client_version: String,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            operation_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(30),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(10),
            memory_limit: 64 * 1024 * 1024,
            listener: None,
            client_version: concat!("geminga-", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}
