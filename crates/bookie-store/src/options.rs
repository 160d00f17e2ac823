//! How a store is to be run.

use geminga_model::BookieId;

use crate::error::OpenError;
use crate::format::block::BLOCK_HEADER;
use crate::format::record::RECORD_HEADER;
use crate::format::segment::{BLOCK_ALIGN, SEGMENT_HEADER};

/// What the caller decides about a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Who opens the store; a store of another bookie is refused.
    pub bookie: BookieId,
    /// The cluster's instance id; a store of another cluster is refused. One line of text.
    pub instance: String,
    /// Whether an empty or missing directory becomes a new store. Without it, it is refused.
    pub create: bool,
    /// Bytes of a segment, a multiple of 4096: at least 16 KiB, less than 2 GiB.
    pub segment_bytes: u64,
    /// Segments kept back for fences, recovery and cleaning when the disk is full.
    pub reserve_segments: usize,
    /// Dropped segments kept for reuse beyond the reserve.
    pub pool_segments: usize,
    /// How many ids that were fenced and then deleted are remembered at most.
    pub remembered_deletions: usize,
    /// Bytes of index pages kept in memory.
    pub index_cache_bytes: usize,
    /// Bytes after which a group commit starts another block; the write buffer grows to about this.
    pub block_bytes: usize,
}

impl StoreOptions {
    /// The usual sizes: segments of 128 MiB, a reserve of two and a pool of four, 16 MiB of index pages.
    #[must_use]
    pub fn new(bookie: BookieId, instance: &str) -> StoreOptions {
        StoreOptions {
            bookie,
            instance: instance.to_owned(),
            create: true,
            segment_bytes: 128 << 20,
            reserve_segments: 2,
            pool_segments: 4,
            remembered_deletions: 100_000,
            index_cache_bytes: 16 << 20,
            block_bytes: 4 << 20,
        }
    }

    /// The largest entry body that fits into a segment, beside the state of a ledger that it may create.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        let around = SEGMENT_HEADER as usize + 2 * BLOCK_ALIGN as usize + BLOCK_HEADER + 2 * RECORD_HEADER + 64;
        (self.segment_bytes as usize).saturating_sub(around)
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if self.segment_bytes < 16 << 10 || self.segment_bytes >= 2 << 30 {
            return Err(OpenError::Options("segments must have at least 16 KiB and less than 2 GiB"));
        }
        if !self.segment_bytes.is_multiple_of(4096) {
            return Err(OpenError::Options("the size of segments must be a multiple of 4096"));
        }
        if self.instance.contains('\n') {
            return Err(OpenError::Options("an instance id is one line of text"));
        }
        Ok(())
    }
}
