//! The types of schemas, and the three ways in which they are written.

use std::fmt;

use geminga_wire::proto::schema::Type;

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $rest:literal, $wire:ident, $stored:literal;)*) => {
        /// What kind of definition a schema is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SchemaType {
            $($(#[$doc])* $name,)*
        }

        impl SchemaType {
            /// Every type that is stored.
            pub const ALL: &[SchemaType] = &[$(SchemaType::$name),*];

            /// Its name in REST.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(SchemaType::$name => $rest,)* }
            }

            /// Its number in the binary protocol.
            #[must_use]
            pub fn to_wire(self) -> Type {
                match self { $(SchemaType::$name => Type::$wire,)* }
            }

            /// The type of a number of the binary protocol; `None` for those that describe no messages, and unknown ones.
            #[must_use]
            pub fn of_wire(number: i32) -> Option<SchemaType> {
                match Type::try_from(number).ok()? {
                    $(Type::$wire => Some(SchemaType::$name),)*
                    Type::AutoConsume => None,
                }
            }

            /// Its number in storage. Fact: one more than in the binary protocol, except of the last.
            #[must_use]
            pub fn to_stored(self) -> i32 {
                match self { $(SchemaType::$name => $stored,)* }
            }

            /// The type of a number of storage.
            #[must_use]
            pub fn of_stored(number: i32) -> Option<SchemaType> {
                match number {
                    $($stored => Some(SchemaType::$name),)*
                    _ => None,
                }
            }
        }
    };
}

types! {
    /// Bytes of which nothing is known. Clients do not register it, operators may.
    None = "NONE", None, 1;
    /// UTF-8.
    String = "STRING", String, 2;
    /// JSON after an Avro definition.
    Json = "JSON", Json, 3;
    /// Protobuf after an Avro definition.
    Protobuf = "PROTOBUF", Protobuf, 4;
    /// Avro.
    Avro = "AVRO", Avro, 5;
    /// One byte, 0 or 1.
    Boolean = "BOOLEAN", Bool, 6;
    /// One byte.
    Int8 = "INT8", Int8, 7;
    /// Two bytes.
    Int16 = "INT16", Int16, 8;
    /// Four bytes.
    Int32 = "INT32", Int32, 9;
    /// Eight bytes.
    Int64 = "INT64", Int64, 10;
    /// Four bytes.
    Float = "FLOAT", Float, 11;
    /// Eight bytes.
    Double = "DOUBLE", Double, 12;
    /// Milliseconds since 1970.
    Date = "DATE", Date, 13;
    /// Milliseconds since 1970.
    Time = "TIME", Time, 14;
    /// Milliseconds since 1970.
    Timestamp = "TIMESTAMP", Timestamp, 15;
    /// A key and a value, each with a schema.
    KeyValue = "KEY_VALUE", KeyValue, 16;
    /// Seconds and nanoseconds.
    Instant = "INSTANT", Instant, 17;
    /// A day.
    LocalDate = "LOCAL_DATE", LocalDate, 18;
    /// A time of day.
    LocalTime = "LOCAL_TIME", LocalTime, 19;
    /// A day and a time.
    LocalDateTime = "LOCAL_DATE_TIME", LocalDateTime, 20;
    /// Protobuf with its own descriptors.
    ProtobufNative = "PROTOBUF_NATIVE", ProtobufNative, 21;
    /// A definition that an external registry keeps.
    External = "EXTERNAL", External, 22;
}

impl SchemaType {
    /// The type of a name of REST. Fact: BYTES is another name of NONE; the AUTO types cannot be stored.
    #[must_use]
    pub fn of_name(name: &str) -> Option<SchemaType> {
        let name = if name == "BYTES" { "NONE" } else { name };
        SchemaType::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether the type says everything, so that there is no definition.
    #[must_use]
    pub fn is_primitive(self) -> bool {
        !self.is_avro() && !matches!(self, SchemaType::KeyValue | SchemaType::ProtobufNative | SchemaType::External)
    }

    /// Whether its definition is Avro's JSON.
    #[must_use]
    pub fn is_avro(self) -> bool {
        matches!(self, SchemaType::Json | SchemaType::Protobuf | SchemaType::Avro)
    }
}

impl fmt::Display for SchemaType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_ways_to_write_a_type() {
        for kind in SchemaType::ALL.iter().copied() {
            let wire = kind.to_wire() as i32;
            assert_eq!(SchemaType::of_wire(wire), Some(kind));
            assert_eq!(SchemaType::of_stored(kind.to_stored()), Some(kind));
            assert_eq!(SchemaType::of_name(kind.name()), Some(kind));
            // The external one came after AUTO_CONSUME, which has a number on the wire only.
            assert_eq!(kind.to_stored(), if kind == SchemaType::External { wire } else { wire + 1 });
        }
        assert_eq!(SchemaType::of_name("BYTES"), Some(SchemaType::None));
        for name in ["AUTO_CONSUME", "AUTO", "json", ""] {
            assert_eq!(SchemaType::of_name(name), None, "{name}");
        }
        for number in [-1, Type::AutoConsume as i32, 23] {
            assert_eq!(SchemaType::of_wire(number), None, "{number}");
        }
        for number in [-1, 0, 23] {
            assert_eq!(SchemaType::of_stored(number), None, "{number}");
        }
    }
}
