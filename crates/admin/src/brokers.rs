//! `/admin/v2/brokers`, look-up over HTTP, and metrics: what the broker says of itself.

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use geminga_admin_model::{BrokerInfo, LookupData, RuntimeConfiguration};
use geminga_disk::RealDisk;
use geminga_session::LookupAnswer;

use crate::Api;
use crate::exposition::Exposition;
use crate::metrics::{Facts, memory, render};
use crate::refusal::Refused;
use crate::request::{Flags, OfTopic, Segments};

/// Whether requests can be served: metadata must answer, and know the broker's cluster.
pub(crate) async fn health(State(api): State<Api>) -> Result<&'static str, Refused> {
    api.broker.cluster(&api.broker.options().cluster).await?;
    Ok("ok")
}

/// Fact: `pulsar-admin clusters list` wants to know which cluster it talks to.
pub(crate) async fn configuration(State(api): State<Api>) -> Json<RuntimeConfiguration> {
    Json(RuntimeConfiguration { cluster_name: api.broker.options().cluster.clone() })
}

/// The brokers of the cluster. Fact: each is named by host and port of its REST.
pub(crate) async fn list(State(api): State<Api>) -> Json<Vec<String>> {
    Json(vec![broker_id(&api)])
}

/// The brokers of a cluster, which must be this one's.
pub(crate) async fn list_of(State(api): State<Api>, at: Segments) -> Result<Json<Vec<String>>, Refused> {
    let cluster = at.text("cluster");
    if cluster != api.broker.options().cluster {
        let reason = format!("Cluster does not exist: cluster={cluster}");
        return Err(Refused::new(StatusCode::NOT_FOUND, reason));
    }
    Ok(Json(vec![broker_id(&api)]))
}

fn broker_id(api: &Api) -> String {
    let url = &api.broker.options().web_service_url;
    url.split_once("://").map_or(url.as_str(), |(_, address)| address).trim_end_matches('/').to_owned()
}

pub(crate) async fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Fact: the leader decides who owns what; alone, this broker does.
pub(crate) async fn leader(State(api): State<Api>) -> Json<BrokerInfo> {
    Json(BrokerInfo { service_url: api.broker.options().web_service_url.clone(), broker_id: broker_id(&api) })
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

pub(crate) async fn metrics(State(api): State<Api>) -> Result<Response, Refused> {
    let Some(scrape) = api.scrapes.begin() else {
        return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, "too many scrapes are under way: try again"));
    };
    let cluster = &api.broker.options().cluster;
    let facts = Facts {
        cluster: cluster.clone(),
        started: api.started,
        connections: api.broker.connections(),
        topics: api.broker.topics().len(),
        memory: memory(api.broker.options()),
        metadata_writes: api.broker.metadata_writes(),
    };
    let head = render(&facts, &crate::metrics::process(&RealDisk));
    let text = Exposition::new(head, cluster, api.broker.measure().await, scrape);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], Body::new(text)).into_response())
}
