//! What is stored of a subscription: the cursor's node, and the entries of its cursor ledger, as Pulsar knows them.
//!
//! Facts: `ManagedCursorInfo` and `PositionInfo` of Pulsar's `MLDataFormats.proto`. An acked range is open at its lower
//! end. A batch set has bit 1 for what is still unacked. What we add to them is in `cursor_extension`.

use geminga_model::{EntryId, LedgerId, Position};

use crate::RecordError;
use crate::cursor_extension::{EXTENSION, Extension};
use crate::managed_ledger::{COMPRESSED_MAGIC, read_position, read_text_pair, write_position};
use crate::protobuf::{Field, Writer, message_len, read, varint_len};

/// Entries acked out of order: those after `lower` up to and including `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckedRange {
    /// The position before the first acked entry.
    pub lower: Position,
    /// The last acked entry.
    pub upper: Position,
}

impl AckedRange {
    /// Bytes that it takes in an entry.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        message_len(message_len(position_len(self.lower)) + message_len(position_len(self.upper)))
    }
}

/// A batch of which a part is acked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSet {
    /// The entry.
    pub position: Position,
    /// Bit i of word i/64 is 1 if message i is not acked.
    pub unacked: Vec<i64>,
}

impl BatchSet {
    /// Bytes that it takes in an entry.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let words: usize = self.unacked.iter().map(|word| 1 + varint_len(word.cast_unsigned())).sum();
        message_len(message_len(position_len(self.position)) + words)
    }
}

/// Bytes that a word of an acked bitmap takes in an entry.
#[must_use]
pub fn bitmap_word_len(word: i64) -> usize {
    1 + varint_len(word.cast_unsigned())
}

/// A named number kept with the mark-delete position.
pub type CursorProperty = (String, i64);

/// An entry of a cursor ledger, as every Pulsar broker reads it: a state of the cursor. Nothing that it says is acked is
/// not acked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionInfo {
    /// Everything up to here is acked.
    pub mark_delete: Position,
    /// Acked beyond it, in the range form.
    pub acked: Vec<AckedRange>,
    /// Acked beyond it, in the bitmap form: per ledger, bit i of word w is entry 64·w+i. Read when `acked` is empty.
    pub acked_bitmaps: Vec<(LedgerId, Vec<i64>)>,
    /// Numbers kept with the position.
    pub properties: Vec<CursorProperty>,
    /// Batches acked in part.
    pub batch_sets: Vec<BatchSet>,
}

impl PositionInfo {
    /// A state without anything acked beyond `mark_delete`.
    #[must_use]
    pub fn at(mark_delete: Position) -> PositionInfo {
        PositionInfo { mark_delete, acked: vec![], acked_bitmaps: vec![], properties: vec![], batch_sets: vec![] }
    }

    /// What is acked beyond `mark_delete`, as ranges, whichever form it is in.
    #[must_use]
    pub fn acked_ranges(&self) -> Vec<AckedRange> {
        if !self.acked.is_empty() {
            return self.acked.clone();
        }
        self.acked_bitmaps.iter().flat_map(|(ledger, words)| ranges_of(*ledger, words)).collect()
    }

