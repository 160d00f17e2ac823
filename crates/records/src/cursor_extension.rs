//! What we store with a cursor's state that other brokers do not read: field 50001 of `PositionInfo` and of
//! `ManagedCursorInfo`.
//!
//! A save is a run of entries: chunks, if its body does not fit one entry, and the entry that completes it. A save is a
//! *snapshot*, whose plain fields together with its body are the whole state, or a *delta*, whose body is what changed
//! since the save before it. In every entry the plain fields say nothing acked that is not: so whoever reads only them,
//! as Java does with the last entry of a cursor ledger, delivers again but never skips. This holds for all versions to
//! come too; therefore an extension of a version that is not known is left aside, and its entry is a snapshot.
//!
//! The message, version 1: 1 version, 2 sequence, 3 base, 4 base entry, 5 index of a chunk, 6 the entry that completes
//! the save before a chunk, 7 number of chunks before a completing entry, 8 a part of the body. The body: 1 acked entries
//! of a ledger, as runs; 2 batches acked in part; 3 redelivery counts of a ledger.

use geminga_model::{EntryId, LedgerId, Position};

use crate::RecordError;
use crate::cursor::{BatchSet, PositionInfo, read_batch_set, write_batch_set};
use crate::protobuf::{Field, Writer, read, take_varint};

/// Outside the numbers that Pulsar uses or is likely to.
pub(crate) const EXTENSION: u32 = 50001;
const VERSION: i64 = 1;

/// Acked entries of a ledger, from `first` up to and including `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first acked entry.
    pub first: u32,
    /// The last acked entry.
    pub last: u32,
}

/// The body of a save: what a delta adds to the state before it, or a snapshot to its plain fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Acked entries beyond the mark-delete position, per ledger, ascending.
    pub acked: Vec<(LedgerId, Vec<Run>)>,
    /// Batches acked in part, as they are now.
    pub batch_sets: Vec<BatchSet>,
    /// How often entries were asked to be delivered again, as it is now, by position.
    pub redeliveries: Vec<(Position, u32)>,
}

impl Added {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.acked.is_empty() && self.batch_sets.is_empty() && self.redeliveries.is_empty()
    }

    /// Writes the body's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        for (ledger, runs) in &self.acked {
            body.message(1, |out| {
                out.int(1, ledger.0);
                out.bytes(2, &packed_runs(runs));
            });
        }
        for set in &self.batch_sets {
            body.message(2, |out| write_batch_set(out, set));
        }
        for of_ledger in self.redeliveries.chunk_by(|a, b| a.0.ledger == b.0.ledger) {
            body.message(3, |out| {
                if let Some((first, _)) = of_ledger.first() {
                    out.int(1, first.ledger.0);
                }
                out.bytes(2, &packed_counts(of_ledger));
            });
        }
        body.0
    }

    /// Reads a body's bytes, put together from its parts.
    ///
    /// # Errors
    /// [`RecordError`] if they are not one.
    pub fn decode(body: &[u8]) -> Result<Added, RecordError> {
        let mut added = Added::default();
        read(body, |field| {
            match field.number {
                1 => {
                    let (ledger, packed) = read_of_ledger(field)?;
                    added.acked.push((ledger, unpack_runs(packed)?));
                }
                2 => added.batch_sets.push(read_batch_set(field)?),
                3 => {
                    let (ledger, packed) = read_of_ledger(field)?;
                    unpack_counts(ledger, packed, &mut added.redeliveries)?;
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(added)
    }
}

/// Which part of a save an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A part of a body, before the entry that completes it. Its plain fields are a mark-delete position and properties.
    Chunk {
        /// The first is 0.
        index: u32,
        /// The entry that completes the save before; [`EntryId::NONE`] if there is none in this ledger.
        previous: EntryId,
    },
    /// It completes the save.
    Last {
        /// Entries right before this one that hold the beginning of the body.
        chunks: u32,
    },
}

/// The extension of an entry of a cursor ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Which save it is, counted from 1; the next save of the ledger has the next number.
    pub sequence: u64,
    /// The snapshot that it stands on, by sequence; a snapshot stands on itself.
    pub base: u64,
    /// The entry of this ledger with which that snapshot begins.
    pub base_entry: EntryId,
    /// Which part it is.
    pub part: Part,
    /// A part of the body.
    pub body: Vec<u8>,
}

impl Extension {
    /// Whether the save is a snapshot.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.base == self.sequence
    }

    /// A node has counts only: what is acked is in fields that Java writes anew.
    pub(crate) fn of_node(redeliveries: &[(Position, u32)]) -> Extension {
        let added = Added { redeliveries: redeliveries.to_vec(), ..Added::default() };
        let part = Part::Last { chunks: 0 };
        Extension { sequence: 0, base: 0, base_entry: EntryId::NONE, part, body: added.encode() }
    }

    pub(crate) fn redeliveries_of_node(field: Field<'_>) -> Vec<(Position, u32)> {
        let added = field.bytes().and_then(Extension::read).and_then(|extension| Added::decode(&extension.body));
        added.map(|added| added.redeliveries).unwrap_or_default()
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.int(1, VERSION);
        out.int(2, self.sequence.cast_signed());
        out.int(3, self.base.cast_signed());
        out.int(4, self.base_entry.0);
        match self.part {
            Part::Chunk { index, previous } => {
                out.int(5, index.into());
                out.int(6, previous.0);
            }
            Part::Last { chunks } => out.int(7, chunks.into()),
        }
        out.bytes(8, &self.body);
    }

    fn read(bytes: &[u8]) -> Result<Extension, RecordError> {
        let [mut version, mut sequence, mut base, mut base_entry, mut index, mut previous, mut chunks] = [None; 7];
        let mut body = Vec::new();
        read(bytes, |field| {
            match field.number {
                1 => version = Some(field.int()?),
                2 => sequence = Some(field.int()?),
                3 => base = Some(field.int()?),
                4 => base_entry = Some(field.int()?),
                5 => index = Some(field.int()?),
                6 => previous = Some(field.int()?),
                7 => chunks = Some(field.int()?),
                8 => body = field.bytes()?.to_vec(),
                _ => {}
            }
            Ok(())
        })?;
        if version != Some(VERSION) {
            return Err(RecordError::Impossible("version of a cursor's entry"));
        }
        let count = |value: i64| u32::try_from(value).map_err(|_| RecordError::Impossible("chunks"));
        let part = match (index, chunks) {
            (Some(index), None) => {
                let previous = EntryId(previous.ok_or(RecordError::Missing("previous"))?);
                Part::Chunk { index: count(index)?, previous }
            }
            (None, Some(chunks)) => Part::Last { chunks: count(chunks)? },
            _ => return Err(RecordError::Missing("chunks")),
        };
        Ok(Extension {
            sequence: sequence.ok_or(RecordError::Missing("sequence"))?.cast_unsigned(),
            base: base.ok_or(RecordError::Missing("base"))?.cast_unsigned(),
            base_entry: EntryId(base_entry.ok_or(RecordError::Missing("baseEntry"))?),
            part,
            body,
        })
    }
}

