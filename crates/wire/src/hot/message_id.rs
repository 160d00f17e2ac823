//! Ids of messages within the commands that travel per message.

use bytes::BufMut;
use geminga_model::Position;
use smallvec::SmallVec;

use super::required;
use crate::error::{DecodeError, Malformed};
use crate::proto;
use crate::varint::{Reader, extend, field_len, put_delimited, put_field, varint_len};

/// The words of a batch bitmap: bit `i % 64` of word `i / 64` is message `i`, 1 = not acknowledged.
/// Up to two words, a batch of 128, lie within the value.
pub type AckSet = SmallVec<[i64; 2]>;

/// A message's id: its entry, and where in a partitioned topic and in a batch it lies.
///
/// The id of the first chunk, which the generated type also has, is checked and left out: it has a meaning in SEEK and
/// GET_LAST_MESSAGE_ID only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId {
    /// The entry.
    pub position: Position,
    /// The partition's index, or −1.
    pub partition: i32,
    /// The index within the batch, or −1.
    pub batch_index: i32,
    /// What is left of the batch; empty if nothing is said about it.
    pub ack_set: AckSet,
    /// How many messages the batch has, if that is said.
    pub batch_size: Option<i32>,
}

impl MessageId {
    /// The id of the entry at `position`, with nothing said about partition and batch.
    #[must_use]
    pub fn of_entry(position: Position) -> MessageId {
        MessageId { position, partition: -1, batch_index: -1, ack_set: SmallVec::new(), batch_size: None }
    }

    pub(super) fn body_len(&self) -> usize {
        let Position { ledger, entry } = self.position;
        let optional = |value: i32| if value == -1 { 0 } else { field_len(extend(value)) };
        field_len(ledger.0.cast_unsigned())
            + field_len(entry.0.cast_unsigned())
            + optional(self.partition)
            + optional(self.batch_index)
            + ack_set_len(&self.ack_set)
            + self.batch_size.map_or(0, |size| field_len(extend(size)))
    }

    /// Writes the id as field `field` of the message around it.
    pub(super) fn put(&self, out: &mut impl BufMut, field: u8) {
        put_delimited(out, field, self.body_len());
        put_field(out, 1, self.position.ledger.0.cast_unsigned());
        put_field(out, 2, self.position.entry.0.cast_unsigned());
        // −1 is what absence means, and ten bytes shorter.
        if self.partition != -1 {
            put_field(out, 3, extend(self.partition));
        }
        if self.batch_index != -1 {
            put_field(out, 4, extend(self.batch_index));
        }
        put_ack_set(out, 5, &self.ack_set);
        if let Some(size) = self.batch_size {
            put_field(out, 6, extend(size));
        }
    }
}

/// The length of an ack set as a repeated field that is not packed; its number must be below 16.
pub(super) fn ack_set_len(words: &[i64]) -> usize {
    words.iter().map(|word| 1 + varint_len(word.cast_unsigned())).sum()
}

/// Writes an ack set as a repeated field that is not packed.
pub(super) fn put_ack_set(out: &mut impl BufMut, field: u8, words: &[i64]) {
    for word in words {
        put_field(out, field, word.cast_unsigned());
    }
}

/// What is known of an id while its bytes are read.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialId {
    ledger: Option<u64>,
    entry: Option<u64>,
    partition: Option<i32>,
    batch_index: Option<i32>,
    ack_set: AckSet,
    batch_size: Option<i32>,
}

impl PartialId {
    /// Takes in the bytes of an id; `depth` is how many levels may still be entered.
    pub(super) fn merge(&mut self, bytes: &[u8], depth: u32) -> Result<(), Malformed> {
        let Some(depth_inside) = depth.checked_sub(1) else { return Err(Malformed::TooDeep) };
        let mut reader = Reader::new(bytes);
        while let Some(key) = reader.next_key()? {
            match key.field {
                1 => self.ledger = Some(reader.varint(key)?),
                2 => self.entry = Some(reader.varint(key)?),
                3 => self.partition = Some(reader.int32(key)?),
                4 => self.batch_index = Some(reader.int32(key)?),
                5 => reader.int64s(key, &mut self.ack_set)?,
                6 => self.batch_size = Some(reader.int32(key)?),
                7 => PartialId::default().merge(reader.delimited(key)?, depth_inside)?,
                _ => reader.skip(key, depth_inside)?,
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<MessageId, DecodeError> {
        Ok(MessageId {
            position: self.position()?,
            partition: self.partition.unwrap_or(-1),
            batch_index: self.batch_index.unwrap_or(-1),
            ack_set: self.ack_set,
            batch_size: self.batch_size,
        })
    }

    pub(super) fn position(&self) -> Result<Position, DecodeError> {
        let ledger = required(self.ledger, "MessageIdData", "ledgerId")?;
        let entry = required(self.entry, "MessageIdData", "entryId")?;
        Ok(Position::new(ledger.cast_signed(), entry.cast_signed()))
    }
}

impl From<&proto::MessageIdData> for MessageId {
    fn from(id: &proto::MessageIdData) -> MessageId {
        MessageId {
            position: Position::new(id.ledger_id.cast_signed(), id.entry_id.cast_signed()),
            partition: id.partition(),
            batch_index: id.batch_index(),
            ack_set: AckSet::from_slice(&id.ack_set),
            batch_size: id.batch_size,
        }
    }
}

impl From<&MessageId> for proto::MessageIdData {
    fn from(id: &MessageId) -> proto::MessageIdData {
        let said = |value: i32| (value != -1).then_some(value);
        proto::MessageIdData {
            ledger_id: id.position.ledger.0.cast_unsigned(),
            entry_id: id.position.entry.0.cast_unsigned(),
            partition: said(id.partition),
            batch_index: said(id.batch_index),
            ack_set: id.ack_set.to_vec(),
            batch_size: id.batch_size,
            first_chunk_message_id: None,
        }
    }
}

impl From<Position> for proto::MessageIdData {
    fn from(position: Position) -> proto::MessageIdData {
        proto::MessageIdData::from(&MessageId::of_entry(position))
    }
}
