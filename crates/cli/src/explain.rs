//! `geminga explain`: what something is doing, and why it does not go on.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use geminga_admin_model::{Reason, TopicReport};
use geminga_model::TopicName;

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
}

/// Asks and prints. Exit code 1 if the server cannot be asked or refuses.
#[must_use]
pub fn run_explain(args: &ExplainArgs) -> ExitCode {
    let What::Topic { topic } = &args.what;
    match ask(&args.admin_url, topic) {
        Ok(report) if args.json => {
            println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            ExitCode::SUCCESS
        }
        Ok(report) => {
            print!("{}", render(&report));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(admin_url: &str, topic: &str) -> Result<TopicReport, String> {
    let name: TopicName = topic.parse().map_err(|error| format!("{error}"))?;
    let url = format!("{}/geminga/v1/explain/{}", admin_url.trim_end_matches('/'), name.rest_path());
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
        let kept = if subscription.durable { "durable" } else { "not stored" };
        lines.push(format!("subscription   {} ({}, {kept})", subscription.name, subscription.kind));
        lines.push(format!("  consumed up to {}, read up to {}", subscription.mark_delete, subscription.read_position));
        lines.push(format!(
            "  backlog {} entries, {} acked out of order",
            subscription.backlog, subscription.acked_beyond
        ));
        lines.extend(subscription.why.iter().map(|why| format!("  {why}")));
        for consumer in &subscription.consumers {
            lines.push(format!(
                "  consumer {} from {}: {} permits, {} unacked; {}",
                consumer.name, consumer.address, consumer.permits, consumer.unacked, consumer.why
            ));
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_admin_model::{ConsumerReport, SubscriptionReport};

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
        assert!(ask("http://localhost:1", "a/b").unwrap_err().contains("invalid topic name"));
    }
}
