//! Why something could not be done with a ledger.

use geminga_metastore::MetadataError;
use geminga_model::LedgerId;
use geminga_quorum::{ReadFailed, RecoveryFailed};
use geminga_records::RecordError;

/// What went wrong, and with which ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Its metadata cannot be read or written now. Try again.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// Its metadata is there but cannot be understood. An operator must look.
    #[error("the metadata of ledger {0}: {1}")]
    Record(LedgerId, RecordError),
    /// There is no such ledger: it was deleted, or never existed.
    #[error("there is no ledger {0}")]
    NoLedger(LedgerId),
    /// A new ledger needs more bookies than there are.
    #[error("a ledger needs {needed} writable bookies and there are {available}")]
    NotEnoughBookies {
        /// The ensemble size.
        needed: usize,
        /// The bookies that can be written.
        available: usize,
    },
    /// Its end cannot be found now. Nothing was cut off; try again.
    #[error("cannot recover ledger {0}: {1}")]
    Recovery(LedgerId, RecoveryFailed),
    /// Somebody else closed it at another entry than this writer would have.
    #[error("ledger {0} was closed by somebody else")]
    ClosedElsewhere(LedgerId),
    /// Its entry did not get onto enough bookies in time; the ledger was given up. Try again.
    #[error("ledger {0}: too few bookies stored its entry in time")]
    NotWritten(LedgerId),
    /// An entry cannot be read.
    #[error("ledger {0}: {1}")]
    Read(LedgerId, ReadFailed),
}
