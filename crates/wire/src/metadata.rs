//! What a broker needs of a message's metadata, found without building the whole.

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use geminga_model::{UnixMillis, key_slot};
use smallvec::SmallVec;

use crate::entry::EntryError;
use crate::proto::CompressionType;
use crate::varint::{MAX_DEPTH, Reader};

/// The sticky key of an entry whose own cannot be read.
pub const NONE_KEY: &[u8] = b"NONE_KEY";

/// As Java's decoder: padding may be there or not, and stray bits at the end do not matter.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The name of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId {
    /// The coordinator.
    pub most_bits: u64,
    /// The number within the coordinator.
    pub least_bits: u64,
}

impl TxnId {
    /// The name made of two optional fields. Fact: only both together name a transaction.
    #[must_use]
    pub fn from_bits(most_bits: Option<u64>, least_bits: Option<u64>) -> Option<TxnId> {
        Some(TxnId { most_bits: most_bits?, least_bits: least_bits? })
    }
}

/// Which part of a message an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// What all chunks of the message share.
    pub uuid: &'a [u8],
    /// Which chunk, from 0.
    pub id: i32,
    /// How many chunks the message has.
    pub count: i32,
    /// The compressed size of the whole message.
    pub total_size: i32,
}

/// The metadata of an entry in as far as a broker needs them, borrowed from the entry. Allocates nothing.
///
/// Text is not checked to be UTF-8: clients put what they like into keys, and an entry with a strange one must still
/// be delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataSummary<'a> {
    /// Who produced the entry; text.
    pub producer_name: &'a [u8],
    /// The sequence id, of a batch the lowest. Signed to Java: markers of transactions have −1.
    pub sequence_id: u64,
    /// The highest sequence id of a batch; 0 if not said.
    pub highest_sequence_id: u64,
    /// The producer's clock.
    pub publish_time: UnixMillis,
    /// Set if the payload is a batch, even of one; see [`messages`](MetadataSummary::messages).
    pub num_messages_in_batch: Option<i32>,
    /// The key by which the entry was routed; text, maybe base64.
    pub partition_key: Option<&'a [u8]>,
    /// Whether `partition_key` is base64 of the key proper.
    pub partition_key_b64_encoded: bool,
    /// Whether the key is null rather than absent (of a key-value message).
    pub null_partition_key: bool,
    /// The key that takes precedence in Key_Shared subscriptions.
    pub ordering_key: Option<&'a [u8]>,
    /// When a delayed entry is due.
    pub deliver_at_time: Option<UnixMillis>,
    /// What kind of marker the entry is; no consumer sees markers.
    pub marker_type: Option<i32>,
    /// The transaction's number within its coordinator.
    pub txnid_least_bits: Option<u64>,
    /// The transaction's coordinator.
    pub txnid_most_bits: Option<u64>,
    /// What the chunks of a message share; text.
    pub uuid: Option<&'a [u8]>,
    /// Which chunk the entry is.
    pub chunk_id: Option<i32>,
    /// How many chunks the message has.
    pub num_chunks_from_msg: Option<i32>,
    /// The compressed size of the whole chunked message.
    pub total_chunk_msg_size: Option<i32>,
    /// When what the message tells of happened; 0 if not said.
    pub event_time: u64,
    /// The version of the schema that the payload follows.
    pub schema_version: Option<&'a [u8]>,
    /// Whether the payload is encrypted: there is a key.
    pub encrypted: bool,
    /// The number of the payload's codec; see [`codec`](MetadataSummary::codec).
    pub compression: i32,
    /// The payload's size before compression; 0 if not said.
    pub uncompressed_size: u32,
    /// Whether the value is null: for compaction, the key is deleted.
    pub null_value: bool,
    /// The cluster that the entry was replicated from; text. Its presence stops further replication.
    pub replicated_from: Option<&'a [u8]>,
    /// Whether replication is restricted; the generated type has the clusters.
    pub replication_restricted: bool,
}

