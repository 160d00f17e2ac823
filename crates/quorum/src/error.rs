//! What a bookie can answer instead of doing what it was asked.

use geminga_model::BookieId;

/// A bookie's refusal or failure, or that of the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookieError {
    /// It is sure that it does not have the entry.
    #[error("no such entry")]
    NoEntry,
    /// It is sure that it has nothing of the ledger.
    #[error("no such ledger")]
    NoLedger,
    /// The ledger is fenced: somebody recovers or has recovered it.
    #[error("the ledger is fenced")]
    Fenced,
    /// The master key is not the ledger's.
    #[error("wrong password")]
    Unauthorized,
    /// It takes no ordinary adds, for lack of space or by order.
    #[error("the bookie is read-only")]
    ReadOnly,
    /// Its disk failed, or the entry is damaged there.
    #[error("the bookie cannot read or write its disk")]
    Io,
    /// It cannot tell whether it has the entry.
    #[error("the bookie cannot tell")]
    Unknown,
    /// It did not answer in time.
    #[error("the bookie did not answer in time")]
    Timeout,
    /// It cannot be reached, or stopped before it answered.
    #[error("the bookie cannot be reached")]
    Unreachable,
    /// What it sent is not the entry: see [`EntryError`](geminga_bookie_wire::EntryError).
    #[error("the bookie sent a damaged entry")]
    Damaged,
}

impl BookieError {
    /// Whether the answer proves that the bookie does not have the entry. Nothing else may count as absence.
    #[must_use]
    pub fn is_absence(self) -> bool {
        matches!(self, BookieError::NoEntry | BookieError::NoLedger)
    }
}

/// A bookie at its place in an ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) index: usize,
    pub(crate) bookie: BookieId,
}
