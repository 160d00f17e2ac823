//! The bytes of an entry, as sent to a bookie, stored by it and sent back:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | ledger id |
//! | 8 | 8 | entry id |
//! | 16 | 8 | last-add-confirmed that the writer knew, −1 if none |
//! | 24 | 8 | bytes of all payloads of the ledger up to and including this one |
//! | 32 | d | digest over bytes 0..32 and the payload |
//! | 32+d | n | payload |
//!
//! All numbers are big-endian (BookKeeper's `DigestManager`).

use bytes::Bytes;
use geminga_model::{EntryId, LedgerId};

use crate::digest::Digester;

/// Bytes before the digest.
pub const HEADER_LEN: usize = 32;

/// The fixed fields of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHeader {
    /// Its ledger.
    pub ledger: LedgerId,
    /// Its id.
    pub entry: EntryId,
    /// The last-add-confirmed when the entry was sealed; less than `entry`.
    pub last_add_confirmed: EntryId,
    /// Payload bytes of the ledger, this entry's included.
    pub ledger_length: i64,
}

impl EntryHeader {
    /// Reads the fixed fields of an entry; `None` if there are fewer than [`HEADER_LEN`] bytes. The digest is not
    /// looked at: this is for bookies.
    #[must_use]
    pub fn peek(entry: &[u8]) -> Option<EntryHeader> {
        let (header, _) = entry.split_first_chunk::<HEADER_LEN>()?;
        let (fields, _) = header.as_chunks::<8>();
        let mut fields = fields.iter().map(|field| i64::from_be_bytes(*field));
        let mut field = || fields.next();
        Some(EntryHeader {
            ledger: LedgerId(field()?),
            entry: EntryId(field()?),
            last_add_confirmed: EntryId(field()?),
            ledger_length: field()?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        for field in [self.ledger.0, self.entry.0, self.last_add_confirmed.0, self.ledger_length] {
            out.extend_from_slice(&field.to_be_bytes());
        }
    }
}

/// A sealed entry in two parts, so that a payload is never copied to put a header before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Header and digest.
    pub head: Bytes,
    /// The payload.
    pub payload: Bytes,
}

impl Entry {
    /// Seals `payload` under `header`.
    #[must_use]
    pub fn seal(header: EntryHeader, payload: Bytes, digester: &Digester) -> Entry {
        let mut head = Vec::with_capacity(HEADER_LEN + digester.kind().digest_len());
        header.write(&mut head);
        let fields: [u8; HEADER_LEN] = std::array::from_fn(|i| head.get(i).copied().unwrap_or_default());
        digester.write(&fields, &payload, &mut head);
        Entry { head: head.into(), payload }
    }

    /// Takes the stored bytes of an entry apart without checking them.
    ///
    /// # Errors
    /// [`EntryError::TooShort`] if there is no room for header and digest.
    pub fn split(mut bytes: Bytes, digester: &Digester) -> Result<Entry, EntryError> {
        let head_len = HEADER_LEN + digester.kind().digest_len();
        if bytes.len() < head_len {
            return Err(EntryError::TooShort { bytes: bytes.len(), least: head_len });
        }
        let head = bytes.split_to(head_len);
        Ok(Entry { head, payload: bytes })
    }

    /// Checks the digest and the ids, and gives out the payload.
    ///
    /// # Errors
    /// [`EntryError`]: the copy is damaged or is not the entry that was asked for. Ask another replica; never take it
    /// for "no such entry".
    pub fn open(
        self,
        ledger: LedgerId,
        entry: Option<EntryId>,
        digester: &Digester,
    ) -> Result<OpenedEntry, EntryError> {
        let header =
            EntryHeader::peek(&self.head).ok_or(EntryError::TooShort { bytes: self.head.len(), least: HEADER_LEN })?;
        let (fields, digest) = self.head.split_at(HEADER_LEN);
        let mut expected = Vec::with_capacity(digester.kind().digest_len());
        digester.write(fields, &self.payload, &mut expected);
        if digest != expected {
            return Err(EntryError::Digest { ledger, entry: header.entry });
        }
        if header.ledger != ledger || entry.is_some_and(|entry| entry != header.entry) {
            return Err(EntryError::OtherEntry { ledger: header.ledger, entry: header.entry });
        }
        Ok(OpenedEntry { header, payload: self.payload })
    }

