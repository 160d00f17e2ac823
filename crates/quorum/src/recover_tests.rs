//! Recoveries against bookies that are maps of entries.

use super::*;
use geminga_bookie_wire::EntryHeader;
use geminga_model::DigestType;
use geminga_records::LedgerState;

/// What the bookies hold and how they answer; `None` is a bookie that does not.
struct Bench {
    metadata: LedgerMetadata,
    stored: BTreeMap<BookieId, Option<BTreeMap<EntryId, Bytes>>>,
    read_only: Vec<BookieId>,
}

fn bookie(name: char) -> BookieId {
    BookieId::parse(&name.to_string()).unwrap()
}

impl Bench {
    fn new(names: &str, write: usize, ack: usize) -> Bench {
        let ensemble: Vec<BookieId> = names.chars().map(bookie).collect();
        let quorum = Quorum::new(ensemble.len(), write, ack).unwrap();
        let mut metadata = LedgerMetadata::open(quorum, ensemble.clone(), DigestType::Crc32c, Bytes::new());
        metadata.state = LedgerState::InRecovery;
        Bench {
            metadata,
            stored: ensemble.into_iter().map(|bookie| (bookie, Some(BTreeMap::new()))).collect(),
            read_only: vec![],
        }
    }

    /// Puts entry `id`, sealed when `confirmed` was the last confirmed, on the named bookies.
    fn store(mut self, id: i64, confirmed: i64, on: &str) -> Bench {
        let digester = Digester::new(DigestType::Crc32c, b"");
        let header = EntryHeader {
            ledger: LedgerId(1),
            entry: EntryId(id),
            last_add_confirmed: EntryId(confirmed),
            ledger_length: 10 * (id + 1),
        };
        let entry = Entry::seal(header, Bytes::from_static(b"0123456789"), &digester);
        let bytes: Bytes = [&entry.head[..], &entry.payload[..]].concat().into();
        for name in on.chars() {
            if let Some(Some(entries)) = self.stored.get_mut(&bookie(name)) {
                entries.insert(EntryId(id), bytes.clone());
            }
        }
        self
    }

    fn down(mut self, names: &str) -> Bench {
        names.chars().for_each(|name| drop(self.stored.insert(bookie(name), None)));
        self
    }

    fn spare(mut self, name: char) -> Bench {
        self.stored.insert(bookie(name), Some(BTreeMap::new()));
        self
    }

    fn read(&self, from: &BookieId, entry: Option<EntryId>) -> Result<Bytes, BookieError> {
        let entries = self.stored.get(from).and_then(Option::as_ref).ok_or(BookieError::Timeout)?;
        let found = match entry {
            Some(entry) => entries.get(&entry),
            None => entries.last_key_value().map(|(_, bytes)| bytes),
        };
        found.cloned().ok_or(BookieError::NoEntry)
    }

    /// Runs to the outcome, answering in the order of the actions.
    fn recover(&mut self) -> Result<RecoveredEnd, RecoveryFailed> {
        let available = self.stored.keys().cloned().collect();
        let mut machine = LedgerRecovery::new(LedgerId(1), self.metadata.clone(), available);
        let mut actions = Vec::new();
        for _ in 0..1000 {
            machine.take_actions(&mut actions);
            for action in std::mem::take(&mut actions) {
                match action {
                    RecoveryAction::FenceAndReadLast { index, bookie } => {
                        machine.handle_last(index, self.read(&bookie, None));
                    }
                    RecoveryAction::Read { index, bookie, entry, fence } => {
                        assert!(fence);
                        machine.handle_read(index, entry, self.read(&bookie, Some(entry)));
                    }
                    RecoveryAction::WriteBack { index, bookie, entry, body } => {
                        let answer = match self.stored.get_mut(&bookie) {
                            _ if self.read_only.contains(&bookie) => Err(BookieError::Io),
                            Some(Some(entries)) => {
                                entries.insert(entry, [&body.head[..], &body.payload[..]].concat().into());
                                Ok(())
                            }
                            _ => Err(BookieError::Timeout),
                        };
                        machine.handle_written(index, &bookie, entry, answer);
                    }
                }
            }
            if let Some(outcome) = machine.outcome() {
                return outcome.clone();
            }
        }
        panic!("stuck while {}", machine.step());
    }
}

fn end(last_entry: i64, segments: &[Segment]) -> RecoveredEnd {
    RecoveredEnd { last_entry: EntryId(last_entry), length: 10 * (last_entry + 1), segments: segments.to_vec() }
}

