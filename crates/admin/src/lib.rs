//! The REST API of a broker.
//!
//! Deliberately not here: what the answers are made of (`broker` and below).
//!
//! [`serve`] answers until its scope is stopped. Every refusal is `{"reason": …}` with the right status; a path that is
//! not known is a 404 that says so.

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use geminga_admin_model::{Reason, TopicReport};
use geminga_broker::Broker;
use geminga_env::{Env, OnPanic, reply};
use geminga_model::TopicName;
use tokio::net::TcpListener;

/// How long an owner may take to explain itself.
const EXPLAIN_DEADLINE: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Api {
    env: Env,
    broker: Broker,
}

/// Answers requests on `listener` until the control scope is stopped.
pub fn serve(env: &Env, broker: &Broker, listener: TcpListener) {
    let api = Api { env: env.clone(), broker: broker.clone() };
    let routes = Router::new()
        .route("/status.html", get(|| async { "OK" }))
        .route("/admin/v2/brokers/health", get(|| async { "ok" }))
        .route("/geminga/v1/explain/{domain}/{tenant}/{namespace}/{topic}", get(explain_topic))
        .fallback(unknown)
        .with_state(api);
    let stop = env.control.stop_signal().clone();
    env.control.spawn("rest", OnPanic::ExitProcess, async move {
        let served = axum::serve(listener, routes).with_graceful_shutdown(async move { stop.stopped().await });
        if let Err(error) = served.await {
            tracing::error!(%error, "the REST server ended");
        }
    });
}

fn refuse(status: StatusCode, reason: impl Into<String>) -> Response {
    (status, Json(Reason { reason: reason.into() })).into_response()
}

async fn unknown(uri: Uri) -> Response {
    refuse(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {}: not in this version, or not a path of the API", uri.path()),
    )
}

/// What a topic that is open is doing. Asking never opens it.
async fn explain_topic(
    State(api): State<Api>,
    Path((domain, tenant, namespace, topic)): Path<(String, String, String, String)>,
) -> Response {
    let name = match format!("{domain}://{tenant}/{namespace}/{topic}").parse::<TopicName>() {
        Ok(name) => name,
        Err(error) => return refuse(StatusCode::PRECONDITION_FAILED, error.to_string()),
    };
    let Some(open) = api.broker.topics().get(&name) else {
        let closed = TopicReport {
            topic: name.to_string(),
            state: "not open: it does not exist, or nobody has used it since the start".to_owned(),
            ..TopicReport::default()
        };
        return Json(closed).into_response();
    };
    let (to, mut from) = reply();
    open.explain(to);
    let deadline = api.env.clock.now() + EXPLAIN_DEADLINE;
    let answer = tokio::select! {
        biased;
        answer = from.wait() => answer,
        () = api.env.clock.sleep_until(deadline) => {
            return refuse(StatusCode::GATEWAY_TIMEOUT, format!("{name} did not answer within {EXPLAIN_DEADLINE:?}"));
        }
    };
    match answer {
        Ok(report) => Json(report).into_response(),
        Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, format!("{name} was closed while it was asked")),
    }
}
