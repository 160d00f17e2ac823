//! What must hold, checked at every report and every change of metadata.

use bytes::Bytes;
use geminga_bookie_wire::OpenedEntry;
use geminga_model::EntryId;
use geminga_records::{LedgerMetadata, LedgerState};

/// What is known of one ledger from outside.
#[derive(Debug, Default)]
struct Facts {
    /// Payloads by entry id, as the writer handed them in.
    sent: Vec<Bytes>,
    /// The greatest entry, plus one, that was reported as confirmed.
    confirmed: i64,
    closed_at: Option<EntryId>,
}

/// The rules, and what they are judged by.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    ledgers: Vec<Facts>,
}

type Verdict = Result<(), String>;

impl Oracle {
    pub(super) fn new(ledgers: usize) -> Oracle {
        Oracle { ledgers: (0..ledgers).map(|_| Facts::default()).collect() }
    }

    pub(super) fn confirmed(&self, ledger: usize) -> EntryId {
        EntryId(self.ledgers[ledger].confirmed - 1)
    }

    /// The writer handed an entry in.
    pub(super) fn sent(&mut self, ledger: usize, entry: EntryId, payload: Bytes) -> Verdict {
        let sent = &mut self.ledgers[ledger].sent;
        if entry.0 != sent.len() as i64 {
            return Err(format!("ledger {ledger}: the writer gave id {entry} to its entry {}", sent.len()));
        }
        sent.push(payload);
        Ok(())
    }

    /// The writer reports everything up to `last` as confirmed.
    pub(super) fn confirm(&mut self, ledger: usize, last: EntryId) -> Verdict {
        let facts = &mut self.ledgers[ledger];
        if let Some(closed) = facts.closed_at
            && last > closed
        {
            return Err(format!("ledger {ledger}: entry {last} is confirmed after CLOSED at {closed}"));
        }
        if last.0 >= facts.sent.len() as i64 || last.0 + 1 < facts.confirmed {
            return Err(format!("ledger {ledger}: the last confirmed entry jumps to {last}"));
        }
        facts.confirmed = last.0 + 1;
        Ok(())
    }

    /// The writer gives the payloads of what was confirmed after `before` back.
    pub(super) fn given_back(&self, ledger: usize, before: EntryId, payloads: &[Bytes]) -> Verdict {
        let facts = &self.ledgers[ledger];
        let due = facts.sent.get((before.0 + 1) as usize..facts.confirmed as usize);
        if due != Some(payloads) {
            return Err(format!("ledger {ledger}: other payloads come back than were confirmed after {before}"));
        }
        Ok(())
    }

    /// Somebody hears that the ledger ends at `last`.
    pub(super) fn ends(&self, ledger: usize, last: EntryId) -> Verdict {
        match self.ledgers[ledger].closed_at {
            Some(closed) if closed == last => Ok(()),
            closed => {
                Err(format!("ledger {ledger}: somebody hears that it ends at {last}, and CLOSED says {closed:?}"))
            }
        }
    }

    /// Metadata changes.
    pub(super) fn changes(&mut self, ledger: usize, old: &LedgerMetadata, new: &LedgerMetadata) -> Verdict {
        let facts = &mut self.ledgers[ledger];
        let wrong = |what: &str| Err(format!("ledger {ledger}: {what}: {:?} after {:?}", new, old));
        let sound = new.segments.iter().all(|segment| {
            let mut members = segment.ensemble.clone();
            members.sort();
            members.dedup();
            members.len() == new.quorum.ensemble && segment.ensemble.len() == new.quorum.ensemble
        });
        let ascending = new.segments.windows(2).all(|pair| pair[0].first_entry < pair[1].first_entry);
        if !sound || !ascending || new.segments.first().is_none_or(|first| first.first_entry != EntryId(0)) {
            return wrong("impossible segments");
        }
        match (old.state, new.state) {
            (LedgerState::Open, LedgerState::Open | LedgerState::InRecovery) => {
                let moved = |e: &EntryId| old.ensemble_of(*e) != new.ensemble_of(*e);
                if (0..facts.confirmed).map(EntryId).any(|entry| moved(&entry)) {
                    return wrong("a confirmed entry changes its bookies");
                }
                Ok(())
            }
            (LedgerState::Open | LedgerState::InRecovery, LedgerState::Closed { last_entry, .. }) => {
                if last_entry.0 + 1 < facts.confirmed {
                    return wrong(&format!("CLOSED below entry {}, which was confirmed", facts.confirmed - 1));
                }
                if last_entry.0 >= facts.sent.len() as i64 {
                    return wrong("CLOSED above everything sent");
                }
                facts.closed_at = Some(last_entry);
                Ok(())
            }
            _ => wrong("the state goes back"),
        }
    }

    /// Somebody read an entry.
    pub(super) fn found(&self, ledger: usize, entry: EntryId, found: &OpenedEntry) -> Verdict {
        let facts = &self.ledgers[ledger];
        let sent = usize::try_from(entry.0).ok().and_then(|at| facts.sent.get(at));
        if sent != Some(&found.payload) || found.header.entry != entry {
            return Err(format!("ledger {ledger}: entry {entry} is read with other bytes than were sent"));
        }
        if found.header.last_add_confirmed.0 >= facts.confirmed {
            return Err(format!("ledger {ledger}: entry {entry} names a last confirmed entry that never was"));
        }
        Ok(())
    }
}
