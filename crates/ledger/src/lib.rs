//! Ledgers: sequences of entries on a quorum of bookies. Create one, append to it, read it, find its end, delete it.
//!
//! This crate waits; what is decided is decided by `quorum`'s machines. It drives them over [`BookieLink`]s, the way to
//! one bookie, and over the metadata store.
//!
//! A [`Writer`] lives inside its owner, a topic or a subscription: it never awaits, its answers come as [`LedgerEvent`]s
//! through the owner's mailbox, and what it wants to send leaves with the owner's flush. Everything that takes its time
//! ([`LedgerClient::create`], [`LedgerClient::create_single`], [`LedgerClient::recover`], reads) is an async procedure for a task.
//!
//! Deliberately not here: sockets to bookies (a link brings them), lists of ledgers (`managed-ledger`).
//!
//! Start reading at [`LedgerClient`] and [`Writer`].

mod client;
mod error;
mod link;
pub mod memory;
mod reader;
mod recovery;
mod single;
mod writer;

pub use client::{ClosedLedger, CreateLedger, CreatedLedger, LedgerClient};
pub use error::LedgerError;
pub use link::{
    AddReply, AddRequest, AddResult, BookieLink, Bookies, LedgerEvent, LedgerSink, ReadLastRequest, ReadRequest,
    deliver_adds,
};
pub use reader::LedgerReader;
pub use writer::Writer;
