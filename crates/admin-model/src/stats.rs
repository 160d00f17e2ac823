//! Statistics of topics: Pulsar's `TopicStats` and what is in it.
//!
//! Rates are of the last whole minute, counters since the topic was opened. Fields of features that this version does
//! not have stand with the value that Pulsar gives where a feature is not used, because clients expect them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A topic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopicStats {
    /// Messages a second that came in.
    pub msg_rate_in: f64,
    /// Bytes a second that came in.
    pub msg_throughput_in: f64,
    /// Messages a second that went out.
    pub msg_rate_out: f64,
    /// Bytes a second that went out.
    pub msg_throughput_out: f64,
    /// Bytes that came in.
    pub bytes_in_counter: u64,
    /// Messages that came in.
    pub msg_in_counter: u64,
    /// Bytes that went out.
    pub bytes_out_counter: u64,
    /// Messages that went out.
    pub msg_out_counter: u64,
    /// Bytes of a message, on the average of the last minute.
    pub average_msg_size: f64,
    /// Bytes that are stored.
    pub storage_size: u64,
    /// About how many bytes the subscription that is furthest behind has not consumed.
    pub backlog_size: u64,
    /// Bytes that were moved to other storage: none in this version.
    pub offloaded_storage_size: u64,
    /// Connected producers.
    pub publishers: Vec<PublisherStats>,
    /// Producers that wait to be the only one: none in this version.
    pub waiting_publishers: u32,
    /// Subscriptions by name.
    pub subscriptions: BTreeMap<String, SubscriptionStats>,
    /// Replication by cluster: none in this version.
    pub replication: BTreeMap<String, serde_json::Value>,
    /// Whether messages that were sent twice are stored once.
    pub deduplication_status: String,
    /// Ranges of entries that subscriptions acknowledged out of order.
    pub non_contiguous_deleted_messages_ranges: u64,
    /// When the last message came in, since 1970 in milliseconds; 0 if none did.
    pub last_publish_time_stamp: i64,
}

/// A producer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PublisherStats {
    /// Whether it shares the topic with others.
    pub access_mode: String,
    /// Messages a second.
    pub msg_rate_in: f64,
    /// Bytes a second.
    pub msg_throughput_in: f64,
    /// Bytes of a message, on the average of the last minute.
    pub average_msg_size: f64,
    /// The id that the client gave it.
    pub producer_id: u64,
    /// Its name.
    pub producer_name: String,
    /// The client's address.
    pub address: String,
    /// Since when, ISO 8601.
    pub connected_since: String,
    /// The client's library.
    pub client_version: String,
    /// What the client says of it.
    pub metadata: BTreeMap<String, String>,
}

