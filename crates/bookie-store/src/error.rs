//! What can go wrong, as facts; the texts tell an operator what to do.

use std::path::PathBuf;

use geminga_disk::{DiskError, DiskErrorKind};

/// Why a store does not open.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the store open.
    #[error("{} is in use by another process: stop the other bookie first", .0.display())]
    Locked(PathBuf),
    /// The directory is empty, and was expected to hold a store.
    #[error(
        "{} holds no store: mount the right disk, or, if this bookie is new, let it be created \
         (a bookie that lost its disk must be recovered from its peers first)", .0.display()
    )]
    Empty(PathBuf),
    /// There are segments but no file that says whose they are.
    #[error("{} holds segments but no INSTANCE file: the directory is incomplete; put the file back from a copy", .0.display())]
    NoCookie(PathBuf),
    /// Asked to take the store away, but this is not part of one.
    #[error("{} is not part of a store", .0.display())]
    NotAStore(PathBuf),
    /// The store belongs to another bookie or another cluster.
    #[error("{} belongs to {what} '{found}', not to '{expected}': mount the right disk or correct the configuration", path.display())]
    WrongOwner {
        /// The file that says so.
        path: PathBuf,
        /// `bookie` or `instance`.
        what: &'static str,
        /// Who owns the store.
        found: String,
        /// Who tried to open it.
        expected: String,
    },
    /// A segment was put here from another store.
    #[error("{} belongs to another store: remove the file that does not belong here, or mount the right disk", .0.display())]
    Foreign(PathBuf),
    /// The file was written by a later release.
    #[error("{} has format version {found}; this release reads version {supported}: start a later release", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: String,
        /// The version that this release reads.
        supported: u32,
    },
    /// Bytes that were durable are not there any more.
    #[error(
        "{} is damaged at offset {offset}: {what}. Do not delete the file: take a copy of the directory, \
         then let the peers of this bookie restore its ledgers into an empty one", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage starts, in bytes.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The options contradict each other or the format's limits.
    #[error("the store cannot run with these options: {0}")]
    Options(&'static str),
    /// The disk failed.
    #[error("the store does not open: {0}")]
    Disk(#[from] DiskError),
}

impl OpenError {
    pub(crate) fn of_lock(error: DiskError) -> OpenError {
        match error.kind {
            DiskErrorKind::Locked => OpenError::Locked(error.path),
            _ => OpenError::Disk(error),
        }
    }
}

/// Why an entry is not returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The store knows the ledger, and it certainly does not hold this entry of it.
    #[error("no such entry")]
    NoEntry,
    /// The store certainly knows nothing of the ledger.
    #[error("no such ledger")]
    NoLedger,
    /// The disk failed: the entry may well be there.
    #[error("the entry is not readable: {0}")]
    Io(DiskError),
    /// The bytes on disk are not the ones written: the entry was there.
    #[error("{} is damaged at offset {offset}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the entry's record starts, in bytes.
        offset: u64,
    },
}

/// The log can no longer be trusted to keep what is written to it. The process must end; a start recovers everything
/// that was answered. A sync is never tried again, because the system may have dropped the data and would claim success.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the bookie's log failed, restart the bookie: {0}")]
pub struct Fatal(pub DiskError);
