//! What requests are made of: names in paths, and flags in queries.

use std::fmt::Display;

use axum::extract::{FromRequestParts, RawPathParams};
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

/// The flags that some requests have in their query.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Flags {
    /// Also if it is in use.
    #[serde(deserialize_with = "flag")]
    pub(crate) force: bool,
    /// Also what the broker has for itself.
    #[serde(deserialize_with = "flag")]
    pub(crate) include_system_topic: bool,
    /// As clients ask that would have a topic made that is missing.
    #[serde(deserialize_with = "flag")]
    pub(crate) check_allow_auto_creation: bool,
    /// Which of the addresses to answer with.
    pub(crate) listener_name: Option<String>,
    /// Topics of which domain.
    pub(crate) mode: Option<String>,
}

/// Fact: as Java reads booleans, whatever is not "true" is false.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(String::deserialize(deserializer)?.eq_ignore_ascii_case("true"))
}
