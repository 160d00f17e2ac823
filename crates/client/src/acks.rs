//! Which messages are acknowledged, of entries that have several messages or messages that have several entries.

use std::collections::BTreeMap;

use geminga_model::Position;
use geminga_wire::{AckSet, MessageId as WireId};
use smallvec::{SmallVec, smallvec};

use crate::message::MessageId;

/// What is not acknowledged of one batch: bit `i % 64` of word `i / 64` is message `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Left {
    words: AckSet,
    size: i32,
}

impl Left {
    fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    fn clear(&mut self, index: i32) {
        let Ok(index) = usize::try_from(index) else { return };
        if let Some(word) = self.words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    fn clear_up_to(&mut self, index: i32) {
        for index in 0..=index.min(self.size - 1) {
            self.clear(index);
        }
    }

    /// The words as they are sent, without zeroes at the end.
    fn trimmed(&self) -> AckSet {
        let used = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        self.words.iter().take(used).copied().collect()
    }
}

/// A bitmap of `size` messages, none of them acknowledged.
fn full(size: i32) -> AckSet {
    let size = usize::try_from(size).unwrap_or(0);
    let word = |at: usize| if size - at * 64 >= 64 { -1 } else { ((1u64 << (size % 64)) - 1).cast_signed() };
    (0..size.div_ceil(64)).map(word).collect()
}

/// The acknowledgements of one consumer that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    batch_index: bool,
    batches: BTreeMap<Position, Left>,
    /// The entries of messages in chunks, by the last one.
    chunked: BTreeMap<Position, Vec<Position>>,
}

impl Acks {
    /// With `batch_index`, single messages of a batch are acknowledged.
    pub(crate) fn new(batch_index: bool) -> Acks {
        Acks { batch_index, ..Acks::default() }
    }

    /// A batch was delivered; of its `size` messages those in `left` are not acknowledged, all if it is empty.
    pub(crate) fn batch(&mut self, position: Position, size: i32, left: &[i64]) {
        let words = if left.is_empty() { full(size) } else { AckSet::from_slice(left) };
        self.batches.insert(position, Left { words, size });
    }

    /// A message in chunks was delivered.
    pub(crate) fn chunks(&mut self, entries: Vec<Position>) {
        if let Some(last) = entries.last() {
            self.chunked.insert(*last, entries);
        }
    }

    /// Everything will be delivered again.
    pub(crate) fn clear(&mut self) {
        self.batches.clear();
        self.chunked.clear();
    }

    /// What to tell the broker when this message is acknowledged; nothing if its entry has others left.
    pub(crate) fn individual(&mut self, id: &MessageId) -> SmallVec<[WireId; 1]> {
        if id.batch_index < 0 {
            return match self.chunked.remove(&id.position) {
                Some(entries) => entries.into_iter().map(WireId::of_entry).collect(),
                None => smallvec![WireId::of_entry(id.position)],
            };
        }
        let Some(left) = self.batches.get_mut(&id.position) else { return self.unknown(id) };
        left.clear(id.batch_index);
        if left.is_empty() {
            self.batches.remove(&id.position);
            return smallvec![WireId::of_entry(id.position)];
        }
        self.part(id.position)
    }

    /// What to tell the broker when everything up to this message is acknowledged; a position or a part of a batch.
    pub(crate) fn cumulative(&mut self, id: &MessageId) -> WireId {
        self.chunked = self.chunked.split_off(&id.position.next());
        if id.batch_index < 0 {
            self.batches = self.batches.split_off(&id.position.next());
            return WireId::of_entry(id.position);
        }
        self.batches = self.batches.split_off(&id.position);
        let left =
            self.batches.entry(id.position).or_insert_with(|| Left { words: full(id.batch_size), size: id.batch_size });
        left.clear_up_to(id.batch_index);
        if left.is_empty() {
            self.batches.remove(&id.position);
            return WireId::of_entry(id.position);
        }
        // Without parts of batches, all that is known to be done with is what comes before.
        let before = Position { entry: id.position.entry.previous(), ..id.position };
        self.part(id.position).pop().unwrap_or_else(|| WireId::of_entry(before))
    }

