//! The codecs of payloads. All are raw, without a frame of Pulsar's own; the size before compression is in the metadata.
//!
//! Facts: LZ4 and Snappy are bare blocks, Zstandard is an ordinary frame, and the Java client's zlib stream is flushed
//! but never finished, so a reader stops when it has what the metadata promised. A batch is compressed as a whole.

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::proto::CompressionType;

/// Fact: the level that the Java client uses.
const ZSTD_LEVEL: i32 = 3;

/// Why a payload could not be compressed or decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// The metadata promises more than the caller takes, or more than this codec can make of so few bytes.
    #[error("{size} bytes after decompression exceed the limit of {limit}")]
    TooLarge {
        /// What the metadata says.
        size: usize,
        /// What is possible or allowed.
        limit: usize,
    },
    /// The bytes are not the codec's, or do not make as many bytes as promised.
    #[error("corrupt {codec} data: {reason}")]
    Corrupt {
        /// The codec's name in the protocol.
        codec: &'static str,
        /// What the codec says.
        reason: String,
    },
    /// The codec could not compress. No input makes it so; its library failed.
    #[error("{codec} failed to compress: {reason}")]
    Failed {
        /// The codec's name in the protocol.
        codec: &'static str,
        /// What the codec says.
        reason: String,
    },
}

/// Compresses a payload or batch body.
///
/// # Errors
/// [`CompressionError::Failed`] if the codec's library does; send the payload uncompressed then, or fail the send.
pub fn compress(codec: CompressionType, data: Bytes) -> Result<Bytes, CompressionError> {
    let failed = |reason: String| CompressionError::Failed { codec: codec.as_str_name(), reason };
    match codec {
        CompressionType::None => Ok(data),
        CompressionType::Lz4 => Ok(lz4_flex::block::compress(&data).into()),
        CompressionType::Zlib => deflate(&data).map(Bytes::from).map_err(failed),
        CompressionType::Zstd => {
            zstd::bulk::compress(&data, ZSTD_LEVEL).map(Bytes::from).map_err(|error| failed(error.to_string()))
        }
        CompressionType::Snappy => {
            snap::raw::Encoder::new().compress_vec(&data).map(Bytes::from).map_err(|error| failed(error.to_string()))
        }
    }
}

/// Decompresses a payload or batch body to exactly `uncompressed_size` bytes, the metadata's number.
///
/// What is stored uncompressed is handed back as it is, whatever number its metadata has: clients do not always set it.
///
/// # Errors
/// [`CompressionError::TooLarge`] before anything is allocated, if the result would exceed `limit` bytes;
/// [`CompressionError::Corrupt`] if the data does not decompress to that size. The message cannot be read.
pub fn decompress(
    codec: CompressionType,
    data: Bytes,
    uncompressed_size: u32,
    limit: usize,
) -> Result<Bytes, CompressionError> {
    if codec == CompressionType::None || (data.is_empty() && uncompressed_size == 0) {
        return Ok(data);
    }
    let size = usize::try_from(uncompressed_size).unwrap_or(usize::MAX);
    let limit = limit.min(data.len().saturating_mul(max_ratio(codec)));
    if size > limit {
        return Err(CompressionError::TooLarge { size, limit });
    }
    let corrupt = |reason: String| CompressionError::Corrupt { codec: codec.as_str_name(), reason };
    let result = match codec {
        CompressionType::None => Ok(Vec::new()),
        CompressionType::Lz4 => unlz4(&data, size),
        CompressionType::Zlib => inflate(&data, size),
        CompressionType::Zstd => zstd::bulk::decompress(&data, size).map_err(|error| error.to_string()),
        CompressionType::Snappy => unsnap(&data, size),
    };
    let result = result.map_err(corrupt)?;
    if result.len() != size {
        return Err(corrupt(format!("{} bytes instead of {size}", result.len())));
    }
    Ok(result.into())
}

/// More than any data of the codec expands to: a byte of LZ4 adds at most 255 to a match, deflate codes at least one
/// bit for 258 bytes, a Snappy copy of two bytes stands for 64. Zstandard has no such bound.
fn max_ratio(codec: CompressionType) -> usize {
    match codec {
        CompressionType::None => 1,
        CompressionType::Lz4 => 256,
        CompressionType::Zlib => 8 * 258,
        CompressionType::Snappy => 64,
        CompressionType::Zstd => usize::MAX,
    }
}

fn unlz4(data: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let mut out = vec![0; size];
    let length = lz4_flex::block::decompress_into(data, &mut out).map_err(|error| error.to_string())?;
    out.truncate(length);
    Ok(out)
}

fn unsnap(data: &[u8], size: usize) -> Result<Vec<u8>, String> {
    // The block's own length decides what the library allocates.
    let length = snap::raw::decompress_len(data).map_err(|error| error.to_string())?;
    if length != size {
        return Err(format!("{length} bytes instead of {size}"));
    }
    snap::raw::Decoder::new().decompress_vec(data).map_err(|error| error.to_string())
}

