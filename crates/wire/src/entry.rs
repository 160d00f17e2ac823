//! Entries: what a SEND carries behind its command, what is stored, and what a MESSAGE carries.
//!
//! Fact: an entry is, in this order, `0x0E02, u32 size, BrokerEntryMetadata` (if the broker adds it),
//! `0x0E01, u32 CRC-32C` (if the producer is not very old), `u32 size, MessageMetadata`, and the payload. The checksum
//! covers every byte after it.

use bytes::{BufMut, Bytes, BytesMut};
use geminga_model::UnixMillis;
use prost::Message;

use crate::checksum::{BROKER_ENTRY_MAGIC, CHECKSUM_MAGIC, crc32c};
use crate::command::frame_size;
use crate::error::Malformed;
use crate::hot::{SendCommand, encode_send_header};
use crate::metadata::MetadataSummary;
use crate::proto::MessageMetadata;
use crate::varint::{MAX_DEPTH, Reader, field_len, put_field};

/// Why bytes are not an entry.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EntryError {
    /// The entry ends within the named part.
    #[error("the entry ends within its {0}")]
    Truncated(&'static str),
    /// The bytes are not those that the producer summed.
    #[error("the checksum is {stored:#010x}, but the bytes have {computed:#010x}")]
    Checksum {
        /// What the entry says.
        stored: u32,
        /// What its bytes have.
        computed: u32,
    },
    /// The metadata are not protobuf.
    #[error("malformed metadata: {0}")]
    Malformed(#[from] Malformed),
    /// The metadata are not what the generated type accepts.
    #[error("malformed metadata: {0}")]
    Generated(#[from] prost::DecodeError),
    /// The metadata lack what the protocol requires.
    #[error("metadata without the required field {0}")]
    MissingField(&'static str),
}

/// What a broker puts in front of an entry, if it is configured to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerEntry {
    /// The broker's clock when it took the entry.
    pub broker_timestamp: Option<UnixMillis>,
    /// The index of the entry's last message within the topic, from 0.
    pub index: Option<i64>,
}

/// Where the parts of an entry lie.
#[derive(Clone, Copy, Debug)]
struct Parts {
    broker_entry: Option<BrokerEntry>,
    /// Where the entry proper begins: behind the broker's block.
    start: usize,
    checksum: Option<u32>,
    /// Where the metadata's size begins, which is where the checksum's cover begins.
    covered: usize,
    /// Where the payload begins.
    payload: usize,
}

impl Parts {
    fn find(bytes: &[u8]) -> Result<Parts, EntryError> {
        let mut rest = bytes;
        let mut broker_entry = None;
        if let Some(block) = rest.strip_prefix(&BROKER_ENTRY_MAGIC.to_be_bytes()) {
            let (block, after) = sized(block).ok_or(EntryError::Truncated("broker entry metadata"))?;
            broker_entry = Some(decode_broker_entry(block)?);
            rest = after;
        }
        let start = bytes.len() - rest.len();
        let mut checksum = None;
        if let Some(summed) = rest.strip_prefix(&CHECKSUM_MAGIC.to_be_bytes()) {
            let (sum, after) = summed.split_first_chunk::<4>().ok_or(EntryError::Truncated("checksum"))?;
            checksum = Some(u32::from_be_bytes(*sum));
            rest = after;
        }
        let covered = bytes.len() - rest.len();
        let (_, after) = sized(rest).ok_or(EntryError::Truncated("metadata"))?;
        let payload = bytes.len() - after.len();
        Ok(Parts { broker_entry, start, checksum, covered, payload })
    }

    fn metadata<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.covered + 4..self.payload).unwrap_or_default()
    }

    fn verify_checksum(&self, bytes: &[u8]) -> Result<(), EntryError> {
        let Some(stored) = self.checksum else { return Ok(()) };
        let computed = crc32c(&[bytes.get(self.covered..).unwrap_or_default()]);
        if computed == stored { Ok(()) } else { Err(EntryError::Checksum { stored, computed }) }
    }
}

/// An entry and where its parts lie. Its bytes are shared, not copied.
#[derive(Clone, Debug)]
pub struct Entry {
    bytes: Bytes,
    parts: Parts,
}

