//! The index file of a sealed segment: rows of entries in pages, and per ledger what the segment knows of it.

use std::sync::Arc;

use super::le;
use super::record::{decode_state, encode_state};
use crate::state::{LedgerState, Tombstone};
use crate::table::{OpenTable, Row};

/// The version of index files that this code reads and writes.
const INDEX_VERSION: u32 = 1;
/// Bytes of the header.
pub(crate) const INDEX_HEADER: usize = 128;
const MAGIC: [u8; 8] = *b"GMNGIDX\n";
const LEDGER_ROW: usize = 104;
const PAGE_ROW: usize = 24;
const ROW: usize = 16;
const PAGE_ROWS: usize = 1024;

const HAS_STATE: u32 = 1;
const STATE_RECORD_HERE: u32 = 2;
const HAS_TOMBSTONE: u32 = 4;
const TOMBSTONE_FENCED: u32 = 8;

/// What ties an index to one content of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) store: u64,
    pub(crate) segment: u64,
    pub(crate) epoch: u64,
    /// Where the log ends in the segment.
    pub(crate) end: u64,
    /// Where its last block starts, 0 if it has none.
    pub(crate) last_block: u64,
    /// The checksum of the last block's header, which chains over all headers before it.
    pub(crate) last_crc: u32,
    /// Above every birth sequence in the segment.
    pub(crate) next_sequence: u64,
}

/// The fixed part of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    pub(crate) binding: Binding,
    pub(crate) ledgers: u32,
    pub(crate) pages: u32,
    /// Where the directory starts; it reaches to the end of the file.
    pub(crate) directory_at: u64,
    pub(crate) directory_len: u64,
    directory_crc: u32,
}

/// What a sealed segment knows of one ledger.
#[derive(Clone, Debug)]
pub(crate) struct LedgerRow<'a> {
    pub(crate) ledger: i64,
    pub(crate) first_page: u32,
    /// First and last entry, if there are any.
    pub(crate) entries: Option<(i64, i64)>,
    pub(crate) lac: i64,
    /// The highest birth sequence of its entries.
    pub(crate) max_sequence: u64,
    pub(crate) state: Option<StateRow<'a>>,
    pub(crate) tombstone: Option<Tombstone>,
}

/// A state, not decoded yet: most of them are outdated by a newer segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateRow<'a> {
    pub(crate) sequence: u64,
    pub(crate) record_here: bool,
    body: &'a [u8],
}

impl StateRow<'_> {
    pub(crate) fn decode(&self) -> Option<LedgerState> {
        decode_state(self.sequence, self.body)
    }
}

/// Where a page of rows lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRow {
    pub(crate) first_entry: i64,
    pub(crate) offset: u64,
    pub(crate) rows: u32,
    pub(crate) crc: u32,
}

impl PageRow {
    pub(crate) fn len(&self) -> usize {
        self.rows as usize * ROW
    }

    /// Reads the rows of the page; `None` if the bytes are not what was written.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Option<Arc<[Row]>> {
        if crc32c::crc32c(bytes) != self.crc || bytes.len() != self.len() {
            return None;
        }
        bytes
            .chunks_exact(ROW)
            .map(|row| Some(Row { entry: le!(i64, row, 0)?, offset: le!(u32, row, 8)?, len: le!(u32, row, 12)? }))
            .collect()
    }
}

/// The whole index file of a segment.
pub(crate) fn encode(binding: &Binding, table: &OpenTable) -> Vec<u8> {
    let mut file = vec![0; INDEX_HEADER];
    let (mut ledgers, mut pages, mut states) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ledger_count, mut page_count) = (0u32, 0u32);
    for (ledger, known) in table.sorted() {
        let first_page = page_count;
        for rows in known.rows.chunks(PAGE_ROWS) {
            let start = file.len();
            for row in rows {
                file.extend_from_slice(&row.entry.to_le_bytes());
                file.extend_from_slice(&row.offset.to_le_bytes());
                file.extend_from_slice(&row.len.to_le_bytes());
            }
            pages.extend_from_slice(&rows.first().map_or(0, |row| row.entry).to_le_bytes());
            pages.extend_from_slice(&(start as u64).to_le_bytes());
            pages.extend_from_slice(&(rows.len() as u32).to_le_bytes());
            pages.extend_from_slice(&crc32c::crc32c(&file[start..]).to_le_bytes());
            page_count += 1;
        }
        let state = known.state.as_ref().map(|state| encode_state(state)).unwrap_or_default();
        let tombstone = known.tombstone.unwrap_or_default();
        let flag = |on: bool, bit: u32| if on { bit } else { 0 };
        let flags = flag(known.state.is_some(), HAS_STATE)
            | flag(known.state_record_here, STATE_RECORD_HERE)
            | flag(known.tombstone.is_some(), HAS_TOMBSTONE)
            | flag(tombstone.fenced, TOMBSTONE_FENCED);
        let row = ledgers.len();
        ledgers.extend_from_slice(&ledger.to_le_bytes());
        for number in [flags, first_page, page_count - first_page, state.len() as u32] {
            ledgers.extend_from_slice(&number.to_le_bytes());
        }
        let first = known.rows.first().map_or(-1, |row| row.entry);
        let last = known.rows.last().map_or(-1, |row| row.entry);
        for number in [first, last, known.lac, tombstone.at] {
            ledgers.extend_from_slice(&number.to_le_bytes());
        }
        let state_sequence = known.state.as_ref().map_or(0, |state| state.sequence);
        let numbers = [known.max_sequence, known.bytes, states.len() as u64, state_sequence, tombstone.sequence, 0u64];
        for number in numbers {
            ledgers.extend_from_slice(&number.to_le_bytes());
        }
        debug_assert_eq!(ledgers.len() - row, LEDGER_ROW);
        states.extend_from_slice(&state);
        ledger_count += 1;
    }
    let directory_at = file.len() as u64;
    for part in [&ledgers, &pages, &states] {
        file.extend_from_slice(part);
    }
    let header = IndexHeader {
        binding: *binding,
        ledgers: ledger_count,
        pages: page_count,
        directory_at,
        directory_len: file.len() as u64 - directory_at,
        directory_crc: crc32c::crc32c(&file[directory_at as usize..]),
    };
    file[..INDEX_HEADER].copy_from_slice(&header.encode());
    file
}

