//! A payload: decompressed to what was promised and not beyond the limit, read as a batch, and both again.

use bytes::Bytes;
use geminga_wire::{BatchBuilder, CompressionType, compress, decompress, read_batch};

use super::choice;
use crate::memory::within;

/// What the reader takes.
const LIMIT: usize = 64 << 10;

/// The target.
pub fn run(data: &[u8]) {
    let (how, data) = choice(data);
    let Some((size, payload)) = data.split_first_chunk::<2>() else { return };
    let codec = CompressionType::try_from(i32::from(how % 5)).unwrap();
    // Some beyond what is allowed.
    let promised = u32::from(u16::from_be_bytes(*size)) * if how & 0x80 == 0 { 1 } else { 1 << 15 };
    let payload = Bytes::copy_from_slice(payload);
    let plain = within(LIMIT + (80 << 10), || decompress(codec, payload.clone(), promised, LIMIT));
    if let Ok(plain) = plain {
        assert!(codec == CompressionType::None || (plain.len() == promised as usize && plain.len() <= LIMIT));
        let size = u32::try_from(plain.len()).unwrap();
        let packed = compress(codec, plain.clone()).unwrap();
        assert_eq!(decompress(codec, packed, size, plain.len()).unwrap(), plain);
        batch(&plain);
    }
    batch(&payload);
}

fn batch(body: &Bytes) {
    let read: Vec<_> = within(1024 + 200 * body.len(), || read_batch(body.clone(), u32::MAX).collect());
    // The count is false, so that the last is an error; the others can be written again.
    let mut builder = BatchBuilder::new();
    let mut good = Vec::new();
    for message in read.into_iter().flatten() {
        builder.push(message.metadata.clone(), &message.payload);
        good.push(message);
    }
    let count = builder.count();
    let again: Result<Vec<_>, _> = read_batch(builder.finish(), count).collect();
    assert_eq!(again, Ok(good));
}
