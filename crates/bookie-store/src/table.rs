//! Where the entries of one segment lie: in memory while it is young, in its index file when it is sealed.

use std::sync::Arc;

use geminga_disk::DiskFile;
use hashbrown::HashMap;

use crate::format::index::{Binding, PageRow};
use crate::state::{LedgerState, Tombstone};

/// An entry's record within its segment: where it starts, and the bytes of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) entry: i64,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// A record of the log, without the body of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) ledger: i64,
    pub(crate) sequence: u64,
    pub(crate) offset: u32,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    Entry { entry: i64, len: u32, lac: i64 },
    State(Arc<LedgerState>),
    Delete(Tombstone),
}

/// What a segment knows of one ledger.
#[derive(Clone, Debug)]
pub(crate) struct LedgerTable {
    /// Sorted by entry, each once.
    pub(crate) rows: Vec<Row>,
    pub(crate) lac: i64,
    pub(crate) max_sequence: u64,
    pub(crate) bytes: u64,
    /// The full state when the segment last had a record of the ledger.
    pub(crate) state: Option<Arc<LedgerState>>,
    /// Whether that state is a record of this segment, not only a copy.
    pub(crate) state_record_here: bool,
    pub(crate) tombstone: Option<Tombstone>,
}

/// The table of a segment that has no index file yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenTable {
    ledgers: HashMap<i64, LedgerTable>,
}

impl LedgerTable {
    fn new() -> LedgerTable {
        LedgerTable {
            rows: Vec::new(),
            lac: -1,
            max_sequence: 0,
            bytes: 0,
            state: None,
            state_record_here: false,
            tombstone: None,
        }
    }

    fn add(&mut self, row: Row) {
        self.bytes += u64::from(row.len);
        if self.rows.last().is_none_or(|last| last.entry < row.entry) {
            self.rows.push(row);
            return;
        }
        match self.rows.binary_search_by_key(&row.entry, |row| row.entry) {
            Ok(at) => self.rows[at] = row,
            Err(at) => self.rows.insert(at, row),
        }
    }

    fn delete(&mut self, tombstone: Tombstone) {
        if self.tombstone.is_none_or(|old| old.sequence < tombstone.sequence) {
            self.tombstone = Some(tombstone);
        }
        if self.state.as_ref().is_some_and(|state| state.sequence < tombstone.sequence) {
            self.state = None;
            self.state_record_here = false;
        }
        // A carried deletion may come behind the next life of the ledger, whose records are all younger.
        if self.max_sequence < tombstone.sequence {
            self.rows = Vec::new();
            self.lac = -1;
            self.bytes = 0;
        }
    }
}

impl OpenTable {
    /// Takes up the next record of the segment. `current` is the ledger's state where the caller knows it.
    pub(crate) fn apply(&mut self, logged: &Logged, current: Option<&Arc<LedgerState>>) {
        let ledger = self.ledgers.entry(logged.ledger).or_insert_with(LedgerTable::new);
        let dead = ledger.tombstone.is_some_and(|tombstone| tombstone.sequence > logged.sequence);
        match &logged.change {
            Change::Entry { entry, len, lac } if !dead => {
                ledger.add(Row { entry: *entry, offset: logged.offset, len: *len });
                ledger.lac = ledger.lac.max(*lac);
                ledger.max_sequence = ledger.max_sequence.max(logged.sequence);
                if ledger.state.is_none() {
                    ledger.state = current.cloned();
                }
            }
            Change::State(state) if !dead => {
                if ledger.state.as_ref().is_none_or(|old| old.sequence <= state.sequence) {
                    ledger.state = Some(Arc::clone(state));
                    ledger.state_record_here = true;
                }
            }
            Change::Delete(tombstone) => ledger.delete(*tombstone),
            Change::Entry { .. } | Change::State(_) => {}
        }
    }

    /// Completes a table made by a scan, which sees a state only where it was written.
    pub(crate) fn fill_states<'a>(&mut self, current: impl Fn(i64) -> Option<&'a Arc<LedgerState>>) {
        for (ledger, table) in &mut self.ledgers {
            if table.state.is_none() && !table.rows.is_empty() {
                table.state = current(*ledger).cloned();
            }
        }
    }

    pub(crate) fn get(&self, ledger: i64) -> Option<&LedgerTable> {
        self.ledgers.get(&ledger)
    }

    pub(crate) fn find(&self, ledger: i64, entry: i64) -> Option<Row> {
        let rows = &self.ledgers.get(&ledger)?.rows;
        rows.binary_search_by_key(&entry, |row| row.entry).ok().and_then(|at| rows.get(at)).copied()
    }

    /// All ledgers, by ascending id.
    pub(crate) fn sorted(&self) -> impl Iterator<Item = (i64, &LedgerTable)> {
        let mut all: Vec<_> = self.ledgers.iter().map(|(ledger, table)| (*ledger, table)).collect();
        all.sort_unstable_by_key(|(ledger, _)| *ledger);
        all.into_iter()
    }
}

/// The table of a segment with an index file: which pages hold which ledger; the pages stay on disk.
#[derive(Debug)]
pub(crate) struct SealedTable {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) binding: Binding,
    /// Sorted; every ledger with a record in the segment.
    pub(crate) ledgers: Box<[i64]>,
    /// Parallel to `ledgers`, with one more at the end: where a ledger's pages start.
    pub(crate) first_page: Box<[u32]>,
    pub(crate) pages: Box<[PageRow]>,
}

impl SealedTable {
    pub(crate) fn contains(&self, ledger: i64) -> bool {
        self.ledgers.binary_search(&ledger).is_ok()
    }

    /// The numbers of the pages that hold rows of a ledger.
    pub(crate) fn pages_of(&self, ledger: i64) -> std::ops::Range<usize> {
        let Ok(at) = self.ledgers.binary_search(&ledger) else { return 0..0 };
        let page = |at: usize| self.first_page.get(at).map_or(0, |page| *page as usize);
        page(at)..page(at + 1)
    }

    /// The number of the only page that may hold the entry.
    pub(crate) fn page_for(&self, ledger: i64, entry: i64) -> Option<usize> {
        let pages = self.pages_of(ledger);
        let rows = self.pages.get(pages.clone())?;
        let after = rows.partition_point(|page| page.first_entry <= entry);
        after.checked_sub(1).map(|at| pages.start + at)
    }

    /// A page from the file; `None` if it cannot be read as it was written, so that the segment must be scanned.
    pub(crate) fn read_page(&self, number: usize) -> Option<Arc<[Row]>> {
        let page = self.pages.get(number)?;
        let mut bytes = vec![0; page.len()];
        self.file.read_exact_at(page.offset, &mut bytes).ok()?;
        page.decode(&bytes)
    }
}
