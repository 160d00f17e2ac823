//! What owners say about themselves when they are asked to explain.

use serde::{Deserialize, Serialize};

/// A topic, and what it is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicReport {
    /// Its full name.
    pub topic: String,
    /// What it is doing: opening, serving, and so on, with the step.
    pub state: String,
    /// The ledgers of its log: `id (entries)`, oldest first.
    pub ledgers: Vec<String>,
    /// The last confirmed position.
    pub last_confirmed: String,
    /// Messages that were published and have no receipt yet.
    pub pending_publishes: usize,
    /// Its producers.
    pub producers: Vec<ProducerReport>,
    /// Its subscriptions.
    pub subscriptions: Vec<SubscriptionReport>,
}

/// A producer of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProducerReport {
    /// Its name.
    pub name: String,
    /// The client's address.
    pub address: String,
    /// Messages it sent to the topic since it was opened.
    pub messages: u64,
}

/// A subscription, and what keeps it from going on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionReport {
    /// Its name.
    pub name: String,
    /// Exclusive, Shared, Failover or Key_Shared.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether its position is stored.
    pub durable: bool,
    /// Everything up to here is acknowledged.
    pub mark_delete: String,
    /// The last position that was read for it.
    pub read_position: String,
    /// Entries that are not acknowledged.
    pub backlog: u64,
    /// Entries acknowledged out of order.
    pub acked_beyond: u64,
    /// Why nothing is delivered now, if that is so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Its consumers.
    pub consumers: Vec<ConsumerReport>,
}

/// A consumer of a subscription, and why it is sent nothing now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerReport {
    /// Its name.
    pub name: String,
    /// The client's address.
    pub address: String,
    /// Messages it may be sent.
    pub permits: i64,
    /// Messages it holds unacknowledged.
    pub unacked: u64,
    /// Why it is sent nothing now.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_camel_case() {
        let report = SubscriptionReport { kind: "Shared".into(), ..Default::default() };
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["type"], "Shared");
        assert_eq!(json["markDelete"], "");
        assert!(json.get("why").is_none());
        assert_eq!(serde_json::from_value::<SubscriptionReport>(json).unwrap(), report);
    }
}
