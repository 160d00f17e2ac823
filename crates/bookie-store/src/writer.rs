//! The log's one writer: what it remembers between two group commits.

use std::sync::Arc;

use geminga_disk::{AlignedBuffer, DiskError};
use geminga_model::{UnixMillis, canary};
use hashbrown::HashMap;

use crate::error::Fatal;
use crate::format::block::{LogPosition, SEAL};
use crate::format::segment::SEGMENT_HEADER;
use crate::request::{AddEntry, WriteOutcome, WriteRequest};
use crate::segment::Segment;
use crate::state::{LedgerState, Tombstone};
use crate::store::BookieStore;
use crate::table::Logged;

/// Full segments may wait for their index file up to this many, then the log writes one itself.
const MOST_UNSEALED: usize = 8;

/// Segments that an idle log drops at once; requests wait meanwhile.
const CLEANED_WHEN_IDLE: usize = 4;

/// The one writer of a store's log. It belongs to one thread, the log lane.
///
/// The lane's loop: take everything that arrived, [`commit`](LogWriter::commit) it, answer, then
/// [`clean`](LogWriter::clean) one segment if [`wants_cleaning`](LogWriter::wants_cleaning); when nothing arrived and
/// nothing is to be cleaned, call [`idle`](LogWriter::idle) once and wait.
#[derive(Debug)]
pub struct LogWriter {
    pub(crate) store: Arc<BookieStore>,
    pub(crate) ledgers: HashMap<i64, Homed<Arc<LedgerState>>>,
    pub(crate) tombstones: HashMap<i64, Homed<Tombstone>>,
    /// The open segment, and where its next block goes.
    pub(crate) segment: Arc<Segment>,
    pub(crate) at: u64,
    /// Start and checksum of the last block in it, 0 if there is none.
    pub(crate) last_block: (u64, u32),
    /// Everything before is synced.
    pub(crate) durable: LogPosition,
    /// The highest durable position that any block names.
    pub(crate) announced: LogPosition,
    pub(crate) next_sequence: u64,
    /// The block being made; empty if there is none. Reused.
    pub(crate) block: AlignedBuffer,
    /// Its records. Reused.
    pub(crate) logged: Vec<Logged>,
    /// Whether anything was written since the last sync.
    pub(crate) unsynced: bool,
    /// Whether a segment may have become dead since the last look for one.
    pub(crate) may_have_dead: bool,
    /// Milliseconds since 1970, as the caller said last.
    pub(crate) now: i64,
    pub(crate) block_bytes: usize,
    pub(crate) max_entry_bytes: usize,
    pub(crate) remembered_deletions: usize,
    failed: Option<DiskError>,
}

/// A state or deletion, and the segment that holds its record.
#[derive(Clone, Debug)]
pub(crate) struct Homed<T> {
    pub(crate) value: T,
    pub(crate) home: u64,
}

/// What a start found out for the writer.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) ledgers: HashMap<i64, Homed<Arc<LedgerState>>>,
    pub(crate) tombstones: HashMap<i64, Homed<Tombstone>>,
    pub(crate) durable: LogPosition,
    pub(crate) next_sequence: u64,
}

impl LogWriter {
    pub(crate) fn new(
        store: Arc<BookieStore>,
        segment: Arc<Segment>,
        recovered: Recovered,
        options: &crate::StoreOptions,
        now: UnixMillis,
    ) -> LogWriter {
        LogWriter {
            store,
            ledgers: recovered.ledgers,
            tombstones: recovered.tombstones,
            segment,
            at: SEGMENT_HEADER,
            last_block: (0, 0),
            durable: recovered.durable,
            announced: recovered.durable,
            next_sequence: recovered.next_sequence,
            block: AlignedBuffer::new(),
            logged: Vec::new(),
            unsynced: false,
            may_have_dead: true,
            now: now.0,
            block_bytes: options.block_bytes,
            max_entry_bytes: options.max_entry_bytes(),
            remembered_deletions: options.remembered_deletions,
            failed: None,
        }
    }

