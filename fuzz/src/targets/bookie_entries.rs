//! The bytes of an entry as a bookie stores them: what opens has the digest that sealing it gives.

use bytes::Bytes;
use geminga_bookie_wire::{Digester, Entry, EntryHeader};
use geminga_model::{DigestType, LedgerId};

use super::choice;
use crate::memory::within;

/// The target.
pub fn run(data: &[u8]) {
    let (kind, data) = choice(data);
    let kinds = [DigestType::Crc32, DigestType::Hmac, DigestType::Crc32c, DigestType::Dummy];
    let digester = Digester::new(kinds[usize::from(kind % 4)], b"secret");
    let bytes = Bytes::copy_from_slice(data);
    let header = EntryHeader::peek(data);
    let Ok(entry) = within(256, || Entry::split(bytes, &digester)) else { return };
    assert_eq!(entry.len(), data.len());
    let header = header.expect("an entry has a header");
    let sealed = Entry::seal(header, entry.payload.clone(), &digester);
    let opened = within(256, || entry.clone().open(header.ledger, Some(header.entry), &digester));
    assert_eq!(opened.is_ok(), sealed.head == entry.head);
    let opened = sealed.clone().open(header.ledger, None, &digester).unwrap();
    assert_eq!((opened.header, opened.payload), (header, entry.payload));
    assert!(sealed.open(LedgerId(!header.ledger.0), None, &digester).is_err());
}
