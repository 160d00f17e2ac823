//! A broker: serves the binary protocol, keeps the topics that are open, answers where topics are.
//!
//! [`Broker::serve`] accepts connections; each has one task that owns its socket and its `session`. What a session
//! wants is handed to topics ([`Broker::topic`]) or answered from metadata.
//!
//! What is asked by the binary protocol and by REST alike is answered in one place: `names.rs`, `tenants.rs`,
//! `namespaces.rs`, `topics.rs` and `schemas.rs`, whose errors are [`AdminError`]s.
//!
//! Deliberately not here: REST (`admin`), what happens within a topic (`topic`), which broker owns what when there are
//! several.
//!
//! Start reading at [`Broker`], then `connection.rs`.

mod admin_error;
mod admission;
mod broker;
mod connection;
mod ingress;
mod inspect;
mod limits;
mod memory;
mod names;
mod namespaces;
mod open_topics;
mod orders;
mod outbox;
mod schemas;
mod subscriptions;
mod tenants;
mod topic_list;
mod topic_watcher;
mod topics;

#[cfg(test)]
mod tests;

pub use admin_error::AdminError;
pub use broker::{Broker, BrokerOptions};
pub use limits::{AutoCreation, Limits};
pub use memory::Memory;
pub use open_topics::OpenTopics;
pub use schemas::SchemaVersion;
