//! What becomes of a schema that is brought to a topic.

use crate::definition::Schema;
use crate::schema_type::SchemaType;

/// Why a schema does not fit the topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// Messages of one type cannot be read as another.
    #[error("Incompatible schema: exists schema type {stored}, new schema type {offered}")]
    Type {
        /// That of the topic's latest version.
        stored: SchemaType,
        /// That of the one that was brought.
        offered: SchemaType,
    },
    /// It differs, and whether it is compatible all the same is not found out in this version.
    #[error(
        "Incompatible schema: the topic has another {0} schema, and this version stores schemas but does not compare \
         different ones yet: use the schema that the topic has, or delete that one and upload the new one (DELETE, then \
         POST /admin/v2/schemas/<tenant>/<namespace>/<topic>/schema)"
    )]
    NotCompared(SchemaType),
    /// The topic is used without a schema.
    #[error("Failed to add schema to an active topic with empty(BYTES) schema: new schema type {0}")]
    Active(SchemaType),
}

/// Who brings a schema, as far as that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// A producer or an operator: what is new to a topic without schema is added.
    Writer,
    /// A consumer: it adds a schema to a topic without one only if nobody has used that.
    Reader {
        /// Whether it has messages, producers, or consumers that do not take any schema.
        active: bool,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: it is this version, or for a reader as good as.
    Known(i64),
    /// Store it as the next version.
    Add,
    /// Refuse it.
    Refuse(Incompatible),
}

/// What to do with a schema. `versions` are those of the topic since its schema was last deleted, oldest first.
#[must_use]
pub fn decide(versions: &[(i64, Schema)], offered: &Schema, bearer: Bearer) -> Decision {
    if let Some((version, _)) = versions.iter().rev().find(|(_, schema)| schema.is_same(offered)) {
        return Decision::Known(*version);
    }
    match (versions.last(), bearer) {
        (None, Bearer::Reader { active: true }) => Decision::Refuse(Incompatible::Active(offered.kind())),
        (None, Bearer::Writer | Bearer::Reader { active: false }) => Decision::Add,
        (Some((_, latest)), _) if latest.kind() != offered.kind() => {
            Decision::Refuse(Incompatible::Type { stored: latest.kind(), offered: offered.kind() })
        }
        // Python writes the definition of a text as "null", others leave it empty.
        (Some(_), Bearer::Writer) if offered.kind().is_primitive() => Decision::Add,
        (Some((version, _)), Bearer::Reader { .. }) if offered.kind().is_primitive() => Decision::Known(*version),
        (Some(_), _) => Decision::Refuse(Incompatible::NotCompared(offered.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn avro(name: &str) -> Schema {
        let data = format!(r#"{{"type":"record","name":"{name}","fields":[]}}"#);
        Schema::new(SchemaType::Avro, data.into_bytes(), vec![]).unwrap()
    }

    #[test]
    fn every_case() {
        let none: &[(i64, Schema)] = &[];
        let two = &[(3, avro("A")), (4, avro("B"))][..];
        let text = Schema::new(SchemaType::String, vec![], vec![]).unwrap();
        let python = Schema::new(SchemaType::String, b"null".to_vec(), vec![]).unwrap();
        let texts = &[(0, text.clone())][..];
        let (idle, active) = (Bearer::Reader { active: false }, Bearer::Reader { active: true });
        let refused_type =
            Decision::Refuse(Incompatible::Type { stored: SchemaType::Avro, offered: SchemaType::String });
        let not_compared = Decision::Refuse(Incompatible::NotCompared(SchemaType::Avro));
        for (versions, offered, bearer, decision) in [
            (none, &text, Bearer::Writer, Decision::Add),
            (none, &text, idle, Decision::Add),
            (none, &text, active, Decision::Refuse(Incompatible::Active(SchemaType::String))),
            (two, &avro("B"), Bearer::Writer, Decision::Known(4)),
            (two, &avro("A"), Bearer::Writer, Decision::Known(3)),
            (two, &avro("A"), active, Decision::Known(3)),
            (two, &avro("C"), Bearer::Writer, not_compared.clone()),
            (two, &avro("C"), idle, not_compared),
            (two, &text, Bearer::Writer, refused_type.clone()),
            (two, &text, idle, refused_type),
            // Primitive types are compatible with themselves, however they are written.
            (texts, &text, Bearer::Writer, Decision::Known(0)),
            (texts, &python, Bearer::Writer, Decision::Add),
            (texts, &python, active, Decision::Known(0)),
        ] {
            assert_eq!(decide(versions, offered, bearer), decision, "{offered:?} {bearer:?}");
        }
    }

    #[test]
    fn a_refusal_says_how_to_go_on() {
        let text = Incompatible::NotCompared(SchemaType::Json).to_string();
        assert!(text.contains("does not compare") && text.contains("/admin/v2/schemas/"), "{text}");
    }
}
