//! What is stored of a topic's schemas: a node that lists the versions, and one ledger with one entry for each of them.
//!
//! Fact: `SchemaLocator` and `SchemaEntry` are of Pulsar's `SchemaStorageFormat.proto`, `SchemaInfo` is of its
//! `SchemaRegistryFormat.proto`.

use geminga_model::{Position, UnixMillis};

use crate::RecordError;
use crate::managed_ledger::{read_position, read_text_pair, write_position};
use crate::protobuf::{Field, Writer, read};

/// One version: where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaIndexEntry {
    /// Its number, from 0.
    pub version: i64,
    /// The entry that has it.
    pub position: Position,
    /// SHA-256 of the schema's definition; empty for a version that says "deleted".
    pub hash: Vec<u8>,
    /// Fields this version does not know, kept as they are.
    pub unknown: Vec<u8>,
}

impl SchemaIndexEntry {
    fn write(&self, out: &mut Writer) {
        out.int(1, self.version);
        out.message(2, |out| write_position(out, self.position));
        out.bytes(3, &self.hash);
        out.raw(&self.unknown);
    }

    fn read(field: Field<'_>) -> Result<SchemaIndexEntry, RecordError> {
        let (mut version, mut position, mut hash, mut unknown) = (None, None, None, Vec::new());
        read(field.bytes()?, |field| {
            match field.number {
                1 => version = Some(field.int()?),
                2 => position = Some(read_position(field.bytes()?)?),
                3 => hash = Some(field.bytes()?.to_vec()),
                _ => unknown.extend_from_slice(field.raw),
            }
            Ok(())
        })?;
        Ok(SchemaIndexEntry {
            version: version.ok_or(RecordError::Missing("version"))?,
            position: position.ok_or(RecordError::Missing("position"))?,
            hash: hash.ok_or(RecordError::Missing("hash"))?,
            unknown,
        })
    }
}

/// The value of a schema node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaLocator {
    /// The latest version.
    pub info: SchemaIndexEntry,
    /// All of them, oldest first, the latest too.
    pub index: Vec<SchemaIndexEntry>,
    /// Fields this version does not know, kept as they are.
    pub unknown: Vec<u8>,
}

impl SchemaLocator {
    /// The node of a topic whose first version this is.
    #[must_use]
    pub fn first(info: SchemaIndexEntry) -> SchemaLocator {
        SchemaLocator { index: vec![info.clone()], info, unknown: Vec::new() }
    }

    /// Makes `info` the latest version.
    pub fn push(&mut self, info: SchemaIndexEntry) {
        self.index.push(info.clone());
        self.info = info;
    }

    /// Writes the node's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut node = Writer::default();
        node.message(1, |out| self.info.write(out));
        for entry in &self.index {
            node.message(2, |out| entry.write(out));
        }
        node.raw(&self.unknown);
        node.0
    }

    /// Reads the node's bytes.
    ///
    /// # Errors
    /// [`RecordError`] if they are not a schema locator.
    pub fn decode(node: &[u8]) -> Result<SchemaLocator, RecordError> {
        let (mut info, mut index, mut unknown) = (None, Vec::new(), Vec::new());
        read(node, |field| {
            match field.number {
                1 => info = Some(SchemaIndexEntry::read(field)?),
                2 => index.push(SchemaIndexEntry::read(field)?),
                _ => unknown.extend_from_slice(field.raw),
            }
            Ok(())
        })?;
        Ok(SchemaLocator { info: info.ok_or(RecordError::Missing("info"))?, index, unknown })
    }
}

/// The payload of a schema ledger's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// A [`SchemaInfo`].
    pub schema_data: Vec<u8>,
    /// The versions there were before this one.
    pub index: Vec<SchemaIndexEntry>,
}

