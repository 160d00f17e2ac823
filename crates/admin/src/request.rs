//! What requests are made of: names in paths, and flags in queries.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Path, RawPathParams};
use axum::http::StatusCode;
use axum::http::request::Parts;
use geminga_broker::AdminError;
use geminga_model::{Domain, NamespaceName, TopicName};
use serde::{Deserialize, Deserializer};

use crate::refusal::Refused;

/// A segment of the path as it was sent, or nothing.
async fn segments<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams, Refused> {
    let bad = |error: &dyn Display| Refused::new(StatusCode::BAD_REQUEST, error.to_string());
    RawPathParams::from_request_parts(parts, state).await.map_err(|error| bad(&error))
}

fn segment<'a>(path: &'a RawPathParams, name: &str) -> &'a str {
    path.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
}

fn domain(path: &RawPathParams) -> Result<Domain, Refused> {
    match segment(path, "domain") {
        // Fact: the paths of schemas name no domain.
        "persistent" | "" => Ok(Domain::Persistent),
        "non-persistent" => Ok(Domain::NonPersistent),
        other => Err(Refused::new(StatusCode::NOT_FOUND, format!("there is nothing at {other}: not in this version"))),
    }
}

/// The topic of a path. Fact: its local name is encoded as Java does, which is not quite that of URLs.
#[derive(Debug)]
pub(crate) struct OfTopic(pub(crate) TopicName);

impl<S: Send + Sync> FromRequestParts<S> for OfTopic {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<OfTopic, Refused> {
        let path = segments(parts, state).await?;
        let domain = domain(&path)?;
        let (tenant, namespace, topic) =
            (segment(&path, "tenant"), segment(&path, "namespace"), segment(&path, "topic"));
        let name = TopicName::from_encoded(domain.as_str(), tenant, namespace, topic);
        Ok(OfTopic(name.map_err(|_| AdminError::TopicName)?))
    }
}

/// The namespace of a path.
#[derive(Debug)]
pub(crate) struct OfNamespace(pub(crate) NamespaceName);

impl<S: Send + Sync> FromRequestParts<S> for OfNamespace {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<OfNamespace, Refused> {
        let path = segments(parts, state).await?;
        let name = NamespaceName::new(segment(&path, "tenant"), segment(&path, "namespace"));
        Ok(OfNamespace(name.map_err(|_| AdminError::NamespaceName)?))
    }
}

/// The domain of a path.
#[derive(Debug)]
pub(crate) struct OfDomain(pub(crate) Domain);

impl<S: Send + Sync> FromRequestParts<S> for OfDomain {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<OfDomain, Refused> {
        let path = segments(parts, state).await?;
        domain(&path).map(OfDomain)
    }
}

/// The decoded segments of a path, by name.
#[derive(Debug)]
pub(crate) struct Segments(BTreeMap<String, String>);

impl Segments {
    /// A text; empty if the path has no such segment.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A number.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<T, Refused> {
        let text = self.text(name);
        text.parse().map_err(|_| Refused::new(StatusCode::BAD_REQUEST, format!("{name} is not a number: {text}")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Segments {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Segments, Refused> {
        let bad = |error: &dyn Display| Refused::new(StatusCode::BAD_REQUEST, error.to_string());
        let Path(segments) = Path::from_request_parts(parts, state).await.map_err(|error| bad(&error))?;
        Ok(Segments(segments))
    }
}

/// The flags that some requests have in their query.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Flags {
    /// Also if it is in use.
    #[serde(deserialize_with = "flag", default)]
    pub(crate) force: bool,
    /// Also what the broker has for itself.
    #[serde(deserialize_with = "flag", default)]
    pub(crate) include_system_topic: bool,
    /// As clients ask that would have a topic made that is missing.
    #[serde(deserialize_with = "flag", default)]
    pub(crate) check_allow_auto_creation: bool,
    /// Only the whole of a partitioned topic, if false.
    #[serde(deserialize_with = "flag", default = "yes")]
    pub(crate) per_partition: bool,
    /// Without producers.
    #[serde(deserialize_with = "flag", default)]
    pub(crate) exclude_publishers: bool,
    /// Without consumers.
    #[serde(deserialize_with = "flag", default)]
    pub(crate) exclude_consumers: bool,
    /// A subscription that is the same in several clusters.
    #[serde(deserialize_with = "flag", default)]
    pub(crate) replicated: bool,
    /// Which of the addresses to answer with.
    pub(crate) listener_name: Option<String>,
    /// Topics of which domain.
    pub(crate) mode: Option<String>,
}

fn yes() -> bool {
    true
}

/// Fact: as Java reads booleans, whatever is not "true" is false.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(String::deserialize(deserializer)?.eq_ignore_ascii_case("true"))
}
