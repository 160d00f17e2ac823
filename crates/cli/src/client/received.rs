//! How a received message is shown. Scripts read these lines: they are those of `pulsar-client`.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use clap::Args;
use geminga_client::Received;

/// How messages are shown.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Show the content as a hex dump.
    #[arg(long)]
    hex: bool,
    /// Do not show messages, only count them.
    #[arg(long)]
    hide_content: bool,
    /// Show also who sent a message and where it is stored.
    #[arg(long)]
    print_metadata: bool,
}

/// Shows messages on standard output, one after the other.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    args: &'a ShowArgs,
    count: u64,
}

impl<'a> Shown<'a> {
    pub(super) fn new(args: &'a ShowArgs) -> Shown<'a> {
        Shown { args, count: 0 }
    }

    /// How many were shown.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Shows a message.
    ///
    /// # Errors
    /// Standard output takes nothing any more.
    pub(super) fn show(&mut self, message: &Received) -> io::Result<()> {
        self.count += 1;
        let mut out = io::stdout().lock();
        if !self.args.hide_content {
            out.write_all(render(message, self.args).as_bytes())?;
        } else if self.count.is_multiple_of(1000) {
            writeln!(out, "Received {} messages", self.count)?;
        }
        out.flush()
    }
}

fn render(message: &Received, args: &ShowArgs) -> String {
    let properties: Vec<String> = message.properties.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let content =
        if args.hex { hex_dump(&message.payload) } else { String::from_utf8_lossy(&message.payload).into_owned() };
    let mut text = format!(
        "----- got message -----\npublishTime:[{}], eventTime:[{}], key:[{}], properties:[{}], content:{content}",
        message.publish_time.0,
        message.event_time.map_or(0, |time| time.0),
        message.key.as_deref().unwrap_or("null"),
        properties.join(", "),
    );
    if args.print_metadata {
        text += &metadata(message);
    }
    text + "\n"
}

fn metadata(message: &Received) -> String {
    let mut text = String::new();
    let mut pair = |name: &str, value: &dyn std::fmt::Display| {
        let _ = write!(text, ", {name}:{value}");
    };
    pair("publish-time", &message.publish_time.0);
    if let Some(time) = message.event_time {
        pair("event-time", &time.0);
    }
    pair("message-id", &message.id);
    pair("producer-name", &message.producer_name);
    pair("sequence-id", &message.sequence_id);
    if let Some(cluster) = &message.replicated_from {
        pair("replicated-from", cluster);
    }
    pair("redelivery-count", &message.redelivery_count);
    text
}

/// Fact: `pulsar-client` dumps as Apache Commons does: offset, 16 bytes, what of them is printable ASCII.
fn hex_dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, line) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "{:08X} ", index * 16);
        for at in 0..16 {
            let _ = match line.get(at) {
                Some(byte) => write!(text, "{byte:02X} "),
                None => write!(text, "   "),
            };
        }
        text.extend(line.iter().map(|byte| if (b' '..0x7f).contains(byte) { char::from(*byte) } else { '.' }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_client::MessageId;
    use geminga_model::{Position, UnixMillis};

    fn message() -> Received {
        Received {
            id: MessageId::of_entry(Position::new(3, 4), -1),
            topic: "t".parse().unwrap(),
            payload: "hello".into(),
            key: None,
            key_is_base64: false,
            ordering_key: None,
            properties: vec![("k".into(), "v".into()), ("l".into(), String::new())],
            producer_name: "p".into(),
            sequence_id: 7,
            publish_time: UnixMillis(5),
            event_time: None,
            schema_version: None,
            replicated_from: None,
            redelivery_count: 0,
        }
    }

    #[test]
    fn the_lines_that_scripts_read() {
        let mut args = ShowArgs { hex: false, hide_content: false, print_metadata: false };
        let expected =
            "----- got message -----\npublishTime:[5], eventTime:[0], key:[null], properties:[k=v, l=], content:hello";
        assert_eq!(render(&message(), &args), format!("{expected}\n"));
        args.print_metadata = true;
        let more = ", publish-time:5, message-id:3:4:-1, producer-name:p, sequence-id:7, redelivery-count:0\n";
        assert_eq!(render(&message(), &args), format!("{expected}{more}"));
        let keyed = Received { key: Some("a".into()), properties: Vec::new(), ..message() };
        assert!(render(&keyed, &args).contains("key:[a], properties:[], content:hello"));
    }

    #[test]
    fn a_hex_dump() {
        let dump = hex_dump(b"0123456789abcdef\n\xff");
        assert_eq!(
            dump,
            format!(
                "00000000 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 0123456789abcdef\n00000010 0A FF {}..\n",
                " ".repeat(14 * 3)
            )
        );
    }
}
