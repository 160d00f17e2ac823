//! `/admin/v2/persistent` and `/admin/v2/non-persistent`, and what a topic says of itself.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use geminga_admin_model::{TopicReport, body};
use geminga_model::{Domain, TopicName};
use geminga_records::PartitionedTopicMetadata;
use serde_json::{Map, Value};

use crate::Api;
use crate::refusal::Refused;
use crate::request::{Flags, OfDomain, OfNamespace, OfTopic};

/// How long an owner may take to explain itself.
const EXPLAIN_DEADLINE: Duration = Duration::from_secs(1);

fn names(domain: Domain, topics: &[TopicName]) -> Json<Vec<String>> {
    let of_domain = topics.iter().filter(|topic| topic.domain() == domain);
    Json(of_domain.map(TopicName::to_string).collect())
}

pub(crate) async fn list(
    State(api): State<Api>,
    OfDomain(domain): OfDomain,
    OfNamespace(namespace): OfNamespace,
    Query(flags): Query<Flags>,
) -> Result<Json<Vec<String>>, Refused> {
    Ok(names(domain, &api.broker.topics_of(&namespace, flags.include_system_topic).await?))
}

pub(crate) async fn list_partitioned(
    State(api): State<Api>,
    OfDomain(domain): OfDomain,
    OfNamespace(namespace): OfNamespace,
    Query(flags): Query<Flags>,
) -> Result<Json<Vec<String>>, Refused> {
    Ok(names(domain, &api.broker.partitioned_topics_of(&namespace, flags.include_system_topic).await?))
}

pub(crate) async fn create(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    let properties = body::object(&sent)?.into_iter().map(|(key, value)| match value {
        Value::String(text) => (key, text),
        other => (key, other.to_string()),
    });
    api.broker.create_topic(&topic, properties.collect()).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn delete(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    Query(flags): Query<Flags>,
) -> Result<StatusCode, Refused> {
    api.broker.delete_topic(&topic, flags.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How many partitions a topic has; 0 for one that is not partitioned.
pub(crate) async fn partitions(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    Query(flags): Query<Flags>,
) -> Result<Json<PartitionedTopicMetadata>, Refused> {
    Ok(Json(api.broker.partitions(&topic, flags.check_allow_auto_creation).await?))
}

pub(crate) async fn create_partitioned(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    let (partitions, properties): (u32, Map<String, Value>) = body::partitions(&sent)?;
    api.broker.create_partitioned_topic(&topic, partitions, properties).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn update_partitions(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    let (partitions, _) = body::partitions(&sent)?;
    api.broker.update_partitions(&topic, partitions).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn delete_partitioned(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    Query(flags): Query<Flags>,
) -> Result<StatusCode, Refused> {
    api.broker.delete_partitioned_topic(&topic, flags.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a topic that is open is doing. Asking never opens it.
pub(crate) async fn explain(State(api): State<Api>, OfTopic(topic): OfTopic) -> Response {
    let deadline = api.env.clock.now() + EXPLAIN_DEADLINE;
    let report = tokio::select! {
        biased;
        report = api.broker.explain_topic(&topic) => report,
        () = api.env.clock.sleep_until(deadline) => {
            let reason = format!("{topic} did not answer within {EXPLAIN_DEADLINE:?}");
            return Refused::new(StatusCode::GATEWAY_TIMEOUT, reason).into_response();
        }
    };
    let closed = || TopicReport {
        topic: topic.to_string(),
        state: "not open: it does not exist, or nobody has used it since the start".to_owned(),
        ..TopicReport::default()
    };
    Json(report.unwrap_or_else(closed)).into_response()
}
