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

use bytes::{Buf, Bytes};
use geminga_model::{EntryId, LedgerId};

use crate::digest::{Digest, Digester, MAX_DIGEST_LEN};

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

    fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let fields = [self.ledger.0, self.entry.0, self.last_add_confirmed.0, self.ledger_length];
        for (place, field) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(fields) {
            *place = field.to_be_bytes();
        }
        bytes
    }
}

/// Header and digest of an entry, in place: a publish must not allocate for so little.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntryHead {
    bytes: [u8; HEADER_LEN + MAX_DIGEST_LEN],
    len: u8,
}

impl EntryHead {
    fn new(fields: &[u8; HEADER_LEN], digest: &Digest) -> EntryHead {
        let mut bytes = [0; HEADER_LEN + MAX_DIGEST_LEN];
        let (in_fields, in_digest) = bytes.split_at_mut(HEADER_LEN);
        in_fields.copy_from_slice(fields);
        let (in_digest, _) = in_digest.split_at_mut(digest.len());
        in_digest.copy_from_slice(digest);
        EntryHead { bytes, len: (HEADER_LEN + digest.len()) as u8 }
    }

    /// The head among the stored bytes of an entry; `None` if they are too few.
    fn read(bytes: &[u8], len: usize) -> Option<EntryHead> {
        let mut head = EntryHead { bytes: [0; HEADER_LEN + MAX_DIGEST_LEN], len: u8::try_from(len).ok()? };
        head.bytes.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
        Some(head)
    }
}

impl std::ops::Deref for EntryHead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

impl std::fmt::Debug for EntryHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A sealed entry in two parts, so that a payload is never copied to put a header before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Header and digest.
    pub head: EntryHead,
    /// The payload.
    pub payload: Bytes,
}

impl Entry {
    /// Seals `payload` under `header`.
    #[must_use]
    pub fn seal(header: EntryHeader, payload: Bytes, digester: &Digester) -> Entry {
        let fields = header.encode();
        let head = EntryHead::new(&fields, &digester.digest(&fields, &payload));
        Entry { head, payload }
    }

    /// Takes the stored bytes of an entry apart without checking them.
    ///
    /// # Errors
    /// [`EntryError::TooShort`] if there is no room for header and digest.
    pub fn split(mut bytes: Bytes, digester: &Digester) -> Result<Entry, EntryError> {
        let least = HEADER_LEN + digester.kind().digest_len();
        let head = EntryHead::read(&bytes, least).ok_or(EntryError::TooShort { bytes: bytes.len(), least })?;
        bytes.advance(least);
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
        if *digest != *digester.digest(fields, &self.payload) {
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
