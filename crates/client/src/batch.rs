//! Messages made an entry: alone, or several as a batch.

use bytes::{Bytes, BytesMut};
use geminga_model::UnixMillis;
use geminga_wire::proto::{KeyValue, MessageMetadata, SingleMessageMetadata};
use geminga_wire::{BatchBuilder, CompressionType, SendCommand, compress, encode_entry_header, encode_send_header};
use smallvec::smallvec;

use crate::message::Message;
use crate::producer_task::FrameParts;

/// An entry, ready to be sent as often as it takes.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    /// Of its first message. The receipt repeats it.
    pub(crate) sequence_id: u64,
    /// Of its last message.
    pub(crate) highest_sequence_id: u64,
    /// Whether its messages have indexes.
    pub(crate) is_batch: bool,
    /// The entry's size, which is what the broker limits.
    pub(crate) size: usize,
    /// The whole SEND.
    pub(crate) frame: FrameParts,
}

fn properties(message: &mut Message) -> Vec<KeyValue> {
    std::mem::take(&mut message.properties).into_iter().map(|(key, value)| KeyValue { key, value }).collect()
}

fn millis(time: Option<UnixMillis>) -> Option<u64> {
    time.map(|time| time.0.cast_unsigned())
}

/// Makes the entry of these messages, of which there is at least one, each with its sequence id.
pub(crate) fn seal(
    producer_id: u64,
    producer_name: &str,
    schema_version: &Bytes,
    codec: CompressionType,
    publish_time: UnixMillis,
    mut messages: Vec<(u64, Message)>,
) -> Sealed {
    let count = messages.len();
    let sequence_id = messages.first().map_or(0, |(sequence_id, _)| *sequence_id);
    let highest_sequence_id = messages.last().map_or(0, |(sequence_id, _)| *sequence_id);
    let mut metadata = MessageMetadata {
        producer_name: producer_name.to_owned(),
        sequence_id,
        publish_time: publish_time.0.cast_unsigned(),
        schema_version: (!schema_version.is_empty()).then(|| schema_version.clone()),
        ..Default::default()
    };
    if let Some((_, first)) = messages.first() {
        metadata.partition_key.clone_from(&first.key);
        metadata.ordering_key.clone_from(&first.ordering_key);
        metadata.deliver_at_time = first.deliver_at.map(|time| time.0);
    }
    let body = match messages.as_mut_slice() {
        // Fact: a batch of one goes as a plain message.
        [(_, only)] => {
            metadata.properties = properties(only);
            metadata.event_time = millis(only.event_time);
            std::mem::take(&mut only.payload)
        }
        several => {
            let mut batch = BatchBuilder::new();
            for (sequence_id, message) in several {
                let single = SingleMessageMetadata {
                    properties: properties(message),
                    partition_key: message.key.take(),
                    ordering_key: message.ordering_key.take(),
                    event_time: millis(message.event_time),
                    sequence_id: Some(*sequence_id),
                    ..Default::default()
                };
                batch.push(single, &message.payload);
            }
            metadata.num_messages_in_batch = Some(i32::try_from(count).unwrap_or(i32::MAX));
            metadata.highest_sequence_id = Some(highest_sequence_id);
            batch.finish()
        }
    };
    metadata.uncompressed_size = Some(u32::try_from(body.len()).unwrap_or(u32::MAX));
    let payload = match compress(codec, body.clone()) {
        Ok(compressed) => {
            metadata.compression = (codec != CompressionType::None).then(|| codec.into());
            compressed
        }
        // The entry is good without.
        Err(_) => body,
    };
    let is_batch = count > 1;
    let send = SendCommand {
        num_messages: i32::try_from(count).unwrap_or(i32::MAX),
        highest_sequence_id: if is_batch { highest_sequence_id } else { 0 },
        ..SendCommand::new(producer_id, sequence_id)
    };
    let mut entry_header = BytesMut::new();
    encode_entry_header(&mut entry_header, &metadata, &payload);
    let size = entry_header.len() + payload.len();
    let mut head = BytesMut::with_capacity(32 + entry_header.len());
    encode_send_header(&mut head, &send, size);
    head.extend_from_slice(&entry_header);
    Sealed { sequence_id, highest_sequence_id, is_batch, size, frame: smallvec![head.freeze(), payload] }
}
