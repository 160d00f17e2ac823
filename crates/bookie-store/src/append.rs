//! Making and writing commit blocks, and going on to the next segment.

use std::sync::Arc;

use geminga_disk::DiskError;
use geminga_model::canary;

use crate::format::block::{BLOCK_HEADER, BlockHeader, padded};
use crate::format::index::Binding;
use crate::format::record;
use crate::format::segment::{BLOCK_ALIGN, SEGMENT_HEADER};
use crate::state::LedgerState;
use crate::table::{Change, Logged};
use crate::writer::{Homed, LogWriter};

/// Readers are let in after this many records at most.
const PUBLISH_AT_ONCE: usize = 256;

impl LogWriter {
    /// Makes sure that `need` bytes of records fit into the block being made, going on to another block or segment if they
    /// do not. `false` if there is no space for another segment.
    pub(crate) fn make_room(&mut self, need: u64, privileged: bool) -> Result<bool, DiskError> {
        if !self.block.is_empty() && self.block.len() as u64 + need > self.block_bytes as u64 {
            self.flush(0)?;
        }
        if !self.fits(need) {
            if !self.roll(privileged)? {
                return Ok(false);
            }
            if !self.fits(need) {
                return Ok(false);
            }
        }
        if self.block.is_empty() {
            self.block.resize(BLOCK_HEADER);
        }
        Ok(true)
    }

    fn fits(&self, need: u64) -> bool {
        let used = self.block.len().max(BLOCK_HEADER) as u64;
        // The last sector is kept for the block that seals the segment.
        self.at + padded(used + need) + BLOCK_ALIGN <= self.segment.capacity
    }

    /// Puts an entry into the block being made; the caller made room.
    pub(crate) fn put_entry(&mut self, ledger: i64, entry: i64, sequence: u64, body: [&[u8]; 2]) {
        let len = body.iter().map(|part| part.len() as u32).sum();
        let change = Change::Entry { entry, len, lac: record::lac_of_entry(body[0]) };
        self.logged.push(self.here(ledger, sequence, change));
        record::put_entry(&mut self.block, self.segment.seed, self.at, ledger, entry, sequence, &body);
    }

    /// Puts a state or deletion into the block being made; the caller made room.
    pub(crate) fn put_change(&mut self, ledger: i64, change: Change) {
        let (seed, home) = (self.segment.seed, self.segment.id);
        let sequence = match &change {
            Change::State(state) => state.sequence,
            Change::Delete(tombstone) => tombstone.sequence,
            Change::Entry { .. } => return,
        };
        self.logged.push(self.here(ledger, sequence, change.clone()));
        match change {
            Change::State(state) => {
                record::put_state(&mut self.block, seed, self.at, ledger, &state);
                self.ledgers.insert(ledger, Homed { value: state, home });
            }
            Change::Delete(tombstone) => {
                record::put_delete(&mut self.block, seed, self.at, ledger, &tombstone);
                // A carried deletion must not end the next life of the ledger.
                if self.ledgers.get(&ledger).is_some_and(|state| state.value.sequence < tombstone.sequence) {
                    self.ledgers.remove(&ledger);
                }
                self.may_have_dead = true;
                self.tombstones.insert(ledger, Homed { value: tombstone, home });
            }
            Change::Entry { .. } => {}
        }
    }

    fn here(&self, ledger: i64, sequence: u64, change: Change) -> Logged {
        Logged { ledger, sequence, offset: (self.at + self.block.len() as u64) as u32, change }
    }

    pub(crate) fn new_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    /// Bytes that the record of a state takes.
    pub(crate) fn state_len(state: &LedgerState) -> u64 {
        record::record_len(record::state_body_len(state))
    }

    /// Writes the block being made, if there is one or if `flags` ask for one, and shows its records to readers: from
    /// here on they are read, and the state that says "absent" includes them.
    pub(crate) fn flush(&mut self, flags: u32) -> Result<(), DiskError> {
        if self.block.is_empty() {
            if flags == 0 {
                return Ok(());
            }
            self.block.resize(BLOCK_HEADER);
        }
        let used = self.block.len() as u64;
        self.block.resize(padded(used) as usize);
        let header = BlockHeader {
            len: self.block.len() as u32,
            used: used as u32,
            records: self.logged.len() as u32,
            flags,
            next_sequence: self.next_sequence,
            durable: self.durable,
            written: self.now,
            previous: self.last_block.1,
            crc: 0,
        };
        let crc = header.encode_into(self.segment.seed, self.at, &mut self.block);
        self.segment.file.write_at(self.at, &self.block)?;
        self.unsynced = true;
        self.announced = self.durable;
        self.last_block = (self.at, crc);
        self.at += self.block.len() as u64;
        self.block.clear();
        for records in self.logged.chunks(PUBLISH_AT_ONCE) {
            let mut index = self.store.index.write();
            for logged in records {
                index.apply(self.segment.id, logged);
            }
        }
        self.logged.clear();
        Ok(())
    }

    /// Writes a block without records, which says how far the log is durable, and syncs it.
    pub(crate) fn mark(&mut self) -> Result<(), DiskError> {
        self.block.resize(BLOCK_HEADER);
        self.flush(0)?;
        self.sync()
    }

    /// Whether a block without records fits before the one that seals the segment.
    pub(crate) fn has_room_for_mark(&self) -> bool {
        self.fits(0)
    }

    /// Goes on to the next segment. `false` if there is no space for one.
    pub(crate) fn roll(&mut self, privileged: bool) -> Result<bool, DiskError> {
        let Some(next) = self.store.pool.lock().next_segment(privileged)? else { return Ok(false) };
        self.flush(crate::format::block::SEAL)?;
        // The first record of a segment waits for the last sync of the one before: a log has no holes.
        if canary!("ack_beyond_durable_prefix") {
            self.durable = self.position();
        } else {
            self.sync()?;
        }
        let binding = self.binding();
        let mut index = self.store.index.write();
        index.fill(binding);
        index.start(Arc::clone(&next));
        drop(index);
        self.segment = next;
        self.at = SEGMENT_HEADER;
        self.last_block = (0, 0);
        self.unsynced = false;
        self.announced = self.durable;
        self.may_have_dead = true;
        Ok(true)
    }

    /// What an index of the open segment, as it is now, is bound to.
    pub(crate) fn binding(&self) -> Binding {
        Binding {
            store: self.store.store,
            segment: self.segment.id,
            epoch: self.segment.epoch,
            end: self.at,
            last_block: self.last_block.0,
            last_crc: self.last_block.1,
            next_sequence: self.next_sequence,
        }
    }
}