    /// Writes all `requests` in their order, syncs once, and answers each: the answer at index i is to the request at
    /// index i. `requests` is left empty. What is answered `Ok` is durable, with everything before it.
    ///
    /// # Errors
    /// [`Fatal`] if the disk failed: none of the requests may be answered with success, and every later call fails too.
    pub fn commit(&mut self, requests: &mut Vec<WriteRequest>, now: UnixMillis) -> Result<Vec<WriteOutcome>, Fatal> {
        let outcomes = requests.drain(..).map(|request| self.take(request, now)).collect::<Result<_, _>>()?;
        self.make_durable(now)?;
        Ok(outcomes)
    }

    /// Decides one request and puts what it writes into the log. Its outcome may be told only after
    /// [`LogWriter::make_durable`].
    ///
    /// # Errors
    /// As [`LogWriter::commit`].
    pub fn take(&mut self, request: WriteRequest, now: UnixMillis) -> Result<WriteOutcome, Fatal> {
        self.run(now, |log| log.admit(request))
    }

    /// As [`LogWriter::take`], for an entry that stays the caller's.
    ///
    /// # Errors
    /// As [`LogWriter::commit`].
    pub fn take_entry(&mut self, add: &AddEntry<'_>, now: UnixMillis) -> Result<WriteOutcome, Fatal> {
        self.run(now, |log| log.admit_entry(add))
    }

    /// Writes and syncs what was taken: the end of a group commit.
    ///
    /// # Errors
    /// As [`LogWriter::commit`]: nothing that was taken since the last time may be answered with success.
    pub fn make_durable(&mut self, now: UnixMillis) -> Result<(), Fatal> {
        self.run(now, |log| {
            log.flush(0)?;
            if log.store.unsealed() > MOST_UNSEALED {
                log.store.seal_next()?;
            }
            if canary!("BOO-1") {
                return Ok(());
            }
            log.sync()
        })
    }

    /// Tells the log that nothing is to be written for now. It maintains the store, drops dead segments, and announces
    /// how far it is durable, so that a start has nothing to copy. A second call in a row costs nothing.
    ///
    /// # Errors
    /// As [`LogWriter::commit`].
    pub fn idle(&mut self, now: UnixMillis) -> Result<(), Fatal> {
        self.run(now, |log| log.store.maintain())?;
        self.clean(now, CLEANED_WHEN_IDLE)?;
        // Last, because cleaning writes too.
        self.run(now, LogWriter::announce)
    }

    /// Ends the log cleanly: the next start reads only indexes.
    ///
    /// # Errors
    /// As [`LogWriter::commit`]. The store is then as after a crash, which is safe.
    pub fn close(mut self, now: UnixMillis) -> Result<(), Fatal> {
        self.run(now, |log| {
            log.sync()?;
            log.flush(SEAL)?;
            log.sync()?;
            let binding = log.binding();
            log.store.index.write().fill(binding);
            while log.store.seal_next()? {}
            Ok(())
        })
    }

    /// Everything written becomes durable.
    pub(crate) fn sync(&mut self) -> Result<(), DiskError> {
        if self.unsynced {
            self.segment.file.sync_data()?;
            self.unsynced = false;
            self.durable = self.position();
        }
        Ok(())
    }

    /// Writes one more block if the last one is not known durable from the log alone.
    fn announce(&mut self) -> Result<(), DiskError> {
        self.sync()?;
        if self.announced == self.durable {
            return Ok(());
        }
        if self.has_room_for_mark() {
            self.mark()?;
            // The mark itself holds nothing: where it starts is all that a start needs to find announced.
            self.announced = self.durable;
        } else {
            // The block that seals a segment announces as well. Without space for another one it must wait.
            self.roll(false)?;
        }
        Ok(())
    }

    pub(crate) fn position(&self) -> LogPosition {
        LogPosition { segment: self.segment.id, offset: self.at }
    }

    /// Runs a step unless an earlier one failed, and remembers if it fails.
    pub(crate) fn run<T>(
        &mut self,
        now: UnixMillis,
        step: impl FnOnce(&mut LogWriter) -> Result<T, DiskError>,
    ) -> Result<T, Fatal> {
        if let Some(error) = &self.failed {
            return Err(Fatal(error.clone()));
        }
        self.now = now.0;
        step(self).map_err(|error| {
            self.failed = Some(error.clone());
            Fatal(error)
        })
    }
}
