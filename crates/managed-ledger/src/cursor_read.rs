//! Reading what is stored of a cursor.

use geminga_cursor::{Replay, StoredCursor};
use geminga_ledger::ClosedLedger;
use geminga_model::{EntryId, Position};
use geminga_records::{ManagedCursorInfo, PositionInfo};

use crate::error::ManagedLedgerError;
use crate::options::ManagedLedgers;

/// Bytes of one read of a cursor ledger.
const READ_BYTES: usize = 1 << 20;
/// Entries before the last that are read together with it.
const READ_FIRST: i64 = 15;

/// What the node itself says.
pub(crate) fn of_node(node: &ManagedCursorInfo) -> StoredCursor {
    let mut state = PositionInfo::at(node.mark_delete.unwrap_or(Position::EARLIEST));
    state.acked.clone_from(&node.acked);
    state.properties.clone_from(&node.properties);
    state.batch_sets.clone_from(&node.batch_sets);
    let mut stored = StoredCursor::plain(state);
    stored.added.redeliveries.clone_from(&node.redeliveries);
    stored
}

/// What the cursor ledger says, which nobody writes any more and which has an entry.
pub(crate) async fn read_ledger(
    ledgers: &ManagedLedgers,
    closed: ClosedLedger,
    path: &str,
) -> Result<StoredCursor, ManagedLedgerError> {
    let mut replay = Replay::new(closed.last_entry);
    let last = closed.last_entry;
    let reader = ledgers.ledgers.reader(closed.ledger, closed.metadata);
    // Mostly the last entries are all there is to read, so they are read at once. Not all of them may be wanted: one that
    // cannot be read is no reason to fail yet.
    let first = EntryId((last.0 - READ_FIRST).max(0));
    let mut window = (first, reader.read(first, last, READ_BYTES).await.unwrap_or_default());
    while let Some((wanted, end)) = replay.wants() {
        let at = usize::try_from(wanted.0 - window.0.0).ok();
        match at.and_then(|at| window.1.get(at)) {
            Some(entry) => {
                let unreadable = |error| ManagedLedgerError::Record(path.to_owned(), error);
                replay.handle_entry(&entry.payload).map_err(unreadable)?;
            }
            None => window = (wanted, reader.read(wanted, end, READ_BYTES).await?),
        }
    }
    Ok(replay.finish().unwrap_or_else(|| StoredCursor::plain(PositionInfo::at(Position::EARLIEST))))
}
