//! Reading one entry from the bookies that store it.

use bytes::Bytes;
use geminga_bookie_wire::{Digester, Entry, OpenedEntry};
use geminga_model::{BookieId, EntryId, LedgerId};
use geminga_records::LedgerMetadata;

use crate::error::BookieError;

/// Why an entry could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailed {
    /// Every bookie that should store the entry is sure not to have it.
    #[error("no bookie has the entry")]
    NoEntry,
    /// At least one bookie may have it; the last failure is given. Try again.
    #[error("no bookie could deliver the entry: {0}")]
    Unavailable(BookieError),
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// Ask this bookie for the entry and report to [`EntryRead::handle_read`].
    Ask(BookieId),
    /// Here it is, its digest checked.
    Found(OpenedEntry),
    /// No bookie is left to ask.
    Failed(ReadFailed),
}

/// Asks the bookies of an entry's write set one after the other until one delivers a sound copy.
#[derive(Debug)]
pub struct EntryRead {
    ledger: LedgerId,
    entry: EntryId,
    left: std::vec::IntoIter<BookieId>,
    worst: Option<BookieError>,
}

impl EntryRead {
    /// A read of `entry`; the first step is given by [`EntryRead::next_step`].
    #[must_use]
    pub fn new(ledger: LedgerId, entry: EntryId, metadata: &LedgerMetadata) -> EntryRead {
        let ensemble = metadata.ensemble_of(entry);
        let left: Vec<BookieId> =
            metadata.quorum.write_set(entry).filter_map(|index| ensemble.get(index).cloned()).collect();
        EntryRead { ledger, entry, left: left.into_iter(), worst: None }
    }

    /// The next bookie to ask, or the failure.
    pub fn next_step(&mut self) -> ReadStep {
        match (self.left.next(), self.worst) {
            (Some(bookie), _) => ReadStep::Ask(bookie),
            (None, Some(error)) => ReadStep::Failed(ReadFailed::Unavailable(error)),
            (None, None) => ReadStep::Failed(ReadFailed::NoEntry),
        }
    }

    /// The bookie that was asked answered.
    pub fn handle_read(&mut self, answer: Result<Bytes, BookieError>, digester: &Digester) -> ReadStep {
        let opened = answer.and_then(|bytes| {
            Entry::split(bytes, digester)
                .and_then(|entry| entry.open(self.ledger, Some(self.entry), digester))
                .map_err(|_| BookieError::Damaged)
        });
        match opened {
            Ok(entry) => ReadStep::Found(entry),
            Err(error) => {
                if !error.is_absence() {
                    self.worst = Some(error);
                }
                self.next_step()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_bookie_wire::EntryHeader;
    use geminga_model::DigestType;
    use geminga_records::Quorum;

    fn setup() -> (EntryRead, Digester, Bytes) {
        let bookies = ["a", "b", "c"].map(|name| BookieId::parse(name).unwrap()).to_vec();
        let metadata = LedgerMetadata::open(Quorum::new(3, 2, 2).unwrap(), bookies, DigestType::Crc32c, Bytes::new());
        let digester = Digester::new(DigestType::Crc32c, b"");
        let header =
            EntryHeader { ledger: LedgerId(1), entry: EntryId(1), last_add_confirmed: EntryId(0), ledger_length: 1 };
        let entry = Entry::seal(header, Bytes::from_static(b"x"), &digester);
        let bytes = [&entry.head[..], &entry.payload[..]].concat().into();
        (EntryRead::new(LedgerId(1), EntryId(1), &metadata), digester, bytes)
    }

    fn ask(name: &str) -> ReadStep {
        ReadStep::Ask(BookieId::parse(name).unwrap())
    }

    #[test]
    fn asks_the_write_set_until_a_sound_copy_comes() {
        let (mut read, digester, bytes) = setup();
        assert_eq!(read.next_step(), ask("b"));
        let mut damaged = bytes.to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(read.handle_read(Ok(damaged.into()), &digester), ask("c"));
        let ReadStep::Found(entry) = read.handle_read(Ok(bytes), &digester) else { panic!("found") };
        assert_eq!(entry.payload, "x");
    }

    #[test]
    fn absence_needs_every_bookie_to_be_sure() {
        let (mut read, digester, _) = setup();
        read.next_step();
        assert_eq!(read.handle_read(Err(BookieError::NoEntry), &digester), ask("c"));
        assert_eq!(read.handle_read(Err(BookieError::NoLedger), &digester), ReadStep::Failed(ReadFailed::NoEntry));
        let (mut read, digester, _) = setup();
        read.next_step();
        assert_eq!(read.handle_read(Err(BookieError::Timeout), &digester), ask("c"));
        let failed = read.handle_read(Err(BookieError::NoEntry), &digester);
        assert_eq!(failed, ReadStep::Failed(ReadFailed::Unavailable(BookieError::Timeout)));
    }
}
