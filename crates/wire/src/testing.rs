//! What the tests of several modules share.

use proptest::prelude::*;

/// Bytes from hex digits; spaces are for the reader.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// A number that is as often short as long on the wire.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..4, 0u64..200, any::<u64>(), Just(u64::MAX)]
}

/// Changes to valid bytes: of one byte, an end cut off, or bytes added.
pub(crate) fn damage(valid: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    (valid, any::<prop::sample::Index>(), any::<u8>(), 0u8..5).prop_map(|(mut bytes, at, with, how)| {
        if bytes.is_empty() {
            return vec![with];
        }
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = with,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, with),
            3 => bytes.extend_from_within(at..),
            _ => {}
        }
        bytes
    })
}
