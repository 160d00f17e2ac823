//! Bodies of REST requests and answers: none takes more than its bytes warrant, and an answer is written and read again as
//! the same.

use std::fmt::Debug;

use geminga_admin_model::{
    GetAllVersionsSchemaResponse, InternalStats, LookupData, MessageIdData, PartitionedTopicStats, PostSchemaPayload,
    Reason, ResetCursor, SubscriptionReport, TopicReport, TopicStats, body,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::choice;
use crate::memory::within;

/// The target.
pub fn run(data: &[u8]) {
    let (which, json) = choice(data);
    let limit = 4096 + 300 * json.len();
    match which % 12 {
        0 => {
            if let Ok(object) = within(limit, || body::object(json)) {
                assert!(object.values().all(|value| !value.is_null()));
            }
        }
        1 => drop(within(limit, || body::partitions(json))),
        2 => drop(within(limit, || ResetCursor::parse(json))),
        3 => {
            if let Ok(payload) = within(limit, || PostSchemaPayload::parse(json)) {
                assert_eq!(PostSchemaPayload::parse(&serde_json::to_vec(&payload).unwrap()), Ok(payload));
            }
        }
        4 => check::<TopicStats>(json, limit),
        5 => check::<PartitionedTopicStats>(json, limit),
        6 => check::<InternalStats>(json, limit),
        7 => check::<TopicReport>(json, limit),
        8 => check::<SubscriptionReport>(json, limit),
        9 => check::<GetAllVersionsSchemaResponse>(json, limit),
        10 => check::<MessageIdData>(json, limit),
        _ => {
            check::<LookupData>(json, limit);
            check::<Reason>(json, limit);
        }
    }
}

fn check<T: Serialize + DeserializeOwned + Debug>(json: &[u8], limit: usize) {
    // Some have many members, which a body need not name.
    let Ok(read) = within(limit + 1000 * json.len(), || serde_json::from_slice::<T>(json)) else { return };
    let written = serde_json::to_vec(&read).unwrap();
    let again: T = serde_json::from_slice(&written).unwrap();
    assert_eq!(format!("{again:?}"), format!("{read:?}"));
}
