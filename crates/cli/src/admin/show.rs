//! How answers look. Fact: as `pulsar-admin` prints them, because scripts read it.

use serde_json::Value;

/// The text of an answer: a list a line each, a text as it is, nothing as `null`, all else as JSON.
pub(super) fn show(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        // Some texts come without quotes.
        let text = String::from_utf8_lossy(body);
        return if text.is_empty() { "null\n".to_owned() } else { format!("{}\n", text.trim_end()) };
    };
    match value {
        Value::String(text) => format!("{text}\n"),
        Value::Array(list) => lines(&list),
        value => {
            let mut text = String::new();
            write(&mut text, &value, 0);
            text.push('\n');
            text
        }
    }
}

/// A line for each; a list of objects as JSON.
pub(super) fn lines(list: &[Value]) -> String {
    let line = |value: &Value| match value {
        Value::String(text) => format!("{text}\n"),
        other => {
            let mut text = String::new();
            write(&mut text, other, 0);
            text + "\n"
        }
    };
    list.iter().map(line).collect()
}

fn write(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(members) if members.is_empty() => out.push_str("{ }"),
        Value::Object(members) => {
            out.push('{');
            for (at, (name, value)) in members.iter().enumerate() {
                out.push_str(if at == 0 { "\n" } else { ",\n" });
                out.push_str(&"  ".repeat(depth + 1));
                out.push_str(&Value::String(name.clone()).to_string());
                out.push_str(" : ");
                write(out, value, depth + 1);
            }
            out.push('\n');
            out.push_str(&"  ".repeat(depth));
            out.push('}');
        }
        Value::Array(list) if list.is_empty() => out.push_str("[ ]"),
        Value::Array(list) => {
            out.push_str("[ ");
            for (at, value) in list.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                write(out, value, depth);
            }
            out.push_str(" ]");
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_original_prints() {
        for (body, text) in [
            ("", "null\n"),
            ("null", "null\n"),
            ("\"a\"", "a\n"),
            ("ok", "ok\n"),
            ("[]", ""),
            ("[\"a\",\"b\"]", "a\nb\n"),
            ("{}", "{ }\n"),
            (
                r#"{"a":1.5,"b":["x","y"],"c":{"d":[{"e":true}],"f":[]}}"#,
                "{\n  \"a\" : 1.5,\n  \"b\" : [ \"x\", \"y\" ],\n  \"c\" : {\n    \"d\" : [ {\n      \"e\" : true\n    } ],\n    \"f\" : [ ]\n  }\n}\n",
            ),
        ] {
            assert_eq!(show(body.as_bytes()), text, "{body}");
        }
    }
}
