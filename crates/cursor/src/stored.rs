//! A cursor as it is stored: from a state to plain fields and a body, and back.

use geminga_model::{EntryId, LedgerId, Position};
use geminga_records::{AckedRange, Added, BatchSet, PositionInfo, Run, bitmap_word_len};
use roaring::RoaringBitmap;

use crate::batch::UnackedSet;
use crate::cursor::Cursor;
use crate::extents::Extents;

/// Ranges written in the form that every Pulsar version reads; a state with more is written as bitmaps.
const MAX_RANGES: usize = 10_000;
/// What a ledger takes in the bitmap form beside its words, at most.
const BITMAP_LEN: usize = 20;

impl Cursor {
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
        cursor.restore_batches(&stored.batch_sets, extents);
        cursor.advance(extents);
        cursor.revision = 0;
        cursor
    }

    /// Takes over what a stored body says.
    pub(crate) fn add(&mut self, added: &Added, extents: &Extents) {
        for (ledger, runs) in &added.acked {
            let position = |entry: i64| Position { ledger: *ledger, entry: EntryId(entry) };
            for Run { first, last } in runs {
                self.insert_range(position(i64::from(*first) - 1), position((*last).into()), extents);
            }
        }
        self.restore_batches(&added.batch_sets, extents);
        for (position, count) in &added.redeliveries {
            if !self.is_acked(*position) && extents.entries(position.ledger).is_some() {
                self.set_redeliveries(*position, *count);
            }
        }
        self.advance(extents);
    }

    fn restore_batches(&mut self, batch_sets: &[BatchSet], extents: &Extents) {
        for BatchSet { position, unacked } in batch_sets {
            let set = UnackedSet::from_words(unacked);
            if !self.is_acked(*position) && extents.entries(position.ledger).is_some() && !set.is_empty() {
                self.batches.insert(*position, set);
            }
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

    /// From now on it is known what changed since the last save. The first save is of the whole state.
    pub fn keep_changes(&mut self) {
        self.changes.keep();
    }

    /// About the bytes that a save of what changed takes.
    #[must_use]
    pub fn unsaved_bytes(&self) -> usize {
        self.changes.len() * 16
    }

    /// What changed since this was last asked; `None` if the whole state has to be saved.
    pub(crate) fn take_changes(&mut self) -> Option<Added> {
        let changes = self.changes.take()?;
        let beyond = |position: &&Position| **position > self.mark_delete && self.is_acked(**position);
        let acked = changes.acked.iter().filter(beyond);
        let batch_set = |position: &Position| {
            let unacked = self.batches.get(position)?.words();
            Some(BatchSet { position: *position, unacked })
        };
        let count = |position: &Position| Some((*position, *self.redeliveries.get(position)?));
        Some(Added {
            acked: runs_of(acked.copied()),
            batch_sets: changes.batches.iter().filter_map(batch_set).collect(),
            redeliveries: changes.redelivered.iter().filter_map(count).collect(),
        })
    }

    /// The state that every broker reads, all of it.
    #[must_use]
    pub fn snapshot(&self) -> PositionInfo {
        self.plain(usize::MAX, self.is_ragged()).0
    }

    /// How often entries were asked to be delivered again, by position.
    #[must_use]
    pub fn redeliveries(&self) -> Vec<(Position, u32)> {
        self.redeliveries.iter().map(|(position, count)| (*position, *count)).collect()
    }

    /// Whether it has more ranges than are written as such.
    pub(crate) fn is_ragged(&self) -> bool {
        self.has_ranges(MAX_RANGES + 1)
    }

    /// Whether it has so many ranges, or more.
    #[must_use]
    pub fn has_ranges(&self, count: usize) -> bool {
        count == 0 || self.ranges().nth(count - 1).is_some()
    }

    /// How many ranges it has beyond the mark-delete position.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges().count()
    }

    /// How many entries have a redelivery count.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.redeliveries.len()
    }

    /// Whether batches are acked in part.
    #[must_use]
    pub fn has_batches(&self) -> bool {
        !self.batches.is_empty()
    }

    /// The state without anything acked beyond the mark-delete position.
    pub(crate) fn head(&self) -> PositionInfo {
        let mut info = PositionInfo::at(self.mark_delete);
        info.properties.clone_from(&self.properties);
        info
    }

    /// Bytes that the head takes in an entry, at most.
    pub(crate) fn head_len(&self) -> usize {
        let properties: usize = self.properties.iter().map(|(name, _)| name.len() + 24).sum();
        22 + properties
    }

    /// The state that every broker reads: what is lowest, as far as it fits `room` bytes beside the head. What is not
    /// there begins at the position.
    pub(crate) fn plain(&self, room: usize, as_bitmaps: bool) -> (PositionInfo, Option<Position>) {
        let mut info = self.head();
        let mut left = room;
        let mut batches = self.batches.iter().map(|(position, set)| (*position, set)).peekable();
        // Takes what fits; the position is that of the first that does not.
        let mut take_batches = |before: Position, left: &mut usize, info: &mut PositionInfo| {
            while let Some((position, set)) = batches.next_if(|(position, _)| *position < before) {
                let set = BatchSet { position, unacked: set.words() };
                let Some(after) = left.checked_sub(set.encoded_len()) else { return Some(position) };
                *left = after;
                info.batch_sets.push(set);
            }
            None
        };
        let units: &mut dyn Iterator<Item = Unit> =
            if as_bitmaps { &mut self.words() } else { &mut self.ranges().map(Unit::Range) };
        for unit in units {
            let (first, len) = match &unit {
                Unit::Range(range) => (range.lower.next(), range.encoded_len()),
                Unit::Word(first, word) => {
                    let is_same = info.acked_bitmaps.last().is_some_and(|(ledger, _)| *ledger == first.ledger);
                    (*first, bitmap_word_len(*word) + if is_same { 0 } else { BITMAP_LEN })
                }
            };
            if let Some(rest) = take_batches(first, &mut left, &mut info) {
                return (info, Some(rest));
            }
            let Some(after) = left.checked_sub(len) else { return (info, Some(first)) };
            left = after;
            match unit {
                Unit::Range(range) => info.acked.push(range),
                Unit::Word(first, word) => match info.acked_bitmaps.last_mut() {
                    Some((ledger, words)) if *ledger == first.ledger => words.push(word),
                    _ => info.acked_bitmaps.push((first.ledger, vec![word])),
                },
            }
        }
        let rest = take_batches(Position::LATEST, &mut left, &mut info);
        (info, rest)
    }

    /// What is acked from `first` on, and every redelivery count.
    pub(crate) fn rest(&self, first: Option<Position>) -> Added {
        let redeliveries = self.redeliveries();
        let Some(first) = first else { return Added { redeliveries, ..Added::default() } };
        let mut acked = Vec::new();
        for (ledger, bitmap) in self.acked.range(first.ledger..) {
            let from = if *ledger == first.ledger { u32::try_from(first.entry.0).unwrap_or(0) } else { 0 };
            let mut entries = bitmap.range(from..);
            let runs: Vec<Run> = std::iter::from_fn(|| entries.next_range())
                .map(|run| Run { first: *run.start(), last: *run.end() })
                .collect();
            if !runs.is_empty() {
                acked.push((*ledger, runs));
            }
        }
        let set = |(position, set): (&Position, &UnackedSet)| BatchSet { position: *position, unacked: set.words() };
        Added { acked, batch_sets: self.batches.range(first..).map(set).collect(), redeliveries }
    }

    fn ranges(&self) -> impl Iterator<Item = AckedRange> + '_ {
        self.acked.iter().flat_map(|(ledger, acked)| {
            let position = |entry: i64| Position { ledger: *ledger, entry: EntryId(entry) };
            let mut entries = acked.iter();
            std::iter::from_fn(move || {
                let run = entries.next_range()?;
                Some(AckedRange { lower: position(i64::from(*run.start()) - 1), upper: position((*run.end()).into()) })
            })
        })
    }

    /// The words of the bitmap form, from each ledger's first.
    fn words(&self) -> impl Iterator<Item = Unit> + '_ {
        self.acked.iter().flat_map(|(ledger, acked)| {
            let count = acked.max().map_or(0, |max| max / 64 + 1);
            let mut entries = acked.iter().peekable();
            (0..count).map(move |index| {
                let mut word = 0_u64;
                while let Some(entry) = entries.next_if(|entry| entry / 64 == index) {
                    word |= 1 << (entry % 64);
                }
                Unit::Word(Position { ledger: *ledger, entry: EntryId(i64::from(index) * 64) }, word.cast_signed())
            })
        })
    }
}

