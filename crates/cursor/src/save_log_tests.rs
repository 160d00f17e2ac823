//! Saves and crashes against the states that were saved.

use geminga_model::LedgerId;
use geminga_records::CursorEntry;
use proptest::prelude::*;

use super::*;
use crate::{Extents, Replay, StoredCursor, UnackedSet};

fn extents(sizes: &[(i64, i64)]) -> Extents {
    let mut extents = Extents::default();
    sizes.iter().for_each(|(ledger, entries)| extents.set(LedgerId(*ledger), *entries));
    extents
}

fn topic() -> Extents {
    extents(&[(1, 5), (3, 0), (4, 3), (9, 200)])
}

fn all(extents: &Extents) -> Vec<Position> {
    extents.iter().flat_map(|(l, n)| (0..n).map(move |e| Position { ledger: l, entry: EntryId(e) })).collect()
}

fn replay(entries: &[Vec<u8>]) -> StoredCursor {
    let mut replay = Replay::new(EntryId(entries.len() as i64 - 1));
    let mut reads = 0;
    while let Some((first, last)) = replay.wants() {
        assert!(first <= last && (last.0 as usize) < entries.len());
        replay.handle_entry(&entries[first.0 as usize]).unwrap();
        reads += 1;
        assert!(reads <= 2 * entries.len() + 2);
    }
    replay.finish().unwrap()
}

#[derive(Clone, Debug)]
enum Op {
    Ack(Vec<usize>),
    Cumulative(usize),
    Batch(usize, i64),
    Redeliver(Vec<usize>),
    Reset(usize),
    Save(bool),
    /// After so many of the entries written last, of so many parts.
    Crash(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0usize..208;
    prop_oneof![
        6 => proptest::collection::vec(at(), 1..40).prop_map(Op::Ack),
        1 => at().prop_map(Op::Cumulative),
        2 => (at(), 1i64..16).prop_map(|(at, left)| Op::Batch(at, left)),
        2 => proptest::collection::vec(at(), 1..10).prop_map(Op::Redeliver),
        1 => at().prop_map(Op::Reset),
        8 => proptest::bool::weighted(0.1).prop_map(Op::Save),
        2 => (0usize..5, 0usize..5).prop_map(|(lost, of)| Op::Crash(lost, of)),
    ]
}

/// A save, as whoever wrote it remembers it, and the entries of the ledger once it is complete.
struct Saved {
    state: Cursor,
    entries: usize,
}

struct Driver {
    extents: Extents,
    cursor: Cursor,
    log: SaveLog,
    entries: Vec<Vec<u8>>,
    saves: Vec<Saved>,
}

fn agree(a: &Cursor, b: &Cursor) {
    assert_eq!(a.snapshot(), b.snapshot());
    assert_eq!(a.redeliveries(), b.redeliveries());
}

/// Everything that `less` has acked, `more` has too.
fn is_within(less: &Cursor, more: &Cursor, extents: &Extents) {
    for position in all(extents) {
        assert!(!less.is_acked(position) || more.is_acked(position), "{position} is acked too early");
        if let Some(left) = less.unacked_of(position)
            && !more.is_acked(position)
        {
            let kept = more.unacked_of(position).expect("it is acked in part");
            assert_eq!(left.and(kept), *kept);
        }
    }
}

impl Driver {
    fn new(limits: SaveLimits) -> Driver {
        let extents = topic();
        let mut cursor = Cursor::at(extents.start());
        cursor.keep_changes();
        let log = SaveLog::new(limits);
        Driver { extents, cursor, log, entries: vec![], saves: vec![] }
    }

    fn save(&mut self, whole: bool) {
        let written = self.log.save(&mut self.cursor, whole);
        assert!(!whole || self.log.is_at_snapshot());
        self.entries.extend(written);
        self.saves.push(Saved { state: self.cursor.clone(), entries: self.entries.len() });
    }

    /// What Java, and we, read after each entry that is there, as if it were the last.
    fn check_every_end(&self) {
        let properties = &self.cursor.properties;
        for end in 1..=self.entries.len() {
            let java = CursorEntry::decode(&self.entries[end - 1]).unwrap();
            assert_eq!(java.info.properties, *properties);
            let java = Cursor::restore(&java.info, &self.extents);
            let durable = self.saves.iter().rev().find(|save| save.entries <= end);
            let wanted = self.saves.iter().find(|save| save.entries >= end).unwrap();
            is_within(&java, &wanted.state, &self.extents);
            let ours = replay(&self.entries[..end]);
            match durable {
                Some(save) => {
                    assert!(!ours.is_partial);
                    agree(&ours.restore(&self.extents), &save.state);
                    is_within(&java, &save.state, &self.extents);
                }
                None => assert!(ours.is_partial),
            }
        }
    }

