//! `/admin/v2/clusters` and `/admin/v2/tenants`.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use geminga_admin_model::body;
use geminga_records::{ClusterData, TenantInfo};
use serde_json::{Map, Value};

use crate::Api;
use crate::refusal::Refused;
use crate::request::Flags;

pub(crate) async fn clusters(State(api): State<Api>) -> Result<Json<Vec<String>>, Refused> {
    Ok(Json(api.broker.clusters().await?))
}

pub(crate) async fn cluster(State(api): State<Api>, Path(cluster): Path<String>) -> Result<Json<ClusterData>, Refused> {
    Ok(Json(api.broker.cluster(&cluster).await?))
}

pub(crate) async fn list(State(api): State<Api>) -> Result<Json<Vec<String>>, Refused> {
    Ok(Json(api.broker.tenants().await?))
}

pub(crate) async fn get(State(api): State<Api>, Path(tenant): Path<String>) -> Result<Json<TenantInfo>, Refused> {
    Ok(Json(api.broker.tenant(&tenant).await?))
}

pub(crate) async fn create(
    State(api): State<Api>,
    Path(tenant): Path<String>,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    api.broker.create_tenant(&tenant, &tenant_info(&sent)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn update(
    State(api): State<Api>,
    Path(tenant): Path<String>,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    api.broker.update_tenant(&tenant, &tenant_info(&sent)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn delete(
    State(api): State<Api>,
    Path(tenant): Path<String>,
    Query(flags): Query<Flags>,
) -> Result<StatusCode, Refused> {
    api.broker.delete_tenant(&tenant, flags.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Fact: members that are not known are ignored.
fn tenant_info(sent: &Bytes) -> Result<TenantInfo, Refused> {
    let info: TenantInfo = serde_json::from_value(Value::Object(body::object(sent)?))
        .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, format!("the body is not a tenant: {error}")))?;
    Ok(TenantInfo { unknown: Map::new(), ..info })
}
