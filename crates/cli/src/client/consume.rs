//! `geminga client consume`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use geminga_client::{Client, ConsumerOptions};
use geminga_env::Stop;
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};

use super::received::{ShowArgs, Shown};
use super::{Pace, ToolError, unless};

#[derive(Debug, Args)]
#[command(after_help = "Example: geminga client consume orders -s billing -p Earliest -n 10")]
pub(super) struct ConsumeArgs {
    /// Topic to receive from.
    topic: String,
    /// Subscription, created if it does not exist.
    #[arg(short, long, value_name = "NAME")]
    subscription_name: String,
    /// How the subscription divides messages among its consumers.
    #[arg(short = 't', long, value_name = "TYPE", default_value = "Exclusive", ignore_case = true)]
    subscription_type: SubscriptionType,
    /// Where the subscription starts if this creates it.
    #[arg(short = 'p', long, value_name = "POSITION", default_value = "Latest", ignore_case = true)]
    subscription_position: Position,
    /// Messages to receive; 0 for all that come, until it is interrupted.
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

/// Names are Pulsar's.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "verbatim")]
pub(crate) enum SubscriptionType {
    Exclusive,
    Shared,
    Failover,
    #[value(name = "Key_Shared")]
    KeyShared,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "verbatim")]
pub(crate) enum Position {
    Latest,
    Earliest,
}

impl From<SubscriptionType> for SubType {
    fn from(kind: SubscriptionType) -> SubType {
        match kind {
            SubscriptionType::Exclusive => SubType::Exclusive,
            SubscriptionType::Shared => SubType::Shared,
            SubscriptionType::Failover => SubType::Failover,
            SubscriptionType::KeyShared => SubType::KeyShared,
        }
    }
}

impl From<Position> for InitialPosition {
    fn from(position: Position) -> InitialPosition {
        match position {
            Position::Latest => InitialPosition::Latest,
            Position::Earliest => InitialPosition::Earliest,
        }
    }
}

/// Receives, shows and acknowledges.
pub(super) async fn run(client: &Client, args: &ConsumeArgs, interrupted: &Stop) -> Result<(), ToolError> {
    let subscribing = client.subscribe(&args.topic, options(args));
    let Some(mut consumer) = unless(interrupted, subscribing).await.transpose()? else { return Ok(()) };
    eprintln!("Subscribed to {} as {}", consumer.topic(), args.subscription_name);
    let mut pace = Pace::new(client.env().clock, args.rate);
    let mut shown = Shown::new(&args.show);
    let mut last = BTreeMap::new();
    let received = unless(interrupted, async {
        while args.num_messages == 0 || shown.count() < args.num_messages {
            pace.turn().await;
            let message = consumer.receive().await?;
            // What was not shown is not acknowledged.
            shown.show(&message)?;
            consumer.ack(&message.id)?;
            last.insert(message.id.partition, message.id);
        }
        Ok(())
    })
    .await
    .unwrap_or(Ok(()));
    // Acknowledgements are stored in their order: when those of the last messages are, so are the others.
    let mut stored = Ok(());
    for id in last.values() {
        stored = stored.and(consumer.ack_with_receipt(id, false).await);
    }
    let closed = stored.and(consumer.close().await);
    eprintln!("{} messages successfully consumed", shown.count());
    received.and(closed.map_err(ToolError::from))
}

fn options(args: &ConsumeArgs) -> ConsumerOptions {
    let mut options = ConsumerOptions::new(&args.subscription_name);
    options.sub_type = args.subscription_type.into();
    options.initial_position = args.subscription_position.into();
    if args.queue_size > 0 {
        options.queue_size = args.queue_size;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ConsumeArgs,
    }

    #[test]
    fn options_as_the_original_names_them() {
        let parse =
            |words: &[&str]| Line::try_parse_from(["consume", "t"].iter().chain(words)).map(|line| options(&line.args));
        let plain = parse(&["-s", "sub"]).unwrap();
        assert_eq!(plain, ConsumerOptions::new("sub"));
        let all = parse(&["-s", "sub", "-t", "Key_Shared", "-p", "Earliest", "-q", "5", "-n", "0", "-r", "2"]).unwrap();
        let expected = (SubType::KeyShared, InitialPosition::Earliest, 5);
        assert_eq!((all.sub_type, all.initial_position, all.queue_size), expected);
        assert!(parse(&[]).is_err() && parse(&["-s", "sub", "-t", "Some"]).is_err());
    }
}