impl SchemaEntry {
    /// Writes the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut entry = Writer::default();
        entry.bytes(2, &self.schema_data);
        for version in &self.index {
            entry.message(5, |out| version.write(out));
        }
        entry.0
    }

    /// Reads the payload. An entry is never written again, so what is unknown in it is passed over.
    ///
    /// # Errors
    /// [`RecordError`] if it is not a schema entry.
    pub fn decode(payload: &[u8]) -> Result<SchemaEntry, RecordError> {
        let (mut schema_data, mut index) = (None, Vec::new());
        read(payload, |field| {
            match field.number {
                2 => schema_data = Some(field.bytes()?.to_vec()),
                5 => index.push(SchemaIndexEntry::read(field)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(SchemaEntry { schema_data: schema_data.ok_or(RecordError::Missing("schema_data"))?, index })
    }
}

/// A version of a schema, or the mark that there is none from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaInfo {
    /// `<tenant>/<namespace>/<encoded topic>`.
    pub schema_id: String,
    /// The role of whoever registered it; empty without authentication.
    pub user: String,
    /// Its type. Fact: one more than on the wire, where that is below 21.
    pub kind: i32,
    /// The definition.
    pub schema: Vec<u8>,
    /// When it was registered.
    pub timestamp: UnixMillis,
    /// Whether this says that the schema was deleted.
    pub deleted: bool,
    /// What its clients have it carry.
    pub properties: Vec<(String, String)>,
}

impl SchemaInfo {
    /// Writes the bytes for [`SchemaEntry::schema_data`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut info = Writer::default();
        info.bytes(1, self.schema_id.as_bytes());
        info.bytes(2, self.user.as_bytes());
        info.int(3, i64::from(self.kind));
        info.bytes(4, &self.schema);
        info.int(5, self.timestamp.0);
        info.int(6, i64::from(self.deleted));
        for (key, value) in &self.properties {
            info.message(7, |out| {
                out.bytes(1, key.as_bytes());
                out.bytes(2, value.as_bytes());
            });
        }
        info.0
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// [`RecordError`] if they are not a schema.
    pub fn decode(bytes: &[u8]) -> Result<SchemaInfo, RecordError> {
        let (mut schema_id, mut user, mut kind, mut schema) = (None, None, None, None);
        let (mut timestamp, mut deleted, mut properties) = (None, None, Vec::new());
        read(bytes, |field| {
            match field.number {
                1 => schema_id = Some(field.text()?),
                2 => user = Some(field.text()?),
                3 => kind = Some(field.int32("type")?),
                4 => schema = Some(field.bytes()?.to_vec()),
                5 => timestamp = Some(UnixMillis(field.int()?)),
                6 => deleted = Some(field.int()? != 0),
                7 => properties.push(read_text_pair(field)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(SchemaInfo {
            schema_id: schema_id.ok_or(RecordError::Missing("schema_id"))?,
            user: user.ok_or(RecordError::Missing("user"))?,
            kind: kind.ok_or(RecordError::Missing("type"))?,
            schema: schema.ok_or(RecordError::Missing("schema"))?,
            timestamp: timestamp.ok_or(RecordError::Missing("timestamp"))?,
            deleted: deleted.ok_or(RecordError::Missing("deleted"))?,
            properties,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::tests::{hex, unhex};
    use proptest::prelude::*;

    fn entry(version: i64, ledger: i64, hash: &[u8]) -> SchemaIndexEntry {
        SchemaIndexEntry { version, position: Position::new(ledger, 0), hash: hash.to_vec(), unknown: vec![] }
    }

    #[test]
    fn a_locator_in_pulsars_bytes() {
        let mut locator = SchemaLocator::first(entry(0, 5, b"\xab\xcd"));
        let first = "0800 1204 0805 1000 1a02 abcd".replace(' ', "");
        assert_eq!(hex(&locator.encode()), format!("0a0c{first}120c{first}"));
        locator.push(entry(1, 300, b""));
        let second = "0801 1205 08ac02 1000 1a00".replace(' ', "");
        assert_eq!(hex(&locator.encode()), format!("0a0b{second}120c{first}120b{second}"));
        assert_eq!(SchemaLocator::decode(&locator.encode()), Ok(locator));
    }

    #[test]
    fn an_entry_in_pulsars_bytes() {
        // Before the first version there is one that is nowhere.
        let before = SchemaIndexEntry { position: Position::new(-1, -1), ..entry(0, 0, b"\xab") };
        let stored = SchemaEntry { schema_data: b"x".to_vec(), index: vec![before] };
        let index = "0800 1216 08ffffffffffffffffff01 10ffffffffffffffffff01 1a01ab".replace(' ', "");
        assert_eq!(hex(&stored.encode()), format!("1201782a1d{index}"));
        assert_eq!(SchemaEntry::decode(&stored.encode()), Ok(stored));
    }

    #[test]
    fn a_schema_in_pulsars_bytes() {
        let info = SchemaInfo {
            schema_id: "t/n/a".into(),
            user: String::new(),
            kind: 3,
            schema: b"{}".to_vec(),
            timestamp: UnixMillis(1),
            deleted: false,
            properties: vec![("k".into(), "v".into())],
        };
        assert_eq!(hex(&info.encode()), "0a05742f6e2f611200180322027b7d280130003a060a016b120176");
        assert_eq!(SchemaInfo::decode(&info.encode()), Ok(info));
    }

    #[test]
    fn unknown_fields_of_the_node_are_kept() {
        // Field 9 in the latest, in the list, and in the node itself.
        let entry = "0800120408051000 1a01ff 4807".replace(' ', "");
        let node = unhex(&format!("0a0d{entry}120d{entry}4a0161"));
        assert_eq!(SchemaLocator::decode(&node).unwrap().encode(), node);
    }

    #[test]
    fn what_lacks_a_field_is_none() {
        assert_eq!(SchemaLocator::decode(b""), Err(RecordError::Missing("info")));
        assert_eq!(SchemaEntry::decode(b""), Err(RecordError::Missing("schema_data")));
        assert_eq!(SchemaInfo::decode(b""), Err(RecordError::Missing("schema_id")));
        assert_eq!(SchemaLocator::decode(&unhex("0a020800")), Err(RecordError::Missing("position")));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(SchemaLocator::decode(&bytes));
            drop(SchemaEntry::decode(&bytes));
            drop(SchemaInfo::decode(&bytes));
        }
    }
}
