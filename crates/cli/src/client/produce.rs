//! `geminga client produce`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use geminga_client::{Batching, Client, Message, ProducerOptions};
use geminga_disk::{Disk, OpenMode, RealDisk};
use geminga_env::Stop;
use serde::de::IgnoredAny;

use super::{Pace, ToolError, unless};

#[derive(Debug, Args)]
#[command(after_help = "Example: geminga client produce orders -s '' -m '{\"id\":1,\"total\":9.5}'")]
pub(super) struct ProduceArgs {
    /// Topic to send to.
    topic: String,
    /// What to send; one text may hold several messages with the separator between. May be repeated.
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    messages: Vec<String>,
    /// Files to send, each as one message, with commas between.
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// What stands between messages in a text; empty: each text is one message.
    #[arg(short, long, value_name = "TEXT", default_value = ",", allow_hyphen_values = true)]
    separator: String,
    /// How often all of it is sent.
    #[arg(short, long, value_name = "TIMES", default_value_t = 1)]
    num_produce: u64,
    /// Messages a second; 0 for as fast as possible.
    #[arg(short, long, value_name = "RATE", default_value = "0", value_parser = super::rate)]
    rate: f64,
    /// Key of the messages.
    #[arg(short, long, value_name = "KEY")]
    key: Option<String>,
    /// Properties of the messages, with commas between. May be repeated.
    #[arg(short, long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = property)]
    properties: Vec<(String, String)>,
    /// Send each message as an entry of its own. Also -db.
    #[arg(long)]
    disable_batching: bool,
    /// The original's `-db`, which is a short option with a value to the parser of options.
    #[arg(short, hide = true, value_name = "b", value_parser = ["b"])]
    d: Option<String>,
}

/// Sends all, waits until all is stored, and says how many are.
pub(super) async fn run(client: &Client, args: &ProduceArgs, interrupted: &Stop) -> Result<(), ToolError> {
    let payloads = payloads(args)?;
    let batching = (!args.disable_batching && args.d.is_none()).then(Batching::default);
    let options = ProducerOptions { batching, ..ProducerOptions::default() };
    let Some(producer) = unless(interrupted, client.producer(&args.topic, options)).await.transpose()? else {
        return Ok(());
    };
    let mut pace = Pace::new(client.env().clock, args.rate);
    let mut receipts = std::collections::VecDeque::new();
    let mut stored = 0_u64;
    let sent = unless(interrupted, async {
        for _ in 0..args.num_produce {
            for payload in &payloads {
                pace.turn().await;
                let message = Message {
                    key: args.key.clone(),
                    properties: args.properties.clone(),
                    ..Message::new(payload.clone())
                };
                receipts.push_back(producer.send(message).await?);
                if receipts.len() > MAX_UNDER_WAY
                    && let Some(mut oldest) = receipts.pop_front()
                {
                    oldest.wait().await?;
                    stored += 1;
                }
            }
        }
        Ok(())
    })
    .await
    .unwrap_or(Ok(()));
    let closed = producer.close().await;
    let mut outcome = sent;
    for mut receipt in receipts {
        match receipt.wait().await {
            Ok(_) => stored += 1,
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    eprintln!("{stored} messages successfully produced");
    outcome.and(closed).map_err(ToolError::from)
}

/// Receipts that wait to be looked at.
const MAX_UNDER_WAY: usize = 1000;

fn payloads(args: &ProduceArgs) -> Result<Vec<Bytes>, ToolError> {
    let mut payloads = Vec::new();
    for text in &args.messages {
        let parts = split(text, &args.separator);
        if cuts_json(text, &parts) {
            eprintln!(
                "note: this is sent as {} messages, because '{}' separates messages and stands inside the JSON text. \
                 To send the text as one message, say --separator ''",
                parts.len(),
                args.separator
            );
        }
        payloads.extend(parts.into_iter().map(|part| Bytes::from(part.to_owned())));
    }
    for file in &args.files {
        payloads.push(read_file(file)?);
    }
    if payloads.is_empty() {
        return Err(ToolError::Usage("nothing to send: say what with --messages or --files".into()));
    }
    Ok(payloads)
}

/// The messages in a text. As in Java, nothing at the end is no message.
fn split<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    if separator.is_empty() {
        return vec![text];
    }
    let mut parts: Vec<&str> = text.split(separator).collect();
    while parts.len() > 1 && parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts
}

/// Whether parts of one JSON text would go out as messages of their own. A list of whole JSON texts is none.
fn cuts_json(text: &str, parts: &[&str]) -> bool {
    let is_json = |text: &str| serde_json::from_str::<IgnoredAny>(text).is_ok();
    parts.len() > 1 && is_json(&format!("[{text}]")) && !parts.iter().all(|part| is_json(part))
}

fn read_file(path: &Path) -> Result<Bytes, ToolError> {
    let file = RealDisk.open(path, OpenMode::Read)?;
    let length =
        usize::try_from(file.len()?).map_err(|_| ToolError::Usage(format!("{} is too large", path.display())))?;
    let mut bytes = vec![0; length];
    file.read_exact_at(0, &mut bytes)?;
    Ok(bytes.into())
}

fn property(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected <key>=<value>")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ProduceArgs,
    }

    fn parse(words: &[&str]) -> Result<ProduceArgs, clap::Error> {
        Line::try_parse_from(["produce", "t"].iter().chain(words)).map(|line| line.args)
    }

    #[test]
    fn texts_are_split_as_the_original_does() {
        for (text, separator, parts) in [
            ("a,b", ",", vec!["a", "b"]),
            ("a,,b,,", ",", vec!["a", "", "b"]),
            ("a,b", "", vec!["a,b"]),
            ("a,b|c", "|", vec!["a,b", "c"]),
            ("", ",", vec![""]),
        ] {
            assert_eq!(split(text, separator), parts, "{text}");
        }
    }

    #[test]
    fn it_is_said_when_json_is_cut() {
        for (text, cut) in [
            (r#"{"a":1,"b":2}"#, true),
            (r#"[1,2]"#, true),
            (r#""a,b""#, true),
            (r#"{"a":1,"b":2},{"c":3}"#, true),
            (r#"{"a":1},{"b":2}"#, false),
            (r#"{"a":1}"#, false),
            ("hello,world", false),
            ("1,2", false),
        ] {
            assert_eq!(cuts_json(text, &split(text, ",")), cut, "{text}");
        }
    }

    #[test]
    fn options() {
        let args = parse(&["-m", "a,b", "-m", "-1", "-p", "k=v,l=w=x", "-db", "-n", "3", "-k", "key"]).unwrap();
        assert_eq!(args.messages, ["a,b", "-1"]);
        let pairs: Vec<_> = args.properties.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("k", "v"), ("l", "w=x")]);
        assert!(args.d.is_some() && args.num_produce == 3);
        assert_eq!(payloads(&args).unwrap().len(), 3);
        assert!(parse(&["-p", "k"]).is_err() && parse(&["-dx"]).is_err());
        assert!(payloads(&parse(&[]).unwrap()).unwrap_err().to_string().contains("--messages"));
        let missing = payloads(&parse(&["-f", "/nonexistent/file"]).unwrap()).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/file"), "{missing}");
    }
}
