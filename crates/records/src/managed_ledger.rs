//! The managed-ledger node: the list of ledgers that make up a topic.
//!
//! Fact: `ManagedLedgerInfo` of Pulsar's `MLDataFormats.proto`, raw or in a compressed envelope that begins with 0x4778.
//! An empty node is a topic that has no ledger yet.

use geminga_model::{LedgerId, Position, UnixMillis};

use crate::RecordError;
use crate::protobuf::{Field, Writer, read};

pub(crate) const COMPRESSED_MAGIC: [u8; 2] = [0x47, 0x78];

/// One ledger of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerInfo {
    /// The ledger.
    pub ledger: LedgerId,
    /// Its entries, stamped when it is closed; `None` while it may grow.
    pub entries: Option<i64>,
    /// Bytes of its entries, stamped with `entries`.
    pub size: Option<i64>,
    /// When it was closed; 0 while open.
    pub closed_at: Option<UnixMillis>,
    /// Offload context, properties and whatever else, kept as they are.
    pub unknown: Vec<u8>,
}

impl LedgerInfo {
    /// A ledger that is being written.
    #[must_use]
    pub fn open(ledger: LedgerId) -> LedgerInfo {
        LedgerInfo { ledger, entries: None, size: None, closed_at: Some(UnixMillis(0)), unknown: Vec::new() }
    }

    /// Whether its end is known.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.entries.is_some()
    }
}

/// The value of a managed-ledger node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedLedgerInfo {
    /// Ledgers by ascending id.
    pub ledgers: Vec<LedgerInfo>,
    /// Where the topic was terminated, if it was.
    pub terminated: Option<Position>,
    /// Properties, such as the epoch of exclusive producers.
    pub properties: Vec<(String, String)>,
    /// Fields this version does not know, kept as they are.
    pub unknown: Vec<u8>,
}

impl ManagedLedgerInfo {
    /// The value of a property.
    #[must_use]
    pub fn property(&self, key: &str) -> Option<&str> {
        self.properties.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Writes the node's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut node = Writer::default();
        for info in &self.ledgers {
            node.message(1, |out| {
                out.int(1, info.ledger.0);
                out.some_int(2, info.entries);
                out.some_int(3, info.size);
                out.some_int(4, info.closed_at.map(|at| at.0));
                out.raw(&info.unknown);
            });
        }
        if let Some(position) = self.terminated {
            node.message(2, |out| write_position(out, position));
        }
        for (key, value) in &self.properties {
            node.message(3, |out| {
                out.bytes(1, key.as_bytes());
                out.bytes(2, value.as_bytes());
            });
        }
        node.raw(&self.unknown);
        node.0
    }

    /// Reads the node's bytes; an empty node is the default.
    ///
    /// # Errors
    /// [`RecordError`] if they are not a managed-ledger record.
    pub fn decode(node: &[u8]) -> Result<ManagedLedgerInfo, RecordError> {
        if node.starts_with(&COMPRESSED_MAGIC) {
            return Err(RecordError::Compressed);
        }
        let mut info = ManagedLedgerInfo::default();
        read(node, |field| {
            match field.number {
                1 => info.ledgers.push(read_ledger(field.bytes()?)?),
                2 => info.terminated = Some(read_position(field.bytes()?)?),
                3 => info.properties.push(read_text_pair(field)?),
                _ => info.unknown.extend_from_slice(field.raw),
            }
            Ok(())
        })?;
        if !info.ledgers.is_sorted_by(|a, b| a.ledger < b.ledger) {
            return Err(RecordError::Impossible("ledgerInfo"));
        }
        Ok(info)
    }
}

fn read_ledger(bytes: &[u8]) -> Result<LedgerInfo, RecordError> {
    let mut ledger = None;
    let mut info = LedgerInfo { ledger: LedgerId::NONE, entries: None, size: None, closed_at: None, unknown: vec![] };
    read(bytes, |field| {
        match field.number {
            1 => ledger = Some(LedgerId(field.int()?)),
            2 => info.entries = Some(field.int()?),
            3 => info.size = Some(field.int()?),
            4 => info.closed_at = Some(UnixMillis(field.int()?)),
            _ => info.unknown.extend_from_slice(field.raw),
        }
        Ok(())
    })?;
    info.ledger = ledger.ok_or(RecordError::Missing("ledgerId"))?;
    Ok(info)
}