/// A finished zlib stream, which the readers of unfinished ones read as well.
fn deflate(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut stream = Compress::new(Compression::default(), true);
    let mut out = Vec::with_capacity(data.len() / 2 + 64);
    loop {
        let consumed = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let rest = data.get(consumed..).unwrap_or_default();
        match stream.compress_vec(rest, &mut out, FlushCompress::Finish).map_err(|error| error.to_string())? {
            Status::StreamEnd => return Ok(out),
            Status::Ok | Status::BufError => out.reserve(data.len() / 2 + 64),
        }
    }
}

/// Inflates until `size` bytes are there, whether or not the stream ends.
fn inflate(data: &[u8], size: usize) -> Result<Vec<u8>, String> {
    let mut stream = Decompress::new(true);
    let mut out = vec![0; size];
    let mut filled = 0;
    while filled < size {
        let consumed = usize::try_from(stream.total_in()).unwrap_or(usize::MAX);
        let (rest, room) = (data.get(consumed..).unwrap_or_default(), out.get_mut(filled..).unwrap_or_default());
        let status = stream.decompress(rest, room, FlushDecompress::Sync).map_err(|error| error.to_string())?;
        let now = usize::try_from(stream.total_out()).unwrap_or(usize::MAX);
        let stuck = now == filled && usize::try_from(stream.total_in()).is_ok_and(|total| total == consumed);
        filled = now;
        if filled < size && (stuck || status == Status::StreamEnd) {
            break;
        }
    }
    out.truncate(filled);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use proptest::prelude::*;

    const CODECS: [CompressionType; 5] = [
        CompressionType::None,
        CompressionType::Lz4,
        CompressionType::Zlib,
        CompressionType::Zstd,
        CompressionType::Snappy,
    ];

    fn size(data: &[u8]) -> u32 {
        u32::try_from(data.len()).unwrap()
    }

    #[test]
    fn blocks_written_by_hand() {
        // A literal of five bytes in each format, from the formats' definitions.
        for (codec, block) in [
            (CompressionType::Lz4, "50 68656c6c6f"),
            (CompressionType::Snappy, "05 10 68656c6c6f"),
            // A stored deflate block that is not the last, as SYNC_FLUSH leaves it, and no checksum.
            (CompressionType::Zlib, "78 01 00 0500 faff 68656c6c6f"),
            // The same and the empty block that the flush adds.
            (CompressionType::Zlib, "78 9c 00 0500 faff 68656c6c6f 00 0000 ffff"),
            (CompressionType::Zstd, "28b52ffd 20 05 29 0000 68656c6c6f"),
        ] {
            let data = Bytes::from(hex(block));
            assert_eq!(decompress(codec, data.clone(), 5, 100).unwrap(), "hello", "{codec:?}");
            assert!(decompress(codec, data.clone(), 6, 100).is_err(), "{codec:?}");
            assert!(matches!(decompress(codec, data, 5, 4), Err(CompressionError::TooLarge { size: 5, .. })));
        }
    }

    #[test]
    fn unfinished_zlib_streams_are_read() {
        let data: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        let mut stream = Compress::new(Compression::default(), true);
        let mut out = Vec::with_capacity(200_000);
        stream.compress_vec(&data, &mut out, FlushCompress::Sync).unwrap();
        assert_eq!(stream.total_in(), 100_000);
        assert_eq!(decompress(CompressionType::Zlib, out.into(), 100_000, 100_000).unwrap(), data);
    }

    #[test]
    fn no_allocation_on_the_word_of_few_bytes() {
        for codec in [CompressionType::Lz4, CompressionType::Zlib, CompressionType::Snappy] {
            let result = decompress(codec, Bytes::from_static(&[0; 16]), u32::MAX, usize::MAX);
            assert!(matches!(result, Err(CompressionError::TooLarge { limit, .. }) if limit <= 16 * 8 * 258));
        }
    }

    #[test]
    fn the_most_compressible_data_is_within_the_ratio() {
        let zeros = Bytes::from(vec![0; 4 << 20]);
        for codec in CODECS {
            let packed = compress(codec, zeros.clone()).unwrap();
            assert_eq!(decompress(codec, packed, size(&zeros), zeros.len()).unwrap(), zeros, "{codec:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(data in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..2000),
            prop::collection::vec(0u8..3, 0..2000),
        ]) {
            for codec in CODECS {
                let packed = compress(codec, data.clone().into()).unwrap();
                let plain = decompress(codec, packed, size(&data), data.len());
                prop_assert_eq!(plain.as_deref(), Ok(data.as_slice()), "{:?}", codec);
            }
        }

        #[test]
        fn damage_never_panics_nor_exceeds(
            data in prop::collection::vec(any::<u8>(), 0..200),
            at: prop::sample::Index,
            with: u8,
            claimed in 0u32..4000,
        ) {
            for codec in CODECS {
                let mut packed = compress(codec, data.clone().into()).unwrap().to_vec();
                if let Some(byte) = (!packed.is_empty()).then(|| at.index(packed.len())).and_then(|at| packed.get_mut(at)) {
                    *byte = with;
                }
                for input in [packed, data.clone()] {
                    if let Ok(plain) = decompress(codec, input.into(), claimed, 3000) {
                        prop_assert!(codec == CompressionType::None || plain.len() == claimed as usize);
                    }
                }
            }
        }
    }
}
