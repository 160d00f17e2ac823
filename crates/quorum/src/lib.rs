//! BookKeeper's client protocol without I/O: how a ledger is written to a quorum of bookies, how its ensemble changes
//! when one fails, and how its end is found when its writer is gone.
//!
//! Three machines decide: [`LedgerWriter`], [`LedgerRecovery`] and [`EntryRead`]. Each takes answers of bookies and of
//! the metadata store as `handle_*` calls and hands out what to do next. They never wait, never look at a clock, and
//! for the same calls do the same.
//!
//! Deliberately not here: links to bookies, the compare-and-set loops on metadata (but see [`ensemble`] for what they
//! write), retries of a whole recovery.
//!
//! The rules are those of the storage contract, section "Ledgers": an acknowledgement counts only from a bookie that
//! stored metadata names for that entry, and nothing is truncated on uncertainty.

pub mod ensemble;
mod error;
mod read;
mod recover;
mod write;

pub use error::BookieError;
pub use read::{EntryRead, ReadFailed, ReadStep};
pub use recover::{LedgerRecovery, RecoveredEnd, RecoveryAction, RecoveryFailed};
pub use write::{ChangeFailed, LedgerWriter, WriteAction, WriterState};
