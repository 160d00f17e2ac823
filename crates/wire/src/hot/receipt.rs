//! SEND_RECEIPT: a broker's word that an entry is stored.

use bytes::{BufMut, BytesMut};
use geminga_model::Position;

use super::message_id::{MessageId, PartialId};
use super::{BODY_DEPTH, required};
use crate::command::{Body, put_frame_header};
use crate::error::DecodeError;
use crate::proto::base_command::Type;
use crate::varint::{Reader, delimited_len, field_len, put_field};

/// The receipt for one SEND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendReceipt {
    /// The producer's id on this connection.
    pub producer_id: u64,
    /// The SEND's sequence id.
    pub sequence_id: u64,
    /// Where the entry is stored; −1:−1 ([`Position::EARLIEST`]) for a duplicate that was dropped.
    pub position: Option<Position>,
    /// The SEND's highest sequence id, 0 if it said none.
    pub highest_sequence_id: u64,
}

impl Body for SendReceipt {
    fn from_parts(parts: &[&[u8]]) -> Result<SendReceipt, DecodeError> {
        let (mut producer_id, mut sequence_id, mut highest_sequence_id) = (None, None, 0);
        let mut message_id: Option<PartialId> = None;
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some(key) = reader.next_key()? {
                match key.field {
                    1 => producer_id = Some(reader.varint(key)?),
                    2 => sequence_id = Some(reader.varint(key)?),
                    3 => message_id.get_or_insert_default().merge(reader.delimited(key)?, BODY_DEPTH)?,
                    4 => highest_sequence_id = reader.varint(key)?,
                    _ => reader.skip(key, BODY_DEPTH)?,
                }
            }
        }
        Ok(SendReceipt {
            producer_id: required(producer_id, "CommandSendReceipt", "producer_id")?,
            sequence_id: required(sequence_id, "CommandSendReceipt", "sequence_id")?,
            position: message_id.map(|id| id.position()).transpose()?,
            highest_sequence_id,
        })
    }

    fn body_len(&self) -> usize {
        field_len(self.producer_id)
            + field_len(self.sequence_id)
            + self.position.map_or(0, |position| delimited_len(MessageId::of_entry(position).body_len()))
            + field_len(self.highest_sequence_id)
    }

    fn put(&self, out: &mut impl BufMut) {
        put_field(out, 1, self.producer_id);
        put_field(out, 2, self.sequence_id);
        if let Some(position) = self.position {
            MessageId::of_entry(position).put(out, 3);
        }
        // Fact: Java brokers write it even if it is 0.
        put_field(out, 4, self.highest_sequence_id);
    }
}

/// Writes the whole frame of a receipt.
pub fn encode_send_receipt(out: &mut BytesMut, receipt: &SendReceipt) {
    put_frame_header(out, Type::SendReceipt, receipt.body_len(), 0);
    receipt.put(out);
}
