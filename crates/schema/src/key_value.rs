//! The definition of a key and a value: each definition after its length, four bytes big-endian. In REST it is JSON.

use serde_json::{Map, Value};

use crate::definition::InvalidSchema;

/// The definitions of key and value. Fact: a length of −1 is that of nothing.
pub(crate) fn split(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, rest) = take(data)?;
    let (value, rest) = take(rest)?;
    rest.is_empty().then_some((key, value))
}

fn take(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk()?;
    match i32::from_be_bytes(*length) {
        -1 => Some((&[], rest)),
        length => rest.split_at_checked(usize::try_from(length).ok()?),
    }
}

fn join(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(8 + key.len() + value.len());
    for part in [key, value] {
        data.extend_from_slice(&i32::try_from(part.len()).ok()?.to_be_bytes());
        data.extend_from_slice(part);
    }
    Some(data)
}

/// The JSON of a definition, as REST answers with it: `{"key": …, "value": …}`, where a primitive type is an empty text.
#[must_use]
pub fn key_value_to_json(data: &[u8]) -> Option<String> {
    let (key, value) = split(data)?;
    let part = |definition: &[u8]| match serde_json::from_slice(definition) {
        Ok(Value::Object(members)) => Value::Object(members),
        _ => Value::String(String::from_utf8_lossy(definition).into_owned()),
    };
    let members = [("key".to_owned(), part(key)), ("value".to_owned(), part(value))];
    Some(Value::Object(Map::from_iter(members)).to_string())
}

/// The definition of such JSON.
///
/// # Errors
/// [`InvalidSchema::NotKeyValue`].
pub fn key_value_from_json(json: &str) -> Result<Vec<u8>, InvalidSchema> {
    let whole: Map<String, Value> = serde_json::from_str(json).map_err(|_| InvalidSchema::NotKeyValue)?;
    let part = |name| match whole.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other @ Value::Object(_)) => Ok(other.to_string()),
        _ => Err(InvalidSchema::NotKeyValue),
    };
    join(part("key")?.as_bytes(), part("value")?.as_bytes()).ok_or(InvalidSchema::NotKeyValue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_and_json() {
        let json = r#"{"key":"","value":{"type":"record"}}"#;
        let data = key_value_from_json(json).unwrap();
        assert_eq!(data, b"\0\0\0\0\0\0\0\x11{\"type\":\"record\"}");
        assert_eq!(key_value_to_json(&data).unwrap(), json);
        assert_eq!(split(b"\xff\xff\xff\xff\0\0\0\x01v"), Some((&b""[..], &b"v"[..])));
        for bad in [&b""[..], b"\0\0\0\x01k", b"\0\0\0\0\0\0\0\0x", b"\xff\xff\xff\xfe\0\0\0\0"] {
            assert_eq!(key_value_to_json(bad), None, "{bad:?}");
        }
        for bad in ["", "[]", r#"{"key":""}"#, r#"{"key":1,"value":""}"#] {
            assert_eq!(key_value_from_json(bad), Err(InvalidSchema::NotKeyValue), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_joined_is_split(key: Vec<u8>, value: Vec<u8>) {
            let data = join(&key, &value).unwrap();
            prop_assert_eq!(split(&data), Some((&key[..], &value[..])));
        }

        #[test]
        fn arbitrary_bytes_never_panic(data: Vec<u8>) {
            drop(key_value_to_json(&data));
        }
    }
}
