//! The metadata store: a tree of small values with versions, sessions and watches, as ZooKeeper made it familiar.
//!
//! Everything that several processes must agree on, or that must be found again after a restart, is a node here. Values
//! change only by compare-and-set on a version.
//!
//! A [`MetadataStore`] is a handle with a session. A request is submitted and answered later ([`env::Reply`]): owners
//! let the answer come as an item of their mailbox, tasks await it. Backends: [`memory`], for tests and simulation, and
//! [`redb`], the embedded one of a standalone. One [`contract`] suite runs on each.
//!
//! Deliberately not here: what the values mean (`records`), consensus.
//!
//! [`env::Reply`]: geminga_env::Reply

pub mod contract;
mod memory;
mod redb;
mod store;
mod tree;

pub use memory::memory;
pub use redb::{OpenFailed, is_redb, redb, redb_with};
pub use store::{
    Answer, Backend, Change, Expected, Kind, MetadataError, MetadataStore, Node, Notice, Request, SessionId, Version,
    Watch,
};
