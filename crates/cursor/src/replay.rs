//! Reading a cursor ledger: the last complete snapshot, and the deltas that stand on it.

use geminga_model::{EntryId, Position};
use geminga_records::{Added, CursorEntry, CursorProperty, Extension, Part, PositionInfo, RecordError};

use crate::cursor::Cursor;
use crate::extents::Extents;

/// A cursor as it was read, not yet fitted to the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCursor {
    /// Its last snapshot.
    pub snapshot: PositionInfo,
    /// What belongs to the snapshot beside the plain fields.
    pub added: Added,
    /// What was saved after it, in order.
    pub deltas: Vec<StoredDelta>,
    /// What was found cannot be read as a whole: this is what is sure to be acked, and the rest is delivered again.
    pub is_partial: bool,
}

/// A delta as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDelta {
    mark_delete: Position,
    properties: Vec<CursorProperty>,
    added: Added,
}

impl StoredCursor {
    /// A state that is complete in itself, as Java writes it.
    #[must_use]
    pub fn plain(snapshot: PositionInfo) -> StoredCursor {
        StoredCursor { snapshot, added: Added::default(), deltas: Vec::new(), is_partial: false }
    }

    /// The cursor, fitted to the topic as it is now; see [`Cursor::restore`].
    #[must_use]
    pub fn restore(&self, extents: &Extents) -> Cursor {
        let mut cursor = Cursor::restore(&self.snapshot, extents);
        cursor.add(&self.added, extents);
        for StoredDelta { mark_delete, properties, added } in &self.deltas {
            cursor.ack_cumulative(*mark_delete, extents);
            cursor.add(added, extents);
            cursor.properties.clone_from(properties);
        }
        cursor.revision = 0;
        cursor
    }
}

/// Reads a ledger that nobody writes any more. The caller reads what [`Replay::wants`] until it wants nothing.
#[derive(Debug)]
pub struct Replay(State);

#[derive(Debug)]
enum State {
    /// The entry may be the last that completes a save.
    Looking(EntryId),
    Reading(Box<Reading>),
    Done(Box<StoredCursor>),
}

#[derive(Debug)]
struct Reading {
    next: EntryId,
    end: EntryId,
    /// The entry at `end`.
    last: PositionInfo,
    /// Chunks read of the save that is not complete yet.
    body: Vec<u8>,
    chunks: u32,
    /// What was read, and the last save of it.
    found: Option<(StoredCursor, u64)>,
}

impl Replay {
    /// Of a ledger with this last entry, which exists.
    #[must_use]
    pub fn new(last: EntryId) -> Replay {
        Replay(State::Looking(last))
    }

    /// The entries to read next, from the first to the last.
    #[must_use]
    pub fn wants(&self) -> Option<(EntryId, EntryId)> {
        match &self.0 {
            State::Looking(entry) => Some((*entry, *entry)),
            State::Reading(reading) => Some((reading.next, reading.end)),
            State::Done(_) => None,
        }
    }

    /// Takes the first entry that is wanted.
    ///
    /// # Errors
    /// [`RecordError`] if the last entry is not a cursor's state to any broker.
    pub fn handle_entry(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        match &mut self.0 {
            State::Looking(entry) => {
                let found = CursorEntry::decode(bytes)?;
                self.0 = looked(*entry, found);
            }
            State::Reading(reading) => {
                let consistent = CursorEntry::decode(bytes).ok().and_then(|entry| reading.take(entry)).is_some();
                if !consistent {
                    self.0 = State::Done(Box::new(partial(reading.last.clone())));
                } else if reading.next > reading.end {
                    let found = reading.found.take().map_or_else(|| partial(reading.last.clone()), |(found, _)| found);
                    self.0 = State::Done(Box::new(found));
                }
            }
            State::Done(_) => {}
        }
        Ok(())
    }

    /// What was read; `None` while something is wanted.
    #[must_use]
    pub fn finish(self) -> Option<StoredCursor> {
        match self.0 {
            State::Done(found) => Some(*found),
            State::Looking(_) | State::Reading(_) => None,
        }
    }
}

/// The plain fields alone: nothing that they say is acked is not.
fn partial(info: PositionInfo) -> StoredCursor {
    StoredCursor { is_partial: true, ..StoredCursor::plain(info) }
}

fn looked(entry: EntryId, found: CursorEntry) -> State {
    let CursorEntry { info, extension, is_newer } = found;
    let done = |stored| State::Done(Box::new(stored));
    let Some(extension) = extension else {
        return done(StoredCursor { is_partial: is_newer, ..StoredCursor::plain(info) });
    };
    match extension.part {
        // A save that was interrupted.
        Part::Chunk { previous, .. } if previous >= EntryId(0) && previous < entry => State::Looking(previous),
        Part::Chunk { .. } => done(partial(info)),
        Part::Last { .. } if extension.base_entry < EntryId(0) || extension.base_entry > entry => done(partial(info)),
        Part::Last { .. } => State::Reading(Box::new(Reading {
            next: extension.base_entry,
            end: entry,
            last: info,
            body: Vec::new(),
            chunks: 0,
            found: None,
        })),
    }
}

impl Reading {
    /// `None` if the entry does not follow what was read.
    fn take(&mut self, entry: CursorEntry) -> Option<()> {
        let CursorEntry { info, extension, .. } = entry;
        let Extension { sequence, base, part, body, .. } = extension?;
        self.next = self.next.next();
        match part {
            Part::Chunk { index, .. } => {
                if index == 0 {
                    self.body.clear();
                } else if index != self.chunks {
                    return None;
                }
                self.chunks = index + 1;
                self.body.extend_from_slice(&body);
            }
            Part::Last { chunks } => {
                if chunks != std::mem::take(&mut self.chunks) {
                    return None;
                }
                let mut whole = std::mem::take(&mut self.body);
                whole.extend_from_slice(&body);
                let added = Added::decode(&whole).ok()?;
                match &mut self.found {
                    None if base == sequence => {
                        self.found = Some((StoredCursor { added, ..StoredCursor::plain(info) }, sequence));
                    }
                    Some((found, before)) if base != sequence && before.checked_add(1) == Some(sequence) => {
                        *before = sequence;
                        let PositionInfo { mark_delete, properties, .. } = info;
                        found.deltas.push(StoredDelta { mark_delete, properties, added });
                    }
                    _ => return None,
                }
            }
        }
        Some(())
    }
}
