//! Index files: writing them for full segments, reading them back, and doing without a bad one.

use std::path::Path;
use std::sync::Arc;

use geminga_disk::{Disk, DiskError, OpenMode};

use crate::error::ReadError;
use crate::format::index::{self, Binding, INDEX_HEADER, IndexHeader, LedgerRow};
use crate::index::Table;
use crate::segment::{Name, Segment};
use crate::store::BookieStore;
use crate::survey::Survey;
use crate::table::{OpenTable, SealedTable};

/// A segment keeps the unwritten rest of its file unless the rest is more than this part of it.
const SLACK: u64 = 8;

impl BookieStore {
    /// Does what can be done beside the log: writes the index files of full segments and makes the next segment ready.
    /// Ends the read-only state when there is space again. Call it now and then, from any one thread; the log works
    /// without, but then does this itself when it must.
    ///
    /// # Errors
    /// What the disk reports; treat it as a failed log and restart, except for a lack of space, which is no error here.
    pub fn maintain(&self) -> Result<(), DiskError> {
        while self.seal_next()? {}
        self.pool.lock().refill()
    }

    /// Writes the index file of the oldest full segment; `false` if there is none.
    pub(crate) fn seal_next(&self) -> Result<bool, DiskError> {
        let _sealing = self.sealing.lock();
        let full = self.index.read().segments.values().find_map(|entry| match &entry.table {
            Table::Full(table, binding) => Some((Arc::clone(&entry.segment), Arc::clone(table), *binding)),
            _ => None,
        });
        let Some((segment, table, binding)) = full else { return Ok(false) };
        let sealed = self.write_index(&binding, &table)?;
        let rest = segment.capacity.saturating_sub(binding.end);
        if rest > segment.capacity / SLACK {
            segment.file.set_len(binding.end)?;
        }
        if let Some(entry) = self.index.write().segments.get_mut(&segment.id) {
            entry.table = Table::Sealed(Arc::new(sealed));
        }
        Ok(true)
    }

    fn write_index(&self, binding: &Binding, table: &OpenTable) -> Result<SealedTable, DiskError> {
        let path = Name::Index(binding.segment).path(&self.dir);
        let draft = path.with_extension("idx.tmp");
        let bytes = index::encode(binding, table);
        let file = self.disk.open(&draft, OpenMode::OpenOrCreate)?;
        file.set_len(bytes.len() as u64)?;
        file.write_at(0, &bytes)?;
        file.sync_data()?;
        self.disk.rename(&draft, &path)?;
        self.disk.sync_dir(&self.dir)?;
        let loaded = load(&*self.disk, &path, &mut Vec::new(), |bound| Ok(bound == binding), |_| ())?;
        loaded.ok_or_else(|| {
            let kind = geminga_disk::DiskErrorKind::Io;
            DiskError::new(kind, "read back", &path, "the index is not what was written")
        })
    }

    /// Makes the table of a segment from the segment itself, because its index cannot be read.
    pub(crate) fn rebuild(&self, segment: &Segment, bad: &SealedTable) -> Result<(), ReadError> {
        let _sealing = self.sealing.lock();
        if segment.is_dropped() {
            return Ok(());
        }
        let survey = Survey::of(segment).map_err(ReadError::Io)?;
        if survey.end < bad.binding.end {
            return Err(ReadError::Damaged { path: segment.file.path().to_owned(), offset: survey.end });
        }
        let mut table = survey.table(bad.binding.end);
        let mut index = self.index.write();
        table.fill_states(|ledger| index.ledgers.get(&ledger).map(|ledger| &ledger.state));
        if let Some(entry) = index.segments.get_mut(&segment.id) {
            entry.table = Table::Full(Arc::new(table), bad.binding);
        }
        Ok(())
    }
}

/// Loads an index file that `is_bound` takes for the segment's, and shows its ledgers to `each`; `None` if the file is not
/// usable. `buffer` is scratch space.
pub(crate) fn load(
    disk: &dyn Disk,
    path: &Path,
    buffer: &mut Vec<u8>,
    is_bound: impl FnOnce(&Binding) -> Result<bool, DiskError>,
    mut each: impl FnMut(&LedgerRow<'_>),
) -> Result<Option<SealedTable>, DiskError> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    let mut bytes = [0; INDEX_HEADER];
    let got = file.read_at(0, &mut bytes)?;
    let Some(header) = bytes.get(..got).and_then(|bytes| IndexHeader::decode(bytes, len)) else { return Ok(None) };
    if !is_bound(&header.binding)? {
        return Ok(None);
    }
    // Within the file's own length, so a garbled number cannot ask for more memory than there are bytes.
    buffer.resize(header.directory_len as usize, 0);
    file.read_exact_at(header.directory_at, buffer)?;
    let Some(directory) = header.decode_directory(buffer) else { return Ok(None) };
    let count = header.ledgers as usize;
    let (mut ledgers, mut first_page) = (Vec::with_capacity(count), Vec::with_capacity(count + 1));
    for row in directory.rows() {
        each(&row);
        ledgers.push(row.ledger);
        first_page.push(row.first_page);
    }
    first_page.push(header.pages);
    let (ledgers, first_page) = (ledgers.into(), first_page.into());
    Ok(Some(SealedTable { file, binding: header.binding, ledgers, first_page, pages: directory.pages }))
}

/// Whether an index was made for what this segment holds now.
pub(crate) fn is_bound_to(binding: &Binding, segment: &Segment, store: u64) -> Result<bool, DiskError> {
    if (binding.store, binding.segment, binding.epoch) != (store, segment.id, segment.epoch) {
        return Ok(false);
    }
    if binding.last_block == 0 {
        return Ok(true);
    }
    let last = segment.block_at(binding.last_block)?;
    Ok(last.is_some_and(|h| h.crc == binding.last_crc && binding.last_block + u64::from(h.len) == binding.end))
}