pub(crate) fn write_position(out: &mut Writer, position: Position) {
    out.int(1, position.ledger.0);
    out.int(2, position.entry.0);
}

pub(crate) fn read_position(bytes: &[u8]) -> Result<Position, RecordError> {
    let (mut ledger, mut entry) = (None, None);
    read(bytes, |field| {
        match field.number {
            1 => ledger = Some(field.int()?),
            2 => entry = Some(field.int()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Position::new(ledger.ok_or(RecordError::Missing("ledgerId"))?, entry.ok_or(RecordError::Missing("entryId"))?))
}

pub(crate) fn read_text_pair(field: Field<'_>) -> Result<(String, String), RecordError> {
    let (mut key, mut value) = (None, None);
    read(field.bytes()?, |field| {
        match field.number {
            1 => key = Some(field.text()?),
            2 => value = Some(field.text()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok((key.ok_or(RecordError::Missing("key"))?, value.ok_or(RecordError::Missing("value"))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::tests::{hex, unhex};
    use proptest::prelude::*;

    fn closed(ledger: i64, entries: i64, size: i64, at: i64) -> LedgerInfo {
        LedgerInfo {
            entries: Some(entries),
            size: Some(size),
            closed_at: Some(UnixMillis(at)),
            ..LedgerInfo::open(LedgerId(ledger))
        }
    }

    /// Bytes as a Java broker writes them.
    #[test]
    fn golden_bytes() {
        let one = ManagedLedgerInfo { ledgers: vec![LedgerInfo::open(LedgerId(5))], ..Default::default() };
        assert_eq!(hex(&one.encode()), "0a0408052000");
        let two = ManagedLedgerInfo {
            ledgers: vec![closed(5, 100, 4096, 1_700_000_000_000), LedgerInfo::open(LedgerId(9))],
            ..Default::default()
        };
        let bytes = "0a0e08051064188020208 0d095ffbc31 0a0408092000";
        assert_eq!(two.encode(), unhex(bytes));
        assert_eq!(ManagedLedgerInfo::decode(&unhex(bytes)), Ok(two));
        assert_eq!(ManagedLedgerInfo::decode(b""), Ok(ManagedLedgerInfo::default()));
    }

    #[test]
    fn refused() {
        assert_eq!(ManagedLedgerInfo::decode(&unhex("4778 00000005 080110e807")), Err(RecordError::Compressed));
        assert_eq!(ManagedLedgerInfo::decode(&unhex("0a02 2000")), Err(RecordError::Missing("ledgerId")));
        let descending = unhex("0a0408092000 0a0408052000");
        assert_eq!(ManagedLedgerInfo::decode(&descending), Err(RecordError::Impossible("ledgerInfo")));
    }

    #[test]
    fn unknown_fields_survive() {
        let node = unhex("0a08 0805 2000 2a020801 1a060a0161120162 a00601");
        let info = ManagedLedgerInfo::decode(&node).unwrap();
        assert_eq!(info.ledgers[0].unknown, unhex("2a020801"));
        assert_eq!(info.properties, [("a".to_owned(), "b".to_owned())]);
        assert_eq!(info.encode(), node);
    }

    proptest! {
        #[test]
        fn round_trip(ids in proptest::collection::btree_set(0i64..i64::MAX, 0..8), terminated in proptest::option::of((0i64..9, -1i64..9))) {
            let info = ManagedLedgerInfo {
                ledgers: ids.into_iter().map(|id| closed(id, 3, 100, 7)).collect(),
                terminated: terminated.map(|(ledger, entry)| Position::new(ledger, entry)),
                properties: vec![("k".into(), "v".into())],
                unknown: Vec::new(),
            };
            prop_assert_eq!(ManagedLedgerInfo::decode(&info.encode()), Ok(info));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(ManagedLedgerInfo::decode(&bytes));
        }
    }
}
