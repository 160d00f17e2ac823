//! Configuration files: what is read, written with everything escaped, is read as the same.

use std::fmt::Write;

use crate::memory::within;

/// The server is no library; its reader of files stands alone.
#[path = "../../../crates/server/src/config/properties.rs"]
mod reader;

/// The target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A pair takes 48 bytes beside its text.
    match within(4096 + 120 * text.len(), || reader::parse(text)) {
        Ok(pairs) => {
            let mut written = String::new();
            for (key, value) in &pairs {
                // Blanks at the ends are not kept, so there are none.
                assert_eq!((key.trim(), value.trim()), (key.as_str(), value.as_str()));
                escape(key, &mut written);
                written.push('=');
                escape(value, &mut written);
                written.push('\n');
            }
            assert_eq!(reader::parse(&written), Ok(pairs));
        }
        Err(wrong) => {
            assert!(!wrong.is_empty() && wrong.len() <= text.lines().count());
        }
    }
}

fn escape(text: &str, out: &mut String) {
    for unit in text.encode_utf16() {
        write!(out, "\\u{unit:04x}").unwrap();
    }
}