/// A subscription.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubscriptionStats {
    /// Messages a second that went out.
    pub msg_rate_out: f64,
    /// Bytes a second that went out.
    pub msg_throughput_out: f64,
    /// Bytes that went out.
    pub bytes_out_counter: u64,
    /// Messages that went out.
    pub msg_out_counter: u64,
    /// Messages a second that went out again.
    pub msg_rate_redeliver: f64,
    /// Entries a second that were acknowledged.
    pub message_ack_rate: f64,
    /// Entries that are not acknowledged; left out where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg_backlog: Option<u64>,
    /// About how many bytes are not consumed; −1 if that is not known.
    pub backlog_size: i64,
    /// The same as `msg_backlog`: nothing is delayed in this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg_backlog_no_delayed: Option<u64>,
    /// Whether a consumer is sent nothing because it holds too much unacknowledged.
    pub blocked_subscription_on_unacked_msgs: bool,
    /// Messages whose time has not come: none in this version.
    pub msg_delayed: u64,
    /// Entries that wait to be delivered again.
    pub msg_in_replay: u64,
    /// Messages that consumers hold unacknowledged.
    pub unacked_messages: u64,
    /// Exclusive, Shared, Failover or Key_Shared, while somebody consumes or has consumed.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Who is sent messages, of Failover and Exclusive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_consumer_name: Option<String>,
    /// When a consumer last asked for messages, since 1970 in milliseconds.
    pub last_consumed_flow_timestamp: i64,
    /// When messages last went out.
    pub last_consumed_timestamp: i64,
    /// When something was last acknowledged.
    pub last_acked_timestamp: i64,
    /// When the mark-delete position last moved.
    pub last_mark_delete_advanced_timestamp: i64,
    /// Connected consumers.
    pub consumers: Vec<ConsumerStats>,
    /// Whether its position is stored.
    pub is_durable: bool,
    /// The same, as Java writes it a second time.
    pub durable: bool,
    /// Whether its position is replicated: not in this version.
    pub is_replicated: bool,
    /// The same, as Java writes it a second time.
    pub replicated: bool,
    /// Whether a Key_Shared subscription gives up order.
    pub allow_out_of_order_delivery: bool,
    /// How a Key_Shared subscription divides keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_shared_mode: Option<String>,
    /// Ranges of entries acknowledged out of order.
    pub non_contiguous_deleted_messages_ranges: u64,
    /// What was said of it when it was made.
    pub subscription_properties: BTreeMap<String, String>,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerStats {
    /// Messages a second that went out.
    pub msg_rate_out: f64,
    /// Bytes a second that went out.
    pub msg_throughput_out: f64,
    /// Bytes that went out.
    pub bytes_out_counter: u64,
    /// Messages that went out.
    pub msg_out_counter: u64,
    /// Messages a second that went out again.
    pub msg_rate_redeliver: f64,
    /// Entries a second that were acknowledged.
    pub message_ack_rate: f64,
    /// Its name.
    pub consumer_name: String,
    /// Messages that it may be sent.
    pub available_permits: i64,
    /// Messages that it holds unacknowledged.
    pub unacked_messages: u64,
    /// Whether it is sent nothing because it holds too much.
    pub blocked_consumer_on_unacked_msgs: bool,
    /// The client's address.
    pub address: String,
    /// Since when, ISO 8601.
    pub connected_since: String,
    /// The client's library.
    pub client_version: String,
    /// When it last acknowledged something, since 1970 in milliseconds.
    pub last_acked_timestamp: i64,
    /// When it was last sent something.
    pub last_consumed_timestamp: i64,
    /// When it last asked for messages.
    pub last_consumed_flow_timestamp: i64,
    /// What the client says of it.
    pub metadata: BTreeMap<String, String>,
}

/// A partitioned topic: its partitions together, and each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionedTopicStats {
    /// All partitions together.
    #[serde(flatten)]
    pub total: TopicStats,
    /// What is stored of the topic.
    pub metadata: serde_json::Value,
    /// Each partition, if that was asked for.
    pub partitions: BTreeMap<String, TopicStats>,
}

impl TopicStats {
    /// Adds a partition.
    pub fn add(&mut self, other: &TopicStats) {
        self.msg_rate_in += other.msg_rate_in;
        self.msg_throughput_in += other.msg_throughput_in;
        self.msg_rate_out += other.msg_rate_out;
        self.msg_throughput_out += other.msg_throughput_out;
        self.bytes_in_counter += other.bytes_in_counter;
        self.msg_in_counter += other.msg_in_counter;
        self.bytes_out_counter += other.bytes_out_counter;
        self.msg_out_counter += other.msg_out_counter;
        self.average_msg_size = ratio(self.msg_throughput_in, self.msg_rate_in);
        self.storage_size += other.storage_size;
        self.backlog_size += other.backlog_size;
        self.non_contiguous_deleted_messages_ranges += other.non_contiguous_deleted_messages_ranges;
        self.last_publish_time_stamp = self.last_publish_time_stamp.max(other.last_publish_time_stamp);
        self.deduplication_status.clone_from(&other.deduplication_status);
        for publisher in &other.publishers {
            // A partitioned producer has one of its name on each partition.
            match self.publishers.iter_mut().find(|known| known.producer_name == publisher.producer_name) {
                Some(known) => {
                    known.msg_rate_in += publisher.msg_rate_in;
                    known.msg_throughput_in += publisher.msg_throughput_in;
                    known.average_msg_size = ratio(known.msg_throughput_in, known.msg_rate_in);
                }
                None => self.publishers.push(publisher.clone()),
            }
        }
        for (name, subscription) in &other.subscriptions {
            match self.subscriptions.get_mut(name) {
                Some(known) => known.add(subscription),
                None => drop(self.subscriptions.insert(name.clone(), subscription.clone())),
            }
        }
    }
}