    /// Bytes of the whole entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }

    /// Whether there is nothing, which no sealed entry is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An entry whose digest was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedEntry {
    /// Its fixed fields.
    pub header: EntryHeader,
    /// Its payload.
    pub payload: Bytes,
}

/// Why the bytes of an entry cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// Fewer bytes than header and digest take.
    #[error("an entry of {bytes} bytes, of which at least {least} are header and digest")]
    TooShort {
        /// What there is.
        bytes: usize,
        /// What there must be.
        least: usize,
    },
    /// The digest does not match the bytes, or was made with another password or digest type.
    #[error("wrong digest in entry {entry} of ledger {ledger}")]
    Digest {
        /// The ledger that was asked for.
        ledger: LedgerId,
        /// The entry that the bytes claim to be.
        entry: EntryId,
    },
    /// A sound entry, but another one.
    #[error("got entry {entry} of ledger {ledger} instead of the one asked for")]
    OtherEntry {
        /// Its ledger.
        ledger: LedgerId,
        /// Its id.
        entry: EntryId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_model::DigestType;
    use proptest::prelude::*;

    const KINDS: [DigestType; 4] = [DigestType::Crc32, DigestType::Hmac, DigestType::Crc32c, DigestType::Dummy];

    fn header() -> EntryHeader {
        EntryHeader { ledger: LedgerId(1), entry: EntryId(0), last_add_confirmed: EntryId::NONE, ledger_length: 5 }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn whole(entry: &Entry) -> Bytes {
        [&entry.head[..], &entry.payload[..]].concat().into()
    }

    /// The vectors of BookKeeper's own implementation for ledger 1, entry 0, LAC −1, length 5, payload `hello`.
    #[test]
    fn golden_digests() {
        let fields = "0000000000000001".to_owned() + "0000000000000000" + "ffffffffffffffff" + "0000000000000005";
        for (kind, digest) in [
            (DigestType::Crc32c, "e3a5f74d"),
            (DigestType::Crc32, "0000000030a56872"),
            (DigestType::Hmac, "00107b7f219e26462e04e16e6e7a7f41e046e090"),
            (DigestType::Dummy, ""),
        ] {
            let entry = Entry::seal(header(), Bytes::from_static(b"hello"), &Digester::new(kind, b""));
            assert_eq!(hex(&entry.head), fields.clone() + digest);
        }
    }

    #[test]
    fn the_wrong_entry_is_refused() {
        let digester = Digester::new(DigestType::Crc32c, b"");
        let entry = Entry::seal(header(), Bytes::from_static(b"hello"), &digester);
        assert!(entry.clone().open(LedgerId(1), None, &digester).is_ok());
        for (ledger, id) in [(LedgerId(2), EntryId(0)), (LedgerId(1), EntryId(1))] {
            let error = entry.clone().open(ledger, Some(id), &digester).unwrap_err();
            assert_eq!(error, EntryError::OtherEntry { ledger: LedgerId(1), entry: EntryId(0) });
        }
    }

    proptest! {
        #[test]
        fn what_is_sealed_opens(payload in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..4, id in any::<i64>()) {
            let digester = Digester::new(KINDS[kind], b"secret");
            let header = EntryHeader { entry: EntryId(id), ..header() };
            let entry = Entry::seal(header, payload.clone().into(), &digester);
            let opened = Entry::split(whole(&entry), &digester).unwrap().open(LedgerId(1), Some(EntryId(id)), &digester).unwrap();
            prop_assert_eq!(opened, OpenedEntry { header, payload: payload.into() });
        }

        #[test]
        fn a_flipped_bit_is_found(payload in proptest::collection::vec(any::<u8>(), 0..200), kind in 0usize..3, bit in any::<prop::sample::Index>()) {
            let digester = Digester::new(KINDS[kind], b"secret");
            let mut bytes = whole(&Entry::seal(header(), payload.into(), &digester)).to_vec();
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let opened = Entry::split(bytes.into(), &digester).unwrap().open(LedgerId(1), Some(EntryId(0)), &digester);
            prop_assert!(opened.is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0usize..4) {
            let digester = Digester::new(KINDS[kind], b"");
            if let Ok(entry) = Entry::split(bytes.into(), &digester) {
                drop(entry.open(LedgerId(1), None, &digester));
            }
        }
    }
}
