//! Batches: several messages in the payload of one entry.
//!
//! Fact: a batch body is, per message, `u32 size, SingleMessageMetadata` and as many bytes of payload as that metadata
//! say. It is compressed, and then encrypted, as a whole.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use crate::command::frame_size;
use crate::proto::SingleMessageMetadata;

/// Why a batch cannot be read further.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BatchError {
    /// The body ends before the message with this index does, or the message has a negative size.
    #[error("the batch ends within its message {0}")]
    Truncated(u32),
    /// The metadata of the message with this index are not protobuf.
    #[error("malformed metadata of message {index} of a batch: {error}")]
    Malformed {
        /// Which message, from 0.
        index: u32,
        /// What is wrong with it.
        error: prost::DecodeError,
    },
}

/// One message of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchMessage {
    /// What is said of this message alone.
    pub metadata: SingleMessageMetadata,
    /// Its payload, a slice of the body.
    pub payload: Bytes,
}

/// The messages of a batch in their order. Ends after the first error.
#[derive(Clone, Debug)]
pub struct BatchReader {
    body: Bytes,
    index: u32,
    count: u32,
}

/// Reads a batch of `count` messages, the metadata's number, from its decompressed and decrypted body. What the body
/// has beyond them is left alone.
#[must_use]
pub fn read_batch(body: Bytes, count: u32) -> BatchReader {
    BatchReader { body, index: 0, count }
}

impl BatchReader {
    fn read(&mut self) -> Result<BatchMessage, BatchError> {
        let truncated = || BatchError::Truncated(self.index);
        let size = self.body.try_get_u32().map_err(|_| truncated())?;
        let size = usize::try_from(size).ok().filter(|size| *size <= self.body.len()).ok_or_else(truncated)?;
        let metadata = self.body.split_to(size);
        let metadata = SingleMessageMetadata::decode(metadata.as_ref())
            .map_err(|error| BatchError::Malformed { index: self.index, error })?;
        let size = usize::try_from(metadata.payload_size).ok().filter(|size| *size <= self.body.len());
        let payload = self.body.split_to(size.ok_or(BatchError::Truncated(self.index))?);
        Ok(BatchMessage { metadata, payload })
    }
}

impl Iterator for BatchReader {
    type Item = Result<BatchMessage, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return None;
        }
        let message = self.read();
        self.index = if message.is_ok() { self.index + 1 } else { self.count };
        Some(message)
    }
}

/// Builds the body of a batch.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    body: BytesMut,
    count: u32,
}

impl BatchBuilder {
    /// An empty batch.
    #[must_use]
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// Appends a message; the payload's size in `metadata` is set here.
    pub fn push(&mut self, mut metadata: SingleMessageMetadata, payload: &[u8]) {
        // A larger payload fits into no frame.
        metadata.payload_size = i32::try_from(payload.len()).unwrap_or(i32::MAX);
        let length = metadata.encoded_len();
        self.body.reserve(4 + length + payload.len());
        self.body.put_u32(frame_size(length));
        metadata.encode_raw(&mut self.body);
        self.body.extend_from_slice(payload);
        self.count += 1;
    }

    /// How many messages there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many bytes the body has.
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.body.len()
    }

    /// The body, not compressed.
    #[must_use]
    pub fn finish(self) -> Bytes {
        self.body.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use proptest::prelude::*;

    const TWO: &str = "00000004 18 02 40 00 61 61 00000004 18 01 40 01 62";

    fn single(sequence_id: u64) -> SingleMessageMetadata {
        SingleMessageMetadata { sequence_id: Some(sequence_id), ..Default::default() }
    }

    #[test]
    fn golden_batch() {
        let mut batch = BatchBuilder::new();
        batch.push(single(0), b"aa");
        batch.push(single(1), b"b");
        assert_eq!((batch.count(), batch.body_len()), (2, 19));
        let body = batch.finish();
        assert_eq!(body, hex(TWO));
        let read: Vec<BatchMessage> = read_batch(body, 2).map(Result::unwrap).collect();
        assert_eq!(read.iter().map(|message| message.payload.as_ref()).collect::<Vec<_>>(), [&b"aa"[..], b"b"]);
        assert_eq!(read[1].metadata.sequence_id, Some(1));
    }

    #[test]
    fn ends_at_the_count_or_with_an_error() {
        let body = Bytes::from(hex(TWO));
        assert_eq!(read_batch(body.clone(), 1).count(), 1);
        let three: Vec<_> = read_batch(body.clone(), 3).collect();
        assert_eq!((three.len(), &three[2]), (3, &Err(BatchError::Truncated(2))));
        for length in 0..body.len() {
            let last = read_batch(body.slice(..length), 2).last().unwrap();
            assert_eq!(last, Err(BatchError::Truncated(u32::from(length >= 10))), "{length}");
        }
        let negative = hex("0000000b 18 ffffffffffffffffff 01");
        assert_eq!(read_batch(negative.into(), 1).next(), Some(Err(BatchError::Truncated(0))));
    }

    proptest! {
        #[test]
        fn round_trip(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6)) {
            let mut batch = BatchBuilder::new();
            for (index, payload) in payloads.iter().enumerate() {
                batch.push(single(index as u64), payload);
            }
            let count = batch.count();
            let read: Vec<_> = read_batch(batch.finish(), count).map(|message| message.unwrap().payload.to_vec()).collect();
            prop_assert_eq!(read, payloads);
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..60), count: u32) {
            // A message takes at least four bytes, so that a false count ends with the body.
            prop_assert!(read_batch(bytes.into(), count).count() <= 16);
        }
    }
}
