//! FLOW: a consumer's permission to send it more messages.

use bytes::{BufMut, BytesMut};

use super::{BODY_DEPTH, required};
use crate::command::{Body, put_frame_header};
use crate::error::DecodeError;
use crate::proto::base_command::Type;
use crate::varint::{Reader, field_len, put_field};

/// More permits for a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCommand {
    /// The consumer's id on this connection.
    pub consumer_id: u64,
    /// How many messages, not entries, it takes beyond those it was granted before. 0 is against the protocol.
    pub message_permits: u32,
}

impl Body for FlowCommand {
    fn from_parts(parts: &[&[u8]]) -> Result<FlowCommand, DecodeError> {
        let (mut consumer_id, mut message_permits) = (None, None);
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some(key) = reader.next_key()? {
                match key.field {
                    1 => consumer_id = Some(reader.varint(key)?),
                    2 => message_permits = Some(reader.int32(key)?.cast_unsigned()),
                    _ => reader.skip(key, BODY_DEPTH)?,
                }
            }
        }
        Ok(FlowCommand {
            consumer_id: required(consumer_id, "CommandFlow", "consumer_id")?,
            message_permits: required(message_permits, "CommandFlow", "messagePermits")?,
        })
    }

    fn body_len(&self) -> usize {
        field_len(self.consumer_id) + field_len(u64::from(self.message_permits))
    }

    fn put(&self, out: &mut impl BufMut) {
        put_field(out, 1, self.consumer_id);
        put_field(out, 2, u64::from(self.message_permits));
    }
}

/// Writes the whole frame of a FLOW.
pub fn encode_flow(out: &mut BytesMut, flow: &FlowCommand) {
    put_frame_header(out, Type::Flow, flow.body_len(), 0);
    flow.put(out);
}
