//! Which path is answered by whom.

use axum::Router;
use axum::extract::Request;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post, put};

use crate::Api;
use crate::refusal::Refused;
use crate::{brokers, inspect, namespaces, schemas, subscriptions, tenants, topics};

/// The whole API.
pub(crate) fn routes(api: Api) -> Router {
    Router::new()
        .route("/status.html", get(|| async { "OK" }))
        .route("/metrics", get(brokers::metrics))
        .route("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", get(brokers::lookup))
        .route("/geminga/v1/explain/{domain}/{tenant}/{namespace}/{topic}", get(topics::explain))
        .route(
            "/geminga/v1/explain/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}",
            get(topics::explain_subscription),
        )
        .route(
            "/geminga/v1/explain/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}/consumer/{consumer}",
            get(topics::explain_consumer),
        )
        .nest("/admin/v2", admin())
        .method_not_allowed_fallback(unknown)
        .fallback(unknown)
        .layer(from_fn(end_after_delete))
        .with_state(api)
}

fn admin() -> Router<Api> {
    let tenant = get(tenants::get).put(tenants::create).post(tenants::update).delete(tenants::delete);
    let namespace = get(namespaces::policies).put(namespaces::create).delete(namespaces::delete);
    let topic = put(topics::create).delete(topics::delete);
    let partitions = get(topics::partitions)
        .put(topics::create_partitioned)
        .post(topics::update_partitions)
        .delete(topics::delete_partitioned);
    let subscription = put(subscriptions::create).delete(subscriptions::delete);
    Router::new()
        .route("/brokers", get(brokers::list))
        .route("/brokers/{cluster}", get(brokers::list_of))
        .route("/brokers/health", get(brokers::health))
        .route("/brokers/ready", get(brokers::health))
        .route("/brokers/version", get(brokers::version))
        .route("/brokers/leaderBroker", get(brokers::leader))
        .route("/brokers/configuration/runtime", get(brokers::configuration))
        .route("/clusters", get(tenants::clusters))
        .route("/clusters/{cluster}", get(tenants::cluster))
        .route("/tenants", get(tenants::list))
        .route("/tenants/{tenant}", tenant)
        .route("/namespaces/{tenant}", get(namespaces::list))
        .route("/namespaces/{tenant}/{namespace}", namespace)
        .route("/namespaces/{tenant}/{namespace}/topics", get(namespaces::topics))
        .route("/namespaces/{tenant}/{namespace}/bundles", get(namespaces::bundles))
        .merge(schemas::routes())
        .route("/{domain}/{tenant}/{namespace}", get(topics::list))
        .route("/{domain}/{tenant}/{namespace}/partitioned", get(topics::list_partitioned))
        .route("/{domain}/{tenant}/{namespace}/{topic}", topic)
        .route("/{domain}/{tenant}/{namespace}/{topic}/partitions", partitions)
        .nest("/{domain}/{tenant}/{namespace}/{topic}", of_topic())
        .nest("/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}", of_subscription())
        .route("/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}", subscription)
}

fn of_topic() -> Router<Api> {
    Router::new()
        .route("/stats", get(inspect::stats))
        .route("/partitioned-stats", get(inspect::partitioned_stats))
        .route("/internalStats", get(inspect::internal_stats))
        .route("/internal-info", get(inspect::internal_info))
        .route("/subscriptions", get(subscriptions::list))
        .route("/lastMessageId", get(inspect::last_message_id))
        .route("/messageid/{timestamp}", get(inspect::message_id_at))
        .route("/ledger/{ledger}/entry/{entry}", get(inspect::message))
        .route("/terminate", post(inspect::terminate))
        .route("/terminate/partitions", post(inspect::terminate_partitions))
        .route("/unload", put(inspect::unload))
}

fn of_subscription() -> Router<Api> {
    Router::new()
        .route("/skip/{count}", post(subscriptions::skip))
        .route("/skip_all", post(subscriptions::skip_all))
        .route("/resetcursor/{timestamp}", post(subscriptions::reset_to_time))
        .route("/resetcursor", post(subscriptions::reset_to_message))
        .route("/position/{position}", get(subscriptions::peek))
}

async fn unknown(method: Method, uri: Uri) -> Refused {
    let reason = format!("there is no {method} {}: not in this version, or not part of the API", uri.path());
    Refused::new(StatusCode::NOT_FOUND, reason)
}

/// Fact: the Node client sends DELETE with a body that it does not announce, which would be taken for the next request.
async fn end_after_delete(request: Request, next: Next) -> Response {
    let ends = request.method() == Method::DELETE;
    let mut response = next.run(request).await;
    if ends {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
