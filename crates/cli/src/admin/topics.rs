//! Commands about topics and their subscriptions.

use clap::{Args, Subcommand};
use geminga_model::UnixMillis;
use serde_json::{Value, json};
use ureq::http::Method;

use super::plan::{
    Call, Plan, duration_millis, flag, namespace, object, of_subscription, of_topic, pair, position, topic,
};

/// A subscription of a topic.
#[derive(Debug, Args)]
pub(super) struct Of {
    topic: String,
    /// The subscription.
    #[arg(short, long, value_name = "NAME")]
    subscription: String,
}

impl Of {
    fn path(&self, rest: &str) -> Result<String, String> {
        of_subscription(&self.topic, &self.subscription, rest)
    }
}

/// What statistics leave in or out.
#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    topic: String,
    /// Taken for granted: backlogs are always precise. Also -gpb.
    #[arg(long)]
    get_precise_backlog: bool,
    /// Taken for granted: sizes of backlogs are always told. Also -sbs.
    #[arg(long)]
    get_subscription_backlog_size: bool,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::enum_variant_names)] // they are the original's names
pub(super) enum Topics {
    /// List the topics of a namespace, every partition for itself.
    List {
        namespace: String,
        /// Also the broker's own. Also -ist.
        #[arg(long)]
        include_system_topic: bool,
    },
    /// List the partitioned topics of a namespace.
    ListPartitionedTopics {
        namespace: String,
        /// Also the broker's own. Also -ist.
        #[arg(long)]
        include_system_topic: bool,
    },
    /// Make a topic without partitions.
    Create {
        topic: String,
        /// Properties of the topic.
        #[arg(short, long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
        metadata: Vec<(String, String)>,
    },
    /// Make a partitioned topic.
    CreatePartitionedTopic {
        topic: String,
        #[arg(short, long)]
        partitions: u32,
        /// Properties of the topic.
        #[arg(short, long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
        metadata: Vec<(String, String)>,
    },
    /// Add partitions.
    UpdatePartitionedTopic {
        topic: String,
        /// How many there are then.
        #[arg(short, long)]
        partitions: u32,
    },
    /// Show how many partitions a topic has.
    GetPartitionedTopicMetadata { topic: String },
    /// Delete a topic without partitions, or one partition.
    Delete {
        topic: String,
        /// Whoever is connected.
        #[arg(short, long)]
        force: bool,
    },
    /// Delete a partitioned topic.
    DeletePartitionedTopic {
        topic: String,
        /// Whoever is connected.
        #[arg(short, long)]
        force: bool,
    },
    /// Show which broker serves a topic.
    Lookup { topic: String },
    /// Show the statistics of a topic.
    Stats(StatsArgs),
    /// Show the statistics of a partitioned topic.
    PartitionedStats {
        #[command(flatten)]
        of: StatsArgs,
        /// Those of each partition as well.
        #[arg(long)]
        per_partition: bool,
    },
    /// Show the ledgers and cursors of a topic.
    StatsInternal { topic: String },
    /// Show what is stored of a topic.
    InfoInternal { topic: String },
    /// List the subscriptions of a topic.
    Subscriptions { topic: String },
    /// Make a subscription.
    CreateSubscription {
        #[command(flatten)]
        of: Of,
        /// Where it begins: latest, earliest or ledger:entry.
        #[arg(short, long = "messageId", alias = "message-id", default_value = "latest", value_name = "ID")]
        message_id: String,
        /// Properties of the subscription.
        #[arg(short, long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = pair)]
        property: Vec<(String, String)>,
    },
    /// Delete a subscription.
    Unsubscribe {
        #[command(flatten)]
        of: Of,
        /// Whoever is connected.
        #[arg(short, long)]
        force: bool,
    },
    /// Pass over messages.
    Skip {
        #[command(flatten)]
        of: Of,
        /// How many entries.
        #[arg(short = 'n', long)]
        count: u64,
    },
    /// Pass over everything there is.
    #[command(alias = "skip-all")]
    ClearBacklog {
        #[command(flatten)]
        of: Of,
    },
    /// Have a subscription go on elsewhere.
    ResetCursor {
        #[command(flatten)]
        of: Of,
        /// With what was published so long ago: 90, 10m, 1h, 7d.
        #[arg(short, long, value_name = "TIME", value_parser = duration_millis, conflicts_with = "message_id", required_unless_present = "message_id")]
        time: Option<i64>,
        /// With this message: latest, earliest or ledger:entry.
        #[arg(short, long = "messageId", alias = "message-id", value_name = "ID")]
        message_id: Option<String>,
        /// After the message, not with it.
        #[arg(short, long)]
        exclude_reset_position: bool,
    },
    /// Show messages that a subscription has not acknowledged, without consuming them.
    PeekMessages {
        #[command(flatten)]
        of: Of,
        /// How many entries.
        #[arg(short = 'n', long, default_value_t = 1)]
        count: u32,
    },
    /// Show a message.
    GetMessageById {
        topic: String,
        #[arg(short, long = "ledgerId", alias = "ledger-id")]
        ledger_id: i64,
        #[arg(short, long = "entryId", alias = "entry-id")]
        entry_id: i64,
    },
    /// Show the id of the first message published at a time or later.
    GetMessageId {
        topic: String,
        /// Milliseconds since 1970, or ISO 8601 such as 2026-01-31T12:00:00Z.
        #[arg(short, long, value_name = "TIME")]
        datetime: String,
    },
    /// Close a topic, or all partitions of one; clients go on when it is opened anew.
    Unload { topic: String },
    /// Take no more messages, for ever.
    Terminate { topic: String },
    /// Take no more messages on any partition, for ever.
    PartitionedTerminate { topic: String },
    /// Show the id of the last message.
    LastMessageId { topic: String },
}

