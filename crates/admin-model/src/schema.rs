//! Schemas, as REST writes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::body::InvalidBody;

/// A schema that an operator brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostSchemaPayload {
    /// The name of its type, such as `AVRO`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its definition, as text; empty for types that need none.
    #[serde(default)]
    pub schema: Option<String>,
    /// What its clients have it carry.
    #[serde(default)]
    pub properties: Option<BTreeMap<String, String>>,
}

impl PostSchemaPayload {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// It is not such an object.
    pub fn parse(body: &[u8]) -> Result<PostSchemaPayload, InvalidBody> {
        serde_json::from_slice(body).map_err(|error| InvalidBody::Json(error.to_string()))
    }
}

/// One version of a topic's schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetSchemaResponse {
    /// Its number, from 0.
    pub version: i64,
    /// The name of its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was registered, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its definition, as text.
    pub data: String,
    /// What its clients have it carry.
    pub properties: BTreeMap<String, String>,
}

/// All versions of a topic's schema, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetAllVersionsSchemaResponse {
    /// The versions.
    pub get_schema_responses: Vec<GetSchemaResponse>,
}

/// The number of a version; −1 is that of a schema that is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongSchemaVersion {
    /// The number.
    pub version: i64,
}

/// The version that an operator's schema got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostSchemaResponse {
    /// The version.
    pub version: LongSchemaVersion,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_in_all_their_ways() {
        let short = PostSchemaPayload { kind: "STRING".into(), ..PostSchemaPayload::default() };
        for body in [r#"{"type":"STRING"}"#, r#"{"type":"STRING","schema":null,"properties":null}"#] {
            assert_eq!(PostSchemaPayload::parse(body.as_bytes()), Ok(short.clone()), "{body}");
        }
        let full = br#"{"type":"AVRO","schema":"{}","properties":{"k":"v"}}"#;
        let parsed = PostSchemaPayload::parse(full).unwrap();
        assert_eq!((parsed.schema.as_deref(), parsed.properties.unwrap().len()), (Some("{}"), 1));
        for body in ["", "null", "[]", "{}", r#"{"type":3}"#] {
            assert!(PostSchemaPayload::parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
