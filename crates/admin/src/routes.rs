//! Which path is answered by whom.

use axum::Router;
use axum::extract::Request;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;

use crate::Api;
use crate::refusal::Refused;
use crate::{brokers, namespaces, schemas, tenants, topics};

/// The whole API.
pub(crate) fn routes(api: Api) -> Router {
    Router::new()
        .route("/status.html", get(|| async { "OK" }))
        .route("/metrics", get(brokers::metrics))
        .route("/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}", get(brokers::lookup))
        .route("/geminga/v1/explain/{domain}/{tenant}/{namespace}/{topic}", get(topics::explain))
        .nest("/admin/v2", admin())
        .method_not_allowed_fallback(unknown)
        .fallback(unknown)
        .layer(from_fn(end_after_delete))
        .with_state(api)
}

fn admin() -> Router<Api> {
    let tenant = get(tenants::get).put(tenants::create).post(tenants::update).delete(tenants::delete);
    let namespace = get(namespaces::policies).put(namespaces::create).delete(namespaces::delete);
    let topic = axum::routing::put(topics::create).delete(topics::delete);
    let partitions = get(topics::partitions)
        .put(topics::create_partitioned)
        .post(topics::update_partitions)
        .delete(topics::delete_partitioned);
    Router::new()
        .route("/brokers/health", get(brokers::health))
        .route("/brokers/configuration/runtime", get(brokers::configuration))
        .route("/clusters", get(tenants::clusters))
        .route("/clusters/{cluster}", get(tenants::cluster))
        .route("/tenants", get(tenants::list))
        .route("/tenants/{tenant}", tenant)
        .route("/namespaces/{tenant}", get(namespaces::list))
        .route("/namespaces/{tenant}/{namespace}", namespace)
        .route("/namespaces/{tenant}/{namespace}/topics", get(namespaces::topics))
        .merge(schemas::routes())
        .route("/{domain}/{tenant}/{namespace}", get(topics::list))
        .route("/{domain}/{tenant}/{namespace}/partitioned", get(topics::list_partitioned))
        .route("/{domain}/{tenant}/{namespace}/{topic}", topic)
        .route("/{domain}/{tenant}/{namespace}/{topic}/partitions", partitions)
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
