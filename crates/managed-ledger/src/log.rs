//! The read side of a topic's log, shared by its subscriptions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use geminga_cursor::Extents;
use geminga_ledger::LedgerClient;
use geminga_model::{EntryId, LedgerId, Position};
use geminga_records::LedgerMetadata;
use litemap::LiteMap;
use parking_lot::Mutex;

use crate::cache::TailCache;
use crate::error::ManagedLedgerError;

/// A stored entry of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Where it is.
    pub position: Position,
    /// What was published.
    pub payload: Bytes,
}

/// What an entry takes in memory beside its payload: its place in the tail, and its share of what holds the payload.
const ENTRY_OVERHEAD: usize = 96;

/// What can be read without waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedRead {
    /// These entries, at least one.
    Entries(Vec<LogEntry>),
    /// There is no later entry.
    NothingNew,
    /// The next entry is here, and is not in memory: [`Log::read`] it.
    Cold(Position),
}

/// The entries of a topic: which there are, and what they hold.
#[derive(Debug)]
pub struct Log {
    ledgers: LedgerClient,
    cache: Arc<TailCache>,
    state: Mutex<State>,
}

#[derive(Clone, Debug, Default)]
struct OfLedger {
    /// Payload bytes of its confirmed entries.
    bytes: u64,
    metadata: Option<Arc<LedgerMetadata>>,
}

#[derive(Debug, Default)]
struct State {
    extents: Extents,
    ledgers: LiteMap<LedgerId, OfLedger>,
    tail: VecDeque<LogEntry>,
}

impl Log {
    pub(crate) fn new(
        ledgers: LedgerClient,
        cache: Arc<TailCache>,
        extents: Extents,
        sizes: BTreeMap<LedgerId, u64>,
    ) -> Arc<Log> {
        let of_ledger = |(ledger, bytes)| (ledger, OfLedger { bytes, metadata: None });
        let of_ledgers = sizes.into_iter().map(of_ledger).collect();
        let state = Mutex::new(State { extents, ledgers: of_ledgers, tail: VecDeque::new() });
        Arc::new(Log { ledgers, cache, state })
    }

    /// Payload bytes of each ledger, oldest first.
    #[must_use]
    pub fn sizes(&self) -> Vec<(LedgerId, u64)> {
        self.state.lock().ledgers.iter().map(|(ledger, of)| (*ledger, of.bytes)).collect()
    }