impl StatsArgs {
    /// The flags that are set, behind what comes `before` them.
    fn query(&self, before: &str) -> String {
        let named = [
            ("getPreciseBacklog", self.get_precise_backlog),
            ("subscriptionBacklogSize", self.get_subscription_backlog_size),
        ];
        let set = named.iter().filter(|(_, set)| *set).map(|(name, _)| format!("{name}=true"));
        let all: Vec<String> = Some(before.to_owned()).filter(|text| !text.is_empty()).into_iter().chain(set).collect();
        if all.is_empty() { String::new() } else { format!("?{}", all.join("&")) }
    }
}

impl Topics {
    pub(super) fn plan(&self, now: UnixMillis) -> Result<Plan, String> {
        Ok(match self {
            Topics::List { .. }
            | Topics::ListPartitionedTopics { .. }
            | Topics::Create { .. }
            | Topics::CreatePartitionedTopic { .. }
            | Topics::UpdatePartitionedTopic { .. }
            | Topics::GetPartitionedTopicMetadata { .. }
            | Topics::Delete { .. }
            | Topics::DeletePartitionedTopic { .. }
            | Topics::Lookup { .. } => return self.plan_of_names(),
            Topics::CreateSubscription { .. }
            | Topics::Unsubscribe { .. }
            | Topics::Skip { .. }
            | Topics::ClearBacklog { .. }
            | Topics::ResetCursor { .. }
            | Topics::PeekMessages { .. } => return self.plan_of_subscription(now),
            Topics::Stats(of) => Plan::Show(Call::get(of_topic(&of.topic, "/stats")? + &of.query(""))),
            Topics::PartitionedStats { of, per_partition } => {
                let query = of.query(&format!("perPartition={per_partition}"));
                Plan::Show(Call::get(of_topic(&of.topic, "/partitioned-stats")? + &query))
            }
            Topics::StatsInternal { topic } => Plan::Show(Call::get(of_topic(topic, "/internalStats")?)),
            Topics::InfoInternal { topic } => Plan::Show(Call::get(of_topic(topic, "/internal-info")?)),
            Topics::Subscriptions { topic } => Plan::Show(Call::get(of_topic(topic, "/subscriptions")?)),
            Topics::GetMessageById { topic, ledger_id, entry_id } => {
                Plan::Messages(vec![Call::get(of_topic(topic, &format!("/ledger/{ledger_id}/entry/{entry_id}"))?)])
            }
            Topics::GetMessageId { topic, datetime } => {
                let bad = || format!("{datetime}: expected milliseconds since 1970, or ISO 8601");
                let millis = datetime.parse().ok().or_else(|| UnixMillis::parse_iso8601(datetime).map(|at| at.0));
                let path = of_topic(topic, &format!("/messageid/{}", millis.ok_or_else(bad)?))?;
                let otherwise = format!("Cannot find a message of {datetime} or later");
                Plan::Position { call: Call::get(path), sentence: "", otherwise }
            }
            Topics::Unload { topic } => Plan::Do(Call::new(Method::PUT, of_topic(topic, "/unload")?)),
            Topics::Terminate { topic } => Plan::Position {
                call: Call::new(Method::POST, of_topic(topic, "/terminate")?),
                sentence: "Topic successfully terminated at ",
                otherwise: String::new(),
            },
            Topics::PartitionedTerminate { topic } => {
                Plan::Show(Call::new(Method::POST, of_topic(topic, "/terminate/partitions")?))
            }
            Topics::LastMessageId { topic } => Plan::Show(Call::get(of_topic(topic, "/lastMessageId")?)),
        })
    }

