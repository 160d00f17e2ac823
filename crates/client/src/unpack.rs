//! Entries made messages: chunks put together, decompressed, batches taken apart.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use geminga_model::{Position, TopicName, UnixMillis};
use geminga_wire::proto::command_ack::ValidationError;
use geminga_wire::proto::{KeyValue, MessageMetadata, SingleMessageMetadata};
use geminga_wire::{Entry, MessageCommand, decompress, read_batch};

use crate::message::{MessageId, Received};

/// Fact: how many messages a Java consumer puts together at a time.
const MAX_UNFINISHED: usize = 10;

/// How much larger than its bytes a message may claim to be.
const MAX_MESSAGE: usize = 1 << 30;

/// What an entry turned out to be.
#[derive(Debug)]
pub(crate) enum Unpacked {
    /// Messages, and how many messages the broker counted for the entry.
    Messages { messages: Vec<Received>, counted: u32, batch_size: Option<i32> },
    /// A message in chunks, which is complete with this entry.
    Whole { message: Box<Received>, entries: Vec<Position> },
    /// A chunk; others are to come.
    Part,
    /// Nobody can read it: it is acknowledged, with this reason.
    Unusable { reason: String, error: ValidationError, counted: u32 },
    /// It is encrypted.
    Encrypted { id: MessageId, counted: u32 },
}

/// A message of which some chunks are there.
#[derive(Debug)]
struct Unfinished {
    body: BytesMut,
    entries: Vec<Position>,
}

/// Unpacks the entries of one topic.
#[derive(Debug)]
pub(crate) struct Unpacker {
    topic: TopicName,
    partition: i32,
    unfinished: BTreeMap<String, Unfinished>,
    /// The oldest first.
    order: VecDeque<String>,
}

