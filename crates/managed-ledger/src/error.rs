//! Why a topic's log cannot go on.

use geminga_ledger::LedgerError;
use geminga_metastore::MetadataError;
use geminga_records::RecordError;

/// What went wrong with a managed ledger or a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedLedgerError {
    /// Its node was changed by another owner: this one must close the topic and look it up again.
    #[error("another broker has taken the topic over")]
    Fenced,
    /// There is no such topic.
    #[error("the topic does not exist")]
    NotFound,
    /// There is no such subscription.
    #[error("the subscription does not exist")]
    CursorNotFound,
    /// Metadata cannot be reached. Try again.
    #[error(transparent)]
    Metadata(MetadataError),
    /// A ledger cannot be created, recovered or read. Try again.
    #[error(transparent)]
    Ledger(LedgerError),
    /// A node is there but cannot be understood. An operator must look.
    #[error("the node {0} cannot be read: {1}")]
    Record(String, RecordError),
}

impl From<MetadataError> for ManagedLedgerError {
    fn from(error: MetadataError) -> ManagedLedgerError {
        match error {
            // Nodes of a topic are only ever changed by its owner.
            MetadataError::BadVersion(_) => ManagedLedgerError::Fenced,
            other => ManagedLedgerError::Metadata(other),
        }
    }
}

impl From<LedgerError> for ManagedLedgerError {
    fn from(error: LedgerError) -> ManagedLedgerError {
        match error {
            LedgerError::Metadata(error) => ManagedLedgerError::Metadata(error),
            other => ManagedLedgerError::Ledger(other),
        }
    }
}

impl ManagedLedgerError {
    /// Whether the same call may succeed a moment later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            ManagedLedgerError::Metadata(error) => matches!(error, MetadataError::Unavailable(_)),
            ManagedLedgerError::Ledger(error) => {
                matches!(
                    error,
                    LedgerError::NotEnoughBookies { .. }
                        | LedgerError::NotWritten(_)
                        | LedgerError::Recovery(..)
                        | LedgerError::Read(..)
                )
            }
            ManagedLedgerError::Fenced
            | ManagedLedgerError::NotFound
            | ManagedLedgerError::CursorNotFound
            | ManagedLedgerError::Record(..) => false,
        }
    }
}
