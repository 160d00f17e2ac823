//! The hashes on which clients, brokers and tools must agree.

use std::fmt;

/// Key_Shared divides the 32-bit Murmur3 hash of a key into this many slots.
pub const KEY_HASH_SLOTS: u32 = 65_536;

/// Java's `String.hashCode`, the default by which clients route a key to a partition (`hash & 0x7FFFFFFF` mod
/// partitions). It is over UTF-16 code units.
#[must_use]
pub fn java_string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Murmur3, 32 bits, seed 0: the other key hash of clients, and the one Key_Shared uses.
#[must_use]
pub fn murmur3_32(data: &[u8]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let scramble = |k: u32| k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let mut hash = 0u32;
    let (blocks, tail) = data.as_chunks::<4>();
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let last = tail.iter().rev().fold(0u32, |k, byte| (k << 8) | u32::from(*byte));
    if !tail.is_empty() {
        hash ^= scramble(last);
    }
    // The length is folded in modulo 2^32, as the algorithm has it.
    #[allow(clippy::cast_possible_truncation)]
    let length = data.len() as u32;
    hash ^= length;
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// The Key_Shared slot, 0 to 65,535, of an entry's sticky key.
#[must_use]
pub fn key_slot(sticky_key: &[u8]) -> u32 {
    (murmur3_32(sticky_key) & 0x7FFF_FFFF) % KEY_HASH_SLOTS
}

/// The hash by which a topic falls into a namespace bundle: CRC-32 (IEEE) of its full name, scheme and partition
/// suffix included.
#[must_use]
pub fn bundle_hash(full_topic_name: &str) -> u32 {
    crc32fast::hash(full_topic_name.as_bytes())
}

/// A range of Key_Shared slots, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashRange {
    /// The first slot.
    pub start: u32,
    /// The last slot.
    pub end: u32,
}

impl HashRange {
    /// The range from `start` to `end`; `None` if it is empty or leaves the ring.
    #[must_use]
    pub fn new(start: u32, end: u32) -> Option<HashRange> {
        (start <= end && end < KEY_HASH_SLOTS).then_some(HashRange { start, end })
    }

    /// Whether `slot` lies in the range.
    #[must_use]
    pub fn contains(self, slot: u32) -> bool {
        (self.start..=self.end).contains(&slot)
    }

    /// Whether the two ranges share a slot.
    #[must_use]
    pub fn overlaps(self, other: HashRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

impl fmt::Display for HashRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The example of the protocol reference: partition 3 of 4 with the one hash, and the raw Murmur3 value.
        assert_eq!(java_string_hash("key-1"), 101_943_363);
        assert_eq!(murmur3_32(b"key-1"), 0x98B1_15A0);
        assert_eq!(murmur3_32(b""), 0);
        assert_eq!(murmur3_32(b"hello"), 0x248b_fa47);
        assert_eq!(murmur3_32(b"hello, world"), 0x149b_bb7f);
        assert_eq!(bundle_hash("persistent://public/default/my-topic"), 0x2BAD_45F7);
        assert_eq!(bundle_hash("persistent://public/default/my-topic-partition-0"), 0x3D4B_4235);
    }

    #[test]
    fn ranges() {
        let range = HashRange::new(10, 20).unwrap();
        assert!(range.contains(10) && range.contains(20) && !range.contains(21));
        assert!(range.overlaps(HashRange::new(20, 30).unwrap()));
        assert!(!range.overlaps(HashRange::new(21, 30).unwrap()));
        assert_eq!(HashRange::new(2, 1), None);
        assert_eq!(HashRange::new(0, KEY_HASH_SLOTS), None);
    }
}
