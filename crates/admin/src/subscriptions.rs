//! `/admin/v2/persistent/…/subscription`: what operators do with subscriptions.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use geminga_admin_model::ResetCursor;
use geminga_model::{Position, UnixMillis};

use crate::Api;
use crate::message;
use crate::refusal::Refused;
use crate::request::{Flags, OfTopic, Segments};

pub(crate) async fn list(State(api): State<Api>, OfTopic(topic): OfTopic) -> Result<Json<Vec<String>>, Refused> {
    Ok(Json(api.broker.subscriptions(&topic).await?))
}

/// Fact: without a body a subscription begins at the end.
pub(crate) async fn create(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
    Query(flags): Query<Flags>,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    if flags.replicated {
        let reason = "replicated subscriptions: not in this version";
        return Err(Refused::new(StatusCode::NOT_IMPLEMENTED, reason));
    }
    let from = ResetCursor::parse(&sent)?.unwrap_or(ResetCursor::LATEST);
    let first = if from.excluded && from != ResetCursor::LATEST { position(&from).next() } else { position(&from) };
    api.broker.create_subscription(&topic, at.text("subscription"), first, from.properties).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn delete(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
    Query(flags): Query<Flags>,
) -> Result<StatusCode, Refused> {
    api.broker.delete_subscription(&topic, at.text("subscription"), flags.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn skip(State(api): State<Api>, OfTopic(topic): OfTopic, at: Segments) -> Result<StatusCode, Refused> {
    api.broker.skip(&topic, at.text("subscription"), at.number("count")?).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn skip_all(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
) -> Result<StatusCode, Refused> {
    api.broker.skip_all(&topic, at.text("subscription")).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn reset_to_time(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
) -> Result<StatusCode, Refused> {
    api.broker.reset_to_time(&topic, at.text("subscription"), UnixMillis(at.number("timestamp")?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn reset_to_message(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
    sent: Bytes,
) -> Result<StatusCode, Refused> {
    let nowhere = || Refused::new(StatusCode::BAD_REQUEST, "the body names no message");
    let to = ResetCursor::parse(&sent)?.ok_or_else(nowhere)?;
    api.broker.reset_to_message(&topic, at.text("subscription"), position(&to), to.excluded).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The nth entry that is not acknowledged.
pub(crate) async fn peek(State(api): State<Api>, OfTopic(topic): OfTopic, at: Segments) -> Result<Response, Refused> {
    let found = api.broker.nth_unacked(&topic, at.text("subscription"), at.number("position")?).await?;
    message::answer(found, &api.broker.entry(&topic, found).await?)
}

fn position(from: &ResetCursor) -> Position {
    Position::new(from.ledger, from.entry)
}
