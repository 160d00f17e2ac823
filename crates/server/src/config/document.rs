//! `docs/configuration.md`: what of it is a table comes from the code.

use std::fmt::Write;

use crate::config::KEYS;
use crate::config::protection::PROTECTIONS;

const DOCUMENT: &str = include_str!("../../../../docs/configuration.md");
/// Between these is what the code says.
const MARKS: [(&str, &str); 2] = [("<!-- keys -->\n", "<!-- /keys -->"), ("<!-- stops -->\n", "<!-- /stops -->")];

fn keys() -> String {
    let mut out = "| key | flag | value | default | unit | meaning |\n|---|---|---|---|---|---|\n".to_owned();
    for key in KEYS {
        let flag = key.flag.map_or(String::new(), |flag| format!("`{flag}`"));
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
        writeln!(out, "| `{}` | {flag} | {} | {default} | {} | {} |", key.name, key.form(), key.unit, key.doc).unwrap();
    }
    out
}

fn stops() -> String {
    let mut out = "| key | values | what they ask for |\n|---|---|---|\n".to_owned();
    for stop in PROTECTIONS {
        writeln!(out, "| `{}` | {} | {} |", stop.name, stop.values(), stop.what).unwrap();
    }
    out
}

/// With `GEMINGA_WRITE_DOCS=1` it brings the document up to date.
#[test]
#[allow(clippy::disallowed_methods, reason = "a chore that writes a file of the repository")]
fn the_document_says_what_the_code_says() {
    let mut expected = DOCUMENT.to_owned();
    for ((start, end), table) in MARKS.into_iter().zip([keys(), stops()]) {
        let from = expected.find(start).unwrap() + start.len();
        let to = from + expected[from..].find(end).unwrap();
        expected.replace_range(from..to, &table);
    }
    if std::env::var("GEMINGA_WRITE_DOCS").is_ok() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        std::fs::write(path, &expected).unwrap();
        return;
    }
    let rewrite = "GEMINGA_WRITE_DOCS=1 cargo test -p geminga-server the_document_says";
    assert!(expected == DOCUMENT, "docs/configuration.md is not up to date: run {rewrite}");
}
