//! The acknowledgement state of one subscription.

use std::collections::BTreeMap;

use geminga_model::{EntryId, LedgerId, Position};
use geminga_records::{AckedRange, BatchSet, CursorProperty, PositionInfo};
use roaring::RoaringBitmap;

use crate::batch::UnackedSet;
use crate::extents::Extents;

/// Ranges written in the form that every Pulsar version reads; a state with more is written as bitmaps.
const MAX_RANGES: usize = 10_000;

/// What is acked: everything up to `mark_delete`, and beyond it single entries and parts of batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    mark_delete: Position,
    acked: BTreeMap<LedgerId, RoaringBitmap>,
    batches: BTreeMap<Position, UnackedSet>,
    properties: Vec<CursorProperty>,
    /// Counts changes, so that a driver knows whether what it stored is still all there is.
    revision: u64,
}

impl Cursor {
    /// A cursor that has acked everything up to `mark_delete` and nothing beyond.
    #[must_use]
    pub fn at(mark_delete: Position) -> Cursor {
        Cursor { mark_delete, acked: BTreeMap::new(), batches: BTreeMap::new(), properties: Vec::new(), revision: 0 }
    }

    /// The cursor that was stored, fitted to the topic as it is now: what was acked in ledgers that are gone is
    /// forgotten, and a mark-delete position outside the topic moves to its nearest end.
    #[must_use]
    pub fn restore(stored: &PositionInfo, extents: &Extents) -> Cursor {
        let mut cursor = Cursor::at(stored.mark_delete.clamp(extents.start(), extents.end().max(extents.start())));
        cursor.properties.clone_from(&stored.properties);
        for AckedRange { lower, upper } in &stored.acked {
            cursor.insert_range(*lower, *upper, extents);
        }
        if stored.acked.is_empty() {
            for (ledger, words) in &stored.acked_bitmaps {
                for entry in set_bits(words) {
                    cursor.insert(Position { ledger: *ledger, entry }, extents);
                }
            }
        }
        for BatchSet { position, unacked } in &stored.batch_sets {
            let set = UnackedSet::from_words(unacked);
            if *position > cursor.mark_delete && extents.entries(position.ledger).is_some() && !set.is_empty() {
                cursor.batches.insert(*position, set);
            }
        }
        cursor.advance(extents);
        cursor.revision = 0;
        cursor
    }

    /// Everything up to here is acked.
    #[must_use]
    pub fn mark_delete(&self) -> Position {
        self.mark_delete
    }

    /// Grows by at least one with every change of what is acked.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether the whole entry is acked.
    #[must_use]
    pub fn is_acked(&self, position: Position) -> bool {
        position <= self.mark_delete
            || u32::try_from(position.entry.0)
                .is_ok_and(|entry| self.acked.get(&position.ledger).is_some_and(|acked| acked.contains(entry)))
    }

    /// What is left of a batch that is acked in part; `None` for an entry of which nothing, or everything, is acked.
    #[must_use]
    pub fn unacked_of(&self, position: Position) -> Option<&UnackedSet> {
        self.batches.get(&position)
    }

    /// Acks whole entries. Positions outside the topic are ignored.
    pub fn ack(&mut self, positions: impl IntoIterator<Item = Position>, extents: &Extents) {
        for position in positions {
            self.insert(position, extents);
        }
        self.advance(extents);
    }

    /// Acks a part of a batch: `unacked` is what the client still holds. Sets of several acks are combined.
    pub fn ack_in_batch(&mut self, position: Position, unacked: &UnackedSet, extents: &Extents) {
        if self.is_acked(position) || !exists(position, extents) {
            return;
        }
        let left = self.batches.get(&position).map_or_else(|| unacked.clone(), |before| before.and(unacked));
        if left.is_empty() {
            self.insert(position, extents);
            self.advance(extents);
        } else if self.batches.get(&position) != Some(&left) {
            self.batches.insert(position, left);
            self.revision += 1;
        }
    }

    /// Acks everything up to and including `position`, or up to the end of the topic if that is earlier.
    pub fn ack_cumulative(&mut self, position: Position, extents: &Extents) {
        let position = position.min(extents.end());
        if position > self.mark_delete {
            self.set_mark_delete(position);
            self.advance(extents);
        }
    }

    /// Forgets everything and continues after `mark_delete`: a seek. Properties stay.
    pub fn reset(&mut self, mark_delete: Position) {
        self.mark_delete = mark_delete;
        self.acked.clear();
        self.batches.clear();
        self.revision += 1;
    }

    /// Entries after the mark-delete position that are not wholly acked.
    #[must_use]
    pub fn backlog(&self, extents: &Extents) -> u64 {
        let holes: u64 = self.acked.values().map(RoaringBitmap::len).sum();
        extents.count(self.mark_delete, extents.end()).saturating_sub(holes)
    }

