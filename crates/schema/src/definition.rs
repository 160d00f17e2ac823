//! A schema: its definition, checked, and when it is the same as another.

use geminga_records::SchemaInfo;
use geminga_wire::proto;
use geminga_wire::proto::schema::Type;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::key_value::split;
use crate::schema_type::SchemaType;

/// Why something is not a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchema {
    /// A type that does not exist, or that cannot be stored.
    #[error("Unknown schema type : {0}")]
    Type(String),
    /// Types that need no definition have none.
    #[error("Invalid schema definition data for {0} schema: its length should be zero, but {1} bytes is found")]
    NotEmpty(SchemaType, usize),
    /// The definition is not the JSON that the type wants.
    #[error("Invalid schema definition data for {0} schema: it is not a JSON definition")]
    NotJson(SchemaType),
    /// The definition does not consist of those of a key and a value.
    #[error("Invalid schema definition data for KEY_VALUE schema: it is not a key and a value, each after its length")]
    NotKeyValue,
}

/// A schema whose definition has the form that its type wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    kind: SchemaType,
    data: Vec<u8>,
    properties: Vec<(String, String)>,
}

/// What a producer or consumer says of its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Nothing: it deals in bytes.
    Nothing,
    /// It takes whatever the topic has.
    Any,
    /// They follow this.
    Schema(Schema),
}