impl IndexHeader {
    fn encode(&self) -> [u8; INDEX_HEADER] {
        let mut bytes = [0; INDEX_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&INDEX_VERSION.to_le_bytes());
        let binding = &self.binding;
        let numbers = [
            binding.store,
            binding.segment,
            binding.epoch,
            binding.end,
            binding.last_block,
            binding.next_sequence,
            self.directory_at,
            self.directory_len,
        ];
        for (field, number) in bytes[16..80].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let numbers = [binding.last_crc, self.ledgers, self.pages, self.directory_crc];
        for (field, number) in bytes[80..96].chunks_exact_mut(4).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if it is damaged or of another version. `file_len` bounds what it may claim.
    pub(crate) fn decode(bytes: &[u8], file_len: u64) -> Option<IndexHeader> {
        let bytes = bytes.get(..INDEX_HEADER)?;
        let sound = bytes.get(..8)? == MAGIC
            && le!(u32, bytes, 8)? == INDEX_VERSION
            && le!(u32, bytes, 12)? == crc32c::crc32c(bytes.get(16..)?);
        if !sound {
            return None;
        }
        let header = IndexHeader {
            binding: Binding {
                store: le!(u64, bytes, 16)?,
                segment: le!(u64, bytes, 24)?,
                epoch: le!(u64, bytes, 32)?,
                end: le!(u64, bytes, 40)?,
                last_block: le!(u64, bytes, 48)?,
                next_sequence: le!(u64, bytes, 56)?,
                last_crc: le!(u32, bytes, 80)?,
            },
            ledgers: le!(u32, bytes, 84)?,
            pages: le!(u32, bytes, 88)?,
            directory_at: le!(u64, bytes, 64)?,
            directory_len: le!(u64, bytes, 72)?,
            directory_crc: le!(u32, bytes, 92)?,
        };
        (header.directory_at.checked_add(header.directory_len)? == file_len).then_some(header)
    }

    /// Reads the directory; `None` if it is damaged.
    pub(crate) fn decode_directory<'a>(&self, bytes: &'a [u8]) -> Option<Directory<'a>> {
        if crc32c::crc32c(bytes) != self.directory_crc {
            return None;
        }
        let (ledgers, rest) = bytes.split_at_checked((self.ledgers as usize).checked_mul(LEDGER_ROW)?)?;
        let (pages, states) = rest.split_at_checked((self.pages as usize).checked_mul(PAGE_ROW)?)?;
        let page = |row: &[u8]| {
            Some(PageRow {
                first_entry: le!(i64, row, 0)?,
                offset: le!(u64, row, 8)?,
                rows: le!(u32, row, 16)?,
                crc: le!(u32, row, 20)?,
            })
        };
        let pages = pages.chunks_exact(PAGE_ROW).map(page).collect::<Option<_>>()?;
        let sound = ledgers.chunks_exact(LEDGER_ROW).all(|row| ledger_row(row, states).is_some());
        sound.then_some(Directory { ledgers, states, pages })
    }
}

/// The directory of an index, of which every row was found sound.
#[derive(Debug)]
pub(crate) struct Directory<'a> {
    ledgers: &'a [u8],
    states: &'a [u8],
    pub(crate) pages: Box<[PageRow]>,
}

impl<'a> Directory<'a> {
    /// The ledgers, by ascending id.
    pub(crate) fn rows(&self) -> impl Iterator<Item = LedgerRow<'a>> {
        self.ledgers.chunks_exact(LEDGER_ROW).filter_map(|row| ledger_row(row, self.states))
    }
}

fn ledger_row<'a>(row: &[u8], states: &'a [u8]) -> Option<LedgerRow<'a>> {
    let flags = le!(u32, row, 8)?;
    let pages = le!(u32, row, 16)?;
    let state_at = usize::try_from(le!(u64, row, 72)?).ok()?;
    let state = states.get(state_at..state_at.checked_add(le!(u32, row, 20)? as usize)?)?;
    let (first, last) = (le!(i64, row, 24)?, le!(i64, row, 32)?);
    let tombstone =
        Tombstone { sequence: le!(u64, row, 88)?, fenced: flags & TOMBSTONE_FENCED != 0, at: le!(i64, row, 48)? };
    let state = StateRow { sequence: le!(u64, row, 80)?, record_here: flags & STATE_RECORD_HERE != 0, body: state };
    Some(LedgerRow {
        ledger: le!(i64, row, 0)?,
        first_page: le!(u32, row, 12)?,
        entries: (pages > 0).then_some((first, last)),
        lac: le!(i64, row, 40)?,
        max_sequence: le!(u64, row, 56)?,
        state: (flags & HAS_STATE != 0).then_some(state),
        tombstone: (flags & HAS_TOMBSTONE != 0).then_some(tombstone),
    })
}
