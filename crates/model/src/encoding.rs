//! The URL encoding of local topic names and subscriptions in metadata paths and REST names.
//!
//! Fact: it is that of Java's `URLEncoder` with UTF-8: letters, digits and `.-*_` stay, a space becomes `+`, every
//! other byte becomes `%XX` in upper case.

use std::fmt::Write;

/// Encodes a local name for use as one segment of a path.
#[must_use]
pub fn encode_local_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            // Writing to a String cannot fail.
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// Decodes what [`encode_local_name`] made, and whatever else Java's `URLDecoder` accepts.
///
/// `None` if a `%` is not followed by two hex digits or the bytes are not UTF-8.
#[must_use]
pub fn decode_local_name(encoded: &str) -> Option<String> {
    let mut out = Vec::with_capacity(encoded.len());
    let mut bytes = encoded.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_java_encodes() {
        for (plain, encoded) in
            [("my-topic", "my-topic"), ("a b/c", "a+b%2Fc"), ("é✓", "%C3%A9%E2%9C%93"), ("a.b*c_d~", "a.b*c_d%7E")]
        {
            assert_eq!(encode_local_name(plain), encoded);
            assert_eq!(decode_local_name(encoded).as_deref(), Some(plain));
        }
    }

    #[test]
    fn refuses_broken_escapes() {
        for bad in ["%", "%1", "%zz", "%FF"] {
            assert_eq!(decode_local_name(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(name in ".*") {
            prop_assert_eq!(decode_local_name(&encode_local_name(&name)), Some(name));
        }
    }
}
