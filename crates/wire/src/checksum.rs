//! The two marks in front of an entry's metadata, and the checksum behind one of them.

/// Marks a checksum: a CRC-32C over every byte after it.
pub const CHECKSUM_MAGIC: u16 = 0x0E01;

/// Marks the block that a broker may put in front of an entry; the checksum does not cover it.
pub const BROKER_ENTRY_MAGIC: u16 = 0x0E02;

/// The CRC-32C (Castagnoli) of several slices as if they were one.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value_and_parts() {
        // The check value that the literature gives for CRC-32C.
        assert_eq!(crc32c(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc32c(&[b"1234", b"", b"56789"]), 0xE306_9283);
        assert_eq!(crc32c(&[]), 0);
    }
}