impl<'a> MetadataSummary<'a> {
    /// Scans serialized metadata. Fields that are not of interest are stepped over unread.
    ///
    /// # Errors
    /// [`EntryError`] if the bytes are not protobuf or a required field is missing.
    pub fn parse(metadata: &'a [u8]) -> Result<MetadataSummary<'a>, EntryError> {
        let mut found = MetadataSummary::default();
        let (mut producer_name, mut sequence_id, mut publish_time) = (None, None, None);
        let mut reader = Reader::new(metadata);
        while let Some(key) = reader.next_key()? {
            match key.field {
                1 => producer_name = Some(reader.delimited(key)?),
                2 => sequence_id = Some(reader.varint(key)?),
                3 => publish_time = Some(UnixMillis(reader.varint(key)?.cast_signed())),
                5 => found.replicated_from = Some(reader.delimited(key)?),
                6 => found.partition_key = Some(reader.delimited(key)?),
                7 => {
                    reader.delimited(key)?;
                    found.replication_restricted = true;
                }
                8 => found.compression = reader.int32(key)?,
                9 => found.uncompressed_size = reader.int32(key)?.cast_unsigned(),
                11 => found.num_messages_in_batch = Some(reader.int32(key)?),
                12 => found.event_time = reader.varint(key)?,
                13 => {
                    reader.delimited(key)?;
                    found.encrypted = true;
                }
                16 => found.schema_version = Some(reader.delimited(key)?),
                17 => found.partition_key_b64_encoded = reader.bool(key)?,
                18 => found.ordering_key = Some(reader.delimited(key)?),
                19 => found.deliver_at_time = Some(UnixMillis(reader.varint(key)?.cast_signed())),
                20 => found.marker_type = Some(reader.int32(key)?),
                22 => found.txnid_least_bits = Some(reader.varint(key)?),
                23 => found.txnid_most_bits = Some(reader.varint(key)?),
                24 => found.highest_sequence_id = reader.varint(key)?,
                25 => found.null_value = reader.bool(key)?,
                26 => found.uuid = Some(reader.delimited(key)?),
                27 => found.num_chunks_from_msg = Some(reader.int32(key)?),
                28 => found.total_chunk_msg_size = Some(reader.int32(key)?),
                29 => found.chunk_id = Some(reader.int32(key)?),
                30 => found.null_partition_key = reader.bool(key)?,
                _ => reader.skip(key, MAX_DEPTH)?,
            }
        }
        found.producer_name = producer_name.ok_or(EntryError::MissingField("producer_name"))?;
        found.sequence_id = sequence_id.ok_or(EntryError::MissingField("sequence_id"))?;
        found.publish_time = publish_time.ok_or(EntryError::MissingField("publish_time"))?;
        Ok(found)
    }

    /// Whether the payload is a batch. Fact: what counts is that the number of messages is said, not which it is.
    #[must_use]
    pub fn is_batch(&self) -> bool {
        self.num_messages_in_batch.is_some()
    }

    /// How many messages the entry has by the producer's word, at least 1. A producer may claim any number up to 2³¹.
    #[must_use]
    pub fn messages(&self) -> u32 {
        self.num_messages_in_batch.and_then(|count| u32::try_from(count).ok()).unwrap_or(1).max(1)
    }

    /// The highest sequence id of the entry: of its batch if that is said and makes sense, else the only one.
    #[must_use]
    pub fn last_sequence_id(&self) -> u64 {
        // Both are signed numbers, see `sequence_id`.
        self.highest_sequence_id.cast_signed().max(self.sequence_id.cast_signed()).cast_unsigned()
    }

    /// The producer's name as text, with a replacement for whatever is not UTF-8.
    #[must_use]
    pub fn producer_name_text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.producer_name)
    }

    /// The codec of the payload; `None` if it is none that the protocol knows.
    #[must_use]
    pub fn codec(&self) -> Option<CompressionType> {
        CompressionType::try_from(self.compression).ok()
    }

    /// The transaction that the entry belongs to.
    #[must_use]
    pub fn txn_id(&self) -> Option<TxnId> {
        TxnId::from_bits(self.txnid_most_bits, self.txnid_least_bits)
    }

    /// Which chunk the entry is, if it is one of several.
    #[must_use]
    pub fn chunk(&self) -> Option<Chunk<'a>> {
        let count = self.num_chunks_from_msg.filter(|count| *count > 1)?;
        Some(Chunk { uuid: self.uuid?, id: self.chunk_id?, count, total_size: self.total_chunk_msg_size.unwrap_or(0) })
    }

    /// The key that decides to whom a Key_Shared subscription gives the entry.
    ///
    /// Facts: the ordering key; else the partition key, decoded if it is base64; else `<producer>-<sequence id>`;
    /// [`NONE_KEY`] if the base64 is none.
    #[must_use]
    pub fn sticky_key(&self) -> Cow<'a, [u8]> {
        match (self.ordering_key, self.partition_key) {
            (Some(key), _) => Cow::Borrowed(key),
            (None, Some(key)) if self.partition_key_b64_encoded => {
                BASE64.decode(key).map_or(Cow::Borrowed(NONE_KEY), Cow::Owned)
            }
            (None, Some(key)) => Cow::Borrowed(key),
            (None, None) => Cow::Owned(self.producer_key().to_vec()),
        }
    }

    /// The Key_Shared slot of the [`sticky_key`](MetadataSummary::sticky_key). Allocates only for keys in base64.
    #[must_use]
    pub fn sticky_key_slot(&self) -> u32 {
        match (self.ordering_key, self.partition_key) {
            (None, None) => key_slot(&self.producer_key()),
            _ => key_slot(&self.sticky_key()),
        }
    }

    /// The key of an entry without one.
    fn producer_key(&self) -> SmallVec<[u8; 96]> {
        struct Text(SmallVec<[u8; 96]>);
        impl Write for Text {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
        let mut key = Text(SmallVec::from_slice(self.producer_name));
        // Writing to memory cannot fail.
        let _ = write!(key, "-{}", self.sequence_id.cast_signed());
        key.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{EncryptionKeys, KeyValue, MessageMetadata};
    use crate::testing::{damage, number};
    use proptest::option::of;
    use proptest::prelude::*;
    use prost::Message;

    fn summary(metadata: &MessageMetadata) -> (Vec<u8>, u32) {
        let bytes = metadata.encode_to_vec();
        let summary = MetadataSummary::parse(&bytes).unwrap();
        (summary.sticky_key().into_owned(), summary.sticky_key_slot())
    }

    #[test]
    fn sticky_keys() {
        let plain = MessageMetadata { producer_name: "p".into(), sequence_id: 7, ..Default::default() };
        let key = |key: &str, b64| MessageMetadata {
            partition_key: Some(key.into()),
            partition_key_b64_encoded: b64,
            ..plain.clone()
        };
        for (metadata, sticky) in [
            (plain.clone(), "p-7"),
            (MessageMetadata { sequence_id: u64::MAX, ..plain.clone() }, "p--1"),
            (key("key-1", None), "key-1"),
            (key("", None), ""),
            (key("a2V5LTE=", None), "a2V5LTE="),
            (key("a2V5LTE=", Some(true)), "key-1"),
            (key("a2V5LTE", Some(true)), "key-1"),
            (key("a2V5LTF", Some(true)), "key-1"),
            (key("not base64!", Some(true)), "NONE_KEY"),
            (MessageMetadata { ordering_key: Some("order".into()), ..key("key-1", None) }, "order"),
        ] {
            assert_eq!(summary(&metadata), (sticky.as_bytes().to_vec(), key_slot(sticky.as_bytes())), "{metadata:?}");
        }
    }

    #[test]
    fn required_fields() {
        for (bytes, field) in [
            (&[][..], "producer_name"),
            (&[10, 1, b'p', 24, 0], "sequence_id"),
            (&[10, 1, b'p', 16, 0], "publish_time"),
        ] {
            assert_eq!(MetadataSummary::parse(bytes), Err(EntryError::MissingField(field)));
        }
    }

    #[test]
    fn numbers_that_make_no_sense() {
        let batch = |n| MetadataSummary { num_messages_in_batch: n, ..Default::default() };
        for (said, messages) in [(None, 1), (Some(0), 1), (Some(-5), 1), (Some(1), 1), (Some(7), 7)] {
            assert_eq!((batch(said).is_batch(), batch(said).messages()), (said.is_some(), messages));
        }
        let ids = |sequence_id, highest_sequence_id| {
            MetadataSummary { sequence_id, highest_sequence_id, ..Default::default() }.last_sequence_id()
        };
        assert_eq!([ids(5, 0), ids(5, 9), ids(u64::MAX, 0)], [5, 9, 0]);
        let chunk =
            MetadataSummary { uuid: Some(b"u"), chunk_id: Some(0), num_chunks_from_msg: Some(2), ..Default::default() };
        assert_eq!(chunk.chunk(), Some(Chunk { uuid: b"u", id: 0, count: 2, total_size: 0 }));
        assert_eq!(MetadataSummary { num_chunks_from_msg: Some(1), ..chunk }.chunk(), None);
        assert_eq!(MetadataSummary { compression: 9, ..Default::default() }.codec(), None);
    }

    prop_compose! {
        fn first_half()(
            producer_name in ".{0,6}", sequence_id in number(), publish_time in number(),
            properties in prop::collection::vec((".{0,3}", ".{0,3}"), 0..3),
            replicated_from in of(".{0,3}"), partition_key in of(".{0,5}"),
            replicate_to in prop::collection::vec(".{0,3}", 0..2),
            compression in of(0..5i32), uncompressed_size: Option<u32>, num_messages_in_batch: Option<i32>,
            event_time in of(number()),
        ) -> MessageMetadata {
            let properties = properties.into_iter().map(|(key, value)| KeyValue { key, value }).collect();
            MessageMetadata {
                producer_name, sequence_id, publish_time, properties, replicated_from, partition_key, replicate_to,
                compression, uncompressed_size, num_messages_in_batch, event_time, ..Default::default()
            }
        }
    }

    prop_compose! {
        fn metadata()(
            first in first_half(), keys in 0usize..2,
            schema_version in of(prop::collection::vec(any::<u8>(), 0..9)),
            flags: [Option<bool>; 3],
            ordering_key in of(prop::collection::vec(any::<u8>(), 0..9)),
            deliver_at_time: Option<i64>, marker_type: Option<i32>,
            txn in (of(number()), of(number())), highest_sequence_id in of(number()),
            uuid in of(".{0,5}"), chunks: [Option<i32>; 3],
        ) -> MessageMetadata {
            MessageMetadata {
                encryption_keys: vec![EncryptionKeys { key: "k".into(), ..Default::default() }; keys],
                schema_version: schema_version.map(Into::into), ordering_key: ordering_key.map(Into::into),
                partition_key_b64_encoded: flags[0], null_value: flags[1], null_partition_key: flags[2],
                deliver_at_time, marker_type, txnid_least_bits: txn.0, txnid_most_bits: txn.1, highest_sequence_id, uuid,
                num_chunks_from_msg: chunks[0], total_chunk_msg_size: chunks[1], chunk_id: chunks[2],
                compacted_batch_indexes: vec![1, 2], ..first
            }
        }
    }

    /// What the scan should find, from the generated type.
    fn expected(of: &MessageMetadata) -> MetadataSummary<'_> {
        MetadataSummary {
            producer_name: of.producer_name.as_bytes(),
            sequence_id: of.sequence_id,
            highest_sequence_id: of.highest_sequence_id(),
            publish_time: UnixMillis(of.publish_time.cast_signed()),
            num_messages_in_batch: of.num_messages_in_batch,
            partition_key: of.partition_key.as_deref().map(str::as_bytes),
            partition_key_b64_encoded: of.partition_key_b64_encoded(),
            null_partition_key: of.null_partition_key(),
            ordering_key: of.ordering_key.as_deref(),
            deliver_at_time: of.deliver_at_time.map(UnixMillis),
            marker_type: of.marker_type,
            txnid_least_bits: of.txnid_least_bits,
            txnid_most_bits: of.txnid_most_bits,
            uuid: of.uuid.as_deref().map(str::as_bytes),
            chunk_id: of.chunk_id,
            num_chunks_from_msg: of.num_chunks_from_msg,
            total_chunk_msg_size: of.total_chunk_msg_size,
            event_time: of.event_time(),
            schema_version: of.schema_version.as_deref(),
            encrypted: !of.encryption_keys.is_empty(),
            compression: of.compression.unwrap_or(0),
            uncompressed_size: of.uncompressed_size(),
            null_value: of.null_value(),
            replicated_from: of.replicated_from.as_deref().map(str::as_bytes),
            replication_restricted: !of.replicate_to.is_empty(),
        }
    }

    proptest! {
        #[test]
        fn finds_what_prost_finds(metadata in metadata()) {
            let bytes = metadata.encode_to_vec();
            let summary = MetadataSummary::parse(&bytes).unwrap();
            prop_assert_eq!(&summary, &expected(&metadata));
            prop_assert_eq!(summary.sticky_key_slot(), key_slot(&summary.sticky_key()));
        }

        #[test]
        fn reads_whatever_prost_reads(bytes in damage(metadata().prop_map(|metadata| metadata.encode_to_vec()))) {
            let Ok(metadata) = MessageMetadata::decode(bytes.as_slice()) else { return Ok(()) };
            match MetadataSummary::parse(&bytes) {
                Ok(summary) => prop_assert_eq!(summary, expected(&metadata)),
                // prost does not miss required fields.
                Err(error) => prop_assert!(matches!(error, EntryError::MissingField(_)), "{}", error),
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(summary) = MetadataSummary::parse(&bytes) {
                prop_assert!(summary.sticky_key_slot() < geminga_model::KEY_HASH_SLOTS);
            }
        }
    }
}
