//! A broker: serves the binary protocol, keeps the topics that are open, answers where topics are.
//!
//! [`Broker::serve`] accepts connections; each has one task that owns its socket and its `session`. What a session
//! wants is handed to topics ([`Broker::topic`]) or answered from metadata.
//!
//! Deliberately not here: REST (`admin`), what happens within a topic (`topic`), which broker owns what when there are
//! several.
//!
//! Start reading at [`Broker`], then `connection.rs`.

mod broker;
mod connection;
mod names;
mod outbox;

pub use broker::{Broker, BrokerOptions, OpenTopics};