impl Unpacker {
    pub(crate) fn new(topic: TopicName) -> Unpacker {
        let partition = topic.partition().and_then(|index| i32::try_from(index).ok()).unwrap_or(-1);
        Unpacker { topic, partition, unfinished: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Everything will be delivered again.
    pub(crate) fn clear(&mut self) {
        self.unfinished.clear();
        self.order.clear();
    }

    pub(crate) fn unpack(&mut self, command: &MessageCommand, bytes: Bytes) -> Unpacked {
        let unusable = |reason: String, error, counted| Unpacked::Unusable { reason, error, counted };
        let checked = Entry::parse(bytes).and_then(|entry| entry.verify_checksum().map(|()| entry));
        let (entry, metadata) = match checked.and_then(|entry| entry.metadata().map(|metadata| (entry, metadata))) {
            Ok(found) => found,
            Err(error) => return unusable(error.to_string(), ValidationError::ChecksumMismatch, 1),
        };
        let position = command.message_id.position;
        let left = &command.ack_set;
        let claimed = metadata.num_messages_in_batch.and_then(|count| u32::try_from(count).ok()).unwrap_or(1).max(1);
        let acknowledged = if left.is_empty() { 0 } else { claimed - ones(left).min(claimed) };
        let counted = claimed - acknowledged;
        if !metadata.encryption_keys.is_empty() {
            return Unpacked::Encrypted { id: MessageId::of_entry(position, self.partition), counted };
        }
        if metadata.num_messages_in_batch.is_none() && metadata.num_chunks_from_msg.is_some_and(|count| count > 1) {
            return self.chunk(command, &metadata, &entry.payload());
        }
        let codec = metadata.compression();
        let body = match decompress(codec, entry.payload(), metadata.uncompressed_size(), MAX_MESSAGE) {
            Ok(body) => body,
            Err(error) => return unusable(error.to_string(), ValidationError::DecompressionError, counted),
        };
        if metadata.num_messages_in_batch.is_none() {
            let message = self.plain(command, &metadata, body);
            return Unpacked::Messages { messages: vec![message], counted, batch_size: None };
        }
        let size = i32::try_from(claimed).unwrap_or(i32::MAX);
        let mut messages = Vec::new();
        for (index, single) in (0i32..).zip(read_batch(body, claimed)) {
            let single = match single {
                Ok(single) => single,
                Err(error) => return unusable(error.to_string(), ValidationError::BatchDeSerializeError, counted),
            };
            if is_left(left, index) && !single.metadata.compacted_out() {
                messages.push(self.of_batch(command, &metadata, index, size, single.metadata, single.payload));
            }
        }
        Unpacked::Messages { messages, counted, batch_size: Some(size) }
    }

    fn chunk(&mut self, command: &MessageCommand, metadata: &MessageMetadata, part: &[u8]) -> Unpacked {
        let (uuid, position) = (metadata.uuid().to_owned(), command.message_id.position);
        let (id, count) = (metadata.chunk_id(), metadata.num_chunks_from_msg());
        if id == 0 {
            self.forget(&uuid);
            if self.order.len() >= MAX_UNFINISHED
                && let Some(oldest) = self.order.pop_front()
            {
                tracing::warn!(topic = %self.topic, uuid = oldest, "too many messages in chunks: one is given up");
                self.unfinished.remove(&oldest);
            }
            self.order.push_back(uuid.clone());
            self.unfinished.insert(uuid.clone(), Unfinished { body: BytesMut::new(), entries: Vec::new() });
        }
        let next = self.unfinished.get(&uuid).map(|unfinished| unfinished.entries.len());
        let Some(unfinished) = self.unfinished.get_mut(&uuid).filter(|_| next == usize::try_from(id).ok()) else {
            // Its beginning is missing, or a chunk came twice: it will not be complete.
            self.forget(&uuid);
            let reason = format!("chunk {id} of {count} of message {uuid} is out of order");
            return Unpacked::Unusable { reason, error: ValidationError::BatchDeSerializeError, counted: 1 };
        };
        unfinished.body.extend_from_slice(part);
        unfinished.entries.push(position);
        if id + 1 < count {
            return Unpacked::Part;
        }
        let Some(Unfinished { body, entries }) = self.forget(&uuid) else { return Unpacked::Part };
        match decompress(metadata.compression(), body.freeze(), metadata.uncompressed_size(), MAX_MESSAGE) {
            Ok(body) => {
                let mut message = self.plain(command, metadata, body);
                message.id.first_chunk = entries.first().copied();
                Unpacked::Whole { message: Box::new(message), entries }
            }
            Err(error) => {
                let error_kind = ValidationError::DecompressionError;
                Unpacked::Unusable { reason: error.to_string(), error: error_kind, counted: 1 }
            }
        }
    }

    fn forget(&mut self, uuid: &str) -> Option<Unfinished> {
        self.order.retain(|known| known != uuid);
        self.unfinished.remove(uuid)
    }

    fn plain(&self, command: &MessageCommand, metadata: &MessageMetadata, payload: Bytes) -> Received {
        Received {
            id: MessageId::of_entry(command.message_id.position, self.partition),
            topic: self.topic.clone(),
            payload,
            key: metadata.partition_key.clone(),
            key_is_base64: metadata.partition_key_b64_encoded(),
            ordering_key: metadata.ordering_key.clone(),
            properties: pairs(metadata.properties.clone()),
            producer_name: metadata.producer_name.clone(),
            sequence_id: metadata.sequence_id,
            publish_time: UnixMillis(metadata.publish_time.cast_signed()),
            event_time: time(metadata.event_time),
            schema_version: metadata.schema_version.clone(),
            replicated_from: metadata.replicated_from.clone(),
            redelivery_count: command.redelivery_count,
        }
    }

    fn of_batch(
        &self,
        command: &MessageCommand,
        metadata: &MessageMetadata,
        index: i32,
        size: i32,
        single: SingleMessageMetadata,
        payload: Bytes,
    ) -> Received {
        let id = MessageId::of_entry(command.message_id.position, self.partition);
        Received {
            id: MessageId { batch_index: index, batch_size: size, ..id },
            topic: self.topic.clone(),
            payload,
            key_is_base64: single.partition_key_b64_encoded(),
            key: single.partition_key,
            ordering_key: single.ordering_key,
            properties: pairs(single.properties),
            producer_name: metadata.producer_name.clone(),
            // Fact: older producers number only the batch.
            sequence_id: single.sequence_id.unwrap_or(metadata.sequence_id + u64::from(index.cast_unsigned())),
            publish_time: UnixMillis(metadata.publish_time.cast_signed()),
            event_time: time(single.event_time),
            schema_version: metadata.schema_version.clone(),
            replicated_from: metadata.replicated_from.clone(),
            redelivery_count: command.redelivery_count,
        }
    }
}

fn pairs(list: Vec<KeyValue>) -> Vec<(String, String)> {
    list.into_iter().map(|pair| (pair.key, pair.value)).collect()
}

fn time(millis: Option<u64>) -> Option<UnixMillis> {
    millis.filter(|millis| *millis > 0).map(|millis| UnixMillis(millis.cast_signed()))
}

fn ones(words: &[i64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

/// Whether a message of a batch is still to be consumed; words that are not there are zero.
fn is_left(words: &[i64], index: i32) -> bool {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    words.is_empty() || words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_wire::{BatchBuilder, CompressionType, MessageId as WireId, compress, encode_entry};
    use proptest::prelude::*;

    fn command(entry: i64, left: &[i64]) -> MessageCommand {
        MessageCommand {
            consumer_id: 1,
            message_id: WireId::of_entry(Position::new(1, entry)),
            redelivery_count: 0,
            ack_set: left.iter().copied().collect(),
            consumer_epoch: None,
        }
    }

    fn unpacker() -> Unpacker {
        Unpacker::new("t-partition-2".parse().unwrap())
    }

    fn metadata() -> MessageMetadata {
        MessageMetadata { producer_name: "p".into(), sequence_id: 7, publish_time: 1, ..Default::default() }
    }

    #[test]
    fn batches_without_what_is_acknowledged() {
        let mut batch = BatchBuilder::new();
        for payload in [b"a", b"b", b"c"] {
            batch.push(SingleMessageMetadata::default(), payload);
        }
        let body = batch.finish();
        let compressed = compress(CompressionType::Lz4, body.clone()).unwrap();
        let metadata = MessageMetadata {
            num_messages_in_batch: Some(3),
            compression: Some(CompressionType::Lz4.into()),
            uncompressed_size: Some(u32::try_from(body.len()).unwrap()),
            ..metadata()
        };
        for (left, expected) in [(&[][..], &[0, 1, 2][..]), (&[0b101], &[0, 2])] {
            let unpacked = unpacker().unpack(&command(5, left), encode_entry(&metadata, &compressed));
            let Unpacked::Messages { messages, counted, batch_size: Some(3) } = unpacked else { panic!() };
            assert_eq!(messages.iter().map(|message| message.id.batch_index).collect::<Vec<_>>(), expected);
            assert_eq!(counted as usize, expected.len());
            let last = messages.last().unwrap();
            assert_eq!((last.payload.as_ref(), last.sequence_id, last.id.partition), (&b"c"[..], 9, 2));
        }
    }

    fn chunk(id: i32, count: i32, part: &[u8], total: usize) -> Bytes {
        let metadata = MessageMetadata {
            uuid: Some("p-7".into()),
            chunk_id: Some(id),
            num_chunks_from_msg: Some(count),
            uncompressed_size: Some(u32::try_from(total).unwrap()),
            ..metadata()
        };
        encode_entry(&metadata, part)
    }

    #[test]
    fn chunks_are_put_together() {
        let mut unpacker = unpacker();
        assert!(matches!(unpacker.unpack(&command(0, &[]), chunk(0, 3, b"ab", 6)), Unpacked::Part));
        assert!(matches!(unpacker.unpack(&command(1, &[]), chunk(1, 3, b"cd", 6)), Unpacked::Part));
        let Unpacked::Whole { message, entries } = unpacker.unpack(&command(3, &[]), chunk(2, 3, b"ef", 6)) else {
            panic!()
        };
        assert_eq!(message.payload, "abcdef");
        assert_eq!((message.id.position, message.id.first_chunk), (Position::new(1, 3), Some(Position::new(1, 0))));
        assert_eq!(entries.len(), 3);
        // Without its beginning, or with a gap, it is none.
        for ids in [&[1][..], &[0, 2]] {
            let last = ids.iter().map(|id| unpacker.unpack(&command(9, &[]), chunk(*id, 3, b"x", 3))).last();
            assert!(matches!(last, Some(Unpacked::Unusable { .. })));
        }
    }

    #[test]
    fn what_cannot_be_read() {
        let mut damaged = encode_entry(&metadata(), b"payload").to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let unpacked = unpacker().unpack(&command(1, &[]), damaged.into());
        assert!(matches!(unpacked, Unpacked::Unusable { error: ValidationError::ChecksumMismatch, counted: 1, .. }));
        let short = MessageMetadata { num_messages_in_batch: Some(9), ..metadata() };
        let unpacked = unpacker().unpack(&command(1, &[]), encode_entry(&short, b"x"));
        assert!(matches!(
            unpacked,
            Unpacked::Unusable { error: ValidationError::BatchDeSerializeError, counted: 9, .. }
        ));
        let key = geminga_wire::proto::EncryptionKeys { key: "k".into(), ..Default::default() };
        let encrypted = MessageMetadata { encryption_keys: vec![key], ..metadata() };
        let unpacked = unpacker().unpack(&command(1, &[]), encode_entry(&encrypted, b"x"));
        assert!(matches!(unpacked, Unpacked::Encrypted { counted: 1, .. }));
    }

    proptest! {
        #[test]
        fn never_panics(
            count: i32, chunks: Option<i32>, chunk_id: Option<i32>, size: u32, compression in 0i32..6,
            body in prop::collection::vec(any::<u8>(), 0..40), left in prop::collection::vec(any::<i64>(), 0..3), batch: bool,
        ) {
            let metadata = MessageMetadata {
                num_messages_in_batch: batch.then_some(count),
                num_chunks_from_msg: chunks,
                chunk_id,
                uncompressed_size: Some(size),
                compression: Some(compression),
                ..metadata()
            };
            let mut unpacker = unpacker();
            for entry in 0..3 {
                unpacker.unpack(&command(entry, &left), encode_entry(&metadata, &body));
            }
        }
    }
}
