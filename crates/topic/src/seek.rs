//! Where a seek leads.

use std::sync::Arc;

use geminga_cursor::Extents;
use geminga_managed_ledger::{Log, ManagedLedgerError};
use geminga_model::{EntryId, LedgerId, Position, UnixMillis};
use geminga_session::SeekTarget;
use geminga_wire::Entry;

use crate::subscription::before;

/// The mark-delete position after which the target is the next to be delivered.
///
/// Fact: by time it is the first entry published at that time or later; if there is none, the end of the topic.
///
/// # Errors
/// An entry cannot be read; try again.
pub async fn find(log: &Arc<Log>, target: &SeekTarget) -> Result<Position, ManagedLedgerError> {
    match target {
        SeekTarget::Message(message) => Ok(log.with_extents(|extents| before(message.position, extents))),
        SeekTarget::Time(time) => {
            let ledgers: Vec<(LedgerId, i64)> = log.with_extents(|extents| extents.iter().collect());
            for (ledger, entries) in ledgers {
                // Publish times grow but for clocks that disagree, as Pulsar assumes too.
                if entries > 0 && published(log, ledger, entries - 1).await? >= *time {
                    let (mut low, mut high) = (0, entries - 1);
                    while low < high {
                        let middle = low + (high - low) / 2;
                        if published(log, ledger, middle).await? < *time {
                            low = middle + 1;
                        } else {
                            high = middle;
                        }
                    }
                    let first = Position { ledger, entry: EntryId(low) };
                    return Ok(log.with_extents(|extents| extents.previous(first)));
                }
            }
            Ok(log.with_extents(Extents::end))
        }
    }
}

async fn published(log: &Arc<Log>, ledger: LedgerId, entry: i64) -> Result<UnixMillis, ManagedLedgerError> {
    let read = log.read(Position { ledger, entry: EntryId(entry) }, 1, 0).await?;
    let parsed = read.into_iter().next().and_then(|entry| Entry::parse(entry.payload).ok());
    let time = parsed.as_ref().and_then(|entry| entry.summary().ok().map(|summary| entry.timestamp(&summary)));
    // An entry without a readable time is passed over towards the beginning.
    Ok(time.unwrap_or(UnixMillis(i64::MAX)))
}
