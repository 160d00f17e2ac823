//! `/admin/v2/persistent` and `/admin/v2/non-persistent`, and what a topic says of itself.

use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use geminga_admin_model::{ConsumerReport, SubscriptionReport, TopicReport, body};
use geminga_model::{Domain, TopicName};
use geminga_records::PartitionedTopicMetadata;
use serde_json::{Map, Value};

use crate::Api;
use crate::refusal::Refused;
use crate::request::{Flags, OfDomain, OfNamespace, OfTopic, Segments};

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
pub(crate) async fn explain(State(api): State<Api>, OfTopic(topic): OfTopic) -> Result<Json<TopicReport>, Refused> {
    let closed = || TopicReport {
        topic: topic.to_string(),
        state: "not open: it does not exist, or nobody has used it since the start".to_owned(),
        ..TopicReport::default()
    };
    Ok(Json(report(&api, &topic).await?.unwrap_or_else(closed)))
}

async fn report(api: &Api, topic: &TopicName) -> Result<Option<TopicReport>, Refused> {
    let deadline = api.env.clock.now() + EXPLAIN_DEADLINE;
    tokio::select! {
        biased;
        report = api.broker.explain_topic(topic) => Ok(report),
        () = api.env.clock.sleep_until(deadline) => {
            let reason = format!("{topic} did not answer within {EXPLAIN_DEADLINE:?}");
            Err(Refused::new(StatusCode::GATEWAY_TIMEOUT, reason))
        }
    }
}

/// What a subscription of an open topic is doing, and why it does not go on.
pub(crate) async fn explain_subscription(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
) -> Result<Json<SubscriptionReport>, Refused> {
    let name = at.text("subscription");
    let Some(report) = report(&api, &topic).await? else {
        let reason = format!("{topic} is not open: it does not exist, or nobody has used it since the start");
        return Err(Refused::new(StatusCode::NOT_FOUND, reason));
    };
    let found = report.subscriptions.into_iter().find(|subscription| subscription.name == name);
    let none = || format!("Subscription {name} not found for topic {topic}, which is {}", report.state);
    found.map(Json).ok_or_else(|| Refused::new(StatusCode::NOT_FOUND, none()))
}

/// The consumers of that name, and why each is sent nothing now. Names need not be different.
pub(crate) async fn explain_consumer(
    state: State<Api>,
    topic: OfTopic,
    at: Segments,
) -> Result<Json<Vec<ConsumerReport>>, Refused> {
    let name = at.text("consumer").to_owned();
    let Json(subscription) = explain_subscription(state, topic, at).await?;
    let named = |consumer: &ConsumerReport| consumer.name == name;
    let found: Vec<ConsumerReport> = subscription.consumers.into_iter().filter(named).collect();
    if found.is_empty() {
        let reason = format!("Consumer {name} not found on subscription {}", subscription.name);
        return Err(Refused::new(StatusCode::NOT_FOUND, reason));
    }
    Ok(Json(found))
}