/// What a client's command says of its messages.
///
/// # Errors
/// [`InvalidSchema`].
pub fn offered(said: Option<&proto::Schema>) -> Result<Offered, InvalidSchema> {
    let Some(said) = said else { return Ok(Offered::Nothing) };
    match SchemaType::of_wire(said.r#type) {
        Some(SchemaType::None) => Ok(Offered::Nothing),
        None if said.r#type == Type::AutoConsume as i32 => Ok(Offered::Any),
        None => Err(InvalidSchema::Type(said.r#type.to_string())),
        Some(kind) => {
            let properties = said.properties.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect();
            Schema::new(kind, said.schema_data.to_vec(), properties).map(Offered::Schema)
        }
    }
}

impl Schema {
    /// A schema with this definition.
    ///
    /// # Errors
    /// [`InvalidSchema`] if the definition does not have the form that the type wants. What an Avro definition says is
    /// not looked into beyond its being JSON.
    pub fn new(kind: SchemaType, data: Vec<u8>, properties: Vec<(String, String)>) -> Result<Schema, InvalidSchema> {
        match kind {
            SchemaType::Json | SchemaType::Protobuf | SchemaType::Avro | SchemaType::ProtobufNative => {
                let definition: Result<Value, _> = serde_json::from_slice(&data);
                let defines = match definition {
                    Ok(Value::Object(_)) => true,
                    // A union, or a primitive type by its name.
                    Ok(Value::Array(_) | Value::String(_)) => kind != SchemaType::ProtobufNative,
                    _ => false,
                };
                if !defines {
                    return Err(InvalidSchema::NotJson(kind));
                }
            }
            SchemaType::KeyValue => drop(split(&data).ok_or(InvalidSchema::NotKeyValue)?),
            SchemaType::External => {}
            // Fact: Python says "null" where it has nothing to say.
            SchemaType::String if data == b"null" => {}
            _ if data.is_empty() => {}
            _ => return Err(InvalidSchema::NotEmpty(kind, data.len())),
        }
        Ok(Schema { kind, data, properties })
    }

    /// The schema of a stored version; `None` if its type is not known here.
    #[must_use]
    pub fn of_stored(info: &SchemaInfo) -> Option<Schema> {
        // It was checked when it was stored, maybe by other rules.
        let kind = SchemaType::of_stored(info.kind)?;
        Some(Schema { kind, data: info.schema.clone(), properties: info.properties.clone() })
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> SchemaType {
        self.kind
    }

    /// Its definition.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// What its clients have it carry.
    #[must_use]
    pub fn properties(&self) -> &[(String, String)] {
        &self.properties
    }

    /// As the binary protocol has it. Fact: its name is the id of the topic's schemas.
    #[must_use]
    pub fn to_wire(&self, schema_id: &str) -> proto::Schema {
        let pair = |(key, value): &(String, String)| proto::KeyValue { key: key.clone(), value: value.clone() };
        proto::Schema {
            name: schema_id.to_owned(),
            schema_data: self.data.clone().into(),
            r#type: self.kind.to_wire() as i32,
            properties: self.properties.iter().map(pair).collect(),
        }
    }

    /// SHA-256 of the definition, by which its version is listed.
    #[must_use]
    pub fn hash(&self) -> Vec<u8> {
        Sha256::digest(&self.data).to_vec()
    }

    /// Whether the other is the same schema: of the same type and with the same definition, whatever their properties.
    /// Fact: Avro definitions are compared by what they say, not by how it is written; documentation says nothing.
    #[must_use]
    pub fn is_same(&self, other: &Schema) -> bool {
        if self.kind != other.kind {
            return false;
        }
        if self.data == other.data {
            return true;
        }
        let (true, Ok(mine), Ok(other)) =
            (self.kind.is_avro(), serde_json::from_slice(&self.data), serde_json::from_slice(&other.data))
        else {
            return false;
        };
        without_docs(mine) == without_docs(other)
    }
}

/// A definition without the documentation of its types and fields.
fn without_docs(definition: Value) -> Value {
    match definition {
        Value::Object(mut members) => {
            members.remove("doc");
            for (name, member) in &mut members {
                // Nested types stand in these; elsewhere "doc" may be data.
                if matches!(name.as_str(), "type" | "fields" | "items" | "values") {
                    *member = without_docs(member.take());
                }
            }
            Value::Object(members)
        }
        Value::Array(list) => list.into_iter().map(without_docs).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_model::UnixMillis;
    use proptest::prelude::*;

    const RECORD: &str = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}"#;

    fn schema(kind: SchemaType, data: &str) -> Schema {
        Schema::new(kind, data.as_bytes().to_vec(), vec![]).unwrap()
    }

    #[test]
    fn definitions_have_the_form_of_their_type() {
        let rows: [(SchemaType, &[u8], bool); 17] = [
            (SchemaType::None, b"", true),
            (SchemaType::None, b"x", false),
            (SchemaType::String, b"", true),
            (SchemaType::String, b"null", true),
            (SchemaType::String, b"x", false),
            (SchemaType::Int32, b"", true),
            (SchemaType::Int32, b"null", false),
            (SchemaType::Avro, RECORD.as_bytes(), true),
            (SchemaType::Avro, b"\"int\"", true),
            (SchemaType::Json, b"", false),
            (SchemaType::Json, b"{", false),
            (SchemaType::Json, b"null", false),
            (SchemaType::ProtobufNative, b"{}", true),
            (SchemaType::ProtobufNative, b"[]", false),
            (SchemaType::KeyValue, b"\0\0\0\x01k\0\0\0\0", true),
            (SchemaType::KeyValue, b"\0\0\0\x09k", false),
            (SchemaType::External, b"anything", true),
        ];
        for (kind, data, valid) in rows {
            assert_eq!(Schema::new(kind, data.to_vec(), vec![]).is_ok(), valid, "{kind} {data:?}");
        }
    }

    #[test]
    fn what_clients_offer() {
        let said = |kind: i32, data: &'static str| proto::Schema {
            name: "n".into(),
            schema_data: data.into(),
            r#type: kind,
            properties: vec![proto::KeyValue { key: "k".into(), value: "v".into() }],
        };
        assert_eq!(offered(None), Ok(Offered::Nothing));
        assert_eq!(offered(Some(&said(Type::None as i32, "whatever"))), Ok(Offered::Nothing));
        assert_eq!(offered(Some(&said(Type::AutoConsume as i32, ""))), Ok(Offered::Any));
        assert_eq!(offered(Some(&said(99, ""))), Err(InvalidSchema::Type("99".into())));
        let json = said(Type::Json as i32, "{}");
        let Ok(Offered::Schema(schema)) = offered(Some(&json)) else { panic!() };
        assert_eq!((schema.kind(), schema.data()), (SchemaType::Json, &b"{}"[..]));
        assert_eq!(schema.to_wire("t/n/a"), proto::Schema { name: "t/n/a".into(), ..json });
    }

    #[test]
    fn the_same_definition_in_other_words() {
        let plain = schema(SchemaType::Avro, RECORD);
        let documented = r#"{"name": "R", "doc": "d", "type": "record",
            "fields": [{"type": "int", "name": "a", "doc": "e"}]}"#;
        assert!(plain.is_same(&schema(SchemaType::Avro, documented)));
        assert!(!plain.is_same(&schema(SchemaType::Json, RECORD)));
        assert!(!plain.is_same(&schema(SchemaType::Avro, &RECORD.replace("int", "long"))));
        assert!(!plain.is_same(&schema(SchemaType::Avro, &RECORD.replace("\"R\"", "\"S\""))));
        // A default value is data.
        let with = |doc| schema(SchemaType::Avro, &RECORD.replace("\"int\"", &format!("\"x\",\"default\":{doc}")));
        assert!(!with(r#"{"doc":"a"}"#).is_same(&with(r#"{"doc":"b"}"#)));
        // Others are compared byte by byte.
        assert!(!schema(SchemaType::ProtobufNative, "{}").is_same(&schema(SchemaType::ProtobufNative, "{ }")));
        let properties = vec![("k".to_owned(), "v".to_owned())];
        assert!(plain.is_same(&Schema::new(SchemaType::Avro, RECORD.into(), properties).unwrap()));
    }

    #[test]
    fn a_stored_version() {
        let mut info = SchemaInfo {
            schema_id: "t/n/a".into(),
            user: String::new(),
            kind: SchemaType::Avro.to_stored(),
            schema: RECORD.into(),
            timestamp: UnixMillis(0),
            deleted: false,
            properties: vec![],
        };
        assert_eq!(Schema::of_stored(&info), Some(schema(SchemaType::Avro, RECORD)));
        info.kind = 99;
        assert_eq!(Schema::of_stored(&info), None);
    }

    #[test]
    fn the_hash_is_of_the_definition() {
        let hash = schema(SchemaType::String, "").hash();
        assert_eq!((hash.len(), &hash[..4]), (32, &[0xe3, 0xb0, 0xc4, 0x42][..]));
    }

    proptest! {
        #[test]
        fn arbitrary_definitions_never_panic(data in proptest::collection::vec(any::<u8>(), 0..40)) {
            for kind in SchemaType::ALL {
                if let Ok(schema) = Schema::new(*kind, data.clone(), vec![]) {
                    prop_assert!(schema.is_same(&schema.clone()));
                }
            }
        }
    }
}
