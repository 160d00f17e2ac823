//! What the log is asked to write, and what it answers.

use bytes::Bytes;
use geminga_model::{EntryId, LedgerId};

use crate::state::MasterKey;

/// A change to write to the log.
#[derive(Clone, Debug)]
pub enum WriteRequest {
    /// Store an entry. An entry with the same id is replaced.
    Add {
        /// The ledger; must be the one in `body`.
        ledger: LedgerId,
        /// The entry; must be the one in `body`.
        entry: EntryId,
        /// The entry as BookKeeper stores and sends it: ledger, entry, LAC, length, digest, payload. Kept as it is.
        body: Bytes,
        /// Must equal the first key seen for the ledger.
        master_key: MasterKey,
        /// Whether the add is part of a recovery or a copy: a fence does not stop it.
        recovery: bool,
        /// Whether the add passes though the bookie is read-only.
        high_priority: bool,
    },
    /// Refuse all later adds to a ledger but recovery's. A ledger never seen is created by it.
    Fence {
        /// The ledger.
        ledger: LedgerId,
        /// Must equal the first key seen for the ledger.
        master_key: MasterKey,
    },
    /// Keep `body` as the ledger's explicit LAC, replacing an earlier one. A ledger never seen is created by it.
    SetExplicitLac {
        /// The ledger.
        ledger: LedgerId,
        /// Must equal the first key seen for the ledger.
        master_key: MasterKey,
        /// Opaque; at most [`MAX_EXPLICIT_LAC`] bytes and not empty.
        body: Bytes,
    },
    /// Forget a ledger with all its entries.
    Delete {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Write nothing; answered when everything requested before is durable.
    Force,
}

/// As [`WriteRequest::Add`], for an entry in two parts that stay the caller's: they are copied once, into the log's block.
#[derive(Clone, Copy, Debug)]
pub struct AddEntry<'a> {
    /// The ledger; must be the one in `body`.
    pub ledger: LedgerId,
    /// The entry; must be the one in `body`.
    pub entry: EntryId,
    /// The entry. The first part has at least its ids, LAC and length.
    pub body: [&'a [u8]; 2],
    /// Must equal the first key seen for the ledger.
    pub master_key: MasterKey,
    /// Whether the add is part of a recovery or a copy: a fence does not stop it.
    pub recovery: bool,
    /// Whether the add passes though the bookie is read-only.
    pub high_priority: bool,
}

/// The most bytes that an explicit LAC may have.
pub const MAX_EXPLICIT_LAC: usize = 4096;

/// The answer to a [`WriteRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The change, and every one before it in the log, is durable.
    Ok,
    /// The ledger is fenced, or was fenced and deleted within the last 7 days.
    Fenced,
    /// The master key is not the ledger's.
    Unauthorized,
    /// The ledger is not known, or was fenced and deleted within the last 7 days.
    NoLedger,
    /// There is no space for the change.
    ReadOnly,
    /// The entry is malformed, names another ledger or entry, or does not fit into a segment.
    InvalidEntry,
}
