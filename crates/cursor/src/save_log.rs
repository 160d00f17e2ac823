//! What is appended to a cursor ledger: when a whole state, when only what changed.

use geminga_model::{EntryId, Position};
use geminga_records::{Added, Extension, Part, PositionInfo};

use crate::cursor::Cursor;

/// How large entries are, and how far apart snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveLimits {
    /// Bytes of an entry of a delta.
    pub delta_entry: usize,
    /// Bytes of an entry of a snapshot.
    pub snapshot_entry: usize,
    /// Deltas after which a snapshot follows.
    pub deltas: u32,
    /// Bytes of deltas after which a snapshot follows.
    pub delta_bytes: usize,
}

impl Default for SaveLimits {
    /// Those of the storage contract: replay reads a snapshot and about a mebibyte.
    fn default() -> SaveLimits {
        SaveLimits { delta_entry: 16 << 10, snapshot_entry: 4 << 20, deltas: 1000, delta_bytes: 1 << 20 }
    }
}

/// What the extension of an entry takes beside its part of the body, at most.
const EXTENSION_LEN: usize = 72;

/// Decides and writes what a save appends to the cursor ledger, of which it is told to be the only writer.
#[derive(Clone, Debug)]
pub struct SaveLog {
    limits: SaveLimits,
    /// Of the last save.
    sequence: u64,
    /// What deltas stand on; without it the next save is a snapshot.
    base: Option<Base>,
    next_entry: EntryId,
    /// The last save: its last entry and its mark-delete position.
    last: Option<(EntryId, Position)>,
}

#[derive(Clone, Copy, Debug)]
struct Base {
    sequence: u64,
    entry: EntryId,
    as_bitmaps: bool,
    deltas: u32,
    bytes: usize,
}

impl SaveLog {
    /// For a ledger that has no entry yet. It begins with a snapshot.
    #[must_use]
    pub fn new(limits: SaveLimits) -> SaveLog {
        SaveLog { limits, sequence: 0, base: None, next_entry: EntryId(0), last: None }
    }

    /// Whether the last save was a snapshot: what Java reads then is all there is, if it fits an entry.
    #[must_use]
    pub fn is_at_snapshot(&self) -> bool {
        self.base.is_some_and(|base| base.deltas == 0)
    }

    /// The entries to append, in order; when the last is durable the state is saved. `whole` asks for a snapshot.
    pub fn save(&mut self, cursor: &mut Cursor, whole: bool) -> Vec<Vec<u8>> {
        let changes = cursor.take_changes();
        self.sequence += 1;
        let due = |base: &Base| base.deltas >= self.limits.deltas || base.bytes >= self.limits.delta_bytes;
        let entries = match (changes, self.base) {
            (Some(added), Some(base)) if !whole && !due(&base) => self.delta(cursor, &added, base),
            _ => self.snapshot(cursor),
        };
        let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
        self.next_entry = EntryId(self.next_entry.0.saturating_add(count));
        self.last = Some((self.next_entry.previous(), cursor.mark_delete()));
        entries
    }

    fn delta(&mut self, cursor: &Cursor, added: &Added, base: Base) -> Vec<Vec<u8>> {
        let room = self.limits.delta_entry.saturating_sub(cursor.head_len() + EXTENSION_LEN);
        let body = added.encode();
        // A body that does not fit goes before, and leaves the entry to the plain fields. Properties are never left out,
        // and may leave chunks less room than they need.
        let beside = room.checked_sub(body.len());
        let (plain, _) = cursor.plain(beside.unwrap_or(room), base.as_bitmaps);
        let entries =
            self.entries(&plain, base, body, beside.is_none().then_some(room.max(self.limits.delta_entry / 4)));
        let bytes = base.bytes + entries.iter().map(Vec::len).sum::<usize>();
        self.base = Some(Base { deltas: base.deltas + 1, bytes, ..base });
        entries
    }

    fn snapshot(&mut self, cursor: &Cursor) -> Vec<Vec<u8>> {
        let room = self.limits.snapshot_entry.saturating_sub(cursor.head_len() + EXTENSION_LEN);
        let counts = cursor.rest(None).encode().len();
        let as_bitmaps = cursor.is_ragged();
        let (plain, rest) = cursor.plain(room.checked_sub(counts).unwrap_or(room), as_bitmaps);
        let body = cursor.rest(rest).encode();
        let base = Base { sequence: self.sequence, entry: self.next_entry, as_bitmaps, deltas: 0, bytes: 0 };
        self.base = Some(base);
        // The plain fields left room for the counts.
        let fits = if rest.is_none() { counts <= room } else { plain.encode().len() + body.len() <= room };
        self.entries(&plain, base, body, (!fits).then_some(room.max(self.limits.snapshot_entry / 4)))
    }

    /// The body is in the entry itself, or cut into chunks of so many bytes.
    fn entries(&self, plain: &PositionInfo, base: Base, body: Vec<u8>, cut: Option<usize>) -> Vec<Vec<u8>> {
        let extension = |part: Part, body: Vec<u8>| Extension {
            sequence: self.sequence,
            base: base.sequence,
            base_entry: base.entry,
            part,
            body,
        };
        let Some(room) = cut else {
            return vec![plain.encode_with(Some(&extension(Part::Last { chunks: 0 }, body)))];
        };
        // A chunk may be the last entry that there ever is. Then it says what was acked both before and after.
        let mut head = PositionInfo::at(plain.mark_delete);
        head.properties.clone_from(&plain.properties);
        let mut previous = EntryId::NONE;
        if let Some((entry, mark_delete)) = self.last {
            head.mark_delete = head.mark_delete.min(mark_delete);
            previous = entry;
        }
        let mut entries: Vec<Vec<u8>> = (0_u32..)
            .zip(body.chunks(room.max(1)))
            .map(|(index, part)| head.encode_with(Some(&extension(Part::Chunk { index, previous }, part.to_vec()))))
            .collect();
        let chunks = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        entries.push(plain.encode_with(Some(&extension(Part::Last { chunks }, Vec::new()))));
        entries
    }
}

#[cfg(test)]
#[path = "save_log_tests.rs"]
mod tests;
