//! What can be wrong.

use std::fmt;

use geminga_client::{ClientError, MessageId};
use geminga_model::Position;

/// Where a message is in its topic. They order as the messages do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) position: Position,
    /// −1 if the entry is no batch.
    pub(crate) batch_index: i32,
}

impl From<&MessageId> for Id {
    fn from(id: &MessageId) -> Id {
        Id { position: id.position, batch_index: id.batch_index }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.position, self.batch_index)
    }
}

/// A promise that was not kept. Messages are named as `<producer> <number>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("lost: {topic} has {found} at {id}, where the receipt of '{message}' says that it is")]
    Lost { topic: String, message: String, id: Id, found: String },
    #[error("phantom: {place} gives a message at {id} that nobody sent there: {what}")]
    Phantom { place: String, id: Id, what: String },
    #[error("reordered: {topic} has '{second}' at {id}, which is not behind '{first}' of the same producer")]
    Reordered { topic: String, first: String, second: String, id: Id },
    #[error("misread: {topic} was read from the earliest message on, and gave {second} behind {first}")]
    Misread { topic: String, first: Id, second: Id },
    #[error("changed: {place} gives '{now}' at {id}, where '{before}' was delivered before")]
    Changed { place: String, id: Id, before: String, now: String },
    #[error("vanished: {topic} does not have '{message}' at {id}, where it was delivered")]
    Vanished { topic: String, message: String, id: Id },
    #[error("redelivered: {subscription} gives '{message}' at {id}, whose ack had its receipt in an earlier cycle")]
    Redelivered { subscription: String, message: String, id: Id },
    #[error("undelivered: {subscription} does not give '{message}' at {id} in the end, though nobody acknowledged it")]
    Undelivered { subscription: String, message: String, id: Id },
    #[error("failed: {who}, while the server ran: {error}")]
    Failed { who: String, error: ClientError },
}
