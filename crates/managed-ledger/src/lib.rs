//! One topic's endless log, made of ledgers that follow each other.
//!
//! The topic task owns an [`Appender`]: it appends, starts the next ledger when one is full or lost, and keeps the list
//! of ledgers in metadata. Subscriptions share the read side, a [`Log`], which serves the tail from memory. Each durable
//! subscription owns a [`CursorStore`], where its cursor's state is kept.
//!
//! Deliberately not here: who publishes and consumes, what messages are.
//!
//! Rules: the storage contract, section "Managed ledgers, take-over, cursors". Opening a topic takes it away from
//! everyone else; whoever finds a version moved has lost it and closes.
//!
//! Start reading at [`open`] and [`Appender`].

mod appender;
mod cache;
mod cursor_read;
mod cursor_store;
mod error;
mod log;
mod open;
mod options;
mod stored;
mod switch;
mod trim;

pub use appender::{Appender, AppenderEvent, AppenderSink, AppenderState};
pub use cache::TailCache;
pub use cursor_store::{
    CursorEvent, CursorSink, CursorStore, SaveFor, Saved, create_cursor, delete_cursor, open_cursor,
};
pub use error::ManagedLedgerError;
pub use log::{CachedRead, Log, LogEntry};
pub use open::{Opened, delete, list_cursors, open};
pub use options::{ManagedLedgers, ManagedLedgersConfig, Rollover};
pub use stored::{StoredCursorNode, StoredLog, read_stored};

#[cfg(test)]
mod tests;
