//! A cursor ledger whose entries are arbitrary: its reading ends, what it finds fits the topic, and saved again it is read
//! as the same.

use geminga_cursor::{Cursor, Extents, Replay, SaveLimits, SaveLog, StoredCursor};
use geminga_model::{EntryId, LedgerId};

use super::{choice, part};
use crate::memory::within;

/// The target.
pub fn run(data: &[u8]) {
    let (shape, mut rest) = choice(data);
    let mut entries = Vec::new();
    while let Some(entry) = part(&mut rest) {
        entries.push(entry.to_vec());
    }
    let extents = topic(shape);
    let Some(stored) = within(64 << 10 | data.len() * 200, || replay(&entries)) else { return };
    // Entries of the topic, as bitmaps and counts.
    let mut cursor = within(1 << 20 | data.len() * 400, || stored.restore(&extents));
    assert!(cursor.mark_delete() >= extents.start() && cursor.mark_delete() <= extents.end().max(extents.start()));
    assert!(cursor.backlog(&extents) <= extents.iter().map(|(_, entries)| entries as u64).sum());
    if let Some(next) = cursor.nth_unacked(1, &extents) {
        assert!(!cursor.is_acked(next));
    }

    let limits = SaveLimits { delta_entry: 200, snapshot_entry: 300, ..SaveLimits::default() };
    cursor.keep_changes();
    let saved = SaveLog::new(limits).save(&mut cursor, true);
    let again = replay(&saved).unwrap();
    assert!(!again.is_partial);
    same(&again.restore(&extents), &cursor);
}

/// A topic of ledgers 1, 3, 4 and 9, as the one in the corpus of cursors; how full they are is chosen.
fn topic(shape: u8) -> Extents {
    let mut extents = Extents::default();
    for (at, ledger) in [1, 3, 4, 9].into_iter().enumerate() {
        let entries = match shape >> (2 * at) & 3 {
            0 => 0,
            1 => 3,
            2 => 70,
            _ => 1000,
        };
        extents.set(LedgerId(ledger), entries);
    }
    extents
}

fn replay(entries: &[Vec<u8>]) -> Option<StoredCursor> {
    let mut replay = Replay::new(EntryId(entries.len().checked_sub(1)? as i64));
    // Back from save to save, then forward once.
    for _ in 0..=2 * entries.len() {
        let Some((first, last)) = replay.wants() else { break };
        assert!(first >= EntryId(0) && first <= last && last.0 < entries.len() as i64);
        replay.handle_entry(&entries[first.0 as usize]).ok()?;
    }
    Some(replay.finish().expect("reading does not end"))
}

fn same(one: &Cursor, other: &Cursor) {
    assert_eq!(one.snapshot(), other.snapshot());
    assert_eq!(one.redeliveries(), other.redeliveries());
}
