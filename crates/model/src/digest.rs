//! The kinds of digest of a ledger.

/// How the entries of a ledger are protected; recorded in the ledger's metadata.
///
/// Fact: the numbers are those of BookKeeper's `LedgerMetadataFormat.DigestType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestType {
    /// CRC-32 (IEEE) in 8 bytes.
    Crc32 = 1,
    /// HMAC-SHA1 with a key made of the password, 20 bytes. The API calls it `MAC`.
    Hmac = 2,
    /// CRC-32C in 4 bytes: Pulsar's default.
    Crc32c = 3,
    /// None.
    Dummy = 4,
}

impl DigestType {
    /// The type with this number in metadata.
    #[must_use]
    pub fn from_number(number: i32) -> Option<DigestType> {
        [DigestType::Crc32, DigestType::Hmac, DigestType::Crc32c, DigestType::Dummy]
            .into_iter()
            .find(|digest| *digest as i32 == number)
    }

    /// Bytes the digest takes in an entry.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            DigestType::Crc32 => 8,
            DigestType::Hmac => 20,
            DigestType::Crc32c => 4,
            DigestType::Dummy => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for (kind, number, len) in [
            (DigestType::Crc32, 1, 8),
            (DigestType::Hmac, 2, 20),
            (DigestType::Crc32c, 3, 4),
            (DigestType::Dummy, 4, 0),
        ] {
            assert_eq!((DigestType::from_number(number), kind.digest_len()), (Some(kind), len));
        }
        assert_eq!(DigestType::from_number(0), None);
    }
}
