//! SEND: a producer's entry. The frame's payload is the entry itself.

use bytes::{BufMut, BytesMut};
use geminga_model::Position;

use super::message_id::{MessageId, PartialId};
use super::{BODY_DEPTH, required};
use crate::command::{Body, put_frame_header};
use crate::error::DecodeError;
use crate::metadata::TxnId;
use crate::proto::base_command::Type;
use crate::varint::{Reader, delimited_len, extend, field_len, put_field};

/// The command in front of an entry that a producer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendCommand {
    /// The producer's id on this connection.
    pub producer_id: u64,
    /// The sequence id, of a batch the lowest one. A receipt repeats it.
    pub sequence_id: u64,
    /// How many messages the entry has, as a hint: the metadata decide.
    pub num_messages: i32,
    /// The transaction's number within its coordinator.
    pub txnid_least_bits: Option<u64>,
    /// The transaction's coordinator.
    pub txnid_most_bits: Option<u64>,
    /// The highest sequence id of a batch; 0 if not said. One below `sequence_id` counts as not said.
    pub highest_sequence_id: u64,
    /// Whether the entry is a chunk of a message, as a hint.
    pub is_chunk: bool,
    /// Whether the entry is a marker, as a hint.
    pub marker: bool,
    /// Where the entry lies in the source of a shadow topic.
    pub message_id: Option<Position>,
}

impl SendCommand {
    /// The command for one plain message.
    #[must_use]
    pub const fn new(producer_id: u64, sequence_id: u64) -> SendCommand {
        SendCommand {
            producer_id,
            sequence_id,
            num_messages: 1,
            txnid_least_bits: None,
            txnid_most_bits: None,
            highest_sequence_id: 0,
            is_chunk: false,
            marker: false,
            message_id: None,
        }
    }

    /// The transaction that the entry belongs to. Fact: only if both halves of its name are there.
    #[must_use]
    pub fn txn_id(&self) -> Option<TxnId> {
        TxnId::from_bits(self.txnid_most_bits, self.txnid_least_bits)
    }
}

impl Body for SendCommand {
    fn from_parts(parts: &[&[u8]]) -> Result<SendCommand, DecodeError> {
        let (mut producer_id, mut sequence_id) = (None, None);
        let mut send = SendCommand::new(0, 0);
        let mut message_id: Option<PartialId> = None;
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some(key) = reader.next_key()? {
                match key.field {
                    1 => producer_id = Some(reader.varint(key)?),
                    2 => sequence_id = Some(reader.varint(key)?),
                    3 => send.num_messages = reader.int32(key)?,
                    4 => send.txnid_least_bits = Some(reader.varint(key)?),
                    5 => send.txnid_most_bits = Some(reader.varint(key)?),
                    6 => send.highest_sequence_id = reader.varint(key)?,
                    7 => send.is_chunk = reader.bool(key)?,
                    8 => send.marker = reader.bool(key)?,
                    9 => message_id.get_or_insert_default().merge(reader.delimited(key)?, BODY_DEPTH)?,
                    _ => reader.skip(key, BODY_DEPTH)?,
                }
            }
        }
        send.producer_id = required(producer_id, "CommandSend", "producer_id")?;
        send.sequence_id = required(sequence_id, "CommandSend", "sequence_id")?;
        send.message_id = message_id.map(|id| id.position()).transpose()?;
        Ok(send)
    }

    fn body_len(&self) -> usize {
        let unless = |default: bool, length: usize| if default { 0 } else { length };
        field_len(self.producer_id)
            + field_len(self.sequence_id)
            + unless(self.num_messages == 1, field_len(extend(self.num_messages)))
            + self.txnid_least_bits.map_or(0, field_len)
            + self.txnid_most_bits.map_or(0, field_len)
            + unless(self.highest_sequence_id == 0, field_len(self.highest_sequence_id))
            + unless(!self.is_chunk, 2)
            + unless(!self.marker, 2)
            + self.message_id.map_or(0, |position| delimited_len(MessageId::of_entry(position).body_len()))
    }

    fn put(&self, out: &mut impl BufMut) {
        put_field(out, 1, self.producer_id);
        put_field(out, 2, self.sequence_id);
        if self.num_messages != 1 {
            put_field(out, 3, extend(self.num_messages));
        }
        if let Some(bits) = self.txnid_least_bits {
            put_field(out, 4, bits);
        }
        if let Some(bits) = self.txnid_most_bits {
            put_field(out, 5, bits);
        }
        if self.highest_sequence_id != 0 {
            put_field(out, 6, self.highest_sequence_id);
        }
        if self.is_chunk {
            put_field(out, 7, 1);
        }
        if self.marker {
            put_field(out, 8, 1);
        }
        if let Some(position) = self.message_id {
            MessageId::of_entry(position).put(out, 9);
        }
    }
}

/// Writes the frame of a SEND up to its payload of `payload_len` bytes, which the caller sends next: an entry as
/// [`encode_entry`](crate::encode_entry) makes it.
pub fn encode_send_header(out: &mut BytesMut, send: &SendCommand, payload_len: usize) {
    put_frame_header(out, Type::Send, send.body_len(), payload_len);
    send.put(out);
}