#[test]
fn an_empty_ledger_ends_before_its_first_entry() {
    let mut bench = Bench::new("abc", 3, 2);
    assert_eq!(bench.recover(), Ok(end(-1, &bench.metadata.segments.clone())));
}

#[test]
fn entries_beyond_the_confirmed_are_written_back() {
    let mut bench = Bench::new("abc", 3, 2).store(0, -1, "abc").store(1, 0, "ab").store(2, 0, "c");
    assert_eq!(bench.recover(), Ok(end(2, &bench.metadata.segments.clone())));
    for name in ['a', 'b', 'c'] {
        assert!(bench.read(&bookie(name), Some(EntryId(2))).is_ok());
    }
}

#[test]
fn an_entry_that_no_ack_quorum_can_have_is_cut_off() {
    // Entry 1 is only on c, which is down: two sure bookies of three rule out an ack quorum of two.
    let mut bench = Bench::new("abc", 3, 2).store(0, -1, "abc").store(1, 0, "c").down("c");
    assert_eq!(bench.recover(), Ok(end(0, &bench.metadata.segments.clone())));
}

#[test]
fn uncertainty_fails() {
    let mut bench = Bench::new("abc", 3, 2).store(0, -1, "abc").down("bc");
    assert_eq!(bench.recover(), Err(RecoveryFailed::NotCovered(BookieError::Timeout)));
    let mut bench = Bench::new("ab", 2, 1).store(0, -1, "ab").down("b");
    assert_eq!(bench.recover(), Err(RecoveryFailed::NotCovered(BookieError::Timeout)));
}

#[test]
fn with_two_of_two_one_sure_bookie_is_enough() {
    let mut bench = Bench::new("ab", 2, 2).store(0, -1, "ab").store(1, 0, "b").down("b");
    // Entry 1 was never acknowledged: a does not have it. Entry 0 needs its two copies, for which b must be replaced.
    assert_eq!(bench.recover(), Err(RecoveryFailed::NotEnoughBookies(EntryId(0), BookieError::Timeout)));
    let mut bench = bench.spare('d');
    let segment = Segment { first_entry: EntryId(0), ensemble: vec![bookie('a'), bookie('d')] };
    assert_eq!(bench.recover(), Ok(end(0, &[segment])));
}

#[test]
fn a_member_that_fails_a_write_back_is_replaced() {
    let mut bench = Bench::new("ab", 2, 2).store(0, -1, "ab").store(1, 0, "ab").store(2, 0, "ab").spare('d');
    bench.read_only.push(bookie('b'));
    let mut segments = bench.metadata.segments.clone();
    segments.push(Segment { first_entry: EntryId(1), ensemble: vec![bookie('a'), bookie('d')] });
    assert_eq!(bench.recover(), Ok(end(2, &segments)));
    assert!(bench.read(&bookie('d'), Some(EntryId(1))).is_ok() && bench.read(&bookie('d'), Some(EntryId(2))).is_ok());
}

#[test]
fn without_a_replacement_an_ack_quorum_is_still_enough() {
    let mut bench = Bench::new("abc", 3, 2).store(0, -1, "abc").store(1, 0, "abc");
    bench.read_only.push(bookie('c'));
    assert_eq!(bench.recover(), Ok(end(1, &bench.metadata.segments.clone())));
    bench.read_only.push(bookie('b'));
    let failed = Bench { metadata: bench.metadata, stored: bench.stored, read_only: bench.read_only }.recover();
    assert!(matches!(failed, Err(RecoveryFailed::NotEnoughBookies(..))), "{failed:?}");
}

#[test]
fn many_entries_are_recovered_in_order() {
    let mut bench = Bench::new("abc", 2, 2);
    for id in 0..50 {
        let on: String = [0, 1].iter().map(|i| ['a', 'b', 'c'][(usize::try_from(id).unwrap() + i) % 3]).collect();
        bench = bench.store(id, -1, &on);
    }
    assert_eq!(bench.recover(), Ok(end(49, &bench.metadata.segments.clone())));
}

#[test]
fn the_search_starts_no_earlier_than_the_last_segment() {
    let mut bench = Bench::new("ab", 2, 2).store(0, -1, "ab").store(1, 0, "ab").spare('d');
    bench.metadata.segments.push(Segment { first_entry: EntryId(2), ensemble: vec![bookie('a'), bookie('d')] });
    // Nothing was written to the new ensemble; the end is before it, and the segment of the snapshot stays.
    assert_eq!(bench.recover(), Ok(end(1, &bench.metadata.segments.clone())));
}
