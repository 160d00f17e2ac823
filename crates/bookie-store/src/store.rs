//! The store as everybody but the log's writer sees it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use geminga_disk::{DirLock, Disk, DiskError, Space};
use geminga_model::{EntryId, LedgerId};
use parking_lot::{Mutex, RwLock};

use crate::index::{Index, Table};
use crate::pages::PageCache;
use crate::pool::Pool;
use crate::state::MasterKey;

/// An open store. Shared by readers and by the thread that maintains it; all calls are synchronous, and none waits for a
/// sync of the log.
#[derive(Debug)]
pub struct BookieStore {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) store: u64,
    pub(crate) index: RwLock<Index>,
    /// Held while a segment is made: only the writer at a roll and the maintaining thread take it.
    pub(crate) pool: Mutex<Pool>,
    pub(crate) pages: Mutex<PageCache>,
    /// Held while an index file is made or a segment goes to the pool.
    pub(crate) sealing: Mutex<()>,
    pub(crate) read_only: Arc<AtomicBool>,
    #[expect(dead_code, reason = "held for the lock alone")]
    pub(crate) lock: Box<dyn DirLock>,
}

/// A few figures of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Ledgers known.
    pub ledgers: usize,
    /// Segments of the log, the open one included.
    pub segments: usize,
    /// Segments that wait for their index file.
    pub unsealed: usize,
    /// Segments without a live entry, to be dropped by [`LogWriter::clean`](crate::LogWriter::clean).
    pub dead: usize,
    /// Files kept for future segments, the reserve included.
    pub pooled: usize,
}

impl BookieStore {
    /// Whether ordinary adds are refused for lack of space. Ends by itself in [`BookieStore::maintain`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// The size of the file system that holds the store.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn space(&self) -> Result<Space, DiskError> {
        self.disk.space(&self.dir)
    }

    /// The highest LAC that any entry of the ledger names, −1 if none does; `None` if there is no such ledger.
    #[must_use]
    pub fn lac(&self, ledger: LedgerId) -> Option<EntryId> {
        self.index.read().ledgers.get(&ledger.0).map(|ledger| EntryId(ledger.lac))
    }

    /// The highest entry held, −1 if none is; `None` if there is no such ledger.
    #[must_use]
    pub fn last_entry(&self, ledger: LedgerId) -> Option<EntryId> {
        self.index.read().ledgers.get(&ledger.0).map(|ledger| EntryId(ledger.last_entry))
    }

    /// The body last given by a `SetExplicitLac` request, if any.
    #[must_use]
    pub fn explicit_lac(&self, ledger: LedgerId) -> Option<Bytes> {
        self.index.read().ledgers.get(&ledger.0)?.state.explicit_lac.clone()
    }

    /// Whether the ledger is fenced; `None` if there is no such ledger. It may be true a moment before the fence is
    /// durable.
    #[must_use]
    pub fn is_fenced(&self, ledger: LedgerId) -> Option<bool> {
        self.index.read().ledgers.get(&ledger.0).map(|ledger| ledger.state.fenced)
    }

    /// The master key of the ledger; `None` if there is no such ledger.
    #[must_use]
    pub fn master_key(&self, ledger: LedgerId) -> Option<MasterKey> {
        self.index.read().ledgers.get(&ledger.0).map(|ledger| ledger.state.key)
    }

    /// All ledgers, by ascending id.
    #[must_use]
    pub fn ledgers(&self) -> Vec<LedgerId> {
        let mut all: Vec<_> = self.index.read().ledgers.keys().copied().map(LedgerId).collect();
        all.sort_unstable();
        all
    }

    /// The figures of this moment.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let pooled = self.pool.lock().free.len();
        let index = self.index.read();
        let is_open = |table: &Table| matches!(table, Table::Open(_));
        StoreStats {
            ledgers: index.ledgers.len(),
            segments: index.segments.len(),
            unsealed: index.segments.values().filter(|entry| matches!(entry.table, Table::Full(..))).count(),
            dead: index.segments.values().filter(|e| e.live_ledgers == 0 && !is_open(&e.table)).count(),
            pooled,
        }
    }
}
