//! The first 4096 bytes of a segment.

use super::le;

/// The version of segments that this code reads and writes.
pub(crate) const SEGMENT_VERSION: u32 = 1;
/// Bytes before the first block.
pub(crate) const SEGMENT_HEADER: u64 = 4096;
/// Blocks start at multiples of this: a durable sector is never written again.
pub(crate) const BLOCK_ALIGN: u64 = 512;
const MAGIC: [u8; 8] = *b"GMNGSEG\n";
/// Bytes of the header that mean something; the rest is zero.
const USED: usize = 64;

/// The name tag of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Rises with every segment of the store, never used twice.
    pub(crate) id: u64,
    /// Counts the starts of the store.
    pub(crate) epoch: u64,
    /// The store that the segment belongs to.
    pub(crate) store: u64,
    /// Milliseconds since 1970 when the store was started.
    pub(crate) created: i64,
}

/// Why a segment header is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadSegment {
    Version(u32),
    Garbled,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SEGMENT_HEADER as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.store.to_le_bytes());
        bytes.extend_from_slice(&self.created.to_le_bytes());
        bytes.extend_from_slice(&(SEGMENT_HEADER as u32).to_le_bytes());
        bytes.extend_from_slice(&(BLOCK_ALIGN as u32).to_le_bytes());
        bytes.resize(USED, 0);
        let crc = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes.resize(SEGMENT_HEADER as usize, 0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<SegmentHeader, BadSegment> {
        let used = bytes.get(..USED).ok_or(BadSegment::Garbled)?;
        let field = |at| le!(u64, used, at).ok_or(BadSegment::Garbled);
        let crc = le!(u32, used, 12).ok_or(BadSegment::Garbled)?;
        let mut plain = used.to_vec();
        plain[12..16].fill(0);
        if used.get(..8) != Some(&MAGIC) || crc32c::crc32c(&plain) != crc {
            return Err(BadSegment::Garbled);
        }
        match le!(u32, used, 8) {
            Some(SEGMENT_VERSION) => {}
            Some(other) => return Err(BadSegment::Version(other)),
            None => return Err(BadSegment::Garbled),
        }
        // A later release may choose other sizes under the same version number only if this one can refuse them.
        if le!(u32, used, 48) != Some(SEGMENT_HEADER as u32) || le!(u32, used, 52) != Some(BLOCK_ALIGN as u32) {
            return Err(BadSegment::Garbled);
        }
        Ok(SegmentHeader { id: field(16)?, epoch: field(24)?, store: field(32)?, created: field(40)?.cast_signed() })
    }
}

/// What the checksums of a segment start from, so that a block of another segment, or of an earlier life of this file,
/// never passes for one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn of(store: u64, id: u64, epoch: u64) -> Seed {
        let place = [store, id, epoch].map(u64::to_le_bytes);
        Seed(crc32c::crc32c(place.as_flattened()))
    }

    /// The checksum of `bytes` that lie at `offset` of the segment.
    pub(crate) fn checksum(self, offset: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.0, &offset.to_le_bytes()), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_and_every_flipped_bit_is_noticed() {
        let header = SegmentHeader { id: 7, epoch: 3, store: u64::MAX, created: -5 };
        let bytes = header.encode();
        assert_eq!(bytes.len() as u64, SEGMENT_HEADER);
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for bit in 0..USED * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
        assert_eq!(SegmentHeader::decode(&bytes[..63]), Err(BadSegment::Garbled));
    }

    #[test]
    fn checksums_depend_on_the_place() {
        let sum = |id, epoch, offset| Seed::of(9, id, epoch).checksum(offset, b"x");
        let all = [sum(1, 1, 0), sum(2, 1, 0), sum(1, 2, 0), sum(1, 1, 512)];
        assert!((1..4).all(|i| !all[..i].contains(&all[i])));
    }
}
