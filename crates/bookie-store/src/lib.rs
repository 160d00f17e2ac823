//! One bookie's store: every entry is written once, to a log with group commit, and found through indexes.
//!
//! The log is a sequence of segments. One [`LogWriter`], owned by the log lane, appends what arrives as commit blocks,
//! syncs, and answers in log order. Any number of readers use the [`BookieStore`] beside it and never wait for a sync.
//! A full segment gets an index file; a start reads the indexes, replays the tail alone, and copies what it cannot prove
//! durable. Fences, master keys, explicit LACs and deletions are records too; a segment whose entries are all deleted is
//! dropped after the states that only it holds were written again.
//!
//! Deliberately not here: threads, clocks and timers (the caller passes `now` and calls [`LogWriter::idle`]), the
//! network, metadata, deciding which ledgers to delete, checking entry digests.
//!
//! Data enters by [`LogWriter::commit`], leaves by [`BookieStore::read`], and lies as `docs/bookie-format.md` says. Start
//! reading at [`BookieStore::open`] and at `admit.rs`, which has the rules of the requests.

mod admit;
mod append;
mod chain;
mod clean;
mod error;
mod format;
mod index;
mod open;
mod options;
mod pages;
mod pool;
mod read;
mod request;
mod seal;
mod segment;
mod state;
mod store;
mod survey;
mod table;
mod wipe;
mod writer;

pub use error::{Fatal, OpenError, ReadError};
pub use options::StoreOptions;
pub use request::{AddEntry, MAX_EXPLICIT_LAC, WriteOutcome, WriteRequest};
pub use state::MasterKey;
pub use store::{BookieStore, StoreStats};
pub use wipe::files_to_wipe;
pub use writer::LogWriter;
