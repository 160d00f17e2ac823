//! What is stored of a topic, read without taking it away from whoever has it open.

use geminga_cursor::{Cursor, Extents};
use geminga_metastore::Version;
use geminga_model::{LedgerId, Position, TopicName};
use geminga_records::{ManagedCursorInfo, ManagedLedgerInfo, PositionInfo, paths};

use crate::error::ManagedLedgerError;
use crate::list_cursors;
use crate::options::ManagedLedgers;

/// A topic's nodes.
#[derive(Clone, Debug)]
pub struct StoredLog {
    /// The list of ledgers.
    pub info: ManagedLedgerInfo,
    /// How often the list was written.
    pub version: Version,
    /// Durable subscriptions, by name.
    pub cursors: Vec<StoredCursorNode>,
}

/// A cursor's node.
#[derive(Clone, Debug)]
pub struct StoredCursorNode {
    /// The subscription.
    pub name: String,
    /// What the node holds.
    pub info: ManagedCursorInfo,
    /// How often it was written.
    pub version: Version,
}

impl StoredLog {
    /// The ledgers and their entries; `None` if the last one may have entries that the list does not know.
    fn extents(&self) -> Option<Extents> {
        let mut extents = Extents::default();
        for ledger in &self.info.ledgers {
            extents.set(ledger.ledger, ledger.entries?);
        }
        Some(extents)
    }

    /// Payload bytes of the ledgers that are closed.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.info.ledgers.iter().filter_map(|ledger| u64::try_from(ledger.size?).ok()).sum()
    }

    /// Entries that a subscription has not acknowledged, if its node and the list tell.
    #[must_use]
    pub fn backlog(&self, cursor: &ManagedCursorInfo) -> Option<u64> {
        let extents = self.extents()?;
        if cursor.cursor_ledger > LedgerId::NONE {
            return None;
        }
        let mut state = PositionInfo::at(cursor.mark_delete.unwrap_or(Position::EARLIEST));
        state.acked.clone_from(&cursor.acked);
        Some(Cursor::restore(&state, &extents).backlog(&extents))
    }
}

/// Reads a topic's nodes; `None` if there is no such topic. A topic that is open may be further than they say.
///
/// # Errors
/// [`ManagedLedgerError::Metadata`] or [`ManagedLedgerError::Record`].
pub async fn read_stored(ledgers: &ManagedLedgers, topic: &TopicName) -> Result<Option<StoredLog>, ManagedLedgerError> {
    let path = paths::managed_ledger(topic);
    let Some(node) = ledgers.metadata.get(&path).await? else { return Ok(None) };
    let info = ManagedLedgerInfo::decode(&node.value).map_err(|error| ManagedLedgerError::Record(path, error))?;
    let mut cursors = Vec::new();
    for name in list_cursors(ledgers, topic).await? {
        let path = paths::cursor(topic, &name);
        // One that goes away meanwhile is left out.
        let Some(node) = ledgers.metadata.get(&path).await? else { continue };
        let info = ManagedCursorInfo::decode(&node.value).map_err(|error| ManagedLedgerError::Record(path, error))?;
        cursors.push(StoredCursorNode { name, info, version: node.version });
    }
    Ok(Some(StoredLog { info, version: node.version, cursors }))
}