impl SubscriptionStats {
    /// Adds the subscription of the same name of another partition.
    fn add(&mut self, other: &SubscriptionStats) {
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a + b);
        self.msg_rate_out += other.msg_rate_out;
        self.msg_throughput_out += other.msg_throughput_out;
        self.bytes_out_counter += other.bytes_out_counter;
        self.msg_out_counter += other.msg_out_counter;
        self.msg_rate_redeliver += other.msg_rate_redeliver;
        self.message_ack_rate += other.message_ack_rate;
        self.msg_backlog = sum(self.msg_backlog, other.msg_backlog);
        self.msg_backlog_no_delayed = sum(self.msg_backlog_no_delayed, other.msg_backlog_no_delayed);
        let known = self.backlog_size >= 0 && other.backlog_size >= 0;
        self.backlog_size = if known { self.backlog_size + other.backlog_size } else { -1 };
        self.blocked_subscription_on_unacked_msgs |= other.blocked_subscription_on_unacked_msgs;
        self.msg_in_replay += other.msg_in_replay;
        self.unacked_messages += other.unacked_messages;
        self.kind = self.kind.take().or_else(|| other.kind.clone());
        self.last_consumed_flow_timestamp = self.last_consumed_flow_timestamp.max(other.last_consumed_flow_timestamp);
        self.last_consumed_timestamp = self.last_consumed_timestamp.max(other.last_consumed_timestamp);
        self.last_acked_timestamp = self.last_acked_timestamp.max(other.last_acked_timestamp);
        self.last_mark_delete_advanced_timestamp =
            self.last_mark_delete_advanced_timestamp.max(other.last_mark_delete_advanced_timestamp);
        self.non_contiguous_deleted_messages_ranges += other.non_contiguous_deleted_messages_ranges;
        self.consumers.extend(other.consumers.iter().cloned());
    }
}

/// `a` for each of `b`; 0 of none.
#[must_use]
pub fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pulsars() {
        let subscription = SubscriptionStats { kind: Some("Key_Shared".into()), ..SubscriptionStats::default() };
        let stats = TopicStats {
            publishers: vec![PublisherStats::default()],
            subscriptions: BTreeMap::from([("s".to_owned(), subscription)]),
            ..TopicStats::default()
        };
        let json = serde_json::to_value(&stats).unwrap();
        for name in ["msgRateIn", "msgThroughputOut", "bytesInCounter", "msgInCounter", "storageSize", "backlogSize"] {
            assert!(json.get(name).is_some(), "{name} in {json}");
        }
        assert_eq!(json["subscriptions"]["s"]["type"], "Key_Shared");
        assert!(json["subscriptions"]["s"].get("msgBacklog").is_none());
        assert_eq!(json["publishers"][0]["producerName"], "");
    }

    #[test]
    fn partitions_are_summed() {
        let partition = |backlog| TopicStats {
            msg_in_counter: 2,
            msg_rate_in: 1.0,
            msg_throughput_in: 10.0,
            publishers: vec![PublisherStats { producer_name: "p".into(), msg_rate_in: 1.0, ..Default::default() }],
            subscriptions: BTreeMap::from([(
                "s".to_owned(),
                SubscriptionStats { msg_backlog: backlog, ..SubscriptionStats::default() },
            )]),
            ..TopicStats::default()
        };
        let mut total = TopicStats::default();
        total.add(&partition(Some(3)));
        total.add(&partition(Some(4)));
        assert_eq!((total.msg_in_counter, total.publishers.len(), total.average_msg_size), (4, 1, 10.0));
        assert_eq!(total.subscriptions["s"].msg_backlog, Some(7));
        total.add(&partition(None));
        assert_eq!(total.subscriptions["s"].msg_backlog, None);
        let stats = PartitionedTopicStats { total, ..PartitionedTopicStats::default() };
        assert_eq!(serde_json::to_value(&stats).unwrap()["msgInCounter"], 6);
    }
}