    fn part(&self, position: Position) -> SmallVec<[WireId; 1]> {
        let left = self.batches.get(&position).filter(|_| self.batch_index);
        left.map(|left| WireId { ack_set: left.trimmed(), batch_size: Some(left.size), ..WireId::of_entry(position) })
            .into_iter()
            .collect()
    }

    /// A message of a batch that was delivered before the connection was lost: it can be said alone, or not at all.
    fn unknown(&self, id: &MessageId) -> SmallVec<[WireId; 1]> {
        let mut left = Left { words: full(id.batch_size), size: id.batch_size };
        left.clear(id.batch_index);
        if left.is_empty() {
            return smallvec![WireId::of_entry(id.position)];
        }
        if !self.batch_index {
            return SmallVec::new();
        }
        smallvec![WireId { ack_set: left.trimmed(), batch_size: Some(id.batch_size), ..WireId::of_entry(id.position) }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT: Position = Position::new(3, 5);

    fn id(batch_index: i32, batch_size: i32) -> MessageId {
        MessageId { batch_index, batch_size, ..MessageId::of_entry(AT, -1) }
    }

    fn words(ids: &[WireId]) -> Vec<Vec<i64>> {
        ids.iter().map(|id| id.ack_set.to_vec()).collect()
    }

    #[test]
    fn an_entry_is_acknowledged_when_all_its_messages_are() {
        let mut acks = Acks::new(false);
        acks.batch(AT, 3, &[]);
        assert!(acks.individual(&id(0, 3)).is_empty());
        assert!(acks.individual(&id(2, 3)).is_empty());
        assert!(acks.individual(&id(2, 3)).is_empty());
        assert_eq!(acks.individual(&id(1, 3)).as_slice(), [WireId::of_entry(AT)]);

        acks.batch(AT, 3, &[0b100]);
        assert_eq!(acks.individual(&id(2, 3)).as_slice(), [WireId::of_entry(AT)]);
        assert_eq!(acks.individual(&id(-1, 0)).as_slice(), [WireId::of_entry(AT)]);
    }

    #[test]
    fn parts_of_batches() {
        let mut acks = Acks::new(true);
        acks.batch(AT, 70, &[]);
        assert_eq!(words(&acks.individual(&id(1, 70))), [vec![!0b10, 0b11_1111]]);
        assert_eq!(acks.cumulative(&id(63, 70)).ack_set.as_slice(), [0, 0b11_1111]);
        assert_eq!(acks.cumulative(&id(69, 70)), WireId::of_entry(AT));
        // Of a batch that is no longer known.
        assert_eq!(words(&acks.individual(&id(0, 2))), [vec![0b10]]);
        assert!(Acks::new(false).individual(&id(0, 2)).is_empty());
    }

    #[test]
    fn cumulative_without_parts_takes_the_entry_before() {
        let mut acks = Acks::new(false);
        acks.batch(Position::new(3, 4), 2, &[]);
        acks.batch(AT, 2, &[]);
        assert_eq!(acks.cumulative(&id(0, 2)).position, Position::new(3, 4));
        assert_eq!(acks.batches.len(), 1);
        assert_eq!(acks.cumulative(&id(1, 2)).position, AT);
        assert!(acks.batches.is_empty());
    }

    #[test]
    fn all_chunks_are_acknowledged() {
        let mut acks = Acks::new(false);
        let entries = [Position::new(3, 1), Position::new(3, 3), AT];
        acks.chunks(entries.to_vec());
        let said: Vec<Position> = acks.individual(&id(-1, 0)).iter().map(|id| id.position).collect();
        assert_eq!(said, entries);
    }

    proptest! {
        #[test]
        fn every_order_completes_a_batch_once(size in 1i32..200, seed: u64) {
            let mut order: Vec<i32> = (0..size).collect();
            order.sort_by_key(|index| seed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(index.cast_unsigned() % 64) ^ u64::from(index.cast_unsigned()));
            let mut acks = Acks::new(false);
            acks.batch(AT, size, &[]);
            let said: Vec<usize> = order.iter().map(|index| acks.individual(&id(*index, size)).len()).collect();
            prop_assert_eq!(said.iter().sum::<usize>(), 1);
            prop_assert_eq!(said.last(), Some(&1));
        }
    }
}
