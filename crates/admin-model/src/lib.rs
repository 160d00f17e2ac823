//! What the REST API and the command line say to each other, as JSON.
//!
//! Deliberately not here: routes, and the text that a person sees.

pub mod body;
mod broker;
mod explain;
mod internal;
mod message_id;
mod schema;
mod stats;

pub use broker::{BrokerInfo, LookupData, RuntimeConfiguration};
pub use explain::{ConsumerReport, ProducerReport, SubscriptionReport, TopicReport};
pub use internal::{CursorStats, InternalStats, LedgerStats, StoredCursor, StoredLedger, StoredPosition, StoredTopic};
pub use message_id::{MessageIdData, ResetCursor};
pub use schema::{
    GetAllVersionsSchemaResponse, GetSchemaResponse, LongSchemaVersion, PostSchemaPayload, PostSchemaResponse,
};
pub use stats::{ConsumerStats, PartitionedTopicStats, PublisherStats, SubscriptionStats, TopicStats, ratio};

use serde::{Deserialize, Serialize};

/// Why a request was refused, as every REST error says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// One sentence for the person who asked.
    pub reason: String,
}
