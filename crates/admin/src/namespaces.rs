//! `/admin/v2/namespaces`.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use geminga_admin_model::body;
use geminga_model::{NamespaceName, TopicName};
use geminga_records::{BundlesData, Policies};
use serde_json::Value;

use crate::Api;
use crate::refusal::Refused;
use crate::request::{Flags, OfNamespace};

pub(crate) async fn list(State(api): State<Api>, Path(tenant): Path<String>) -> Result<Json<Vec<String>>, Refused> {
    let namespaces = api.broker.namespaces(&tenant).await?;
    Ok(Json(namespaces.iter().map(NamespaceName::to_string).collect()))
}

/// The policies, with how the namespace is divided now.
pub(crate) async fn policies(
    State(api): State<Api>,
    OfNamespace(namespace): OfNamespace,
) -> Result<Json<Policies>, Refused> {
    let mut policies = api.broker.policies(&namespace).await?;
    if let Some(bundles) = api.broker.bundles(&namespace).await? {
        let bundles = serde_json::to_value(bundles).unwrap_or(Value::Null);
        policies.unknown.insert("bundles".to_owned(), bundles);
    }
    Ok(Json(policies))
}

pub(crate) async fn create(
    State(api): State<Api>,
    OfNamespace(namespace): OfNamespace,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    let policies: Policies = serde_json::from_value(Value::Object(body::object(&sent)?))
        .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, format!("the body is not policies: {error}")))?;
    api.broker.create_namespace(&namespace, policies).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn delete(
    State(api): State<Api>,
    OfNamespace(namespace): OfNamespace,
    Query(flags): Query<Flags>,
) -> Result<StatusCode, Refused> {
    api.broker.delete_namespace(&namespace, flags.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How the namespace is divided.
pub(crate) async fn bundles(
    State(api): State<Api>,
    OfNamespace(namespace): OfNamespace,
) -> Result<Json<BundlesData>, Refused> {
    api.broker.policies(&namespace).await?;
    let bundles = api.broker.bundles(&namespace).await?;
    Ok(Json(bundles.unwrap_or_else(|| BundlesData::even(1))))
}

/// All topics, every partition for itself.
pub(crate) async fn topics(
    State(api): State<Api>,
    OfNamespace(namespace): OfNamespace,
    Query(flags): Query<Flags>,
) -> Result<Json<Vec<String>>, Refused> {
    let mut topics = api.broker.topics_of(&namespace, flags.include_system_topic).await?;
    if flags.mode.as_deref() == Some("NON_PERSISTENT") {
        topics.clear();
    }
    Ok(Json(topics.iter().map(TopicName::to_string).collect()))
}
