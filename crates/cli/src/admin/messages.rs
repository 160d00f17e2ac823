//! Messages that REST hands out raw, printed as `pulsar-admin` does: ids, times, properties and a dump of the content.

use std::fmt::Write;

use bytes::Bytes;
use geminga_model::UnixMillis;
use geminga_wire::{BatchMessage, read_batch};
use serde_json::Value;
use ureq::http::HeaderMap;

/// What stands between two messages.
pub(super) const BETWEEN: &str = "-------------------------------------------------------------------------\n\n";

/// The messages of an entry, each as text.
pub(super) fn render(headers: &HeaderMap, body: &[u8]) -> Result<Vec<String>, String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = header("X-Pulsar-Message-ID").unwrap_or_default();
    let mut common = String::new();
    // Writing to a String cannot fail, here and below.
    let time = |name: &str| header(name).and_then(UnixMillis::parse_iso8601);
    let published = time("X-Pulsar-publish-time").unwrap_or_default();
    let happened = time("X-Pulsar-event-time").unwrap_or_default();
    let _ = writeln!(common, "Publish time: {published}\nEvent time: {happened}");
    if let Some(due) = time("X-Pulsar-deliver-at-time") {
        let _ = writeln!(common, "Deliver at time: {due}");
    }
    let properties: Vec<(String, String)> = match header("X-Pulsar-PROPERTY").map(serde_json::from_str) {
        Some(Ok(Value::Object(map))) => {
            map.into_iter().map(|(key, value)| (key, value.as_str().unwrap_or_default().to_owned())).collect()
        }
        _ => Vec::new(),
    };
    let encrypted = header("X-Pulsar-Is-Encrypted") == Some("true");
    let Some(count) = header("X-Pulsar-num-batch-message").filter(|_| !encrypted) else {
        let text = format!("Message ID: {id}\n{common}{}{}", of_properties(&properties), hex_dump(body));
        return Ok(vec![text]);
    };
    let count = count.parse().map_err(|_| format!("the server sent a batch of {count} messages"))?;
    let mut messages = Vec::new();
    for (index, message) in read_batch(Bytes::copy_from_slice(body), count).enumerate() {
        let BatchMessage { metadata, payload } =
            message.map_err(|error| format!("the batch {id} cannot be read: {error}"))?;
        let own: Vec<(String, String)> = metadata.properties.into_iter().map(|pair| (pair.key, pair.value)).collect();
        let text = format!("Batch Message ID: {id}:{index}\n{common}{}{}", of_properties(&own), hex_dump(&payload));
        messages.push(text);
    }
    Ok(messages)
}

fn of_properties(properties: &[(String, String)]) -> String {
    if properties.is_empty() {
        return String::new();
    }
    let mut text = "Properties:\n".to_owned();
    for (key, value) in properties {
        let _ = writeln!(text, "{key}    {value}");
    }
    text
}

/// Sixteen bytes a row, with their numbers and as text.
fn hex_dump(bytes: &[u8]) -> String {
    const RULE: &str = "+--------+-------------------------------------------------+----------------+\n";
    let mut text = format!(
        "         +-------------------------------------------------+\n         |{}|\n{RULE}",
        "  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f "
    );
    for (row, some) in bytes.chunks(16).enumerate() {
        let numbers: String = some.iter().map(|byte| format!(" {byte:02x}")).collect();
        let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
        let letters: String = some.iter().map(shown).collect();
        let _ = writeln!(text, "|{:08x}|{numbers:<48} |{letters:<16}|", row * 16);
    }
    text + RULE
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_wire::BatchBuilder;
    use geminga_wire::proto::SingleMessageMetadata;

    #[test]
    fn a_dump() {
        let text = hex_dump(b"hello\n");
        assert!(
            text.contains("|00000000| 68 65 6c 6c 6f 0a                               |hello.          |\n"),
            "{text}"
        );
        let widths: std::collections::BTreeSet<usize> = text.lines().skip(2).map(str::len).collect();
        assert_eq!(widths.len(), 1, "{text}");
    }

    #[test]
    fn a_batch_is_split() {
        let mut batch = BatchBuilder::new();
        batch.push(SingleMessageMetadata::default(), b"one");
        batch.push(SingleMessageMetadata::default(), b"two");
        let mut headers = HeaderMap::new();
        headers.insert("X-Pulsar-Message-ID", "3:4".parse().unwrap());
        headers.insert("X-Pulsar-num-batch-message", "2".parse().unwrap());
        let messages = render(&headers, &batch.finish()).unwrap();
        assert!(messages[1].starts_with("Batch Message ID: 3:4:1\n") && messages[1].contains("two"), "{messages:?}");
        headers.remove("X-Pulsar-num-batch-message");
        assert!(render(&headers, b"x").unwrap()[0].starts_with("Message ID: 3:4\n"));
    }
}
