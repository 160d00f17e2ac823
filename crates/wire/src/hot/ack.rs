//! ACK: a consumer is done with messages.

use bytes::{BufMut, BytesMut};
use smallvec::SmallVec;

use super::message_id::{MessageId, PartialId};
use super::{BODY_DEPTH, required};
use crate::command::{Body, put_frame_header};
use crate::error::DecodeError;
use crate::metadata::TxnId;
use crate::proto::KeyLongValue;
use crate::proto::base_command::Type;
use crate::proto::command_ack::{AckType, ValidationError};
use crate::varint::{Reader, delimited_len, extend, field_len, put_delimited, put_field};

/// One or more acknowledgements of a consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct AckCommand {
    /// The consumer's id on this connection.
    pub consumer_id: u64,
    /// Whether the messages are meant, or everything up to the one message.
    pub ack_type: AckType,
    /// The messages. A single one, the common case, lies within the value unless its batch exceeds 128 messages.
    pub message_ids: SmallVec<[MessageId; 1]>,
    /// Why the consumer could not use the messages, if it could not.
    pub validation_error: Option<ValidationError>,
    /// What is to be stored with the position.
    pub properties: Vec<KeyLongValue>,
    /// The transaction's number within its coordinator.
    pub txnid_least_bits: Option<u64>,
    /// The transaction's coordinator.
    pub txnid_most_bits: Option<u64>,
    /// Set if the consumer wants an ACK_RESPONSE.
    pub request_id: Option<u64>,
}

impl AckCommand {
    /// The acknowledgement of one message and nothing else.
    #[must_use]
    pub fn new(consumer_id: u64, ack_type: AckType, message_id: MessageId) -> AckCommand {
        AckCommand {
            consumer_id,
            ack_type,
            message_ids: SmallVec::from_buf([message_id]),
            validation_error: None,
            properties: Vec::new(),
            txnid_least_bits: None,
            txnid_most_bits: None,
            request_id: None,
        }
    }

    /// The transaction that the acknowledgement belongs to. Fact: only if both halves of its name are there.
    #[must_use]
    pub fn txn_id(&self) -> Option<TxnId> {
        TxnId::from_bits(self.txnid_most_bits, self.txnid_least_bits)
    }
}

impl Body for AckCommand {
    fn from_parts(parts: &[&[u8]]) -> Result<AckCommand, DecodeError> {
        let (mut consumer_id, mut ack_type) = (None, None);
        let mut ack = AckCommand {
            consumer_id: 0,
            ack_type: AckType::Individual,
            message_ids: SmallVec::new(),
            validation_error: None,
            properties: Vec::new(),
            txnid_least_bits: None,
            txnid_most_bits: None,
            request_id: None,
        };
        for part in parts {
            let mut reader = Reader::new(part);
            while let Some(key) = reader.next_key()? {
                match key.field {
                    1 => consumer_id = Some(reader.varint(key)?),
                    // Protobuf takes an enum's unknown value for an unknown field.
                    2 => ack_type = AckType::try_from(reader.int32(key)?).ok().or(ack_type),
                    3 => {
                        let mut id = PartialId::default();
                        id.merge(reader.delimited(key)?, BODY_DEPTH)?;
                        ack.message_ids.push(id.finish()?);
                    }
                    4 => {
                        let error = ValidationError::try_from(reader.int32(key)?);
                        ack.validation_error = error.ok().or(ack.validation_error);
                    }
                    5 => ack.properties.push(prost::Message::decode(reader.delimited(key)?)?),
                    6 => ack.txnid_least_bits = Some(reader.varint(key)?),
                    7 => ack.txnid_most_bits = Some(reader.varint(key)?),
                    8 => ack.request_id = Some(reader.varint(key)?),
                    _ => reader.skip(key, BODY_DEPTH)?,
                }
            }
        }
        ack.consumer_id = required(consumer_id, "CommandAck", "consumer_id")?;
        ack.ack_type = required(ack_type, "CommandAck", "ack_type")?;
        Ok(ack)
    }

    fn body_len(&self) -> usize {
        let ids = self.message_ids.iter().map(|id| delimited_len(id.body_len()));
        let properties = self.properties.iter().map(|property| delimited_len(prost::Message::encoded_len(property)));
        field_len(self.consumer_id)
            + field_len(extend(self.ack_type.into()))
            + ids.chain(properties).sum::<usize>()
            + self.validation_error.map_or(0, |error| field_len(extend(error.into())))
            + self.txnid_least_bits.map_or(0, field_len)
            + self.txnid_most_bits.map_or(0, field_len)
            + self.request_id.map_or(0, field_len)
    }

    fn put(&self, out: &mut impl BufMut) {
        put_field(out, 1, self.consumer_id);
        put_field(out, 2, extend(self.ack_type.into()));
        for id in &self.message_ids {
            id.put(out, 3);
        }
        if let Some(error) = self.validation_error {
            put_field(out, 4, extend(error.into()));
        }
        for property in &self.properties {
            put_delimited(out, 5, prost::Message::encoded_len(property));
            prost::Message::encode_raw(property, out);
        }
        let numbers = [self.txnid_least_bits, self.txnid_most_bits, self.request_id];
        for (field, number) in (6u8..).zip(numbers) {
            if let Some(number) = number {
                put_field(out, field, number);
            }
        }
    }
}

/// Writes the whole frame of an ACK.
pub fn encode_ack(out: &mut BytesMut, ack: &AckCommand) {
    put_frame_header(out, Type::Ack, ack.body_len(), 0);
    ack.put(out);
}
