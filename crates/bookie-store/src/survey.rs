//! Reads a segment from its first block to where its log ends, and looks behind that end for signs of damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use geminga_disk::DiskError;

use crate::format::block::{BLOCK_HEADER, BlockHeader, COPY, SEAL};
use crate::format::record::{self, Content, RECORD_HEADER};
use crate::format::segment::{BLOCK_ALIGN, SEGMENT_HEADER};
use crate::segment::Segment;
use crate::table::{Change, Logged, OpenTable};

/// How much of a segment is read at once when looking for blocks behind the end.
const STRIDE: u64 = 1 << 20;

/// What a segment holds.
#[derive(Debug)]
pub(crate) struct Survey {
    /// The sound blocks from the start on without a gap, with their offsets.
    pub(crate) blocks: Vec<(u64, BlockHeader)>,
    /// The records of these blocks.
    pub(crate) logged: Vec<Logged>,
    /// Where the last of these blocks ends.
    pub(crate) end: u64,
    /// Whether the last of them says that nothing follows.
    pub(crate) sealed: bool,
    /// For each segment, the highest position in it that any block of this segment calls durable, those behind the end
    /// included.
    pub(crate) named: BTreeMap<u64, u64>,
    /// Whether there is any block that is not part of a start's copy, those behind the end included.
    pub(crate) settled: bool,
    /// Above every birth sequence of the blocks.
    pub(crate) next_sequence: u64,
}

impl Survey {
    pub(crate) fn of(segment: &Segment) -> Result<Survey, DiskError> {
        let mut survey = Survey {
            blocks: Vec::new(),
            logged: Vec::new(),
            end: SEGMENT_HEADER,
            sealed: false,
            named: BTreeMap::new(),
            settled: false,
            next_sequence: 0,
        };
        let len = segment.file.len()?;
        let mut buffer = Vec::new();
        while !survey.sealed && survey.take_block(segment, len, &mut buffer)? {}
        if !survey.sealed {
            survey.search_behind_the_end(segment, len)?;
        }
        Ok(survey)
    }

    /// Takes the block at the end so far, if there is a sound one.
    fn take_block(&mut self, segment: &Segment, len: u64, buffer: &mut Vec<u8>) -> Result<bool, DiskError> {
        let at = self.end;
        let Some(header) = segment.block_at(at)? else { return Ok(false) };
        let previous = self.blocks.last().map_or(0, |(_, header)| header.crc);
        if header.previous != previous || at + u64::from(header.len) > len {
            return Ok(false);
        }
        buffer.resize(header.used as usize, 0);
        segment.file.read_exact_at(at, buffer)?;
        let before = self.logged.len();
        if !self.take_records(segment, at, &header, buffer) {
            self.logged.truncate(before);
            return Ok(false);
        }
        self.note(&header);
        self.end = at + u64::from(header.len);
        self.sealed = header.flags & SEAL != 0;
        self.blocks.push((at, header));
        Ok(true)
    }

    fn take_records(&mut self, segment: &Segment, at: u64, header: &BlockHeader, block: &[u8]) -> bool {
        let mut from = BLOCK_HEADER;
        for _ in 0..header.records {
            let Some(rest) = block.get(from..) else { return false };
            let Some(found) = record::decode(segment.seed, at + from as u64, rest) else { return false };
            let change = match found.content {
                Content::Entry { entry, body } => {
                    Change::Entry { entry, len: body.len() as u32, lac: record::lac_of_entry(body) }
                }
                Content::State(state) => Change::State(Arc::new(state)),
                Content::Delete(tombstone) => Change::Delete(tombstone),
            };
            let offset = (at + from as u64) as u32;
            self.logged.push(Logged { ledger: found.ledger, sequence: found.sequence, offset, change });
            from += found.len;
        }
        from == block.len()
    }

    fn note(&mut self, header: &BlockHeader) {
        let named = self.named.entry(header.durable.segment).or_default();
        *named = (*named).max(header.durable.offset);
        self.settled |= header.flags & COPY == 0;
        self.next_sequence = self.next_sequence.max(header.next_sequence);
    }

    /// A block behind the end does not count, but what it calls durable does: it shows whether the end is one.
    fn search_behind_the_end(&mut self, segment: &Segment, len: u64) -> Result<(), DiskError> {
        let mut at = self.end;
        let mut buffer = vec![0; STRIDE.min(len.saturating_sub(at)) as usize];
        while at < len {
            let got = segment.file.read_at(at, &mut buffer)?;
            for (index, sector) in buffer.get(..got).unwrap_or_default().chunks(BLOCK_ALIGN as usize).enumerate() {
                let offset = at + index as u64 * BLOCK_ALIGN;
                if let Some(header) = BlockHeader::decode(segment.seed, offset, sector) {
                    self.note(&header);
                }
            }
            at += STRIDE;
        }
        Ok(())
    }

    /// The table of the records before `end`.
    pub(crate) fn table(&self, end: u64) -> OpenTable {
        let mut table = OpenTable::default();
        for logged in self.logged.iter().filter(|logged| u64::from(logged.offset) < end) {
            table.apply(logged, None);
        }
        table
    }

    /// The last block before `end`: where it starts and its checksum; zeros if there is none.
    pub(crate) fn last_block(&self, end: u64) -> (u64, u32) {
        self.blocks.iter().rev().find(|(at, _)| *at < end).map_or((0, 0), |(at, header)| (*at, header.crc))
    }
}

/// Bytes of the body of an entry's record.
pub(crate) fn read_entry(segment: &Segment, offset: u32, len: u32) -> Result<Option<Vec<u8>>, DiskError> {
    let mut bytes = vec![0; RECORD_HEADER + len as usize];
    segment.file.read_exact_at(u64::from(offset), &mut bytes)?;
    let sound = record::decode(segment.seed, u64::from(offset), &bytes)
        .is_some_and(|found| matches!(found.content, Content::Entry { .. }) && found.len == bytes.len());
    Ok(sound.then_some(bytes))
}