    /// The `n`th entry, from 1, after the mark-delete position that is not wholly acked; `None` if there are fewer.
    #[must_use]
    pub fn nth_unacked(&self, n: u64, extents: &Extents) -> Option<Position> {
        let mut left = i64::try_from(n).ok()?.max(1);
        for (ledger, entries) in extents.iter().filter(|(ledger, _)| *ledger >= self.mark_delete.ledger) {
            let first = if ledger == self.mark_delete.ledger { self.mark_delete.entry.0.saturating_add(1) } else { 0 };
            let acked = self.acked.get(&ledger);
            let unacked_through = |entry: i64| {
                let rank = acked.map_or(0, |acked| acked.rank(u32::try_from(entry).unwrap_or(u32::MAX)));
                entry - first + 1 - i64::try_from(rank).unwrap_or(i64::MAX)
            };
            let unacked = if entries > first { unacked_through(entries - 1) } else { 0 };
            if unacked < left {
                left -= unacked;
                continue;
            }
            let (mut low, mut high) = (first, entries - 1);
            while low < high {
                let middle = low + (high - low) / 2;
                if unacked_through(middle) < left {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            return Some(Position { ledger, entry: EntryId(low) });
        }
        None
    }

    /// Acked entries beyond the mark-delete position.
    #[must_use]
    pub fn acked_beyond(&self) -> u64 {
        self.acked.values().map(RoaringBitmap::len).sum()
    }

    /// The state to store: all of it.
    #[must_use]
    pub fn snapshot(&self) -> PositionInfo {
        let mut info = PositionInfo::at(self.mark_delete);
        info.properties.clone_from(&self.properties);
        info.batch_sets = (self.batches.iter())
            .map(|(position, set)| BatchSet { position: *position, unacked: set.words() })
            .collect();
        let ranges: Vec<AckedRange> = self.ranges().take(MAX_RANGES + 1).collect();
        if ranges.len() <= MAX_RANGES {
            info.acked = ranges;
        } else {
            info.acked_bitmaps = self.acked.iter().map(|(ledger, acked)| (*ledger, words(acked))).collect();
        }
        info
    }

    fn ranges(&self) -> impl Iterator<Item = AckedRange> + '_ {
        self.acked.iter().flat_map(|(ledger, acked)| {
            let position = |entry: i64| Position { ledger: *ledger, entry: EntryId(entry) };
            let mut entries = acked.iter().map(i64::from).peekable();
            std::iter::from_fn(move || {
                let first = entries.next()?;
                let mut last = first;
                while entries.next_if(|entry| *entry == last + 1).is_some() {
                    last += 1;
                }
                Some(AckedRange { lower: position(first - 1), upper: position(last) })
            })
        })
    }

    fn insert(&mut self, position: Position, extents: &Extents) {
        if self.is_acked(position) || !exists(position, extents) {
            return;
        }
        if let Ok(entry) = u32::try_from(position.entry.0) {
            self.acked.entry(position.ledger).or_default().insert(entry);
            self.batches.remove(&position);
            self.revision += 1;
        }
    }

    /// A range may reach over several ledgers, as Java writes it.
    fn insert_range(&mut self, lower: Position, upper: Position, extents: &Extents) {
        let ledgers: Vec<(LedgerId, i64)> =
            extents.iter().filter(|(ledger, _)| (lower.ledger..=upper.ledger).contains(ledger)).collect();
        for (ledger, entries) in ledgers {
            let first = if ledger == lower.ledger { lower.entry.0.saturating_add(1).max(0) } else { 0 };
            let end = if ledger == upper.ledger { upper.entry.0.saturating_add(1).min(entries) } else { entries };
            for entry in first..end {
                self.insert(Position { ledger, entry: EntryId(entry) }, extents);
            }
        }
    }

    /// Moves the mark-delete position over what is acked without a gap.
    fn advance(&mut self, extents: &Extents) {
        let mut reached = self.mark_delete;
        while let Some(next) = extents.next(reached) {
            if !self.is_acked(next) {
                break;
            }
            reached = next;
        }
        if reached > self.mark_delete {
            self.set_mark_delete(reached);
        }
    }

    fn set_mark_delete(&mut self, position: Position) {
        self.mark_delete = position;
        self.acked = self.acked.split_off(&position.ledger);
        if let Some(acked) = self.acked.get_mut(&position.ledger) {
            if let Ok(entry) = u32::try_from(position.entry.0) {
                acked.remove_range(..=entry);
            }
            if acked.is_empty() {
                self.acked.remove(&position.ledger);
            }
        }
        self.batches = self.batches.split_off(&position.next());
        self.revision += 1;
    }
}

fn exists(position: Position, extents: &Extents) -> bool {
    position.entry >= EntryId(0) && extents.entries(position.ledger).is_some_and(|entries| position.entry.0 < entries)
}

fn set_bits(words: &[i64]) -> impl Iterator<Item = EntryId> + '_ {
    (0i64..).zip(words).flat_map(|(word, bits)| {
        (0i64..64).filter(move |bit| bits.cast_unsigned() >> bit & 1 == 1).map(move |bit| EntryId(word * 64 + bit))
    })
}

fn words(acked: &RoaringBitmap) -> Vec<i64> {
    let len = acked.max().map_or(0, |max| max as usize / 64 + 1);
    let mut words = vec![0u64; len];
    for entry in acked {
        if let Some(word) = words.get_mut(entry as usize / 64) {
            *word |= 1 << (entry % 64);
        }
    }
    words.into_iter().map(u64::cast_signed).collect()
}

#[cfg(test)]
#[path = "cursor_tests.rs"]
mod tests;
