//! The hash by which a client and a broker find out whether they know the same topics.

use std::fmt::Write;

/// The hash of a set of topic names, in any order, as GET_TOPICS_OF_NAMESPACE and the topic-list watchers carry it.
///
/// Fact: the sorted names joined with `,`, CRC-32C, printed as the hex digits of the little-endian bytes. Java sorts
/// by UTF-16 code units.
#[must_use]
pub fn topics_hash<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    names.sort_unstable_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    let mut crc = 0;
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            crc = crc32c::crc32c_append(crc, b",");
        }
        crc = crc32c::crc32c_append(crc, name.as_bytes());
    }
    crc.to_le_bytes().iter().fold(String::with_capacity(8), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(topics_hash(["persistent://public/default/b", "persistent://public/default/a"]), "c7559e98");
        assert_eq!(topics_hash([]), "00000000");
    }

    #[test]
    fn order_is_that_of_utf16() {
        // A supplementary character starts with a surrogate, which is below U+FF5E in UTF-16 and above it in UTF-8.
        let sorted = ["\u{10000}", "\u{FF5E}"];
        let joined = crc32c::crc32c(sorted.join(",").as_bytes()).swap_bytes();
        assert_eq!(topics_hash([sorted[1], sorted[0]]), format!("{joined:08x}"));
    }
}
