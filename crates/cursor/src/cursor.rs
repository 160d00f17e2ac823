//! The acknowledgement state of one subscription.

use std::collections::BTreeMap;

use geminga_model::{EntryId, LedgerId, Position};
use geminga_records::CursorProperty;
use roaring::RoaringBitmap;

use crate::batch::UnackedSet;
use crate::changes::Changes;
use crate::extents::Extents;

/// Entries whose redelivery counts are kept. Of more, those with the highest positions begin again at 0.
const MOST_COUNTED: usize = 50_000;

/// What is acked: everything up to `mark_delete`, and beyond it single entries and parts of batches. And how often
/// entries that are not acked were asked to be delivered again.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    pub(crate) mark_delete: Position,
    pub(crate) acked: BTreeMap<LedgerId, RoaringBitmap>,
    pub(crate) batches: BTreeMap<Position, UnackedSet>,
    pub(crate) redeliveries: BTreeMap<Position, u32>,
    pub(crate) properties: Vec<CursorProperty>,
    pub(crate) changes: Changes,
    /// Counts changes, so that a driver knows whether what it stored is still all there is.
    pub(crate) revision: u64,
}

impl Cursor {
    /// A cursor that has acked everything up to `mark_delete` and nothing beyond.
    #[must_use]
    pub fn at(mark_delete: Position) -> Cursor {
        Cursor {
            mark_delete: sound(mark_delete),
            acked: BTreeMap::new(),
            batches: BTreeMap::new(),
            redeliveries: BTreeMap::new(),
            properties: Vec::new(),
            changes: Changes::unsaved(),
            revision: 0,
        }
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
            self.changes.in_batch(position);
            self.revision += 1;
        }
    }

    /// Acks everything up to and including `position`, or up to the end of the topic if that is earlier.
    pub fn ack_cumulative(&mut self, position: Position, extents: &Extents) {
        let position = sound(position).min(extents.end());
        if position > self.mark_delete {
            self.set_mark_delete(position);
            self.advance(extents);
        }
    }

    /// Forgets everything and continues after `mark_delete`: a seek. Properties stay.
    pub fn reset(&mut self, mark_delete: Position) {
        self.mark_delete = sound(mark_delete);
        self.acked.clear();
        self.batches.clear();
        self.redeliveries.clear();
        self.changes.forget();
        self.revision += 1;
    }

    /// Counts that entries were asked to be delivered again. Acked ones are not counted.
    pub fn redelivered(&mut self, positions: impl IntoIterator<Item = Position>) {
        for position in positions {
            if self.is_acked(position) {
                continue;
            }
            let count = self.redelivery_count(position).saturating_add(1);
            if self.set_redeliveries(position, count) {
                self.changes.redelivered(position);
                self.revision += 1;
            }
        }
    }

    /// How often an entry was asked to be delivered again.
    #[must_use]
    pub fn redelivery_count(&self, position: Position) -> u32 {
        self.redeliveries.get(&position).copied().unwrap_or(0)
    }

    /// Whether there is room for it.
    pub(crate) fn set_redeliveries(&mut self, position: Position, count: u32) -> bool {
        self.redeliveries.insert(position, count);
        if self.redeliveries.len() <= MOST_COUNTED {
            return true;
        }
        self.redeliveries.pop_last().is_none_or(|(dropped, _)| dropped != position)
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

    pub(crate) fn insert(&mut self, position: Position, extents: &Extents) {
        if self.is_acked(position) || !exists(position, extents) {
            return;
        }
        if let Ok(entry) = u32::try_from(position.entry.0) {
            self.acked.entry(position.ledger).or_default().insert(entry);
            self.batches.remove(&position);
            self.redeliveries.remove(&position);
            self.changes.acked(position);
            self.revision += 1;
        }
    }

    /// Moves the mark-delete position over what is acked without a gap.
    pub(crate) fn advance(&mut self, extents: &Extents) {
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
        if !self.redeliveries.is_empty() {
            self.redeliveries = self.redeliveries.split_off(&position.next());
        }
        self.revision += 1;
    }
}

/// A position as clients send it or as it was stored: below the first entry there is one point, not many.
fn sound(position: Position) -> Position {
    Position { entry: position.entry.max(EntryId::NONE), ..position }
}

fn exists(position: Position, extents: &Extents) -> bool {
    position.entry >= EntryId(0) && extents.entries(position.ledger).is_some_and(|entries| position.entry.0 < entries)
}

#[cfg(test)]
#[path = "cursor_tests.rs"]
mod tests;