    /// Payload bytes of the topic.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.state.lock().ledgers.values().map(|of| of.bytes).sum()
    }

    /// About how many payload bytes lie after `position`: of its own ledger a share by the number of entries.
    #[must_use]
    pub fn size_after(&self, position: Position) -> u64 {
        let state = self.state.lock();
        let later = state.ledgers.iter().filter(|(ledger, _)| **ledger > position.ledger).map(|(_, of)| of.bytes);
        let entries = state.extents.entries(position.ledger).unwrap_or(0);
        let left = entries.saturating_sub(position.entry.0.saturating_add(1)).clamp(0, entries.max(0));
        let own = state.ledgers.get(&position.ledger).map_or(0, |of| of.bytes);
        let share = u128::from(own) * u128::from(left.unsigned_abs()) / u128::from(entries.max(1).unsigned_abs());
        later.sum::<u64>() + u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Whether the topic has an entry at `position`.
    #[must_use]
    pub fn has(&self, position: Position) -> bool {
        position.entry >= EntryId(0)
            && self.with_extents(|extents| extents.entries(position.ledger).is_some_and(|n| position.entry.0 < n))
    }

    /// Runs `with` on the ledgers and the numbers of their confirmed entries. Keep it short: the topic waits.
    pub fn with_extents<T>(&self, with: impl FnOnce(&Extents) -> T) -> T {
        with(&self.state.lock().extents)
    }

    /// The last confirmed entry, or the point before the first.
    #[must_use]
    pub fn last_confirmed(&self) -> Position {
        self.with_extents(Extents::end)
    }

    /// Entries after `after` from memory, at most `max_entries` and about `max_bytes`, but at least one if there is any.
    #[must_use]
    pub fn read_cached(&self, after: Position, max_entries: usize, max_bytes: usize) -> CachedRead {
        let state = self.state.lock();
        let Some(next) = state.extents.next(after) else { return CachedRead::NothingNew };
        let at = state.tail.partition_point(|entry| entry.position < next);
        if state.tail.get(at).map(|entry| entry.position) != Some(next) {
            return CachedRead::Cold(next);
        }
        let mut bytes = 0;
        let fits = |entry: &&LogEntry| {
            let first = bytes == 0;
            bytes += entry.payload.len().max(1);
            first || bytes <= max_bytes
        };
        CachedRead::Entries(state.tail.range(at..).take(max_entries.max(1)).take_while(fits).cloned().collect())
    }

    /// Entries from `first`, which exists, on; within its ledger; at least one. May take as long as bookies take.
    ///
    /// # Errors
    /// [`ManagedLedgerError::Ledger`] if the entry cannot be had; try again, or look at the bookies.
    pub async fn read(
        &self,
        first: Position,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<Vec<LogEntry>, ManagedLedgerError> {
        let (known, entries) = {
            let state = self.state.lock();
            (
                state.ledgers.get(&first.ledger).and_then(|of| of.metadata.clone()),
                state.extents.entries(first.ledger).unwrap_or(0),
            )
        };
        let metadata = match known {
            Some(metadata) => metadata,
            None => {
                let metadata = Arc::new(self.ledgers.get(first.ledger).await?.0);
                if let Some(of) = self.state.lock().ledgers.get_mut(&first.ledger) {
                    of.metadata = Some(Arc::clone(&metadata));
                }
                metadata
            }
        };
        let wanted = i64::try_from(max_entries.max(1)).unwrap_or(i64::MAX);
        let last = EntryId(first.entry.0.saturating_add(wanted - 1).min(entries - 1).max(first.entry.0));
        let reader = self.ledgers.reader(first.ledger, (*metadata).clone());
        let read = reader.read(first.entry, last, max_bytes).await?;
        let at = |entry| Position { ledger: first.ledger, entry };
        Ok(read.into_iter().map(|e| LogEntry { position: at(e.header.entry), payload: e.payload }).collect())
    }

    /// A ledger is written from now on, or its ensemble changed.
    pub(crate) fn set_ledger(&self, ledger: LedgerId, metadata: Arc<LedgerMetadata>) {
        let mut state = self.state.lock();
        let entries = state.extents.entries(ledger).unwrap_or(0);
        state.extents.set(ledger, entries);
        if state.ledgers.is_empty() {
            // Most topics have one.
            state.ledgers = LiteMap::with_capacity(1);
        }
        state.ledgers.entry(ledger).or_default().metadata = Some(metadata);
    }

    /// Ledgers left the topic.
    pub(crate) fn remove_ledgers(&self, ledgers: &[LedgerId]) {
        let mut state = self.state.lock();
        for ledger in ledgers {
            state.extents.remove(*ledger);
            state.ledgers.remove(ledger);
        }
        let State { tail, extents, .. } = &mut *state;
        while tail.front().is_some_and(|entry| extents.entries(entry.position.ledger).is_none()) {
            tail.pop_front();
        }
    }

    /// The end of a ledger is known: it has so many entries.
    pub(crate) fn set_entries(&self, ledger: LedgerId, entries: i64) {
        self.state.lock().extents.set(ledger, entries);
    }

    /// Entries of one ledger were confirmed, in order.
    pub(crate) fn confirmed(self: &Arc<Log>, entries: &mut Vec<LogEntry>) {
        let Some(last) = entries.last().map(|entry| entry.position) else { return };
        let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
        let kept = bytes + entries.len() * ENTRY_OVERHEAD;
        {
            let mut state = self.state.lock();
            state.ledgers.entry(last.ledger).or_default().bytes += bytes as u64;
            state.extents.set(last.ledger, last.entry.0 + 1);
            state.tail.extend(entries.drain(..));
        }
        self.cache.kept(self, last, kept);
    }

    pub(crate) fn evict(&self, through: Position) {
        let mut state = self.state.lock();
        while state.tail.front().is_some_and(|entry| entry.position <= through) {
            state.tail.pop_front();
        }
        if state.tail.is_empty() {
            state.tail.shrink_to_fit();
        }
    }
}
