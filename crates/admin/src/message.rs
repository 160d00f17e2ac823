//! A single entry as an answer: its payload, and what is said of it in headers.
//!
//! Of a batch the payload is the whole batch, which clients split. What is encrypted stays as it is, compressed.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Response as HttpResponse, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use geminga_model::{Position, UnixMillis};
use geminga_wire::proto::MessageMetadata;
use geminga_wire::{Entry, decompress};

use crate::refusal::Refused;

/// More than any message may have, decompressed.
const MAX_PAYLOAD: usize = 128 << 20;

/// The answer with an entry.
pub(crate) fn answer(position: Position, entry: &Entry) -> Result<Response, Refused> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Refused::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the entry {position} cannot be read: {error}"))
    };
    let metadata = entry.metadata().map_err(|error| unreadable(&error))?;
    let payload = payload(entry, &metadata).map_err(|error| unreadable(&error))?;
    let mut response = HttpResponse::new(Body::from(payload));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    for (name, value) in headers(position, entry, &metadata) {
        // What cannot stand in a header is left out.
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

fn payload(entry: &Entry, metadata: &MessageMetadata) -> Result<Bytes, String> {
    if !metadata.encryption_keys.is_empty() {
        return Ok(entry.payload());
    }
    decompress(metadata.compression(), entry.payload(), metadata.uncompressed_size(), MAX_PAYLOAD)
        .map_err(|error| error.to_string())
}

/// Fact: names and forms are Pulsar's.
fn headers(position: Position, entry: &Entry, metadata: &MessageMetadata) -> Vec<(&'static str, String)> {
    let time = |millis: u64| UnixMillis(millis.cast_signed()).iso8601();
    let mut headers = vec![
        ("X-Pulsar-Message-ID", position.to_string()),
        ("X-Pulsar-publish-time", time(metadata.publish_time)),
        ("X-Pulsar-producer-name", metadata.producer_name.clone()),
        ("X-Pulsar-sequence-id", metadata.sequence_id.to_string()),
        ("X-Pulsar-Is-Encrypted", (!metadata.encryption_keys.is_empty()).to_string()),
    ];
    if let Some(at) = metadata.event_time.filter(|at| *at > 0) {
        headers.push(("X-Pulsar-event-time", time(at)));
    }
    if let Some(at) = metadata.deliver_at_time {
        headers.push(("X-Pulsar-deliver-at-time", UnixMillis(at).iso8601()));
    }
    if !metadata.properties.is_empty() {
        let pairs = metadata.properties.iter().map(|pair| (pair.key.clone(), pair.value.clone().into()));
        let text = serde_json::Value::Object(pairs.collect()).to_string();
        headers.push(("X-Pulsar-PROPERTY", ascii(&text)));
    }
    if let Some(count) = metadata.num_messages_in_batch {
        headers.push(("X-Pulsar-num-batch-message", count.to_string()));
        headers.push(("X-Pulsar-batch-size", entry.payload().len().to_string()));
    }
    if let Some(key) = &metadata.partition_key {
        headers.push(("X-Pulsar-partition-key", key.clone()));
        headers.push(("X-Pulsar-partition-key-b64-encoded", metadata.partition_key_b64_encoded().to_string()));
    }
    if metadata.compression.is_some() {
        headers.push(("X-Pulsar-compression", metadata.compression().as_str_name().to_owned()));
        headers.push(("X-Pulsar-uncompressed-size", metadata.uncompressed_size().to_string()));
    }
    if metadata.null_value() {
        headers.push(("X-Pulsar-null-value", "true".to_owned()));
    }
    if let Some(from) = &metadata.replicated_from {
        headers.push(("X-Pulsar-replicated-from", from.clone()));
    }
    if let Some(marker) = metadata.marker_type {
        headers.push(("X-Pulsar-marker-type", marker.to_string()));
    }
    if let (Some(uuid), Some(chunk), Some(chunks)) = (&metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg) {
        headers.push(("X-Pulsar-uuid", uuid.clone()));
        headers.push(("X-Pulsar-chunk-id", chunk.to_string()));
        headers.push(("X-Pulsar-num-chunks-from-msg", chunks.to_string()));
    }
    headers
}

/// JSON in which only ASCII stands, because nothing else may in a header.
fn ascii(json: &str) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(json.len());
    for unit in json.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => text.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(text, "\\u{unit:04x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::to_bytes;
    use geminga_wire::proto::{CompressionType, KeyValue};
    use geminga_wire::{compress, encode_entry};

    #[tokio::test]
    async fn an_entry_is_told_decompressed_with_headers() {
        let plain = Bytes::from_static(b"hello hello hello hello");
        let metadata = MessageMetadata {
            producer_name: "p".into(),
            sequence_id: 3,
            publish_time: 1_700_000_000_000,
            compression: Some(CompressionType::Zlib.into()),
            uncompressed_size: Some(23),
            properties: vec![KeyValue { key: "k".into(), value: "ü".into() }],
            ..MessageMetadata::default()
        };
        let stored = encode_entry(&metadata, &compress(CompressionType::Zlib, plain.clone()).unwrap());
        let response = answer(Position::new(3, 4), &Entry::parse(stored).unwrap()).unwrap();
        for (name, value) in [
            ("x-pulsar-message-id", "3:4"),
            ("x-pulsar-publish-time", "2023-11-14T22:13:20.000Z"),
            ("x-pulsar-property", "{\"k\":\"\\u00fc\"}"),
            ("x-pulsar-compression", "ZLIB"),
        ] {
            assert_eq!(response.headers()[name], value, "{name}");
        }
        assert_eq!(to_bytes(response.into_body(), 1000).await.unwrap(), plain);
    }
}
