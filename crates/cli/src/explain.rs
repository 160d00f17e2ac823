//! `geminga explain`: what something is doing, and why it does not go on.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use geminga_admin_model::{ConsumerReport, Reason, SubscriptionReport, TopicReport};
use geminga_model::TopicName;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admin::encode;

/// Options of `geminga explain`.
#[derive(Debug, Args)]
#[command(after_help = "Example: geminga explain topic persistent://public/default/orders")]
pub struct ExplainArgs {
    /// REST address of the server.
    #[arg(long, value_name = "URL", default_value = "http://localhost:8080", global = true)]
    admin_url: String,
    /// Print the answer as JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A topic with its producers, subscriptions and consumers. Asking does not open it.
    Topic {
        /// The topic's name, full or short.
        topic: String,
    },
    /// A subscription of a topic that is open, and what keeps it from going on.
    Subscription {
        /// The topic's name, full or short.
        topic: String,
        /// The subscription.
        subscription: String,
    },
    /// The consumers of that name on a subscription, and why each is sent nothing now.
    Consumer {
        /// The topic's name, full or short.
        topic: String,
        /// The subscription.
        subscription: String,
        /// The consumer's name.
        consumer: String,
    },
}

/// Asks and prints. Exit code 1 if the server cannot be asked or refuses.
#[must_use]
pub fn run_explain(args: &ExplainArgs) -> ExitCode {
    let answered = match &args.what {
        What::Topic { topic } => told(args, topic, "", |report: &TopicReport| render(report)),
        What::Subscription { topic, subscription } => {
            let path = format!("/subscription/{}", encode(subscription));
            told(args, topic, &path, |report: &SubscriptionReport| of_subscription(report).join("\n") + "\n")
        }
        What::Consumer { topic, subscription, consumer } => {
            let path = format!("/subscription/{}/consumer/{}", encode(subscription), encode(consumer));
            told(args, topic, &path, |found: &Vec<ConsumerReport>| {
                found.iter().map(|report| of_consumer(report).trim_start().to_owned() + "\n").collect()
            })
        }
    };
    match answered {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The answer as text for a person, or as JSON.
fn told<T: Serialize + DeserializeOwned>(
    args: &ExplainArgs,
    topic: &str,
    path: &str,
    text: impl FnOnce(&T) -> String,
) -> Result<String, String> {
    let report: T = ask(&args.admin_url, topic, path)?;
    Ok(if args.json { serde_json::to_string_pretty(&report).unwrap_or_default() + "\n" } else { text(&report) })
}

fn ask<T: DeserializeOwned>(admin_url: &str, topic: &str, path: &str) -> Result<T, String> {
    let name: TopicName = topic.parse().map_err(|error| format!("{error}"))?;
    let url = format!("{}/geminga/v1/explain/{}{path}", admin_url.trim_end_matches('/'), name.rest_path());
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut response = agent.get(&url).call().map_err(|error| {
        format!("cannot ask {admin_url}: {error}. Is the server running, and is this its REST address (--admin-url)?")
    })?;
    let body = response.body_mut().read_to_string().map_err(|error| format!("{admin_url}: {error}"))?;
    if response.status() != 200 {
        let reason = serde_json::from_str::<Reason>(&body).map_or(body, |reason| reason.reason);
        return Err(format!("{admin_url} answers {}: {reason}", response.status()));
    }
    serde_json::from_str(&body).map_err(|error| format!("{admin_url} sent something else than a report: {error}"))
}

fn render(report: &TopicReport) -> String {
    let mut lines = vec![
        format!("topic          {}", report.topic),
        format!("state          {}", report.state),
        format!("last confirmed {}", report.last_confirmed),
        format!("ledgers        {}", report.ledgers.join(", ")),
        format!("unconfirmed    {} messages", report.pending_publishes),
    ];
    for producer in &report.producers {
        lines.push(format!(
            "producer       {} from {}, {} messages",
            producer.name, producer.address, producer.messages
        ));
    }
    for subscription in &report.subscriptions {
        lines.extend(of_subscription(subscription));
    }
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn of_subscription(subscription: &SubscriptionReport) -> Vec<String> {
    let kept = if subscription.durable { "durable" } else { "not stored" };
    let mut lines = vec![
        format!("subscription   {} ({}, {kept})", subscription.name, subscription.kind),
        format!("  consumed up to {}, read up to {}", subscription.mark_delete, subscription.read_position),
        format!("  backlog {} entries, {} acked out of order", subscription.backlog, subscription.acked_beyond),
    ];
    lines.extend(subscription.why.iter().map(|why| format!("  {why}")));
    lines.extend(subscription.consumers.iter().map(of_consumer));
    lines
}

fn of_consumer(consumer: &ConsumerReport) -> String {
    let ConsumerReport { name, address, permits, unacked, why } = consumer;
    format!("  consumer {name} from {address}: {permits} permits, {unacked} unacked; {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_culprit() {
        let report = TopicReport {
            topic: "persistent://public/default/t".into(),
            subscriptions: vec![SubscriptionReport {
                name: "s".into(),
                consumers: vec![ConsumerReport {
                    name: "c".into(),
                    why: "has no permits".into(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = render(&report);
        assert!(
            text.contains("subscription   s") && text.contains("consumer c") && text.contains("has no permits"),
            "{text}"
        );
    }

    #[test]
    fn a_bad_name_is_refused_before_anything_is_asked() {
        assert!(ask::<TopicReport>("http://localhost:1", "a/b", "").unwrap_err().contains("invalid topic name"));
    }
}
