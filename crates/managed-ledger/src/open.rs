//! Opening a topic's log, which takes it away from everyone else.

use std::collections::BTreeMap;
use std::sync::Arc;

use geminga_cursor::Extents;
use geminga_ledger::LedgerError;
use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::{TopicName, canary, decode_local_name};
use geminga_records::{LedgerInfo, ManagedLedgerInfo, paths};

use crate::appender::{Appender, AppenderSink};
use crate::error::ManagedLedgerError;
use crate::log::Log;
use crate::options::ManagedLedgers;
use crate::switch::stamp;

/// A log that this process now owns.
#[derive(Debug)]
pub struct Opened {
    /// The read side.
    pub log: Arc<Log>,
    /// The node's list.
    pub info: ManagedLedgerInfo,
    pub(crate) version: Version,
    pub(crate) topic: TopicName,
    pub(crate) ledgers: ManagedLedgers,
}

impl Opened {
    /// The appender, whose events go to `sink`.
    #[must_use]
    pub fn appender(self, sink: Arc<dyn AppenderSink>) -> Appender {
        Appender::new(self, sink)
    }
}

/// Takes a topic's log over: finds the end of its last ledger, so that a former owner is stopped, and writes the node
/// back. Nothing is created but, with `create`, the node of a topic that does not exist.
///
/// # Errors
/// [`ManagedLedgerError::NotFound`] without `create`; [`ManagedLedgerError::Fenced`] if somebody else does the same at
/// this moment. After any error the call can be repeated.
pub async fn open(ledgers: &ManagedLedgers, topic: &TopicName, create: bool) -> Result<Opened, ManagedLedgerError> {
    let path = paths::managed_ledger(topic);
    let (mut info, version) = match ledgers.metadata.get(&path).await? {
        Some(node) => {
            let info = ManagedLedgerInfo::decode(&node.value)
                .map_err(|error| ManagedLedgerError::Record(path.clone(), error))?;
            (info, node.version)
        }
        None if create => (ManagedLedgerInfo::default(), ledgers.metadata.put(&path, "", Expected::Absent).await?),
        None => return Err(ManagedLedgerError::NotFound),
    };
    if let Some(last) = info.ledgers.last_mut() {
        // A stamped one is closed; nobody can be writing it.
        if !last.is_stamped() {
            let closed = ledgers.ledgers.recover(last.ledger).await?;
            stamp(last, &closed, ledgers.env.clock.wall());
        }
    }
    let version = if canary!("takeover_without_cas") {
        version
    } else {
        ledgers.metadata.put(&path, info.encode(), Expected::Version(version)).await?
    };
    let mut extents = Extents::default();
    let mut sizes = BTreeMap::new();
    for LedgerInfo { ledger, entries, size, .. } in &info.ledgers {
        extents.set(*ledger, entries.unwrap_or(0));
        sizes.insert(*ledger, u64::try_from(size.unwrap_or(0)).unwrap_or(0));
    }
    let log = Log::new(ledgers.ledgers.clone(), Arc::clone(&ledgers.cache), extents, sizes);
    Ok(Opened { log, info, version, topic: topic.clone(), ledgers: ledgers.clone() })
}

/// The names of a topic's durable subscriptions.
///
/// # Errors
/// [`ManagedLedgerError::Metadata`].
pub async fn list_cursors(ledgers: &ManagedLedgers, topic: &TopicName) -> Result<Vec<String>, ManagedLedgerError> {
    let encoded = ledgers.metadata.children(&paths::managed_ledger(topic)).await?;
    Ok(encoded.iter().filter_map(|name| decode_local_name(name)).collect())
}

/// Deletes a topic's log and cursors. Its owner has closed it, or nobody owns it.
///
/// The node goes first, so that a crash leaves ledgers that nothing names, and never a list of ledgers that are gone.
///
/// # Errors
/// [`ManagedLedgerError::NotFound`], or what stops the deletion; it can be repeated.
pub async fn delete(ledgers: &ManagedLedgers, topic: &TopicName) -> Result<(), ManagedLedgerError> {
    let path = paths::managed_ledger(topic);
    let node = ledgers.metadata.get(&path).await?.ok_or(ManagedLedgerError::NotFound)?;
    let info =
        ManagedLedgerInfo::decode(&node.value).map_err(|error| ManagedLedgerError::Record(path.clone(), error))?;
    for cursor in list_cursors(ledgers, topic).await? {
        crate::delete_cursor(ledgers, topic, &cursor).await?;
    }
    match ledgers.metadata.delete(&path, Expected::Version(node.version)).await {
        Ok(()) | Err(MetadataError::NoNode(_)) => {}
        Err(error) => return Err(error.into()),
    }
    for info in info.ledgers {
        match ledgers.ledgers.delete(info.ledger).await {
            Ok(()) | Err(LedgerError::NoLedger(_)) => {}
            Err(error) => tracing::warn!(%topic, ledger = %info.ledger, %error, "a ledger of a deleted topic remains"),
        }
    }
    Ok(())
}
