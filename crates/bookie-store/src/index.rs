//! What readers ask: which ledgers there are, and which segments hold which of their entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::format::index::Binding;
use crate::segment::Segment;
use crate::state::LedgerState;
use crate::table::{Change, Logged, OpenTable, Row, SealedTable};

/// A ledger as readers see it.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) state: Arc<LedgerState>,
    pub(crate) last_entry: i64,
    pub(crate) lac: i64,
    /// By ascending segment; at most one for each.
    pub(crate) parts: Vec<Part>,
}

/// The entries of a ledger in one segment lie between these two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) segment: u64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

#[derive(Debug)]
pub(crate) struct SegmentEntry {
    pub(crate) segment: Arc<Segment>,
    pub(crate) table: Table,
    /// Ledgers that have a part here: a segment without any is dead.
    pub(crate) live_ledgers: usize,
}

#[derive(Debug)]
pub(crate) enum Table {
    /// Being written.
    Open(OpenTable),
    /// Written, waiting for its index file.
    Full(Arc<OpenTable>, Binding),
    Sealed(Arc<SealedTable>),
}

impl Table {
    pub(crate) fn contains(&self, ledger: i64) -> bool {
        match self {
            Table::Open(table) => table.get(ledger).is_some(),
            Table::Full(table, _) => table.get(ledger).is_some(),
            Table::Sealed(table) => table.contains(ledger),
        }
    }

    /// Every ledger with a record in the segment, by ascending id.
    pub(crate) fn members(&self) -> Vec<i64> {
        match self {
            Table::Open(table) => table.sorted().map(|(ledger, _)| ledger).collect(),
            Table::Full(table, _) => table.sorted().map(|(ledger, _)| ledger).collect(),
            Table::Sealed(table) => table.ledgers.to_vec(),
        }
    }
}

/// Where an entry may be found.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// Here it is.
    At(Arc<Segment>, Row),
    /// Only this table knows.
    Ask(Arc<Segment>, Arc<SealedTable>),
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) ledgers: HashMap<i64, Ledger>,
    pub(crate) segments: BTreeMap<u64, SegmentEntry>,
}

impl Index {
    /// Takes up a record that was just written to the open segment `segment`.
    pub(crate) fn apply(&mut self, segment: u64, logged: &Logged) {
        match &logged.change {
            Change::Entry { entry, lac, .. } => {
                let Some(ledger) = self.ledgers.get_mut(&logged.ledger) else { return };
                ledger.last_entry = ledger.last_entry.max(*entry);
                ledger.lac = ledger.lac.max(*lac);
                let Some(home) = self.segments.get_mut(&segment) else { return };
                match ledger.parts.last_mut() {
                    Some(part) if part.segment == segment => {
                        part.first = part.first.min(*entry);
                        part.last = part.last.max(*entry);
                    }
                    _ => {
                        ledger.parts.push(Part { segment, first: *entry, last: *entry });
                        home.live_ledgers += 1;
                    }
                }
                if let Table::Open(table) = &mut home.table {
                    table.apply(logged, Some(&ledger.state));
                }
                return;
            }
            Change::State(state) => {
                let new = || Ledger { state: Arc::clone(state), last_entry: -1, lac: -1, parts: Vec::new() };
                let ledger = self.ledgers.entry(logged.ledger).or_insert_with(new);
                if ledger.state.sequence <= state.sequence {
                    ledger.state = Arc::clone(state);
                }
            }
            Change::Delete(tombstone) => {
                let dead = |ledger: &Ledger| ledger.state.sequence < tombstone.sequence;
                if self.ledgers.get(&logged.ledger).is_some_and(dead)
                    && let Some(ledger) = self.ledgers.remove(&logged.ledger)
                {
                    for part in &ledger.parts {
                        if let Some(home) = self.segments.get_mut(&part.segment) {
                            home.live_ledgers -= 1;
                        }
                    }
                }
            }
        }
        if let Some(SegmentEntry { table: Table::Open(table), .. }) = self.segments.get_mut(&segment) {
            table.apply(logged, None);
        }
    }

    /// Adds a segment that is to be written.
    pub(crate) fn start(&mut self, segment: Arc<Segment>) {
        let table = Table::Open(OpenTable::default());
        self.segments.insert(segment.id, SegmentEntry { segment, table, live_ledgers: 0 });
    }

    /// The open segment takes no more records.
    pub(crate) fn fill(&mut self, binding: Binding) {
        if let Some(SegmentEntry { table, .. }) = self.segments.get_mut(&binding.segment)
            && let Table::Open(open) = table
        {
            *table = Table::Full(Arc::new(std::mem::take(open)), binding);
        }
    }

    /// Everywhere the entry may be, the newest copy first; `None` if there is no such ledger.
    pub(crate) fn candidates(&self, ledger: i64, entry: i64) -> Option<SmallVec<[Candidate; 2]>> {
        let parts = &self.ledgers.get(&ledger)?.parts;
        let mut found = SmallVec::new();
        for part in parts.iter().rev().filter(|part| (part.first..=part.last).contains(&entry)) {
            let Some(home) = self.segments.get(&part.segment) else { continue };
            let row = match &home.table {
                Table::Open(table) => table.find(ledger, entry),
                Table::Full(table, _) => table.find(ledger, entry),
                Table::Sealed(table) => {
                    found.push(Candidate::Ask(Arc::clone(&home.segment), Arc::clone(table)));
                    continue;
                }
            };
            if let Some(row) = row {
                found.push(Candidate::At(Arc::clone(&home.segment), row));
                break;
            }
        }
        Some(found)
    }

    /// Whether a segment other than `besides` and `home` holds any record of the ledger.
    pub(crate) fn others_hold(&self, ledger: i64, besides: u64, home: u64) -> bool {
        let others = self.segments.iter().filter(|(id, _)| **id != besides && **id != home);
        others.into_iter().any(|(_, entry)| entry.table.contains(ledger))
    }
}
