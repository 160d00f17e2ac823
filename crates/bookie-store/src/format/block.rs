//! A commit block: what one group commit wrote in one piece. Its header says how far the log was durable by then.

use super::le;
use super::segment::{BLOCK_ALIGN, SEGMENT_HEADER, Seed};

/// Bytes of a block header.
pub(crate) const BLOCK_HEADER: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"GBLK");

/// The segment ends behind this block.
pub(crate) const SEAL: u32 = 1;
/// Written by a start: repeats what the previous segment's tail holds. Counts only once a block without this flag
/// follows in the segment, which is written after the copy was synced.
pub(crate) const COPY: u32 = 2;

/// With [`SEAL`]: what followed here was copied into the next segment, which must be there.
pub(crate) const MOVED: u32 = 4;

/// A place in the log: everything before it belongs to it. Orders by segment, then by offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogPosition {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// The whole block, a multiple of [`BLOCK_ALIGN`].
    pub(crate) len: u32,
    /// Header and records, without the padding.
    pub(crate) used: u32,
    pub(crate) records: u32,
    pub(crate) flags: u32,
    /// The birth sequence that the next new record gets: above every one ever given.
    pub(crate) next_sequence: u64,
    /// Everything before this was durable when the block was written.
    pub(crate) durable: LogPosition,
    /// Milliseconds since 1970.
    pub(crate) written: i64,
    /// The checksum of the block header before this one in the segment, 0 for the first.
    pub(crate) previous: u32,
    /// The checksum of this header.
    pub(crate) crc: u32,
}

/// The length of a block that uses `used` bytes.
pub(crate) fn padded(used: u64) -> u64 {
    used.next_multiple_of(BLOCK_ALIGN)
}

impl BlockHeader {
    /// Fills the first 64 bytes of `block`, which lies at `offset`, and returns the header's checksum.
    pub(crate) fn encode_into(&self, seed: Seed, offset: u64, block: &mut [u8]) -> u32 {
        let mut bytes = [0; BLOCK_HEADER];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.used.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.records.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.flags.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.next_sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable.segment.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.durable.offset.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.written.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.previous.to_le_bytes());
        let crc = seed.checksum(offset, &bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        block[..BLOCK_HEADER].copy_from_slice(&bytes);
        crc
    }

    /// Reads a header that lies at `offset`; `None` if there is none, or one that this segment did not write there.
    pub(crate) fn decode(seed: Seed, offset: u64, bytes: &[u8]) -> Option<BlockHeader> {
        let bytes = bytes.get(..BLOCK_HEADER)?;
        let crc = le!(u32, bytes, 4)?;
        if le!(u32, bytes, 0)? != MAGIC || seed.checksum(offset, bytes.get(8..)?) != crc {
            return None;
        }
        let header = BlockHeader {
            len: le!(u32, bytes, 8)?,
            used: le!(u32, bytes, 12)?,
            records: le!(u32, bytes, 16)?,
            flags: le!(u32, bytes, 20)?,
            next_sequence: le!(u64, bytes, 24)?,
            durable: LogPosition { segment: le!(u64, bytes, 32)?, offset: le!(u64, bytes, 40)? },
            written: le!(i64, bytes, 48)?,
            previous: le!(u32, bytes, 56)?,
            crc,
        };
        let sound = u64::from(header.len) == padded(u64::from(header.used))
            && header.used as usize >= BLOCK_HEADER
            && offset >= SEGMENT_HEADER;
        sound.then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_only_at_its_place_and_unchanged() {
        let seed = Seed::of(1, 1, 1);
        let header = BlockHeader {
            len: 1024,
            used: 513,
            records: 3,
            flags: SEAL | COPY,
            next_sequence: 9,
            durable: LogPosition { segment: 1, offset: 4096 },
            written: 77,
            previous: 5,
            crc: 0,
        };
        let mut bytes = [0; 1024];
        let crc = header.encode_into(seed, 8192, &mut bytes);
        assert_eq!(BlockHeader::decode(seed, 8192, &bytes), Some(BlockHeader { crc, ..header }));
        assert_eq!(BlockHeader::decode(seed, 8704, &bytes), None);
        assert_eq!(BlockHeader::decode(Seed::of(1, 1, 2), 8192, &bytes), None);
        for bit in 0..BLOCK_HEADER * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::decode(seed, 8192, &bad), None, "bit {bit}");
        }
    }
}