    /// Writes the entry's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with(None)
    }

    /// Writes the entry's bytes, with what only we read behind them.
    #[must_use]
    pub fn encode_with(&self, extension: Option<&Extension>) -> Vec<u8> {
        let mut entry = Writer::default();
        write_position(&mut entry, self.mark_delete);
        for range in &self.acked {
            entry.message(3, |out| write_range(out, *range));
        }
        for (name, value) in &self.properties {
            entry.message(4, |out| write_number(out, name, *value));
        }
        for set in &self.batch_sets {
            entry.message(5, |out| write_batch_set(out, set));
        }
        for (ledger, words) in &self.acked_bitmaps {
            entry.message(6, |out| {
                out.int(1, ledger.0);
                words.iter().for_each(|word| out.int(2, *word));
            });
        }
        if let Some(extension) = extension {
            entry.message(EXTENSION, |out| extension.write(out));
        }
        entry.0
    }

    /// Reads what every broker reads of an entry's bytes.
    ///
    /// # Errors
    /// [`RecordError`] if they are not a cursor's state.
    pub fn decode(entry: &[u8]) -> Result<PositionInfo, RecordError> {
        let mut info = PositionInfo::at(read_position(entry)?);
        read(entry, |field| {
            match field.number {
                3 => info.acked.push(read_range(field)?),
                4 => info.properties.push(read_number(field)?),
                5 => info.batch_sets.push(read_batch_set(field)?),
                6 => info.acked_bitmaps.push(read_bitmap(field)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(info)
    }
}

/// The value of a cursor's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedCursorInfo {
    /// The cursor ledger whose last entry is the state; [`LedgerId::NONE`] if the state is here.
    pub cursor_ledger: LedgerId,
    /// The mark-delete position when the node was written; absent only in nodes that were never completed.
    pub mark_delete: Option<Position>,
    /// As in [`PositionInfo`], only with `cursor_ledger` −1.
    pub acked: Vec<AckedRange>,
    /// Numbers kept with the position.
    pub properties: Vec<CursorProperty>,
    /// Batches acked in part.
    pub batch_sets: Vec<BatchSet>,
    /// The subscription's properties.
    pub cursor_properties: Vec<(String, String)>,
    /// How often entries were asked to be delivered again, only with `cursor_ledger` −1. Only we read it.
    pub redeliveries: Vec<(Position, u32)>,
    /// Fields this version does not know, kept as they are.
    pub unknown: Vec<u8>,
}

impl ManagedCursorInfo {
    /// A cursor without a ledger of its own, at `mark_delete`.
    #[must_use]
    pub fn at(mark_delete: Position) -> ManagedCursorInfo {
        ManagedCursorInfo {
            cursor_ledger: LedgerId::NONE,
            mark_delete: Some(mark_delete),
            acked: vec![],
            properties: vec![],
            batch_sets: vec![],
            cursor_properties: vec![],
            redeliveries: vec![],
            unknown: vec![],
        }
    }

    /// Writes the node's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut node = Writer::default();
        node.int(1, self.cursor_ledger.0);
        node.some_int(2, self.mark_delete.map(|position| position.ledger.0));
        node.some_int(3, self.mark_delete.map(|position| position.entry.0));
        for range in &self.acked {
            node.message(4, |out| write_range(out, *range));
        }
        for (name, value) in &self.properties {
            node.message(5, |out| write_number(out, name, *value));
        }
        for set in &self.batch_sets {
            node.message(7, |out| write_batch_set(out, set));
        }
        for (name, value) in &self.cursor_properties {
            node.message(8, |out| {
                out.bytes(1, name.as_bytes());
                out.bytes(2, value.as_bytes());
            });
        }
        if !self.redeliveries.is_empty() {
            node.message(EXTENSION, |out| Extension::of_node(&self.redeliveries).write(out));
        }
        node.raw(&self.unknown);
        node.0
    }

    /// Reads a node's bytes.
    ///
    /// # Errors
    /// [`RecordError`] if they are not a cursor record.
    pub fn decode(node: &[u8]) -> Result<ManagedCursorInfo, RecordError> {
        if node.starts_with(&COMPRESSED_MAGIC) {
            return Err(RecordError::Compressed);
        }
        let (mut cursor_ledger, mut ledger, mut entry) = (None, None, None);
        let mut info = ManagedCursorInfo { mark_delete: None, ..ManagedCursorInfo::at(Position::EARLIEST) };
        read(node, |field| {
            match field.number {
                1 => cursor_ledger = Some(LedgerId(field.int()?)),
                2 => ledger = Some(LedgerId(field.int()?)),
                3 => entry = Some(EntryId(field.int()?)),
                4 => info.acked.push(read_range(field)?),
                5 => info.properties.push(read_number(field)?),
                7 => info.batch_sets.push(read_batch_set(field)?),
                8 => info.cursor_properties.push(read_text_pair(field)?),
                // Of a newer version it is dropped: counts are all that is lost.
                EXTENSION => info.redeliveries = Extension::redeliveries_of_node(field),
                _ => info.unknown.extend_from_slice(field.raw),
            }
            Ok(())
        })?;
        info.cursor_ledger = cursor_ledger.ok_or(RecordError::Missing("cursorsLedgerId"))?;
        info.mark_delete = ledger.zip(entry).map(|(ledger, entry)| Position { ledger, entry });
        Ok(info)
    }
}

fn ranges_of(ledger: LedgerId, words: &[i64]) -> Vec<AckedRange> {
    let position = |entry: i64| Position { ledger, entry: EntryId(entry) };
    let set = (0i64..).zip(words).flat_map(|(at, word)| {
        (0i64..64).filter(move |bit| word.cast_unsigned() >> bit & 1 == 1).map(move |bit| at * 64 + bit)
    });
    let mut ranges: Vec<AckedRange> = Vec::new();
    for entry in set {
        match ranges.last_mut() {
            Some(last) if last.upper == position(entry - 1) => last.upper = position(entry),
            _ => ranges.push(AckedRange { lower: position(entry - 1), upper: position(entry) }),
        }
    }
    ranges
}

fn position_len(position: Position) -> usize {
    2 + varint_len(position.ledger.0.cast_unsigned()) + varint_len(position.entry.0.cast_unsigned())
}

fn write_range(out: &mut Writer, range: AckedRange) {
    out.message(1, |out| write_position(out, range.lower));
    out.message(2, |out| write_position(out, range.upper));
}

fn read_range(field: Field<'_>) -> Result<AckedRange, RecordError> {
    let (mut lower, mut upper) = (None, None);
    read(field.bytes()?, |field| {
        match field.number {
            1 => lower = Some(read_position(field.bytes()?)?),
            2 => upper = Some(read_position(field.bytes()?)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(AckedRange {
        lower: lower.ok_or(RecordError::Missing("lowerEndpoint"))?,
        upper: upper.ok_or(RecordError::Missing("upperEndpoint"))?,
    })
}

fn write_number(out: &mut Writer, name: &str, value: i64) {
    out.bytes(1, name.as_bytes());
    out.int(2, value);
}

fn read_number(field: Field<'_>) -> Result<CursorProperty, RecordError> {
    let (mut name, mut value) = (None, None);
    read(field.bytes()?, |field| {
        match field.number {
            1 => name = Some(field.text()?),
            2 => value = Some(field.int()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok((name.ok_or(RecordError::Missing("name"))?, value.ok_or(RecordError::Missing("value"))?))
}

pub(crate) fn write_batch_set(out: &mut Writer, set: &BatchSet) {
    out.message(1, |out| write_position(out, set.position));
    set.unacked.iter().for_each(|word| out.int(2, *word));
}

pub(crate) fn read_batch_set(field: Field<'_>) -> Result<BatchSet, RecordError> {
    let (mut position, mut unacked) = (None, Vec::new());
    read(field.bytes()?, |field| {
        match field.number {
            1 => position = Some(read_position(field.bytes()?)?),
            2 => field.ints(&mut unacked)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(BatchSet { position: position.ok_or(RecordError::Missing("position"))?, unacked })
}

fn read_bitmap(field: Field<'_>) -> Result<(LedgerId, Vec<i64>), RecordError> {
    let (mut ledger, mut words) = (None, Vec::new());
    read(field.bytes()?, |field| {
        match field.number {
            1 => ledger = Some(LedgerId(field.int()?)),
            2 => field.ints(&mut words)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((ledger.ok_or(RecordError::Missing("key"))?, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::tests::{hex, unhex};
    use proptest::prelude::*;

    /// Bytes as a Java broker writes them.
    #[test]
    fn golden_bytes() {
        let in_ledger =
            ManagedCursorInfo { cursor_ledger: LedgerId(12), ..ManagedCursorInfo::at(Position::new(9, -1)) };
        assert_eq!(hex(&in_ledger.encode()), "080c100918ffffffffffffffffff01");
        let folded = ManagedCursorInfo::at(Position::new(9, 41));
        assert_eq!(hex(&folded.encode()), "08ffffffffffffffffff0110091829");
        assert_eq!(hex(&PositionInfo::at(Position::new(9, 41)).encode()), "08091029");
        let holes = PositionInfo {
            acked: vec![AckedRange { lower: Position::new(5, 9), upper: Position::new(5, 12) }],
            ..PositionInfo::at(Position::new(5, 3))
        };
        assert_eq!(hex(&holes.encode()), "080510031a0c0a04080510091204 0805100c".replace(' ', ""));
        for node in [in_ledger, folded] {
            assert_eq!(ManagedCursorInfo::decode(&node.encode()), Ok(node));
        }
    }

    #[test]
    fn bitmaps_are_ranges_too() {
        let mut info = PositionInfo::at(Position::new(5, -1));
        info.acked_bitmaps = vec![(LedgerId(5), vec![1 << 63 | 0b110, 0b1]), (LedgerId(7), vec![1])];
        let range = |ledger, lower, upper| AckedRange {
            lower: Position::new(ledger, lower),
            upper: Position::new(ledger, upper),
        };
        assert_eq!(info.acked_ranges(), [range(5, 0, 2), range(5, 62, 64), range(7, -1, 0)]);
        info.acked = vec![range(1, 2, 3)];
        assert_eq!(info.acked_ranges(), info.acked);
    }

    #[test]
    fn refused() {
        assert_eq!(ManagedCursorInfo::decode(b""), Err(RecordError::Missing("cursorsLedgerId")));
        assert_eq!(ManagedCursorInfo::decode(&unhex("4778")), Err(RecordError::Compressed));
        assert_eq!(PositionInfo::decode(b""), Err(RecordError::Missing("ledgerId")));
    }

    fn positions() -> impl Strategy<Value = Position> {
        (-1i64..100, -1i64..100).prop_map(|(ledger, entry)| Position::new(ledger, entry))
    }

    proptest! {
        #[test]
        fn round_trip(mark_delete in positions(), ranges in proptest::collection::vec((positions(), positions()), 0..5), words in proptest::collection::vec(any::<i64>(), 0..4), number in any::<i64>()) {
            let acked: Vec<_> = ranges.into_iter().map(|(lower, upper)| AckedRange { lower, upper }).collect();
            let batch_sets = vec![BatchSet { position: mark_delete, unacked: words.clone() }];
            let properties = vec![("seq".to_owned(), number)];
            let entry = PositionInfo { mark_delete, acked: acked.clone(), acked_bitmaps: vec![(LedgerId(3), words)], properties: properties.clone(), batch_sets: batch_sets.clone() };
            let plain = PositionInfo { acked: vec![], batch_sets: vec![], ..entry.clone() }.encode().len();
            let lens = entry.acked.iter().map(AckedRange::encoded_len).chain(entry.batch_sets.iter().map(BatchSet::encoded_len));
            prop_assert_eq!(plain + lens.sum::<usize>(), entry.encode().len());
            prop_assert_eq!(PositionInfo::decode(&entry.encode()), Ok(entry));
            let node = ManagedCursorInfo { acked, properties, batch_sets, cursor_properties: vec![("a".into(), "b".into())], redeliveries: vec![(Position::new(1, 2), 3)], ..ManagedCursorInfo::at(mark_delete) };
            prop_assert_eq!(ManagedCursorInfo::decode(&node.encode()), Ok(node));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(ManagedCursorInfo::decode(&bytes));
            drop(PositionInfo::decode(&bytes));
        }
    }
}