impl Entry {
    /// Finds the parts. The metadata are not looked into, and the checksum is not verified.
    ///
    /// # Errors
    /// [`EntryError::Truncated`] or [`EntryError::Malformed`] if the parts do not fit into the bytes, or the broker's
    /// block is not protobuf.
    pub fn parse(bytes: Bytes) -> Result<Entry, EntryError> {
        let parts = Parts::find(&bytes)?;
        Ok(Entry { bytes, parts })
    }

    /// Checks that `bytes` are a whole entry that has the checksum it carries, and gives what a broker needs of its
    /// metadata.
    ///
    /// # Errors
    /// Those of [`Entry::parse`], [`Entry::verify_checksum`] and [`Entry::summary`].
    pub fn check(bytes: &[u8]) -> Result<MetadataSummary<'_>, EntryError> {
        let parts = Parts::find(bytes)?;
        parts.verify_checksum(bytes)?;
        MetadataSummary::parse(parts.metadata(bytes))
    }

    /// All of it, as it was given.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// What a broker put in front.
    #[must_use]
    pub fn broker_entry(&self) -> Option<BrokerEntry> {
        self.parts.broker_entry
    }

    /// The entry without what a broker put in front: as the producer sent it, and as consumers get it unless they are
    /// to see the broker's block. Its length is what counts against the largest message size.
    #[must_use]
    pub fn without_broker_entry(&self) -> Bytes {
        self.bytes.slice(self.parts.start..)
    }

    /// The entry without the broker's block and the checksum, for consumers below protocol version 11.
    #[must_use]
    pub fn without_checksum(&self) -> Bytes {
        self.bytes.slice(self.parts.covered..)
    }

    /// The serialized metadata.
    #[must_use]
    pub fn metadata_bytes(&self) -> &[u8] {
        self.parts.metadata(&self.bytes)
    }

    /// What a broker needs of the metadata, borrowed.
    ///
    /// # Errors
    /// As [`MetadataSummary::parse`]. Such an entry has no key, and one message.
    pub fn summary(&self) -> Result<MetadataSummary<'_>, EntryError> {
        MetadataSummary::parse(self.metadata_bytes())
    }

    /// The whole metadata.
    ///
    /// # Errors
    /// [`EntryError::Generated`] if they are not protobuf.
    pub fn metadata(&self) -> Result<MessageMetadata, EntryError> {
        Ok(MessageMetadata::decode(self.metadata_bytes())?)
    }

    /// The payload: a message or a batch, compressed and encrypted as the metadata say.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        self.bytes.slice(self.parts.payload..)
    }

    /// The checksum that the entry carries.
    #[must_use]
    pub fn checksum(&self) -> Option<u32> {
        self.parts.checksum
    }

    /// Compares the checksum with the bytes. An entry without one passes.
    ///
    /// # Errors
    /// [`EntryError::Checksum`]; on publish, a SEND_ERROR with `ChecksumError`.
    pub fn verify_checksum(&self) -> Result<(), EntryError> {
        self.parts.verify_checksum(&self.bytes)
    }

    /// When the entry was published, for expiry and for seeking by time: by the broker's clock if it is stored, else
    /// by the producer's, which is in `summary`.
    #[must_use]
    pub fn timestamp(&self, summary: &MetadataSummary<'_>) -> UnixMillis {
        self.parts.broker_entry.and_then(|block| block.broker_timestamp).unwrap_or(summary.publish_time)
    }
}

/// Splits off what is behind a size, and gives it and the rest.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*size)).ok()?)
}

fn decode_broker_entry(block: &[u8]) -> Result<BrokerEntry, Malformed> {
    let mut found = BrokerEntry::default();
    let mut reader = Reader::new(block);
    while let Some(key) = reader.next_key()? {
        match key.field {
            1 => found.broker_timestamp = Some(UnixMillis(reader.varint(key)?.cast_signed())),
            2 => found.index = Some(reader.varint(key)?.cast_signed()),
            _ => reader.skip(key, MAX_DEPTH)?,
        }
    }
    Ok(found)
}