/// An entry of a cursor ledger, as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorEntry {
    /// What every broker reads.
    pub info: PositionInfo,
    /// What only we read. An entry without it is a snapshot: Java wrote it, or this project before it had deltas.
    pub extension: Option<Extension>,
    /// It has an extension that this version does not read: a newer one wrote it. The plain fields are a snapshot then,
    /// which lacks what did not fit them: that is delivered again.
    pub is_newer: bool,
}

impl CursorEntry {
    /// Reads an entry's bytes.
    ///
    /// # Errors
    /// [`RecordError`] if they are not a cursor's state to any broker.
    pub fn decode(entry: &[u8]) -> Result<CursorEntry, RecordError> {
        let info = PositionInfo::decode(entry)?;
        let (mut extension, mut is_newer) = (None, false);
        read(entry, |field| {
            if field.number == EXTENSION {
                extension = field.bytes().and_then(Extension::read).ok();
                is_newer = extension.is_none();
            }
            Ok(())
        })?;
        Ok(CursorEntry { info, extension, is_newer })
    }
}

fn read_of_ledger<'a>(field: Field<'a>) -> Result<(LedgerId, &'a [u8]), RecordError> {
    let (mut ledger, mut packed): (_, &'a [u8]) = (None, &[]);
    read(field.bytes()?, |field| {
        match field.number {
            1 => ledger = Some(LedgerId(field.int()?)),
            2 => packed = field.bytes()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((ledger.ok_or(RecordError::Missing("ledgerId"))?, packed))
}

/// For each run the entries left out before it, and how many follow its first.
fn packed_runs(runs: &[Run]) -> Vec<u8> {
    let mut out = Writer::default();
    let mut next = 0_u64;
    for run in runs {
        out.varint(u64::from(run.first).saturating_sub(next));
        out.varint(u64::from(run.last.saturating_sub(run.first)));
        next = u64::from(run.last) + 1;
    }
    out.0
}

fn unpack_runs(mut packed: &[u8]) -> Result<Vec<Run>, RecordError> {
    let impossible = RecordError::Impossible("acked");
    let mut runs = Vec::new();
    let mut next = 0_u64;
    while !packed.is_empty() {
        let first = take_varint(&mut packed)?.checked_add(next);
        let last = first.zip(Some(take_varint(&mut packed)?)).and_then(|(first, more)| first.checked_add(more));
        let (Some(first), Some(last)) = (first, last) else { return Err(impossible) };
        let (Ok(first), Ok(to)) = (u32::try_from(first), u32::try_from(last)) else { return Err(impossible) };
        runs.push(Run { first, last: to });
        next = last + 1;
    }
    Ok(runs)
}

/// For each entry the entries left out before it, and its count.
fn packed_counts(of_ledger: &[(Position, u32)]) -> Vec<u8> {
    let mut out = Writer::default();
    let mut next = 0;
    for (position, count) in of_ledger {
        out.varint(u64::try_from(position.entry.0 - next).unwrap_or(0));
        out.varint((*count).into());
        next = position.entry.0 + 1;
    }
    out.0
}

fn unpack_counts(ledger: LedgerId, mut packed: &[u8], counts: &mut Vec<(Position, u32)>) -> Result<(), RecordError> {
    let impossible = || RecordError::Impossible("redelivery count");
    let mut next = 0_i64;
    while !packed.is_empty() {
        let gap = i64::try_from(take_varint(&mut packed)?).map_err(|_| impossible())?;
        let count = u32::try_from(take_varint(&mut packed)?).map_err(|_| impossible())?;
        let entry = next.checked_add(gap).filter(|entry| *entry < i64::MAX).ok_or_else(impossible)?;
        counts.push((Position { ledger, entry: EntryId(entry) }, count));
        next = entry + 1;
    }
    Ok(())
}

#[cfg(test)]
#[path = "cursor_extension_tests.rs"]
mod tests;
