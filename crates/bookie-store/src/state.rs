//! What is known of a ledger apart from its entries.

use bytes::Bytes;

/// The proof that a writer may write a ledger: at most 20 bytes, compared as they are.
///
/// Fact: BookKeeper's is the SHA-1 of "ledger" and the password; the bookie keeps the first one it sees for a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MasterKey {
    len: u8,
    bytes: [u8; 20],
}

impl MasterKey {
    /// A key of these bytes; `None` if there are more than 20.
    #[must_use]
    pub fn new(key: &[u8]) -> Option<MasterKey> {
        let mut bytes = [0; 20];
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        Some(MasterKey { len: key.len() as u8, bytes })
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The full state of a ledger. Every change writes all of it, so that the newest record alone says everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LedgerState {
    /// The birth sequence of this state: the highest wins.
    pub(crate) sequence: u64,
    pub(crate) fenced: bool,
    /// Entries may be missing; kept in the format, not acted on yet.
    pub(crate) limbo: bool,
    pub(crate) key: MasterKey,
    pub(crate) explicit_lac: Option<Bytes>,
}

/// A deletion: records of the ledger with a lower sequence are dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) sequence: u64,
    /// The ledger was fenced when it was deleted: adds are refused for a while.
    pub(crate) fenced: bool,
    /// Milliseconds since 1970.
    pub(crate) at: i64,
}

/// How long an id that was fenced and then deleted is remembered.
const REMEMBERED_MILLIS: i64 = 7 * 24 * 3600 * 1000;

impl Tombstone {
    /// Whether adds are still to be refused because of it.
    pub(crate) fn refuses_adds(&self, now: i64) -> bool {
        self.fenced && now.saturating_sub(self.at) < REMEMBERED_MILLIS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_length() {
        assert_ne!(MasterKey::new(b""), MasterKey::new(&[0]));
        assert_eq!(MasterKey::new(&[9; 20]).unwrap().as_bytes(), [9; 20]);
        assert!(MasterKey::new(&[9; 21]).is_none());
    }

    #[test]
    fn a_fenced_deletion_is_remembered_for_seven_days() {
        let tombstone = Tombstone { sequence: 1, fenced: true, at: 1000 };
        assert!(tombstone.refuses_adds(1000 + REMEMBERED_MILLIS - 1));
        assert!(!tombstone.refuses_adds(1000 + REMEMBERED_MILLIS));
        assert!(!Tombstone { fenced: false, ..tombstone }.refuses_adds(1000));
    }
}
