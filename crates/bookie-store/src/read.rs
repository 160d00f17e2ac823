//! Reading entries: from the newest segment that has them, checksum verified.

use std::sync::Arc;

use bytes::Bytes;
use geminga_disk::DiskErrorKind;
use geminga_model::{EntryId, LedgerId};

use crate::error::ReadError;
use crate::format::record::RECORD_HEADER;
use crate::index::{Candidate, Table};
use crate::segment::Segment;
use crate::store::BookieStore;
use crate::survey::read_entry;
use crate::table::{Row, SealedTable};

impl BookieStore {
    /// The bytes of an entry as they were added. An entry may be returned before it is durable.
    ///
    /// # Errors
    /// [`ReadError::NoLedger`] and [`ReadError::NoEntry`] are certain; [`ReadError::Io`] and [`ReadError::Damaged`] mean
    /// that the entry is, or may be, there: never answer them as absence.
    pub fn read(&self, ledger: LedgerId, entry: EntryId) -> Result<Bytes, ReadError> {
        loop {
            let candidates = self.index.read().candidates(ledger.0, entry.0).ok_or(ReadError::NoLedger)?;
            match self.resolve(ledger.0, entry.0, candidates) {
                Found::Here(segment, row) => {
                    if let Some(body) = read_row(&segment, row)? {
                        return Ok(body);
                    }
                }
                Found::Nowhere => return Err(ReadError::NoEntry),
                Found::AskAgain => {}
                Found::Failed(error) => return Err(error),
            }
        }
    }

    /// The bytes of the highest entry held.
    ///
    /// # Errors
    /// As [`BookieStore::read`]; [`ReadError::NoEntry`] if the ledger has no entry here.
    pub fn read_last(&self, ledger: LedgerId) -> Result<Bytes, ReadError> {
        let last = self.last_entry(ledger).ok_or(ReadError::NoLedger)?;
        if last == EntryId::NONE { Err(ReadError::NoEntry) } else { self.read(ledger, last) }
    }

    /// The entries held, as ranges of consecutive ids (first, last), ascending.
    ///
    /// # Errors
    /// As [`BookieStore::read`], without [`ReadError::NoEntry`].
    pub fn entries_of(&self, ledger: LedgerId) -> Result<Vec<(EntryId, EntryId)>, ReadError> {
        let mut ids = Vec::new();
        'again: loop {
            ids.clear();
            let sealed = {
                let index = self.index.read();
                let parts = &index.ledgers.get(&ledger.0).ok_or(ReadError::NoLedger)?.parts;
                let mut sealed = Vec::new();
                for home in parts.iter().filter_map(|part| index.segments.get(&part.segment)) {
                    let table = match &home.table {
                        Table::Open(table) => table.get(ledger.0),
                        Table::Full(table, _) => table.get(ledger.0),
                        Table::Sealed(table) => {
                            sealed.push((Arc::clone(&home.segment), Arc::clone(table)));
                            continue;
                        }
                    };
                    ids.extend(table.iter().flat_map(|table| table.rows.iter().map(|row| row.entry)));
                }
                sealed
            };
            for (segment, table) in sealed {
                for number in table.pages_of(ledger.0) {
                    match self.page(&segment, &table, number)? {
                        Some(rows) => ids.extend(rows.iter().map(|row| row.entry)),
                        None => continue 'again,
                    }
                }
            }
            break;
        }
        ids.sort_unstable();
        ids.dedup();
        let runs = ids.chunk_by(|one, next| one + 1 == *next);
        Ok(runs.filter_map(|run| Some((EntryId(*run.first()?), EntryId(*run.last()?)))).collect())
    }

    fn resolve(&self, ledger: i64, entry: i64, candidates: impl IntoIterator<Item = Candidate>) -> Found {
        for candidate in candidates {
            match candidate {
                Candidate::At(segment, row) => return Found::Here(segment, row),
                Candidate::Ask(segment, table) => {
                    let Some(number) = table.page_for(ledger, entry) else { continue };
                    let rows = match self.page(&segment, &table, number) {
                        Ok(Some(rows)) => rows,
                        Ok(None) => return Found::AskAgain,
                        Err(error) => return Found::Failed(error),
                    };
                    if let Ok(at) = rows.binary_search_by_key(&entry, |row| row.entry)
                        && let Some(row) = rows.get(at)
                    {
                        return Found::Here(segment, *row);
                    }
                }
            }
        }
        Found::Nowhere
    }

    /// A page of an index; `None` if the index was not usable and was made anew, so that the caller must ask again.
    fn page(&self, segment: &Segment, table: &SealedTable, number: usize) -> Result<Option<Arc<[Row]>>, ReadError> {
        let key = (segment.id, number);
        if let Some(rows) = self.pages.lock().get(key) {
            return Ok(Some(rows));
        }
        if let Some(rows) = table.read_page(number) {
            self.pages.lock().put(key, Arc::clone(&rows));
            return Ok(Some(rows));
        }
        if !segment.is_dropped() {
            self.rebuild(segment, table)?;
        }
        Ok(None)
    }
}

enum Found {
    Here(Arc<Segment>, Row),
    Nowhere,
    AskAgain,
    Failed(ReadError),
}

/// The body of an entry's record; `None` if the segment was dropped meanwhile.
fn read_row(segment: &Segment, row: Row) -> Result<Option<Bytes>, ReadError> {
    let read = read_entry(segment, row.offset, row.len);
    if segment.is_dropped() {
        return Ok(None);
    }
    match read {
        Ok(Some(bytes)) => Ok(Some(Bytes::from(bytes).slice(RECORD_HEADER..))),
        Err(error) if error.kind != DiskErrorKind::EndOfFile => Err(ReadError::Io(error)),
        _ => Err(ReadError::Damaged { path: segment.file.path().to_owned(), offset: row.offset.into() }),
    }
}
