//! The one place where failures of a topic become what a client is told.

use geminga_dispatch::Busy;
use geminga_managed_ledger::ManagedLedgerError;
use geminga_session::Refusal;
use geminga_wire::ServerError;

/// What a client is told of a log's failure.
pub(crate) fn of_log(error: &ManagedLedgerError) -> Refusal {
    let code = match error {
        // The client looks the topic up again.
        ManagedLedgerError::Fenced => ServerError::ServiceNotReady,
        ManagedLedgerError::NotFound => ServerError::TopicNotFound,
        ManagedLedgerError::CursorNotFound => ServerError::SubscriptionNotFound,
        ManagedLedgerError::Metadata(_) => ServerError::MetadataError,
        ManagedLedgerError::Ledger(_) | ManagedLedgerError::Record(..) => ServerError::PersistenceError,
    };
    Refusal::new(code, error.to_string())
}

/// What a consumer is told that cannot join.
pub(crate) fn of_busy(busy: Busy) -> Refusal {
    let code = match busy {
        Busy::Exclusive | Busy::OtherKind(_) => ServerError::ConsumerBusy,
        Busy::Ranges { .. } => ServerError::ConsumerAssignError,
    };
    Refusal::new(code, busy.to_string())
}

/// Something that a later version does.
pub(crate) fn not_in_this_version(what: &str) -> Refusal {
    Refusal::new(ServerError::NotAllowedError, format!("{what}: not in this version"))
}

/// The topic or subscription closes; the client looks it up again.
pub(crate) fn closing() -> Refusal {
    Refusal::new(ServerError::ServiceNotReady, "the topic is being closed; look it up again")
}

/// The topic takes no more messages, for ever.
pub(crate) fn terminated() -> Refusal {
    Refusal::new(ServerError::TopicTerminatedError, "the topic is terminated")
}

/// There is no such subscription.
pub(crate) fn no_subscription(name: &str) -> Refusal {
    Refusal::new(ServerError::SubscriptionNotFound, format!("Subscription {name} not found"))
}
