//! `/admin/v2/persistent/…`: what a topic tells, and what ends or moves it as a whole.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use geminga_admin_model::{
    InternalStats, MessageIdData, PartitionedTopicStats, StoredCursor, StoredLedger, StoredPosition, StoredTopic,
    TopicStats,
};
use geminga_model::{Position, TopicName, UnixMillis};

use crate::Api;
use crate::message;
use crate::refusal::Refused;
use crate::request::{Flags, OfTopic, Segments};

pub(crate) async fn stats(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    Query(flags): Query<Flags>,
) -> Result<Json<TopicStats>, Refused> {
    Ok(Json(without_excluded(api.broker.stats(&topic).await?, &flags)))
}

/// Fact: each partition is told unless that is declined.
pub(crate) async fn partitioned_stats(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    Query(flags): Query<Flags>,
) -> Result<Json<PartitionedTopicStats>, Refused> {
    let mut stats = api.broker.partitioned_stats(&topic, flags.per_partition).await?;
    stats.total = without_excluded(stats.total, &flags);
    for partition in stats.partitions.values_mut() {
        *partition = without_excluded(std::mem::take(partition), &flags);
    }
    Ok(Json(stats))
}

fn without_excluded(mut stats: TopicStats, flags: &Flags) -> TopicStats {
    if flags.exclude_publishers {
        stats.publishers.clear();
    }
    if flags.exclude_consumers {
        stats.subscriptions.values_mut().for_each(|subscription| subscription.consumers.clear());
    }
    stats
}

pub(crate) async fn internal_stats(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
) -> Result<Json<InternalStats>, Refused> {
    Ok(Json(api.broker.internal_stats(&topic).await?))
}

pub(crate) async fn internal_info(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
) -> Result<Json<StoredTopic>, Refused> {
    let stored = api.broker.stored(&topic).await?;
    let position = |at: Position| StoredPosition { ledger_id: at.ledger.0, entry_id: at.entry.0 };
    let ledgers = stored.info.ledgers.iter().map(|ledger| StoredLedger {
        ledger_id: ledger.ledger.0,
        entries: ledger.entries,
        size: ledger.size,
        timestamp: ledger.closed_at.filter(|at| at.0 > 0).map(|at| at.0),
        is_offloaded: false,
    });
    let cursors = stored.cursors.iter().map(|cursor| {
        let told = StoredCursor {
            version: cursor.version.0,
            cursors_ledger_id: cursor.info.cursor_ledger.0,
            mark_delete: cursor.info.mark_delete.map(position),
        };
        (cursor.name.clone(), told)
    });
    Ok(Json(StoredTopic {
        version: stored.version.0,
        ledgers: ledgers.collect(),
        terminated_position: stored.info.terminated.map(position),
        cursors: cursors.collect(),
        properties: stored.info.properties.iter().cloned().collect(),
    }))
}

fn message_id(topic: &TopicName, at: Position, batch_index: Option<i32>) -> MessageIdData {
    let partition = topic.partition().and_then(|index| i32::try_from(index).ok());
    MessageIdData {
        ledger_id: at.ledger.0,
        entry_id: at.entry.0,
        partition_index: partition.unwrap_or(-1),
        batch_index,
    }
}

pub(crate) async fn last_message_id(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
) -> Result<Json<MessageIdData>, Refused> {
    let last = api.broker.last_message_id(&topic).await?;
    Ok(Json(message_id(&topic, last.position, Some(last.batch_index).filter(|index| *index >= 0))))
}

/// Fact: without such a message the answer is empty.
pub(crate) async fn message_id_at(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
) -> Result<Response, Refused> {
    let found = api.broker.position_at(&topic, UnixMillis(at.number("timestamp")?)).await?;
    Ok(found.map_or_else(|| StatusCode::OK.into_response(), |at| Json(message_id(&topic, at, None)).into_response()))
}

pub(crate) async fn message(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
    at: Segments,
) -> Result<Response, Refused> {
    let position = Position::new(at.number("ledger")?, at.number("entry")?);
    message::answer(position, &api.broker.entry(&topic, position).await?)
}

pub(crate) async fn terminate(State(api): State<Api>, OfTopic(topic): OfTopic) -> Result<Json<MessageIdData>, Refused> {
    let end = api.broker.terminate(&topic).await?;
    Ok(Json(message_id(&topic, end, None)))
}

pub(crate) async fn terminate_partitions(
    State(api): State<Api>,
    OfTopic(topic): OfTopic,
) -> Result<Json<BTreeMap<u32, MessageIdData>>, Refused> {
    let ends = api.broker.terminate_partitions(&topic).await?;
    let told = ends.into_iter().map(|(index, end)| (index, message_id(&topic.with_partition(index), end, None)));
    Ok(Json(told.collect()))
}

pub(crate) async fn unload(State(api): State<Api>, OfTopic(topic): OfTopic) -> Result<StatusCode, Refused> {
    api.broker.unload(&topic).await?;
    Ok(StatusCode::NO_CONTENT)
}
