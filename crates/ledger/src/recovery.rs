//! Recovery of a ledger: drives the machine and writes its outcome.

use std::sync::Arc;
use std::time::Duration;

use geminga_bookie_wire::MasterKey;
use geminga_env::{Mailbox, Reply, mailbox};
use geminga_metastore::{Expected, MetadataError};
use geminga_model::{BookieId, EntryId, LedgerId};
use geminga_quorum::{BookieError, LedgerRecovery, RecoveredEnd, RecoveryAction};
use geminga_records::{LedgerMetadata, LedgerState, paths};

use bytes::Bytes;

use crate::link::{AddReply, AddRequest, LedgerEvent, LedgerSink, ReadLastRequest, ReadRequest};
use crate::{ClosedLedger, LedgerClient, LedgerError};

/// Pause before metadata that could not be reached is asked again.
pub(crate) const RETRY_METADATA: Duration = Duration::from_millis(100);

pub(crate) async fn recover(client: &LedgerClient, ledger: LedgerId) -> Result<ClosedLedger, LedgerError> {
    let path = paths::ledger(ledger);
    let (mut snapshot, mut version) = client.get(ledger).await?;
    loop {
        match snapshot.state {
            LedgerState::Closed { last_entry, length } => {
                return Ok(ClosedLedger { ledger, last_entry, length, metadata: snapshot });
            }
            LedgerState::InRecovery => break,
            LedgerState::Open => {
                snapshot.state = LedgerState::InRecovery;
                match client.metadata().put(&path, snapshot.encode(), Expected::Version(version)).await {
                    Ok(now) => {
                        version = now;
                        break;
                    }
                    Err(MetadataError::BadVersion(_)) => (snapshot, version) = client.get(ledger).await?,
                    Err(MetadataError::NoNode(_)) => return Err(LedgerError::NoLedger(ledger)),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    let end = find_end(client, ledger, &snapshot).await?;
    close(client, ledger, end, snapshot, version).await
}

enum Item {
    Last(usize, Result<Bytes, BookieError>),
    Read(usize, EntryId, Result<Bytes, BookieError>),
    Written(LedgerEvent),
}

struct Written(Mailbox<Item>);

impl LedgerSink for Written {
    fn deliver(&self, event: LedgerEvent) {
        // Answers after the decision find the mailbox closed and are not needed.
        drop(self.0.push(Item::Written(event)));
    }
}

async fn find_end(
    client: &LedgerClient,
    ledger: LedgerId,
    snapshot: &LedgerMetadata,
) -> Result<RecoveredEnd, LedgerError> {
    let (mailbox, mut inbox) = mailbox();
    let sink: Arc<dyn LedgerSink> = Arc::new(Written(mailbox.clone()));
    let key = MasterKey::of_password(&snapshot.password);
    let mut machine = LedgerRecovery::new(ledger, snapshot.clone(), client.bookies().available());
    let (mut actions, mut batch) = (Vec::new(), Vec::new());
    loop {
        machine.take_actions(&mut actions);
        actions.drain(..).for_each(|action| act(client, ledger, key, action, &mailbox, &sink));
        if let Some(outcome) = machine.outcome() {
            return outcome.clone().map_err(|failed| LedgerError::Recovery(ledger, failed));
        }
        inbox.wait().await;
        inbox.take(&mut batch);
        for item in batch.drain(..) {
            match item {
                Item::Last(index, answer) => machine.handle_last(index, answer),
                Item::Read(index, entry, answer) => machine.handle_read(index, entry, answer),
                Item::Written(LedgerEvent::Added(results)) => {
                    for result in results {
                        machine.handle_written(result.index, &result.bookie, result.first, result.result);
                    }
                }
                Item::Written(LedgerEvent::Changed { .. }) => {}
            }
        }
    }
}

fn act(
    client: &LedgerClient,
    ledger: LedgerId,
    key: MasterKey,
    action: RecoveryAction,
    mailbox: &Mailbox<Item>,
    sink: &Arc<dyn LedgerSink>,
) {
    let link = |bookie: &BookieId| client.bookies().link(bookie);
    match action {
        RecoveryAction::FenceAndReadLast { index, bookie } => {
            let to = mailbox.clone();
            let reply = Reply::to(move |answer| {
                drop(to.push(Item::Last(index, answer.unwrap_or(Err(BookieError::Unreachable)))));
            });
            link(&bookie).read_last(ReadLastRequest { ledger, fence: Some(key), reply });
        }
        RecoveryAction::Read { index, bookie, entry, fence } => {
            let to = mailbox.clone();
            let reply = Reply::to(move |answer: Result<Result<Vec<Bytes>, BookieError>, _>| {
                let first = answer
                    .unwrap_or(Err(BookieError::Unreachable))
                    .and_then(|entries| entries.into_iter().next().ok_or(BookieError::Damaged));
                drop(to.push(Item::Read(index, entry, first)));
            });
            let fence = fence.then_some(key);
            link(&bookie).read(ReadRequest { ledger, first: entry, last: entry, max_bytes: 0, fence, reply });
        }
        RecoveryAction::WriteBack { index, bookie, entry, body } => {
            let reply = AddReply::new(Arc::clone(sink), ledger, (entry, 1), index, bookie.clone());
            let bodies = vec![body];
            let request = AddRequest { ledger, first: entry, bodies, master_key: key, recovery: true, reply };
            link(&bookie).add(&mut vec![request]);
        }
    }
}

/// Writes CLOSED, or accepts what somebody else wrote meanwhile.
async fn close(
    client: &LedgerClient,
    ledger: LedgerId,
    end: RecoveredEnd,
    mut metadata: LedgerMetadata,
    mut version: geminga_metastore::Version,
) -> Result<ClosedLedger, LedgerError> {
    loop {
        match metadata.state {
            LedgerState::Closed { last_entry, length } => {
                return Ok(ClosedLedger { ledger, last_entry, length, metadata });
            }
            LedgerState::Open | LedgerState::InRecovery => {}
        }
        metadata.state = LedgerState::Closed { last_entry: end.last_entry, length: end.length };
        metadata.segments.clone_from(&end.segments);
        let path = paths::ledger(ledger);
        match client.metadata().put(&path, metadata.encode(), Expected::Version(version)).await {
            Ok(_) => {
                let RecoveredEnd { last_entry, length, .. } = end;
                return Ok(ClosedLedger { ledger, last_entry, length, metadata });
            }
            Err(MetadataError::BadVersion(_)) => (metadata, version) = client.get(ledger).await?,
            Err(MetadataError::NoNode(_)) => return Err(LedgerError::NoLedger(ledger)),
            Err(error) => return Err(error.into()),
        }
    }
}
