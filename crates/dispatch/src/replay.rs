//! Entries that were read before and are to be delivered, in order, also by the slot of their key.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use geminga_model::{EntryId, LedgerId, Position};

/// The least position there is, to begin a range with.
const FIRST: Position = Position { ledger: LedgerId(i64::MIN), entry: EntryId(i64::MIN) };

#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    slots: BTreeMap<Position, u32>,
    by_slot: BTreeSet<(u32, Position)>,
}

impl Replay {
    pub(crate) fn insert(&mut self, position: Position, slot: u32) {
        if let Some(before) = self.slots.insert(position, slot) {
            self.by_slot.remove(&(before, position));
        }
        self.by_slot.insert((slot, position));
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, position: Position) -> bool {
        match self.slots.remove(&position) {
            Some(slot) => self.by_slot.remove(&(slot, position)),
            None => false,
        }
    }

    pub(crate) fn remove_through(&mut self, position: Position) {
        let kept = self.slots.split_off(&position.next());
        for (position, slot) in std::mem::replace(&mut self.slots, kept) {
            self.by_slot.remove(&(slot, position));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.by_slot.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Position, u32)> + '_ {
        self.slots.iter().map(|(position, slot)| (*position, *slot))
    }

    /// The first entries.
    pub(crate) fn first(&self, most: usize) -> Vec<Position> {
        self.slots.keys().take(most).copied().collect()
    }

    /// The first entry of a slot.
    pub(crate) fn first_of(&self, slot: u32) -> Option<Position> {
        let of_slot = (Bound::Included((slot, FIRST)), Bound::Unbounded);
        self.by_slot.range(of_slot).next().filter(|(of, _)| *of == slot).map(|(_, position)| *position)
    }

    /// The first entries of those slots that `may` go on, in order.
    pub(crate) fn of_slots(&self, most: usize, may: impl Fn(u32) -> bool) -> Vec<Position> {
        let mut known: BTreeMap<u32, bool> = BTreeMap::new();
        let goes_on = |slot: u32| *known.entry(slot).or_insert_with(|| may(slot));
        let mut goes_on = goes_on;
        self.iter().filter(|(_, slot)| goes_on(*slot)).map(|(position, _)| position).take(most).collect()
    }
}
