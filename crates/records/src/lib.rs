//! What is stored in metadata, in cursor ledgers and in schema ledgers: where it is kept and how it is written. Paths
//! and bytes are those of Pulsar and BookKeeper, so that their processes and ours can take over from each other.
//!
//! Every record keeps the fields it does not know and writes them back, because a newer Java broker may rely on them.
//!
//! Deliberately not here: when a record is read or written, and what it means for a topic or a ledger.
//!
//! Start reading at [`LedgerMetadata`] and [`ManagedLedgerInfo`].

mod cursor;
mod cursor_extension;
mod ledger_metadata;
mod managed_ledger;
pub mod paths;
mod policies;
mod protobuf;
mod schema;

pub use cursor::{AckedRange, BatchSet, CursorProperty, ManagedCursorInfo, PositionInfo, bitmap_word_len};
pub use cursor_extension::{Added, CursorEntry, Extension, Part, Run};
pub use ledger_metadata::{InvalidQuorum, LedgerMetadata, LedgerState, Quorum, Segment};
pub use managed_ledger::{LedgerInfo, ManagedLedgerInfo};
pub use policies::{BundlesData, ClusterData, LocalPolicies, PartitionedTopicMetadata, Policies, TenantInfo};
pub use schema::{SchemaEntry, SchemaIndexEntry, SchemaInfo, SchemaLocator};

/// Why stored bytes are not the record they should be. The node is damaged or written by something newer that broke
/// the format; it must be left as it is and the operator told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A length or number reaches beyond the bytes.
    #[error("the record is cut short")]
    CutShort,
    /// Not a protobuf message.
    #[error("the record is not a protobuf message")]
    Malformed,
    /// A field that every such record has is missing.
    #[error("the record lacks its field '{0}'")]
    Missing(&'static str),
    /// A field has a value that makes no sense.
    #[error("the record's field '{0}' has an impossible value")]
    Impossible(&'static str),
    /// Ledger metadata in a serialization that this version does not read.
    #[error("ledger metadata in format version {0}, which this version does not read")]
    LedgerMetadataVersion(u32),
    /// A node compressed by a Java broker.
    #[error("the record is compressed, which this version does not read")]
    Compressed,
    /// Not the JSON that belongs here.
    #[error("the record is not the JSON it should be: {0}")]
    Json(String),
}
