//! What the REST API and the command line say to each other, as JSON.
//!
//! Deliberately not here: routes, and the text that a person sees.

pub mod body;
mod broker;
mod explain;
mod schema;

pub use broker::{LookupData, RuntimeConfiguration};
pub use explain::{ConsumerReport, ProducerReport, SubscriptionReport, TopicReport};
pub use schema::{
    GetAllVersionsSchemaResponse, GetSchemaResponse, LongSchemaVersion, PostSchemaPayload, PostSchemaResponse,
};

use serde::{Deserialize, Serialize};

/// Why a request was refused, as every REST error says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// One sentence for the person who asked.
    pub reason: String,
}
