//! MESSAGE: an entry for a consumer. The frame's payload is the entry as it is stored.

use bytes::{BufMut, BytesMut};
use geminga_model::Position;

use super::message_id::{AckSet, MessageId, PartialId, ack_set_len, put_ack_set};
use super::{BODY_DEPTH, required};
use crate::command::{Body, put_frame_header};
use crate::error::DecodeError;
use crate::proto::base_command::Type;
use crate::varint::{Reader, delimited_len, field_len, put_field};

/// The command in front of an entry that a consumer receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageCommand {
    /// The consumer's id on this connection.
    pub consumer_id: u64,
    /// The entry's id; it says nothing about batches.
    pub message_id: MessageId,
    /// How often the entry was delivered before.
    pub redelivery_count: u32,
    /// Which messages of a batch are still to be consumed; empty for all.
    pub ack_set: AckSet,
    /// The consumer's epoch that the delivery belongs to.
    pub consumer_epoch: Option<u64>,
}

impl Body for MessageCommand {
    fn from_parts(parts: &[&[u8]]) -> Result<MessageCommand, DecodeError> {
        let (mut consumer_id, mut redelivery_count, mut consumer_epoch) = (None, 0, None);
        let mut message_id: Option<PartialId> = None;
        let mut ack_set = AckSet::new();
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some(key) = reader.next_key()? {
                match key.field {
                    1 => consumer_id = Some(reader.varint(key)?),
                    2 => message_id.get_or_insert_default().merge(reader.delimited(key)?, BODY_DEPTH)?,
                    3 => redelivery_count = reader.int32(key)?.cast_unsigned(),
                    4 => reader.int64s(key, &mut ack_set)?,
                    5 => consumer_epoch = Some(reader.varint(key)?),
                    _ => reader.skip(key, BODY_DEPTH)?,
                }
            }
        }
        Ok(MessageCommand {
            consumer_id: required(consumer_id, "CommandMessage", "consumer_id")?,
            message_id: required(message_id, "CommandMessage", "message_id")?.finish()?,
            redelivery_count,
            ack_set,
            consumer_epoch,
        })
    }

    fn body_len(&self) -> usize {
        Parts::of(self).len()
    }

    fn put(&self, out: &mut impl BufMut) {
        Parts::of(self).put(out);
    }
}

/// What a broker says to a consumer about one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader<'a> {
    /// The consumer's id on its connection.
    pub consumer_id: u64,
    /// The entry.
    pub position: Position,
    /// The topic's partition index, or −1.
    pub partition: i32,
    /// How often the entry was delivered before.
    pub redelivery_count: u32,
    /// Which messages of a batch are still to be consumed, trailing zero words left out; empty for all.
    pub ack_set: &'a [i64],
    /// The consumer's epoch, if it has one.
    pub consumer_epoch: Option<u64>,
}

/// Writes the frame of a MESSAGE up to its payload of `payload_len` bytes, which the caller sends next, in as many
/// slices as it likes.
pub fn encode_message_header(out: &mut BytesMut, header: &MessageHeader<'_>, payload_len: usize) {
    let message_id = MessageId { partition: header.partition, ..MessageId::of_entry(header.position) };
    let parts = Parts {
        consumer_id: header.consumer_id,
        message_id: &message_id,
        redelivery_count: header.redelivery_count,
        ack_set: header.ack_set,
        consumer_epoch: header.consumer_epoch,
    };
    put_frame_header(out, Type::Message, parts.len(), payload_len);
    parts.put(out);
}

/// The fields of the command, wherever they come from.
struct Parts<'a> {
    consumer_id: u64,
    message_id: &'a MessageId,
    redelivery_count: u32,
    ack_set: &'a [i64],
    consumer_epoch: Option<u64>,
}

impl Parts<'_> {
    fn of(command: &MessageCommand) -> Parts<'_> {
        Parts {
            consumer_id: command.consumer_id,
            message_id: &command.message_id,
            redelivery_count: command.redelivery_count,
            ack_set: &command.ack_set,
            consumer_epoch: command.consumer_epoch,
        }
    }

    fn len(&self) -> usize {
        let redelivery_count = u64::from(self.redelivery_count);
        field_len(self.consumer_id)
            + delimited_len(self.message_id.body_len())
            + if redelivery_count > 0 { field_len(redelivery_count) } else { 0 }
            + ack_set_len(self.ack_set)
            + self.consumer_epoch.map_or(0, field_len)
    }

    fn put(&self, out: &mut impl BufMut) {
        put_field(out, 1, self.consumer_id);
        self.message_id.put(out, 2);
        if self.redelivery_count > 0 {
            put_field(out, 3, u64::from(self.redelivery_count));
        }
        put_ack_set(out, 4, self.ack_set);
        if let Some(epoch) = self.consumer_epoch {
            put_field(out, 5, epoch);
        }
    }
}
