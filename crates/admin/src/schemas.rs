//! `/admin/v2/schemas`.

use axum::extract::{Query, RawPathParams, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use geminga_admin_model::{
    GetAllVersionsSchemaResponse, GetSchemaResponse, LongSchemaVersion, PostSchemaPayload, PostSchemaResponse,
};
use geminga_broker::{AdminError, SchemaVersion};
use geminga_schema::{Bearer, InvalidSchema, Schema, SchemaType, key_value_from_json, key_value_to_json};

use crate::Api;
use crate::refusal::Refused;
use crate::request::{Flags, OfTopic};

pub(crate) fn routes() -> Router<Api> {
    let of_topic = Router::new()
        .route("/schema", get(latest).post(upload).delete(delete))
        .route("/schema/{version}", get(version))
        .route("/schemas", get(all))
        .route("/version", post(find))
        .route("/compatibility", post(compatibility));
    Router::new().nest("/schemas/{tenant}/{namespace}/{topic}", of_topic)
}

async fn latest(State(api): State<Api>, OfTopic(topic): OfTopic) -> Result<Json<GetSchemaResponse>, Refused> {
    Ok(Json(response(api.broker.schema(&topic, None).await?)))
}

async fn version(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    path: RawPathParams,
) -> Result<Json<GetSchemaResponse>, Refused> {
    let text = path.iter().find(|(name, _)| *name == "version").map_or("", |(_, value)| value);
    let number = text
        .parse()
        .map_err(|_| Refused::new(StatusCode::BAD_REQUEST, format!("'{text}' is not the number of a version")))?;
    Ok(Json(response(api.broker.schema(&topic, Some(number)).await?)))
}

async fn all(State(api): State<Api>, OfTopic(topic): OfTopic) -> Result<Json<GetAllVersionsSchemaResponse>, Refused> {
    let versions = api.broker.schemas(&topic).await?;
    Ok(Json(GetAllVersionsSchemaResponse { get_schema_responses: versions.into_iter().map(response).collect() }))
}

async fn upload(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    sent: Bytes,
) -> Result<Json<PostSchemaResponse>, Refused> {
    let schema = schema(&sent)?;
    // Its namespace must exist; the topic need not.
    api.broker.policies(topic.namespace()).await?;
    let version = api.broker.register_schema(&topic, schema, Bearer::Writer).await?;
    Ok(Json(PostSchemaResponse { version: LongSchemaVersion { version } }))
}

async fn delete(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    Query(flags): Query<Flags>,
) -> Result<Json<LongSchemaVersion>, Refused> {
    Ok(Json(LongSchemaVersion { version: api.broker.delete_schema(&topic, flags.force).await? }))
}

/// Which version a schema has. Fact: one that is not registered has version −1.
async fn find(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    sent: Bytes,
) -> Result<Json<LongSchemaVersion>, Refused> {
    let version = api.broker.version_of_schema(&topic, &schema(&sent)?).await?.unwrap_or(-1);
    Ok(Json(LongSchemaVersion { version }))
}

async fn compatibility() -> Refused {
    Refused::new(StatusCode::NOT_IMPLEMENTED, "comparing schemas that differ: not in this version")
}

/// The schema of a request. Fact: that of a key and a value is JSON here, and bytes everywhere else.
fn schema(sent: &[u8]) -> Result<Schema, Refused> {
    let PostSchemaPayload { kind: name, schema, properties } = PostSchemaPayload::parse(sent)?;
    let text = schema.unwrap_or_default();
    let checked = SchemaType::of_name(&name).ok_or(InvalidSchema::Type(name)).and_then(|kind| {
        let data = if kind == SchemaType::KeyValue { key_value_from_json(&text)? } else { text.into_bytes() };
        Schema::new(kind, data, properties.unwrap_or_default().into_iter().collect())
    });
    Ok(checked.map_err(AdminError::InvalidSchema)?)
}

fn response(stored: SchemaVersion) -> GetSchemaResponse {
    let SchemaVersion { version, timestamp, schema } = stored;
    let text = || String::from_utf8_lossy(schema.data()).into_owned();
    let data = match schema.kind() {
        SchemaType::KeyValue => key_value_to_json(schema.data()).unwrap_or_else(text),
        _ => text(),
    };
    let properties = schema.properties().iter().cloned().collect();
    GetSchemaResponse { version, kind: schema.kind().name().to_owned(), timestamp: timestamp.0, data, properties }
}
