//! How a version is written in the binary protocol.

use bytes::Bytes;

/// The eight bytes, big-endian, that messages and replies carry.
#[must_use]
pub fn version_bytes(version: i64) -> Bytes {
    Bytes::copy_from_slice(&version.to_be_bytes())
}

/// The version that bytes say; `None` if they are too few. Fact: clients before 2.4 send 64 of which the first eight
/// count.
#[must_use]
pub fn version_of_bytes(bytes: &[u8]) -> Option<i64> {
    bytes.first_chunk().map(|first| i64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_and_longer() {
        assert_eq!(version_bytes(258)[..], [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(version_of_bytes(&version_bytes(7)), Some(7));
        let mut old = version_bytes(3).to_vec();
        old.resize(64, 9);
        assert_eq!(version_of_bytes(&old), Some(3));
        assert_eq!(version_of_bytes(&[0; 7]), None);
        assert_eq!(version_of_bytes(&[]), None);
    }
}
