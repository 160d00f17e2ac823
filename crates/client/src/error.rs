//! What can go wrong, and what to try.

use std::time::Duration;

use geminga_model::InvalidName;
use geminga_wire::ServerError;

use crate::message::MessageId;

/// Why an operation failed. The text is fit for the person who runs it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Not a service URL that this client understands.
    #[error("'{url}' is not a service URL: {reason}; expected pulsar://<host>:<port>[,<host>:<port>...]")]
    InvalidUrl {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Not a topic name.
    #[error(transparent)]
    InvalidTopic(#[from] InvalidName),
    /// No connection came about.
    #[error("cannot connect to {address}: {reason}; check the address, and that a broker is running there")]
    Unreachable {
        /// Where to.
        address: String,
        /// What the system or the broker said.
        reason: String,
    },
    /// The connection ended while something was under way; it may or may not have had its effect.
    #[error("the connection to {address} was lost: {reason}; try again")]
    Disconnected {
        /// Where to.
        address: String,
        /// Why it ended.
        reason: String,
    },
    /// The deadline passed.
    #[error("{operation} did not succeed within {after:?}: {last}; if that is only slow, raise the timeout")]
    Timeout {
        /// What was tried.
        operation: String,
        /// How long.
        after: Duration,
        /// What stood in the way last.
        last: String,
    },
    /// The broker said no.
    #[error("{operation} was refused with {}: {message}{}", .error.as_str_name(), advice(*.error))]
    Refused {
        /// What was asked for.
        operation: String,
        /// The broker's code.
        error: ServerError,
        /// The broker's words.
        message: String,
    },
    /// The broker does not follow the protocol.
    #[error("the broker at {address} answered {what}; it may not be a Pulsar broker, or a much newer one")]
    Protocol {
        /// Which broker.
        address: String,
        /// What it did.
        what: String,
    },
    /// The message does not fit.
    #[error(
        "a message of {size} bytes exceeds the broker's limit of {limit}: send less, compress, or raise maxMessageSize"
    )]
    TooLarge {
        /// Its size with metadata, after compression.
        size: usize,
        /// What the broker takes.
        limit: usize,
    },
    /// A message that was received cannot be read; it stays unacknowledged.
    #[error("message {id} cannot be read: {reason}")]
    Unreadable {
        /// Which message.
        id: MessageId,
        /// Why.
        reason: String,
    },
    /// It was closed before, or was dropped while the operation was under way.
    #[error("the {0} is closed")]
    Closed(&'static str),
}

/// What to try when a broker refuses.
fn advice(error: ServerError) -> &'static str {
    match error {
        ServerError::TopicNotFound => "; create the topic, or its tenant and namespace, first",
        ServerError::SubscriptionNotFound => "; create the subscription first",
        ServerError::ConsumerBusy => "; use another subscription, or a subscription type that allows several consumers",
        ServerError::ProducerBusy => "; use another producer name, or close the one that has it",
        ServerError::AuthenticationError => "; check the credentials",
        ServerError::AuthorizationError => "; grant the role the right to produce, consume or look up",
        ServerError::TopicTerminatedError => "; the topic takes no more messages: use another",
        ServerError::ProducerFenced => "; another producer has the topic for itself",
        ServerError::IncompatibleSchema => "; change the schema, or the namespace's compatibility strategy",
        ServerError::ProducerBlockedQuotaExceededError | ServerError::ProducerBlockedQuotaExceededException => {
            "; consume or expire the topic's backlog, or raise its quota"
        }
        ServerError::ServiceNotReady | ServerError::TooManyRequests => "; try again later",
        _ => "",
    }
}

impl ClientError {
    /// Whether the same may succeed later, when a new producer, consumer or look-up is tried.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::Disconnected { .. } | ClientError::Timeout { .. } => true,
            ClientError::Refused { error, .. } => matches!(
                error,
                ServerError::ServiceNotReady
                    | ServerError::MetadataError
                    | ServerError::PersistenceError
                    | ServerError::TooManyRequests
                    | ServerError::ProducerBlockedQuotaExceededError
            ),
            _ => false,
        }
    }

    /// Whether something that was open before may be open again later. More than [`ClientError::is_temporary`]: the
    /// broker may not have noticed yet that the connection before is gone.
    pub(crate) fn may_reopen(&self) -> bool {
        let busy = |error: &ServerError| matches!(error, ServerError::ConsumerBusy | ServerError::ProducerBusy);
        let unknown = |error: &ServerError| matches!(error, ServerError::UnknownError);
        let again = |error: &ServerError| busy(error) || unknown(error);
        self.is_temporary() || matches!(self, ClientError::Refused { error, .. } if again(error))
    }
}