/// What the plain fields are made of.
enum Unit {
    Range(AckedRange),
    /// A word of a bitmap, from this entry on.
    Word(Position, i64),
}

fn set_bits(words: &[i64]) -> impl Iterator<Item = EntryId> + '_ {
    (0i64..).zip(words).flat_map(|(word, bits)| {
        (0i64..64).filter(move |bit| bits.cast_unsigned() >> bit & 1 == 1).map(move |bit| EntryId(word * 64 + bit))
    })
}

/// Positions in order, as runs.
fn runs_of(positions: impl Iterator<Item = Position>) -> Vec<(LedgerId, Vec<Run>)> {
    let mut ledgers: Vec<(LedgerId, RoaringBitmap)> = Vec::new();
    for position in positions {
        let Ok(entry) = u32::try_from(position.entry.0) else { continue };
        match ledgers.last_mut() {
            Some((ledger, entries)) if *ledger == position.ledger => drop(entries.insert(entry)),
            _ => ledgers.push((position.ledger, RoaringBitmap::from_iter([entry]))),
        }
    }
    let runs = |entries: RoaringBitmap| {
        let mut entries = entries.iter();
        std::iter::from_fn(|| entries.next_range()).map(|run| Run { first: *run.start(), last: *run.end() }).collect()
    };
    ledgers.into_iter().map(|(ledger, entries)| (ledger, runs(entries))).collect()
}
