//! What a store must answer and hold, said as plainly as possible.

use std::collections::BTreeMap;

use bytes::Bytes;
use geminga_bookie_store::{BookieStore, MasterKey, ReadError, WriteOutcome, WriteRequest};
use geminga_model::{EntryId, LedgerId};

const SEVEN_DAYS: i64 = 7 * 24 * 3600 * 1000;

/// A ledger as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ledger {
    pub(super) key: MasterKey,
    pub(super) fenced: bool,
    pub(super) lac: i64,
    pub(super) explicit_lac: Option<Bytes>,
    pub(super) entries: BTreeMap<i64, Bytes>,
}

/// A store without a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) ledgers: BTreeMap<i64, Ledger>,
    /// When ledgers that were fenced were deleted.
    pub(super) fenced_and_deleted: BTreeMap<i64, i64>,
}

impl Model {
    /// What a request answers if there is space for it, and its effect.
    pub(super) fn apply(&mut self, request: &WriteRequest, now: i64) -> WriteOutcome {
        match request {
            WriteRequest::Add { ledger, entry, body, master_key, recovery, .. } => {
                let outcome = self.admit(ledger.0, *master_key, WriteOutcome::Fenced, now);
                let known = match outcome {
                    Ok(known) if known.fenced && !recovery => return WriteOutcome::Fenced,
                    Ok(known) => known,
                    Err(refusal) => return refusal,
                };
                let lac = body.get(16..24).and_then(|b| b.try_into().ok()).map_or(-1, i64::from_be_bytes);
                known.lac = known.lac.max(lac);
                known.entries.insert(entry.0, body.clone());
            }
            WriteRequest::Fence { ledger, master_key } => {
                match self.admit(ledger.0, *master_key, WriteOutcome::NoLedger, now) {
                    Ok(known) => known.fenced = true,
                    Err(refusal) => return refusal,
                }
            }
            WriteRequest::SetExplicitLac { ledger, master_key, body } => {
                match self.admit(ledger.0, *master_key, WriteOutcome::NoLedger, now) {
                    Ok(known) => known.explicit_lac = Some(body.clone()),
                    Err(refusal) => return refusal,
                }
            }
            WriteRequest::Delete { ledger } => {
                let Some(known) = self.ledgers.remove(&ledger.0) else { return WriteOutcome::NoLedger };
                if known.fenced {
                    self.fenced_and_deleted.insert(ledger.0, now);
                } else {
                    self.fenced_and_deleted.remove(&ledger.0);
                }
            }
            WriteRequest::Force => {}
        }
        WriteOutcome::Ok
    }

    /// The ledger, created if it is new; or why not.
    fn admit(
        &mut self,
        id: i64,
        key: MasterKey,
        after_delete: WriteOutcome,
        now: i64,
    ) -> Result<&mut Ledger, WriteOutcome> {
        let remembered = self.fenced_and_deleted.get(&id).is_some_and(|at| now - at < SEVEN_DAYS);
        if !self.ledgers.contains_key(&id) && remembered {
            return Err(after_delete);
        }
        let new = Ledger { key, fenced: false, lac: -1, explicit_lac: None, entries: BTreeMap::new() };
        let known = self.ledgers.entry(id).or_insert(new);
        if known.key == key { Ok(known) } else { Err(WriteOutcome::Unauthorized) }
    }

    /// Forgets what no answer depends on any more, so that equal models are equal.
    pub(super) fn forget(&mut self, now: i64) {
        self.fenced_and_deleted.retain(|_, at| now - *at < SEVEN_DAYS);
    }
}

/// Everything that a store shows, read entry by entry.
pub(super) fn look_at(store: &BookieStore) -> Result<BTreeMap<i64, Ledger>, String> {
    let mut all = BTreeMap::new();
    for id in store.ledgers() {
        let fail = |what: &str, error: ReadError| format!("ledger {id}: {what}: {error}");
        let mut entries = BTreeMap::new();
        for (first, last) in store.entries_of(id).map_err(|e| fail("its entries", e))? {
            for entry in first.0..=last.0 {
                let body = store.read(id, EntryId(entry)).map_err(|e| fail(&format!("entry {entry}"), e))?;
                entries.insert(entry, body);
            }
        }
        let last = entries.keys().next_back().copied().unwrap_or(-1);
        if store.last_entry(id) != Some(EntryId(last)) {
            return Err(format!("ledger {id}: the last entry is {last}, not {:?}", store.last_entry(id)));
        }
        let gone = || format!("ledger {id} is listed and not there");
        let ledger = Ledger {
            key: store.master_key(id).ok_or_else(gone)?,
            fenced: store.is_fenced(id).ok_or_else(gone)?,
            lac: store.lac(id).ok_or_else(gone)?.0,
            explicit_lac: store.explicit_lac(id),
            entries,
        };
        all.insert(id.0, ledger);
    }
    Ok(all)
}

/// The first difference between what a store shows and what it must show, as a sentence.
pub(super) fn difference(shown: &BTreeMap<i64, Ledger>, expected: &BTreeMap<i64, Ledger>) -> Option<String> {
    let ids: Vec<i64> = shown.keys().chain(expected.keys()).copied().collect();
    for id in ids {
        let (shown, expected) = match (shown.get(&id), expected.get(&id)) {
            (Some(shown), Some(expected)) if shown == expected => continue,
            (Some(shown), Some(expected)) => (shown, expected),
            (Some(_), None) => return Some(format!("ledger {id} should not be there")),
            (None, _) => return Some(format!("ledger {id} is missing")),
        };
        if let Some(entry) = expected.entries.keys().find(|entry| !shown.entries.contains_key(entry)) {
            return Some(format!("entry {id}:{entry} is missing"));
        }
        if let Some(entry) = shown.entries.keys().find(|entry| !expected.entries.contains_key(entry)) {
            return Some(format!("entry {id}:{entry} should not be there"));
        }
        if shown.fenced != expected.fenced {
            return Some(format!("ledger {id}: fenced is {}", shown.fenced));
        }
        if let Some((entry, _)) = expected.entries.iter().find(|(entry, body)| shown.entries.get(entry) != Some(body)) {
            return Some(format!("entry {id}:{entry} has other bytes"));
        }
        return Some(format!("ledger {id}: key, LAC ({} for {}) or explicit LAC differ", shown.lac, expected.lac));
    }
    None
}

/// An entry as BookKeeper's clients make it, without a digest.
pub(super) fn entry(ledger: LedgerId, entry: EntryId, lac: i64, payload: &[u8]) -> Bytes {
    let mut body = Vec::with_capacity(32 + payload.len());
    for number in [ledger.0, entry.0, lac, payload.len() as i64] {
        body.extend_from_slice(&number.to_be_bytes());
    }
    body.extend_from_slice(payload);
    body.into()
}