/// Writes the block that goes in front of an entry.
pub fn encode_broker_entry(out: &mut BytesMut, block: &BrokerEntry) {
    let timestamp = block.broker_timestamp.map(|time| time.0.cast_unsigned());
    let index = block.index.map(i64::cast_unsigned);
    let length = timestamp.map_or(0, field_len) + index.map_or(0, field_len);
    out.reserve(6 + length);
    out.put_u16(BROKER_ENTRY_MAGIC);
    out.put_u32(frame_size(length));
    if let Some(timestamp) = timestamp {
        put_field(out, 1, timestamp);
    }
    if let Some(index) = index {
        put_field(out, 2, index);
    }
}

/// An entry with a block in front. Copies the entry; to avoid that, write the two as two slices.
#[must_use]
pub fn with_broker_entry(block: &BrokerEntry, entry: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(32 + entry.len());
    encode_broker_entry(&mut out, block);
    out.extend_from_slice(entry);
    out.freeze()
}

/// Writes what stands in front of a payload: checksum, size, metadata.
pub fn encode_entry_header(out: &mut BytesMut, metadata: &MessageMetadata, payload: &[u8]) {
    let length = metadata.encoded_len();
    out.reserve(10 + length);
    out.put_u16(CHECKSUM_MAGIC);
    let sum_at = out.len();
    out.put_u32(0);
    out.put_u32(frame_size(length));
    metadata.encode_raw(out);
    let (before, covered) = out.split_at_mut(sum_at + 4);
    let sum = crc32c(&[covered, payload]);
    if let Some(place) = before.last_chunk_mut::<4>() {
        *place = sum.to_be_bytes();
    }
}

/// The entry made of metadata and a payload: the tail of a SEND, and what is stored.
#[must_use]
pub fn encode_entry(metadata: &MessageMetadata, payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(10 + metadata.encoded_len() + payload.len());
    encode_entry_header(&mut out, metadata, payload);
    out.extend_from_slice(payload);
    out.freeze()
}

