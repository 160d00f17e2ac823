//! Dropping the oldest ledgers of a topic.

use geminga_metastore::Version;
use geminga_model::{LedgerId, TopicName};
use geminga_records::{ManagedLedgerInfo, paths};

use crate::error::ManagedLedgerError;
use crate::options::ManagedLedgers;
use crate::switch::write_list;

/// The list after a trim.
#[derive(Debug)]
pub(crate) struct Trimmed {
    pub(crate) info: ManagedLedgerInfo,
    pub(crate) version: Version,
    pub(crate) removed: Vec<LedgerId>,
}

/// Removes every ledger before `first_kept` from the list and then deletes them. A ledger that cannot be deleted
/// remains, named by nothing; it is logged.
pub(crate) async fn trim(
    ledgers: ManagedLedgers,
    topic: TopicName,
    mut info: ManagedLedgerInfo,
    version: Version,
    first_kept: LedgerId,
) -> Result<Trimmed, ManagedLedgerError> {
    let removed: Vec<LedgerId> = info.ledgers.iter().map(|l| l.ledger).filter(|ledger| *ledger < first_kept).collect();
    info.ledgers.retain(|ledger| ledger.ledger >= first_kept);
    let version = write_list(&ledgers, &paths::managed_ledger(&topic), &info, version).await?;
    for ledger in &removed {
        if let Err(error) = ledgers.persist(|| ledgers.ledgers.delete(*ledger)).await {
            tracing::warn!(%topic, %ledger, %error, "a trimmed ledger remains");
        }
    }
    Ok(Trimmed { info, version, removed })
}
