//! The rules of the requests: what is refused, and what is written.

use std::sync::Arc;

use bytes::Bytes;
use geminga_disk::DiskError;
use geminga_model::{EntryId, LedgerId};

use crate::format::record::{self, DELETE_BODY};
use crate::request::{AddEntry, MAX_EXPLICIT_LAC, WriteOutcome, WriteRequest};
use crate::state::{LedgerState, MasterKey, Tombstone};
use crate::table::Change;
use crate::writer::LogWriter;

/// Bytes of an entry before its digest.
///
/// Fact: ledger, entry, LAC and length, 8 bytes each, big-endian.
const ENTRY_HEADER: usize = 32;

impl LogWriter {
    /// Decides a request and puts what it writes into the log. The outcome counts once the log is synced.
    pub(crate) fn admit(&mut self, request: WriteRequest) -> Result<WriteOutcome, DiskError> {
        match request {
            WriteRequest::Add { ledger, entry, body, master_key, recovery, high_priority } => {
                let body = [&body[..], &[]];
                self.admit_entry(&AddEntry { ledger, entry, body, master_key, recovery, high_priority })
            }
            WriteRequest::Fence { ledger, master_key } => {
                self.change_state(ledger.0, master_key, |state| !std::mem::replace(&mut state.fenced, true))
            }
            WriteRequest::SetExplicitLac { ledger, master_key, body } => {
                if body.is_empty() || body.len() > MAX_EXPLICIT_LAC {
                    return Ok(WriteOutcome::InvalidEntry);
                }
                // A slice would keep the whole packet that it came in alive.
                let body = Bytes::copy_from_slice(&body);
                self.change_state(ledger.0, master_key, |state| {
                    state.explicit_lac = Some(body);
                    true
                })
            }
            WriteRequest::Delete { ledger } => self.delete(ledger.0),
            WriteRequest::Force => Ok(WriteOutcome::Ok),
        }
    }

    /// As [`LogWriter::admit`], for an entry that is not the caller's to give away.
    pub(crate) fn admit_entry(&mut self, add: &AddEntry<'_>) -> Result<WriteOutcome, DiskError> {
        let AddEntry { ledger, entry, body: [head, rest], master_key, recovery, high_priority } = *add;
        if !is_entry(ledger, entry, head) || head.len() + rest.len() > self.max_entry_bytes {
            return Ok(WriteOutcome::InvalidEntry);
        }
        let privileged = recovery || high_priority;
        if !privileged && self.store.is_read_only() {
            return Ok(WriteOutcome::ReadOnly);
        }
        self.add((ledger.0, entry.0), [head, rest], master_key, recovery, privileged)
    }

    /// Writes an entry, and before it the ledger's state if this is the first that the store hears of it.
    fn add(
        &mut self,
        (ledger, entry): (i64, i64),
        body: [&[u8]; 2],
        key: MasterKey,
        recovery: bool,
        privileged: bool,
    ) -> Result<WriteOutcome, DiskError> {
        let len = record::record_len(body.iter().map(|part| part.len()).sum());
        let (new, need) = match self.ledgers.get(&ledger) {
            Some(known) if known.value.key != key => return Ok(WriteOutcome::Unauthorized),
            Some(known) if known.value.fenced && !recovery => return Ok(WriteOutcome::Fenced),
            Some(_) => (None, len),
            None if self.refuses_adds(ledger) => return Ok(WriteOutcome::Fenced),
            None => {
                let state = new_state(key);
                let need = Self::state_len(&state) + len;
                (Some(state), need)
            }
        };
        if !self.make_room(need, privileged)? {
            return Ok(WriteOutcome::ReadOnly);
        }
        if let Some(mut state) = new {
            state.sequence = self.new_sequence();
            self.put_change(ledger, Change::State(Arc::new(state)));
        }
        let sequence = self.new_sequence();
        self.put_entry(ledger, entry, sequence, body);
        Ok(WriteOutcome::Ok)
    }

    /// Changes the state of a ledger, which is created if need be; `change` says whether there is anything to write.
    fn change_state(
        &mut self,
        ledger: i64,
        key: MasterKey,
        change: impl FnOnce(&mut LedgerState) -> bool,
    ) -> Result<WriteOutcome, DiskError> {
        let mut state = match self.ledgers.get(&ledger) {
            Some(known) if known.value.key != key => return Ok(WriteOutcome::Unauthorized),
            Some(known) => LedgerState::clone(&known.value),
            None if ledger < 0 => return Ok(WriteOutcome::NoLedger),
            None if self.refuses_adds(ledger) => return Ok(WriteOutcome::NoLedger),
            None => new_state(key),
        };
        if !change(&mut state) {
            // A fence that is already in the log; it may be part of this very commit, and is answered with it.
            return Ok(WriteOutcome::Ok);
        }
        if !self.make_room(Self::state_len(&state), true)? {
            return Ok(WriteOutcome::ReadOnly);
        }
        state.sequence = self.new_sequence();
        self.put_change(ledger, Change::State(Arc::new(state)));
        Ok(WriteOutcome::Ok)
    }

    fn delete(&mut self, ledger: i64) -> Result<WriteOutcome, DiskError> {
        let Some(known) = self.ledgers.get(&ledger) else { return Ok(WriteOutcome::NoLedger) };
        let fenced = known.value.fenced;
        if !self.make_room(record::record_len(DELETE_BODY), true)? {
            return Ok(WriteOutcome::ReadOnly);
        }
        let tombstone = Tombstone { sequence: self.new_sequence(), fenced, at: self.now };
        self.put_change(ledger, Change::Delete(tombstone));
        Ok(WriteOutcome::Ok)
    }

    fn refuses_adds(&self, ledger: i64) -> bool {
        self.tombstones.get(&ledger).is_some_and(|tombstone| tombstone.value.refuses_adds(self.now))
    }
}

fn new_state(key: MasterKey) -> LedgerState {
    LedgerState { sequence: 0, fenced: false, limbo: false, key, explicit_lac: None }
}

/// Whether `head` is the beginning of an entry, and of the one that the request names.
fn is_entry(ledger: LedgerId, entry: EntryId, head: &[u8]) -> bool {
    let number = |at: usize| head.get(at..at + 8).and_then(|b| b.try_into().ok()).map(i64::from_be_bytes);
    head.len() >= ENTRY_HEADER
        && ledger.0 >= 0
        && entry.0 >= 0
        && number(0) == Some(ledger.0)
        && number(8) == Some(entry.0)
}
