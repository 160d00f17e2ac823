//! Java's properties files, as Pulsar's `.conf` files are written.
//!
//! Facts: a line that starts with `#` or `!` is a comment; a backslash at its end continues a line; key and value are
//! divided by `=`, `:` or blanks; `\t`, `\n`, `\r`, `\f` and `\uXXXX` are characters, and a backslash before anything
//! else is left out.

/// The keys and values of a file, in its order, trimmed.
///
/// # Errors
/// The lines with escapes that are none, as texts that show no value.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, String)>, Vec<String>> {
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut logical = line.trim_start().to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while continues(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            logical.push_str(next.trim_start());
        }
        let (key, value) = divide(&logical);
        match (unescape(key), unescape(value)) {
            (Some(key), Some(value)) => found.push((key.trim().to_owned(), value.trim().to_owned())),
            _ => wrong.push(format!("line {}: \\u must be followed by four hexadecimal digits", number + 1)),
        }
    }
    if wrong.is_empty() { Ok(found) } else { Err(wrong) }
}

/// Whether an odd number of backslashes ends the line.
fn continues(line: &str) -> bool {
    (line.len() - line.trim_end_matches('\\').len()) % 2 == 1
}

/// Key and value as they are written.
fn divide(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let ends = !escaped && (c == '=' || c == ':' || c.is_whitespace());
        escaped = c == '\\' && !escaped;
        ends
    });
    let (key, rest) = end.map_or((line, ""), |end| line.split_at(end));
    let rest = rest.trim_start();
    (key, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start())
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut units = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next() {
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let whole = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    units.push(u16::from_str_radix(&digits, 16).ok().filter(|_| whole)?);
                    continue;
                }
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\u{c}',
                Some(other) => other,
                None => break,
            },
            other => other,
        };
        flush(&mut units, &mut out);
        out.push(plain);
    }
    flush(&mut units, &mut out);
    Some(out)
}

/// Two units may be one character.
fn flush(units: &mut Vec<u16>, out: &mut String) {
    out.extend(char::decode_utf16(units.drain(..)).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_reads_what_java_reads() {
        let text = "# a comment\n! another\n\n  a = 1 \nb:2\nc 3\nd\n e\\ f = g\\=h\npath=C\\:\\\\x\n\
            long=one,\\\n    two\nu=\\u00e4\\uD83E\\uDD80\ntab=a\\tb\nurl=zk:a:1,b:2/x=y\nlast=\\";
        let found = parse(text).unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = [
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
            ("d", ""),
            ("e f", "g=h"),
            ("path", "C:\\x"),
            ("long", "one,two"),
            ("u", "ä🦀"),
            ("tab", "a\tb"),
            ("url", "zk:a:1,b:2/x=y"),
            ("last", ""),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_bad_escape_is_told_with_its_line() {
        let wrong = parse("a=1\nb=\\u12\nc=2\npassword=\\uxyz0secret").unwrap_err();
        assert_eq!(wrong.len(), 2);
        assert!(wrong[0].starts_with("line 2:") && wrong[1].starts_with("line 4:") && !wrong[1].contains("secret"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-c=:\\\\u0-9# \n\u{e4}]{0,60}") {
            let _ = parse(&text);
        }
    }
}
