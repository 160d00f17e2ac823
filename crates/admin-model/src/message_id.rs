//! Positions in requests and answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::body::InvalidBody;

/// A message's place, as REST tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageIdData {
    /// The ledger.
    pub ledger_id: i64,
    /// The entry.
    pub entry_id: i64,
    /// The partition; −1 of a topic without.
    pub partition_index: i32,
    /// The message within the entry, if it is a batch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub batch_index: Option<i32>,
}

/// Where a subscription is to begin or to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetCursor {
    /// The ledger; −1 for the beginning, `i64::MAX` for the end.
    pub ledger: i64,
    /// The entry.
    pub entry: i64,
    /// Whether to go on behind the message rather than with it.
    pub excluded: bool,
    /// Properties of a new subscription.
    pub properties: Vec<(String, String)>,
}

impl ResetCursor {
    /// The end of the topic.
    pub const LATEST: ResetCursor =
        ResetCursor { ledger: i64::MAX, entry: i64::MAX, excluded: false, properties: Vec::new() };
    /// The beginning of the topic.
    pub const EARLIEST: ResetCursor = ResetCursor { ledger: -1, entry: -1, excluded: false, properties: Vec::new() };

    /// Reads a body; `None` if there is none. Fact: it is an object, or one of the texts `latest` and `earliest`, with
    /// or without quotes.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(body: &[u8]) -> Result<Option<ResetCursor>, InvalidBody> {
        let text = body.trim_ascii();
        if text.is_empty() || text == b"null" {
            return Ok(None);
        }
        match text.trim_ascii_start().strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text) {
            b"latest" => return Ok(Some(ResetCursor::LATEST)),
            b"earliest" => return Ok(Some(ResetCursor::EARLIEST)),
            _ => {}
        }
        let value: Value = serde_json::from_slice(text).map_err(|error| InvalidBody::Json(error.to_string()))?;
        let number = |name: &str| value.get(name).and_then(Value::as_i64);
        let flag = |name: &str| value.get(name).and_then(Value::as_bool).unwrap_or(false);
        let (Some(ledger), Some(entry)) = (number("ledgerId"), number("entryId")) else {
            return Err(InvalidBody::NotAMessageId);
        };
        let properties = match value.get("properties") {
            Some(Value::Object(map)) => {
                map.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
            }
            _ => Vec::new(),
        };
        Ok(Some(ResetCursor { ledger, entry, excluded: flag("excluded") || flag("isExcluded"), properties }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_in_all_their_ways() {
        for (body, expected) in [
            ("", None),
            ("null", None),
            ("\"latest\"", Some(ResetCursor::LATEST)),
            ("earliest", Some(ResetCursor::EARLIEST)),
            (r#"{"ledgerId":-1,"entryId":-1,"partitionIndex":-1}"#, Some(ResetCursor::EARLIEST)),
            (r#"{"ledgerId":9223372036854775807,"entryId":9223372036854775807}"#, Some(ResetCursor::LATEST)),
            (
                r#"{"ledgerId":3,"entryId":4,"isExcluded":true,"batchIndex":-1,"properties":{"a":"b"}}"#,
                Some(ResetCursor { ledger: 3, entry: 4, excluded: true, properties: vec![("a".into(), "b".into())] }),
            ),
        ] {
            assert_eq!(ResetCursor::parse(body.as_bytes()), Ok(expected), "{body}");
        }
        for body in ["3", "{}", "[1]", r#"{"ledgerId":1}"#] {
            assert_eq!(ResetCursor::parse(body.as_bytes()), Err(InvalidBody::NotAMessageId), "{body}");
        }
        assert!(matches!(ResetCursor::parse(b"{"), Err(InvalidBody::Json(_))));
    }
}