/// Writes the whole frame of a SEND: command, metadata with checksum, payload.
pub fn encode_send(out: &mut BytesMut, send: &SendCommand, metadata: &MessageMetadata, payload: &[u8]) {
    encode_send_header(out, send, 10 + metadata.encoded_len() + payload.len());
    encode_entry_header(out, metadata, payload);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, decode_command};
    use crate::frame::FrameSplitter;
    use crate::proto::BrokerEntryMetadata;
    use crate::testing::{damage, hex, number};
    use proptest::option::of;
    use proptest::prelude::*;

    const SEND: &str = "00000027 00000008 08 06 32 04 08 01 10 00 0e 01 cf85822f 0000000c 0a 01 70 10 00 18 80 d0 95 ff bc 31 68656c6c6f";
    const BLOCK: &str = "0e 02 00000009 08 81 d0 95 ff bc 31 10 00";

    fn hello() -> MessageMetadata {
        MessageMetadata { producer_name: "p".into(), publish_time: 1_700_000_000_000, ..Default::default() }
    }

    #[test]
    fn golden_send() {
        let mut out = BytesMut::new();
        encode_send(&mut out, &SendCommand::new(1, 0), &hello(), b"hello");
        assert_eq!(out, hex(SEND));

        let frame = FrameSplitter::default().split(&mut out).unwrap().unwrap();
        assert_eq!(decode_command(&frame.command), Ok(Command::Send(SendCommand::new(1, 0))));
        assert_eq!(frame.payload, encode_entry(&hello(), b"hello"));
        let entry = Entry::parse(frame.payload.clone()).unwrap();
        assert_eq!(entry.verify_checksum(), Ok(()));
        assert_eq!(entry.checksum(), Some(0xCF85_822F));
        assert_eq!(entry.payload(), "hello");
        assert_eq!(entry.metadata(), Ok(hello()));
        assert_eq!(entry.broker_entry(), None);
        assert_eq!((entry.bytes(), &entry.without_broker_entry()), (&frame.payload, &frame.payload));
        assert_eq!(entry.without_checksum(), frame.payload.slice(6..));
        assert_eq!(entry.timestamp(&entry.summary().unwrap()), UnixMillis(1_700_000_000_000));
    }

    #[test]
    fn golden_broker_entry() {
        let block = BrokerEntry { broker_timestamp: Some(UnixMillis(1_700_000_000_001)), index: Some(0) };
        let plain = encode_entry(&hello(), b"hello");
        let stored = with_broker_entry(&block, &plain);
        assert_eq!(stored, [hex(BLOCK), plain.to_vec()].concat());
        let entry = Entry::parse(stored).unwrap();
        assert_eq!(entry.broker_entry(), Some(block));
        assert_eq!(entry.verify_checksum(), Ok(()));
        assert_eq!(entry.without_broker_entry(), plain);
        assert_eq!(entry.without_checksum(), plain.slice(6..));
        assert_eq!((entry.metadata(), entry.payload()), (Ok(hello()), "hello".into()));
        assert_eq!(entry.timestamp(&entry.summary().unwrap()), UnixMillis(1_700_000_000_001));
    }

    #[test]
    fn an_entry_without_checksum() {
        let entry = Entry::parse(encode_entry(&hello(), b"hello").slice(6..)).unwrap();
        assert_eq!((entry.checksum(), entry.verify_checksum(), entry.payload()), (None, Ok(()), "hello".into()));
        assert_eq!(entry.without_checksum(), entry.without_broker_entry());
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let good = encode_entry(&hello(), b"hello");
        for at in 2..good.len() {
            let mut bad = good.to_vec();
            bad[at] ^= 0x10;
            let refused = Entry::parse(bad.into()).and_then(|entry| entry.verify_checksum());
            assert!(refused.is_err(), "{at}");
        }
    }

    #[test]
    fn truncated_anywhere() {
        let stored = with_broker_entry(&BrokerEntry::default(), &encode_entry(&hello(), b""));
        for length in 0..stored.len() {
            let error = Entry::parse(stored.slice(..length)).unwrap_err();
            let part = match length {
                0..2 => "metadata",
                2..6 => "broker entry metadata",
                6..8 => "metadata",
                8..12 => "checksum",
                _ => "metadata",
            };
            assert_eq!(error, EntryError::Truncated(part), "{length}");
        }
        assert!(Entry::parse(stored).is_ok());
    }

    proptest! {
        #[test]
        fn broker_entries_agree_with_prost(timestamp in of(number()), index in of(number())) {
            let generated = BrokerEntryMetadata { broker_timestamp: timestamp, index };
            let block = BrokerEntry {
                broker_timestamp: timestamp.map(|time| UnixMillis(time.cast_signed())),
                index: index.map(u64::cast_signed),
            };
            let mut out = BytesMut::new();
            encode_broker_entry(&mut out, &block);
            prop_assert_eq!(&out[6..], generated.encode_to_vec());
            prop_assert_eq!(decode_broker_entry(&out[6..]), Ok(block));
        }

        #[test]
        fn damaged_broker_entries_agree_with_prost(
            bytes in damage((of(number()), of(number())).prop_map(|(broker_timestamp, index)| {
                BrokerEntryMetadata { broker_timestamp, index }.encode_to_vec()
            })),
        ) {
            let generated = BrokerEntryMetadata::decode(bytes.as_slice());
            let ours = decode_broker_entry(&bytes);
            prop_assert_eq!(ours.is_ok(), generated.is_ok());
            if let (Ok(ours), Ok(generated)) = (ours, generated) {
                prop_assert_eq!(ours.index.map(i64::cast_unsigned), generated.index);
                prop_assert_eq!(ours.broker_timestamp.map(|time| time.0.cast_unsigned()), generated.broker_timestamp);
            }
        }

        #[test]
        fn never_panics(
            magic in prop_oneof![Just(vec![]), Just(vec![0x0E, 1]), Just(vec![0x0E, 2, 0, 0, 0]), Just(vec![0x0E, 1, 0, 0, 0, 0, 0, 0, 0])],
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Ok(entry) = Entry::parse([magic, bytes].concat().into()) {
                let Parts { start, covered, .. } = entry.parts;
                let parts = start + (covered - start) + 4 + entry.metadata_bytes().len() + entry.payload().len();
                prop_assert_eq!(parts, entry.bytes().len());
                // Whatever these say, they say it without a panic.
                drop((entry.verify_checksum(), entry.metadata()));
                drop(entry.summary());
            }
        }
    }
}
