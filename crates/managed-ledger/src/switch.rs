//! From one ledger to the next: the procedure that ends one, makes another, and writes both into the list at once.

use std::pin::Pin;

use geminga_ledger::{ClosedLedger, CreatedLedger, LedgerError};
use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::{LedgerId, TopicName, UnixMillis};
use geminga_records::{LedgerInfo, ManagedLedgerInfo, paths};

use crate::error::ManagedLedgerError;
use crate::options::ManagedLedgers;

type Close = Pin<Box<dyn Future<Output = Result<ClosedLedger, LedgerError>> + Send>>;

/// How the current ledger ends.
pub(crate) enum Ending {
    /// There is none.
    Nothing,
    /// Its writer closes it.
    Close(LedgerId, Close),
    /// Its writer lost it; its end must be found.
    Lost(LedgerId),
}

/// The list after a switch.
#[derive(Debug)]
pub(crate) struct Switched {
    pub(crate) info: ManagedLedgerInfo,
    pub(crate) version: Version,
    pub(crate) closed: Option<ClosedLedger>,
    /// The next ledger, if one was wanted.
    pub(crate) created: Option<CreatedLedger>,
    /// Listed before, and without an entry.
    pub(crate) dropped: Option<LedgerId>,
}

/// Writes into the list what is known of a closed ledger.
pub(crate) fn stamp(info: &mut LedgerInfo, closed: &ClosedLedger, now: UnixMillis) {
    info.entries = Some(closed.last_entry.0 + 1);
    info.size = Some(closed.length);
    info.closed_at = Some(now);
}

/// Ends the current ledger as `ending` says and, with `next`, puts another behind it. `created` is one that was made
/// ahead of time.
pub(crate) async fn switch(
    ledgers: ManagedLedgers,
    topic: TopicName,
    mut info: ManagedLedgerInfo,
    version: Version,
    ending: Ending,
    next: Option<Option<CreatedLedger>>,
) -> Result<Switched, ManagedLedgerError> {
    let path = paths::managed_ledger(&topic);
    let closed = end(&ledgers, &path, version, ending).await?;
    if let (Some(last), Some(closed)) = (info.ledgers.last_mut(), &closed) {
        stamp(last, closed, ledgers.env.clock.wall());
    }
    let (mut created, mut dropped) = (None, None);
    if let Some(ready) = next {
        let ledger = match ready {
            Some(ready) => ready,
            None => {
                let create = ledgers.data_ledger(&topic);
                ledgers.persist(|| ledgers.ledgers.create(&create)).await?
            }
        };
        // An empty predecessor must not stay behind another ledger: Java deletes it from the list without a look.
        dropped = info.ledgers.pop_if(|last| last.entries == Some(0)).map(|last| last.ledger);
        info.ledgers.reserve_exact(1);
        info.ledgers.push(LedgerInfo::open(ledger.ledger));
        created = Some(ledger);
    }
    let version = write_list(&ledgers, &path, &info, version).await?;
    Ok(Switched { info, version, closed, created, dropped })
}

async fn end(
    ledgers: &ManagedLedgers,
    path: &str,
    version: Version,
    ending: Ending,
) -> Result<Option<ClosedLedger>, ManagedLedgerError> {
    let lost = match ending {
        Ending::Nothing => return Ok(None),
        Ending::Lost(ledger) => ledger,
        Ending::Close(ledger, close) => match close.await {
            Ok(closed) => return Ok(Some(closed)),
            // Whatever happened to it, its end is what recovery finds.
            Err(_) => ledger,
        },
    };
    // Fenced by somebody who repairs it, or by another owner of the topic? Only the node tells.
    let node = ledgers.persist(|| ledgers.metadata.get(path)).await?;
    if node.map(|node| node.version) != Some(version) {
        return Err(ManagedLedgerError::Fenced);
    }
    ledgers.persist(|| ledgers.ledgers.recover(lost)).await.map(Some)
}

/// Compare-and-set of the list. A write whose outcome is unknown is settled by looking.
pub(crate) async fn write_list(
    ledgers: &ManagedLedgers,
    path: &str,
    info: &ManagedLedgerInfo,
    version: Version,
) -> Result<Version, ManagedLedgerError> {
    let value = info.encode();
    ledgers
        .persist(|| async {
            match ledgers.metadata.put(path, value.clone(), Expected::Version(version)).await {
                Err(MetadataError::BadVersion(node)) => {
                    let found = ledgers.metadata.get(path).await?;
                    match found {
                        Some(found) if found.value == value && found.version.0 == version.0 + 1 => Ok(found.version),
                        _ => Err(MetadataError::BadVersion(node)),
                    }
                }
                other => other,
            }
        })
        .await
}