    fn plan_of_names(&self) -> Result<Plan, String> {
        Ok(match self {
            Topics::List { namespace: name, include_system_topic } => {
                let (name, system) = (namespace(name)?, flag("includeSystemTopic", *include_system_topic));
                let of = |domain: &str| Call::get(format!("/admin/v2/{domain}/{name}{system}"));
                Plan::Lists(vec![of("persistent"), of("non-persistent")])
            }
            Topics::ListPartitionedTopics { namespace: name, include_system_topic } => {
                let (name, system) = (namespace(name)?, flag("includeSystemTopic", *include_system_topic));
                let of = |domain: &str| Call::get(format!("/admin/v2/{domain}/{name}/partitioned{system}"));
                Plan::Lists(vec![of("persistent"), of("non-persistent")])
            }
            Topics::Create { topic, metadata } => {
                Plan::Do(Call::new(Method::PUT, of_topic(topic, "")?).body(&object(metadata)))
            }
            Topics::CreatePartitionedTopic { topic, partitions, metadata } => {
                let body = match metadata.is_empty() {
                    true => json!(partitions),
                    false => json!({"partitions": partitions, "properties": object(metadata)}),
                };
                Plan::Do(Call::new(Method::PUT, of_topic(topic, "/partitions")?).body(&body))
            }
            Topics::UpdatePartitionedTopic { topic, partitions } => {
                Plan::Do(Call::new(Method::POST, of_topic(topic, "/partitions")?).body(&json!(partitions)))
            }
            Topics::GetPartitionedTopicMetadata { topic } => Plan::Show(Call::get(of_topic(topic, "/partitions")?)),
            Topics::Delete { topic, force } => {
                Plan::Do(Call::new(Method::DELETE, of_topic(topic, "")? + &flag("force", *force)))
            }
            Topics::DeletePartitionedTopic { topic, force } => {
                Plan::Do(Call::new(Method::DELETE, of_topic(topic, "/partitions")? + &flag("force", *force)))
            }
            Topics::Lookup { topic: name } => {
                Plan::Field(Call::get(format!("/lookup/v2/topic/{}", topic(name)?.rest_path())), "brokerUrl")
            }
            _ => return Err("not about names".to_owned()),
        })
    }

    fn plan_of_subscription(&self, now: UnixMillis) -> Result<Plan, String> {
        Ok(match self {
            Topics::CreateSubscription { of, message_id, property } => {
                let mut body = position(message_id)?;
                if let (false, Value::Object(members)) = (property.is_empty(), &mut body) {
                    members.insert("properties".to_owned(), object(property));
                }
                Plan::Do(Call::new(Method::PUT, of.path("")?).body(&body))
            }
            Topics::Unsubscribe { of, force } => {
                Plan::Do(Call::new(Method::DELETE, of.path("")? + &flag("force", *force)))
            }
            Topics::Skip { of, count } => Plan::Do(Call::new(Method::POST, of.path(&format!("/skip/{count}"))?)),
            Topics::ClearBacklog { of } => Plan::Do(Call::new(Method::POST, of.path("/skip_all")?)),
            Topics::ResetCursor { of, message_id: Some(id), exclude_reset_position, .. } => {
                let mut body = position(id)?;
                if let Value::Object(members) = &mut body {
                    members.insert("excluded".to_owned(), json!(exclude_reset_position));
                }
                Plan::Do(Call::new(Method::POST, of.path("/resetcursor")?).body(&body))
            }
            Topics::ResetCursor { of, time, .. } => {
                let to = now.0.saturating_sub(time.unwrap_or(0)).max(0);
                Plan::Do(Call::new(Method::POST, of.path(&format!("/resetcursor/{to}"))?))
            }
            Topics::PeekMessages { of, count } => {
                let call = |n: u32| Ok(Call::get(of.path(&format!("/position/{n}"))?));
                Plan::Messages((1..=*count).map(call).collect::<Result<_, String>>()?)
            }
            _ => return Err("not about a subscription".to_owned()),
        })
    }
}
