//! A topic's ledgers and cursors: Pulsar's internal statistics, and what is stored of a topic.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an open topic has in its hands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InternalStats {
    /// Entries that are stored.
    pub number_of_entries: u64,
    /// Payload bytes that are stored.
    pub total_size: u64,
    /// Entries of the last ledger.
    pub current_ledger_entries: u64,
    /// Payload bytes of the last ledger.
    pub current_ledger_size: u64,
    /// Entries that are not stored yet.
    pub pending_add_entries_count: usize,
    /// Subscriptions that wait for new entries.
    pub waiting_cursors_count: usize,
    /// The last position: `ledger:entry`.
    pub last_confirmed_entry: String,
    /// `LedgerOpened`, `CreatingLedger`, `Terminated`, and so on.
    pub state: String,
    /// The ledgers, oldest first.
    pub ledgers: Vec<LedgerStats>,
    /// Durable subscriptions by name.
    pub cursors: BTreeMap<String, CursorStats>,
}

/// A ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LedgerStats {
    /// The ledger.
    pub ledger_id: i64,
    /// Its entries.
    pub entries: i64,
    /// Its payload bytes.
    pub size: i64,
    /// Whether it was moved to other storage.
    pub offloaded: bool,
    /// Whether copies are missing, as far as this broker knows.
    pub under_replicated: bool,
}

/// A subscription's position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CursorStats {
    /// Everything up to here is acknowledged.
    pub mark_delete_position: String,
    /// The next position to read.
    pub read_position: String,
    /// Whether it waits for new entries.
    pub waiting_read_op: bool,
    /// Reads from storage that are under way.
    pub pending_read_ops: u32,
    /// The ledger with its states; −1 if the node holds it.
    pub cursor_ledger: i64,
    /// What is acknowledged beyond: `[(l:e..l:e], …]`.
    pub individually_deleted_messages: String,
    /// `Open`, or `NoLedger` while the node holds the state.
    pub state: String,
    /// Entries after the mark-delete position.
    pub number_of_entries_since_first_not_acked_message: u64,
    /// Ranges of entries acknowledged beyond.
    pub total_non_contiguous_deleted_messages_range: u64,
    /// What its consumers stored with the position.
    pub properties: BTreeMap<String, i64>,
}

/// What is stored of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredTopic {
    /// How often the node was written.
    pub version: i64,
    /// The ledgers, oldest first.
    pub ledgers: Vec<StoredLedger>,
    /// Where it ended, if it is terminated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated_position: Option<StoredPosition>,
    /// Durable subscriptions by name.
    pub cursors: BTreeMap<String, StoredCursor>,
    /// Properties of the topic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
}

/// A ledger, as it is listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredLedger {
    /// The ledger.
    pub ledger_id: i64,
    /// Its entries, once it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<i64>,
    /// Its payload bytes, once it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// When it was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    /// Whether it was moved to other storage.
    pub is_offloaded: bool,
}

/// A position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredPosition {
    /// The ledger.
    pub ledger_id: i64,
    /// The entry.
    pub entry_id: i64,
}

/// A cursor's node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredCursor {
    /// How often the node was written.
    pub version: i64,
    /// The ledger with its states; −1 if the node holds it.
    pub cursors_ledger_id: i64,
    /// Everything up to here was acknowledged when the node was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark_delete: Option<StoredPosition>,
}