    /// The next owner goes on in a ledger of its own.
    fn crash(&mut self, lost: usize) {
        let end = self.entries.len().saturating_sub(lost);
        let Some(save) = self.saves.iter().rev().find(|save| save.entries <= end) else { return };
        let stored = replay(&self.entries[..end]);
        let limits = self.log.limits;
        self.cursor = stored.restore(&self.extents);
        agree(&self.cursor, &save.state);
        self.cursor.keep_changes();
        self.log = SaveLog::new(limits);
        (self.entries, self.saves) = (vec![], vec![]);
        self.save(false);
    }

    fn apply(&mut self, op: &Op) {
        let all = all(&self.extents);
        let position = |at: &usize| all[*at];
        let (cursor, extents) = (&mut self.cursor, &self.extents);
        match op {
            Op::Ack(at) => cursor.ack(at.iter().map(position), extents),
            Op::Cumulative(at) => cursor.ack_cumulative(position(at), extents),
            Op::Batch(at, left) => cursor.ack_in_batch(position(at), &UnackedSet::from_words(&[*left]), extents),
            Op::Redeliver(at) => cursor.redelivered(at.iter().map(position)),
            Op::Reset(at) => cursor.reset(extents.previous(position(at))),
            Op::Save(whole) => self.save(*whole),
            Op::Crash(lost, of) => {
                for _ in 0..*of {
                    self.save(false);
                }
                self.check_every_end();
                self.crash(*lost);
            }
        }
    }
}

/// So small that nearly everything is cut, and so large that nothing is.
fn limits() -> impl Strategy<Value = SaveLimits> {
    let tiny = SaveLimits { delta_entry: 160, snapshot_entry: 300, deltas: 3, delta_bytes: 500 };
    prop_oneof![Just(tiny), Just(SaveLimits { deltas: 5, ..SaveLimits::default() }), Just(SaveLimits::default())]
}

proptest! {
    #[test]
    fn what_is_read_is_the_last_durable_save(ops in proptest::collection::vec(op(), 0..60), limits in limits()) {
        let mut driver = Driver::new(limits);
        driver.cursor.properties = vec![("a".to_owned(), 5)];
        for op in &ops {
            driver.apply(op);
        }
        driver.save(false);
        driver.check_every_end();
    }

    /// Damage that no digest noticed: an answer, and nothing acked beyond what each topic has.
    #[test]
    fn mutated_entries_never_panic(at in any::<proptest::sample::Index>(), byte in any::<proptest::sample::Index>(), to in any::<u8>()) {
        let mut driver = Driver::new(SaveLimits { delta_entry: 160, snapshot_entry: 300, ..SaveLimits::default() });
        for round in 0..6 {
            driver.apply(&Op::Ack((round * 30 + 7..round * 30 + 30).step_by(2).collect()));
            driver.apply(&Op::Redeliver(vec![round, 207 - round]));
            driver.save(round == 3);
        }
        let entry = at.index(driver.entries.len());
        let byte = byte.index(driver.entries[entry].len());
        driver.entries[entry][byte] = to;
        let mut replay = Replay::new(EntryId(driver.entries.len() as i64 - 1));
        while let Some((first, _)) = replay.wants() {
            if replay.handle_entry(&driver.entries[first.0 as usize]).is_err() {
                return Ok(());
            }
        }
        let restored = replay.finish().unwrap().restore(&driver.extents);
        prop_assert!(restored.acked_beyond() <= 208);
    }
}

/// A cursor with a hole after every entry of a ledger.
fn ragged(holes: i64) -> (Cursor, Extents) {
    let extents = extents(&[(1, 2 * holes + 10)]);
    let mut cursor = Cursor::at(extents.start());
    cursor.keep_changes();
    cursor.ack((0..holes).map(|i| Position::new(1, 2 * i + 1)), &extents);
    (cursor, extents)
}

#[test]
fn snapshots_follow_a_thousand_deltas_or_a_mebibyte() {
    for (holes, expected) in [(1, 1000), (5000, 64)] {
        let (mut cursor, extents) = ragged(holes);
        let mut log = SaveLog::new(SaveLimits::default());
        log.save(&mut cursor, false);
        let mut deltas = 0;
        loop {
            cursor.redelivered([Position::new(1, 0)]);
            let entries = log.save(&mut cursor, false);
            assert_eq!(entries.len(), 1);
            if log.is_at_snapshot() {
                break;
            }
            assert!(entries[0].len() <= 16 << 10);
            deltas += 1;
        }
        assert!((expected..expected + 3).contains(&deltas), "{deltas} deltas with {holes} holes");
        assert!(log.save(&mut cursor, true).len() == 1 && log.is_at_snapshot());
        drop(extents);
    }
}

/// Java reads all of a state that fits, in the form that suits it, and the lowest part of one that does not.
#[test]
fn java_reads_the_lowest_part() {
    for (holes, as_bitmaps, whole) in [(9_000, false, true), (50_000, true, true), (50_000, true, false)] {
        let (mut cursor, extents) = ragged(holes);
        let limits = SaveLimits { snapshot_entry: if whole { 4 << 20 } else { 10_000 }, ..SaveLimits::default() };
        let entries = SaveLog::new(limits).save(&mut cursor, false);
        assert_eq!(entries.len() == 1, whole);
        assert!(entries.iter().all(|entry| entry.len() <= limits.snapshot_entry));
        let plain = CursorEntry::decode(entries.last().unwrap()).unwrap().info;
        assert_eq!((plain.acked.is_empty(), plain.acked_bitmaps.is_empty()), (as_bitmaps, !as_bitmaps));
        let java = Cursor::restore(&plain, &extents);
        let highest = (0..).map(|i| 2 * i + 1).take_while(|e| java.is_acked(Position::new(1, *e))).last().unwrap();
        assert_eq!(java.acked_beyond(), (highest as u64).div_ceil(2));
        assert!(java.acked_beyond() > if whole { holes as u64 - 1 } else { 20_000 });
        agree(&replay(&entries).restore(&extents), &cursor);
    }
}

/// A state of millions of holes takes chunks, and is found again.
#[test]
fn large_states_are_cut() {
    let sizes: Vec<(i64, i64)> = (0..40).map(|ledger| (ledger, 50_000_000)).collect();
    let extents = extents(&sizes);
    let mut cursor = Cursor::at(extents.start());
    cursor.keep_changes();
    cursor.ack(sizes.iter().flat_map(|(l, _)| (0..500).map(|e| Position::new(*l, 100_000 * e + 7))), &extents);
    let mut log = SaveLog::new(SaveLimits::default());
    let mut entries = log.save(&mut cursor, false);
    assert!(entries.len() > 1 && entries.iter().all(|entry| entry.len() <= 4 << 20));
    cursor.ack((0..40_000).map(|e| Position::new(39, 1000 * e)), &extents);
    let delta = log.save(&mut cursor, false);
    assert!(!log.is_at_snapshot() && delta.len() > 1 && delta.iter().all(|entry| entry.len() <= 16 << 10));
    entries.extend(delta);
    agree(&replay(&entries).restore(&extents), &cursor);
    // The save after it was interrupted.
    cursor.ack((0..40_000).map(|e| Position::new(38, 1000 * e)), &extents);
    let before = replay(&entries);
    entries.push(log.save(&mut cursor, false).remove(0));
    assert_eq!(replay(&entries), before);
}

#[test]
fn changes_and_counts_are_bounded() {
    let (mut cursor, extents) = ragged(0);
    let mut log = SaveLog::new(SaveLimits::default());
    log.save(&mut cursor, false);
    for round in 0..70_000 {
        cursor.redelivered([Position::new(1, round % 10)]);
    }
    assert!(cursor.unsaved_bytes() <= 16 << 16);
    log.save(&mut cursor, false);
    assert!(log.is_at_snapshot(), "more changed than is kept");
    let extents_of_many = self::extents(&[(1, 200_000)]);
    let mut many = Cursor::at(extents.start());
    many.redelivered((100_000..200_000).map(|e| Position::new(1, e)));
    assert_eq!(many.redeliveries().len(), 50_000);
    many.redelivered([Position::new(1, 5), Position::new(1, 199_999)]);
    assert_eq!((many.redelivery_count(Position::new(1, 5)), many.redelivery_count(Position::new(1, 199_999))), (1, 0));
    many.ack([Position::new(1, 5)], &extents_of_many);
    assert_eq!(many.redelivery_count(Position::new(1, 5)), 0);
}

/// Entries that the first version wrote. Whatever later ones write, they must find the same in these.
#[test]
fn corpus() {
    let text = include_str!("../corpus/cursor_ledger_1.txt");
    let entries: Vec<Vec<u8>> = text.lines().filter(|line| !line.starts_with('#')).map(unhex).collect();
    let driver = written();
    let mut found = Vec::new();
    for end in 1..=entries.len() {
        let state = replay(&entries[..end]).restore(&driver.extents);
        let is_same = |save: &Saved| {
            state.snapshot() == save.state.snapshot() && state.redeliveries() == save.state.redeliveries()
        };
        found.push(driver.saves.iter().position(is_same).expect("a state that was saved"));
    }
    // Chunks come before the entry that completes a save.
    assert_eq!(found, [0, 1, 1, 1, 1, 2, 2, 3, 4], "now it would be written so:\n{}", hex(&driver.entries));
    let read = replay(&entries).restore(&driver.extents);
    assert_eq!(read.mark_delete(), Position::new(1, 2));
    assert_eq!((read.acked_beyond(), read.redelivery_count(Position::new(9, 0))), (55, 2));
    assert_eq!(read.unacked_of(Position::new(4, 1)).map(UnackedSet::words), Some(vec![4]));
}

/// What does not fit together, or is of a version to come, counts as far as every broker reads it.
#[test]
fn what_cannot_be_read_is_left_to_the_plain_fields() {
    let whole = written();
    let plain = |entry: &Vec<u8>| StoredCursor {
        is_partial: true,
        ..StoredCursor::plain(PositionInfo::decode(entry).unwrap())
    };
    let of_version_2 = |entry: &Vec<u8>| {
        let mut changed = entry.clone();
        let at = entry.windows(3).position(|bytes| bytes == [0x8a, 0xb5, 0x18]).unwrap() + 5;
        changed[at] = 2;
        changed
    };
    let last = whole.entries.len() - 1;
    let mut newer = whole.entries.clone();
    newer[last] = of_version_2(&newer[last]);
    assert_eq!(replay(&newer), plain(&newer[last]));
    // The snapshot that the last save stands on is newer, or another save is where it should be.
    let base = last - 1;
    let mut newer_base = whole.entries.clone();
    newer_base[base] = of_version_2(&newer_base[base]);
    let mut other_base = whole.entries.clone();
    other_base[base] = other_base[0].clone();
    for entries in [newer_base, other_base] {
        assert_eq!(replay(&entries), plain(&entries[last]));
    }
    // A chunk, and nothing before it.
    let chunk = vec![whole.entries[2].clone()];
    assert_eq!(replay(&chunk), plain(&chunk[0]));
}

/// Snapshots, deltas, chunks, in this order of operations.
fn written() -> Driver {
    let mut driver = Driver::new(SaveLimits { delta_entry: 160, snapshot_entry: 300, deltas: 3, delta_bytes: 1 << 20 });
    driver.cursor.properties = vec![("pulsar.replicated.subscription".to_owned(), 1)];
    driver.apply(&Op::Ack(vec![0, 2, 3]));
    driver.save(false);
    driver.apply(&Op::Batch(6, 6));
    driver.apply(&Op::Redeliver(vec![8, 9]));
    driver.save(false);
    driver.apply(&Op::Ack((20..120).step_by(2).collect()));
    driver.save(false);
    driver.apply(&Op::Reset(3));
    driver.apply(&Op::Ack((20..120).step_by(2).collect()));
    driver.apply(&Op::Redeliver(vec![8]));
    driver.save(false);
    driver.apply(&Op::Ack((130..140).step_by(2).collect()));
    driver.apply(&Op::Batch(6, 4));
    driver.apply(&Op::Redeliver(vec![8]));
    driver.save(false);
    driver
}

fn hex(entries: &[Vec<u8>]) -> String {
    let line = |entry: &Vec<u8>| entry.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn unhex(line: &str) -> Vec<u8> {
    let digits: Vec<u32> = line.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect()
}
