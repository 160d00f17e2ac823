//! The one place where facts become HTTP statuses.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use geminga_admin_model::Reason;
use geminga_admin_model::body::InvalidBody;
use geminga_broker::AdminError;
use geminga_session::Refusal;
use geminga_wire::ServerError;

/// A request that is not done, and why.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    reason: String,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Refused {
        Refused { status, reason: reason.into() }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, Json(Reason { reason: self.reason })).into_response()
    }
}

impl From<AdminError> for Refused {
    fn from(error: AdminError) -> Refused {
        Refused::new(status(&error), error.to_string())
    }
}

impl From<InvalidBody> for Refused {
    fn from(error: InvalidBody) -> Refused {
        Refused::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<Refusal> for Refused {
    /// Of look-ups, which the binary protocol and REST share.
    fn from(refusal: Refusal) -> Refused {
        let status = match refusal.error {
            ServerError::TopicNotFound => StatusCode::NOT_FOUND,
            ServerError::NotAllowedError => StatusCode::NOT_IMPLEMENTED,
            ServerError::ServiceNotReady => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refused::new(status, refusal.message)
    }
}

/// Fact: the statuses are Pulsar's; clients turn each into an exception of its own.
fn status(error: &AdminError) -> StatusCode {
    match error {
        AdminError::ClusterNotFound
        | AdminError::TenantNotFound
        | AdminError::NamespaceNotFound(_)
        | AdminError::TopicNotFound(_)
        | AdminError::PartitionedTopicNotFound(_)
        | AdminError::SchemaNotFound
        | AdminError::SchemaDeleted
        | AdminError::SubscriptionNotFound { .. }
        | AdminError::MessageNotFound => StatusCode::NOT_FOUND,
        AdminError::TenantExists
        | AdminError::TenantHasNamespaces
        | AdminError::NamespaceExists
        | AdminError::NamespaceNotEmpty
        | AdminError::TopicExists
        | AdminError::PartitionedTopicExists
        | AdminError::StrayPartition(..)
        | AdminError::FewerPartitions { .. }
        | AdminError::IsPartitioned(_)
        | AdminError::IsNotPartitioned(_)
        | AdminError::IncompatibleSchema(_)
        | AdminError::BeingDeleted(_)
        | AdminError::SubscriptionExists(_)
        | AdminError::Concurrent => StatusCode::CONFLICT,
        AdminError::NoClusters
        | AdminError::UnknownClusters(_)
        | AdminError::ClusterInUse(..)
        | AdminError::TenantName
        | AdminError::TooManyTenants
        | AdminError::TooManyNamespaces(_)
        | AdminError::AdminRole
        | AdminError::NamespaceName
        | AdminError::TopicName
        | AdminError::PartitionName(_)
        | AdminError::TopicInUse { .. }
        | AdminError::TopicOpening(_)
        | AdminError::SubscriptionBusy(_)
        | AdminError::SubscriptionName => StatusCode::PRECONDITION_FAILED,
        AdminError::Bundles(_) | AdminError::SystemTopic(_) => StatusCode::BAD_REQUEST,
        AdminError::ClusterNotAllowed { .. } => StatusCode::FORBIDDEN,
        AdminError::ForcedTenantDeletion | AdminError::NotOnPartitioned(_) => StatusCode::METHOD_NOT_ALLOWED,
        AdminError::PartitionCount(_) => StatusCode::NOT_ACCEPTABLE,
        AdminError::InvalidSchema(_) => StatusCode::UNPROCESSABLE_ENTITY,
        AdminError::NotInThisVersion(_) => StatusCode::NOT_IMPLEMENTED,
        AdminError::NotReady(_) => StatusCode::SERVICE_UNAVAILABLE,
        AdminError::Late(..) => StatusCode::GATEWAY_TIMEOUT,
        AdminError::Refused(_) | AdminError::Unreadable(..) => StatusCode::INTERNAL_SERVER_ERROR,
        AdminError::Metadata(_) | AdminError::Record(..) | AdminError::ManagedLedger(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}
