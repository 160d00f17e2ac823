//! Definitions of schemas: what is taken is the same as itself in every form in which it is sent or stored.

use geminga_schema::{Offered, Schema, SchemaType, key_value_from_json, key_value_to_json, offered, version_of_bytes};
use geminga_wire::proto;

use super::{choice, part};
use crate::memory::within;

/// The target.
pub fn run(data: &[u8]) {
    let (kind, mut rest) = choice(data);
    let kind = SchemaType::ALL[usize::from(kind) % SchemaType::ALL.len()];
    let first = part(&mut rest).unwrap_or_default();
    let schemas = [first, rest].map(|data| {
        // A definition is read as JSON to check it.
        within(4096 + 200 * data.len(), || Schema::new(kind, data.to_vec(), vec![("k".into(), "v".into())]))
    });
    for schema in schemas.iter().flatten() {
        assert!(schema.is_same(schema));
        let wire = schema.to_wire("t/n/a");
        match kind {
            SchemaType::None => assert_eq!(offered(Some(&wire)), Ok(Offered::Nothing)),
            _ => assert_eq!(offered(Some(&wire)), Ok(Offered::Schema(schema.clone()))),
        }
        assert_eq!(schema.hash().len(), 32);
        assert!(kind != SchemaType::KeyValue || key_value_to_json(schema.data()).is_some());
    }
    if let [Ok(one), Ok(other)] = &schemas {
        assert_eq!(one.is_same(other), other.is_same(one));
        assert!(one.data() != other.data() || one.is_same(other));
    }
    if let Ok(json) = std::str::from_utf8(rest)
        && let Ok(definition) = key_value_from_json(json)
    {
        let written = key_value_to_json(&definition).unwrap();
        assert!(Schema::new(SchemaType::KeyValue, definition.clone(), vec![]).is_ok());
        let again = key_value_from_json(&written).unwrap();
        assert_eq!(key_value_to_json(&again), Some(written));
    }
    let _ = version_of_bytes(rest);
    let strange =
        proto::Schema { r#type: data.len() as i32 - 5, schema_data: data.to_vec().into(), ..Default::default() };
    let _ = offered(Some(&strange));
}
