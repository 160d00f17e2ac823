//! `geminga client read`.

use clap::Args;
use geminga_client::{Client, MessageId, ReaderOptions, Start};
use geminga_env::Stop;

use super::received::{ShowArgs, Shown};
use super::{Pace, ToolError, unless};

#[derive(Debug, Args)]
#[command(after_help = "Example: geminga client read orders -m earliest -n 10")]
pub(super) struct ReadArgs {
    /// Topic to read.
    topic: String,
    /// Where to start: latest, earliest, or behind the message <ledger>:<entry>.
    #[arg(short = 'm', long, value_name = "MESSAGE", default_value = "latest")]
    start_message_id: MessageId,
    /// Start at that message, not behind it.
    #[arg(short = 'i', long)]
    start_message_id_inclusive: bool,
    /// Messages to read; 0 for all that come, until it is interrupted.
    #[arg(short, long, value_name = "COUNT", default_value_t = 1)]
    num_messages: u64,
    /// Messages a second; 0 for as fast as possible.
    #[arg(short, long, value_name = "RATE", default_value = "0", value_parser = super::rate)]
    rate: f64,
    /// Messages that may wait here; 0 for the client's default.
    #[arg(short, long, value_name = "COUNT", default_value_t = 0)]
    queue_size: u32,
    #[command(flatten)]
    show: ShowArgs,
}

/// Reads and shows.
pub(super) async fn run(client: &Client, args: &ReadArgs, interrupted: &Stop) -> Result<(), ToolError> {
    let opening = client.reader(&args.topic, options(args));
    let Some(mut reader) = unless(interrupted, opening).await.transpose()? else { return Ok(()) };
    eprintln!("Reading {}", reader.topic());
    let mut pace = Pace::new(client.env().clock, args.rate);
    let mut shown = Shown::new(&args.show);
    let read = unless(interrupted, async {
        while args.num_messages == 0 || shown.count() < args.num_messages {
            pace.turn().await;
            shown.show(&reader.read().await?)?;
        }
        Ok(())
    })
    .await
    .unwrap_or(Ok(()));
    let closed = reader.close().await;
    eprintln!("{} messages successfully read", shown.count());
    read.and(closed.map_err(ToolError::from))
}

/// Where a reader starts that is told a message, with that or behind it.
pub(crate) fn start_at(id: MessageId, inclusive: bool) -> Start {
    match (id, inclusive) {
        (MessageId::EARLIEST, _) => Start::Earliest,
        (MessageId::LATEST, false) => Start::Latest,
        (id, true) => Start::At(id),
        (id, false) => Start::After(id),
    }
}

fn options(args: &ReadArgs) -> ReaderOptions {
    let mut options = ReaderOptions::new(start_at(args.start_message_id, args.start_message_id_inclusive));
    if args.queue_size > 0 {
        options.queue_size = args.queue_size;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use geminga_model::Position;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ReadArgs,
    }

    #[test]
    fn where_a_reader_starts() {
        let start = |words: &[&str]| {
            Line::try_parse_from(["read", "t"].iter().chain(words)).map(|line| options(&line.args).start)
        };
        let id = MessageId::of_entry(Position::new(3, 4), -1);
        assert_eq!(start(&[]).unwrap(), Start::Latest);
        assert_eq!(start(&["-m", "earliest"]).unwrap(), Start::Earliest);
        assert_eq!(start(&["-m", "3:4"]).unwrap(), Start::After(id));
        assert_eq!(start(&["-m", "3:4", "-i"]).unwrap(), Start::At(id));
        assert!(start(&["-m", "newest"]).is_err());
    }
}
