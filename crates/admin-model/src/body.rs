//! Bodies of requests, in all the ways in which clients write them.

use serde_json::{Map, Value};

/// Why a body is not what belongs there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBody {
    /// Not JSON.
    #[error("the body is not JSON: {0}")]
    Json(String),
    /// Not a JSON object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// Not a number of partitions.
    #[error("the body is not a number of partitions")]
    NotPartitions,
    /// Not a position in a topic.
    #[error("the body is not a message id: expected ledgerId and entryId, \"earliest\" or \"latest\"")]
    NotAMessageId,
}

/// An object; empty if there is no body. Fact: clients that have nothing to say send nothing, `null` or `{}`, and
/// members without a value as null.
///
/// # Errors
/// It is something else.
pub fn object(body: &[u8]) -> Result<Map<String, Value>, InvalidBody> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Null) => Ok(Map::new()),
        Ok(Value::Object(mut members)) => {
            members.retain(|_, value| !value.is_null());
            Ok(members)
        }
        Ok(_) => Err(InvalidBody::NotAnObject),
        Err(error) => Err(InvalidBody::Json(error.to_string())),
    }
}

/// A number of partitions, and properties of the topic. Fact: it comes as `3`, as `"3"`, as plain text, and as an object
/// with properties. Numbers that are none of a topic are 0.
///
/// # Errors
/// It is something else.
pub fn partitions(body: &[u8]) -> Result<(u32, Map<String, Value>), InvalidBody> {
    let value = serde_json::from_slice(body).map_err(|_| InvalidBody::NotPartitions)?;
    match value {
        Value::Object(mut members) => {
            let count = members.get("partitions").and_then(count).ok_or(InvalidBody::NotPartitions)?;
            let properties = match members.remove("properties") {
                Some(Value::Object(properties)) => properties,
                _ => Map::new(),
            };
            Ok((count, properties))
        }
        value => Ok((count(&value).ok_or(InvalidBody::NotPartitions)?, Map::new())),
    }
}

fn count(value: &Value) -> Option<u32> {
    let number = match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.map(|number| u32::try_from(number).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_is_an_empty_object() {
        for body in ["", " ", "null", "{}", "{\"a\":null}"] {
            assert_eq!(object(body.as_bytes()), Ok(Map::new()), "{body}");
        }
        assert_eq!(object(b"{\"a\":1,\"b\":null}").map(Value::Object), Ok(json!({"a": 1})));
        assert_eq!(object(b"[]"), Err(InvalidBody::NotAnObject));
        assert!(matches!(object(b"{"), Err(InvalidBody::Json(_))));
    }

    #[test]
    fn partitions_in_all_their_ways() {
        for body in ["3", "\"3\"", " 3\n", "{\"partitions\":3}", "{\"partitions\":\"3\",\"properties\":null}"] {
            assert_eq!(partitions(body.as_bytes()), Ok((3, Map::new())), "{body}");
        }
        let (count, properties) = partitions(br#"{"partitions":4,"properties":{"a":"b"}}"#).unwrap();
        assert_eq!((count, Value::Object(properties)), (4, json!({"a": "b"})));
        for body in ["-1", "99999999999"] {
            assert_eq!(partitions(body.as_bytes()), Ok((0, Map::new())), "{body}");
        }
        for body in ["", "null", "{}", "three", "[3]", "3.5", "true"] {
            assert_eq!(partitions(body.as_bytes()), Err(InvalidBody::NotPartitions), "{body}");
        }
    }
}
