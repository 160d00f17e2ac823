//! Dropping segments in which nothing lives, without losing the states and deletions that only they record.

use std::sync::Arc;

use geminga_disk::DiskError;
use geminga_model::{UnixMillis, canary};

use crate::error::Fatal;
use crate::format::record::{self, DELETE_BODY};
use crate::index::{SegmentEntry, Table};
use crate::segment::Segment;
use crate::store::BookieStore;
use crate::table::Change;
use crate::writer::LogWriter;

impl LogWriter {
    /// Whether there may be a segment without a live entry: something was deleted since the last look.
    #[must_use]
    pub fn wants_cleaning(&self) -> bool {
        self.may_have_dead
    }

    /// Drops up to `most` segments without a live entry and returns how many. Everything of theirs that still counts, the
    /// states of live ledgers and deletions of ledgers that other segments hold, is first written again and synced.
    ///
    /// # Errors
    /// As [`LogWriter::commit`].
    pub fn clean(&mut self, now: UnixMillis, most: usize) -> Result<usize, Fatal> {
        self.run(now, |log| {
            let mut dropped = 0;
            while dropped < most {
                let Some((segment, members)) = log.store.oldest_dead() else {
                    log.may_have_dead = false;
                    break;
                };
                if !log.carry(&segment, &members)? {
                    // Tried again when idle, or after the next deletion: until then there is no space for it.
                    log.may_have_dead = false;
                    break;
                }
                log.store.drop_segment(&segment)?;
                log.forget_deletions(segment.id, &members);
                dropped += 1;
            }
            Ok(dropped)
        })
    }

    /// Writes again what must outlive a segment; `false` if there is no space for it.
    fn carry(&mut self, segment: &Segment, members: &[i64]) -> Result<bool, DiskError> {
        let carried = self.put_carried(segment, members)?;
        self.flush(0)?;
        if self.last_block == (0, 0) {
            // A start takes a segment without any block for one that never counted, and the one before it for the last.
            self.mark()?;
        }
        self.sync()?;
        Ok(carried)
    }

    fn put_carried(&mut self, segment: &Segment, members: &[i64]) -> Result<bool, DiskError> {
        for &ledger in members {
            let state = self.ledgers.get(&ledger).filter(|state| state.home == segment.id);
            if let Some(state) = state.map(|state| Arc::clone(&state.value))
                && !canary!("drop_segment_with_fence")
            {
                if !self.make_room(Self::state_len(&state), true)? {
                    return Ok(false);
                }
                self.put_change(ledger, Change::State(state));
            }
            let tombstone = self.tombstones.get(&ledger).filter(|tombstone| tombstone.home == segment.id);
            if let Some(tombstone) = tombstone.map(|tombstone| tombstone.value)
                && self.is_needed(ledger, segment.id)
                && !canary!("drop_delete_record")
            {
                if !self.make_room(record::record_len(DELETE_BODY), true)? {
                    return Ok(false);
                }
                self.put_change(ledger, Change::Delete(tombstone));
            }
        }
        Ok(true)
    }

    /// Whether a deletion must still be known once the segment `dropped` is gone.
    fn is_needed(&self, ledger: i64, dropped: u64) -> bool {
        let Some(tombstone) = self.tombstones.get(&ledger) else { return false };
        tombstone.value.refuses_adds(self.now) || self.store.index.read().others_hold(ledger, dropped, tombstone.home)
    }

    /// Forgets deletions that nothing needs any more, and the oldest of those remembered if they are too many.
    fn forget_deletions(&mut self, dropped: u64, members: &[i64]) {
        for ledger in members {
            if !self.is_needed(*ledger, dropped) {
                self.tombstones.remove(ledger);
            }
        }
        let mut remembered: Vec<i64> =
            self.tombstones.values().filter(|t| t.value.fenced).map(|t| t.value.at).collect();
        if remembered.len() > self.remembered_deletions {
            remembered.sort_unstable_by(|a, b| b.cmp(a));
            let oldest = remembered.get(self.remembered_deletions).copied().unwrap_or(i64::MIN);
            for tombstone in self.tombstones.values_mut().filter(|t| t.value.at <= oldest) {
                tombstone.value.fenced = false;
            }
        }
    }
}

impl BookieStore {
    fn oldest_dead(&self) -> Option<(Arc<Segment>, Vec<i64>)> {
        let index = self.index.read();
        let dead = |entry: &&SegmentEntry| entry.live_ledgers == 0 && !matches!(entry.table, Table::Open(_));
        let entry = index.segments.values().find(dead)?;
        Some((Arc::clone(&entry.segment), entry.table.members()))
    }

    fn drop_segment(&self, segment: &Segment) -> Result<(), DiskError> {
        let _sealing = self.sealing.lock();
        segment.set_dropped();
        self.index.write().segments.remove(&segment.id);
        self.pool.lock().recycle(segment.id)
    }

    /// How many full segments wait for their index file.
    pub(crate) fn unsealed(&self) -> usize {
        self.index.read().segments.values().filter(|entry| matches!(entry.table, Table::Full(..))).count()
    }
}
