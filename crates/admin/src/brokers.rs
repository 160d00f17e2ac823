//! `/admin/v2/brokers`, look-up over HTTP, and metrics: what the broker says of itself.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use geminga_admin_model::{LookupData, RuntimeConfiguration};
use geminga_disk::RealDisk;
use geminga_session::LookupAnswer;

use crate::Api;
use crate::metrics::{Facts, render};
use crate::refusal::Refused;
use crate::request::{Flags, OfTopic};

/// Whether requests can be served: metadata must answer, and know the broker's cluster.
pub(crate) async fn health(State(api): State<Api>) -> Result<&'static str, Refused> {
    api.broker.cluster(&api.broker.options().cluster).await?;
    Ok("ok")
}

/// Fact: `pulsar-admin clusters list` wants to know which cluster it talks to.
pub(crate) async fn configuration(State(api): State<Api>) -> Json<RuntimeConfiguration> {
    Json(RuntimeConfiguration { cluster_name: api.broker.options().cluster.clone() })
}

/// Where a topic is served. Fact: look-up over HTTP names the broker, never the address that the client dialled.
pub(crate) async fn lookup(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    Query(flags): Query<Flags>,
) -> Result<Json<LookupData>, Refused> {
    let answer = api.broker.lookup(&topic, flags.listener_name.as_deref().filter(|name| !name.is_empty())).await?;
    let (LookupAnswer::Connect { url, .. } | LookupAnswer::Redirect { url, .. }) = answer;
    let url = url.unwrap_or_default();
    let http_url = api.broker.options().web_service_url.clone();
    Ok(Json(LookupData { broker_url: url.clone(), http_url, native_url: url, ..LookupData::default() }))
}

pub(crate) async fn metrics(State(api): State<Api>) -> Response {
    let facts = Facts {
        cluster: api.broker.options().cluster.clone(),
        started: api.started,
        connections: api.broker.connections(),
        topics: api.broker.topics().len(),
    };
    let text = render(&facts, &crate::metrics::process(&RealDisk));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
