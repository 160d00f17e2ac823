//! Decides where the log ends in every segment without an index, and tells an end from damage.
//!
//! A segment ends where the first block of the next one says that it was durable: at its seal, or, if a crash took its
//! writer, where the start that wrote the next segment began to copy. If that next segment was dropped, the seal alone
//! says it. The last segment ends at the first block that is not sound, and its end may not be durable, seal or not.
//! Below a position that any block calls durable, a block that is not sound is damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::OpenError;
use crate::format::block::{BlockHeader, COPY, LogPosition, MOVED};
use crate::format::segment::SEGMENT_HEADER;
use crate::segment::Segment;
use crate::survey::Survey;
use crate::table::SealedTable;

/// A segment file that a start found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) segment: Arc<Segment>,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    Indexed(SealedTable),
    Surveyed(Survey),
}

/// What a segment without an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Made ready and never used, or a copy that a crash interrupted, or copied as a whole: what it holds is elsewhere.
    Abandoned,
    /// It counts up to here; all of it is durable. `moved`: a start copied what followed into the next one.
    Whole { end: u64, moved: bool },
    /// The last one: it counts up to `end`, and is known to be durable up to `durable`.
    Tail { durable: u64, end: u64 },
}

/// The verdicts on all segments without an index.
///
/// # Errors
/// [`OpenError::Damaged`] or a disk error.
pub(crate) fn judge(found: &BTreeMap<u64, Found>) -> Result<BTreeMap<u64, Verdict>, OpenError> {
    let named = named(found);
    let named = |id: u64| named.get(&id).copied().unwrap_or(SEGMENT_HEADER).max(SEGMENT_HEADER);
    let is_kept = |id: u64, found: &Found| match &found.content {
        Content::Indexed(_) => true,
        Content::Surveyed(survey) => survey.settled || named(id) > SEGMENT_HEADER,
    };
    let mut verdicts = BTreeMap::new();
    let mut next: Option<&Found> = None;
    for (&id, this) in found.iter().rev() {
        let kept = is_kept(id, this);
        if let Some(next) = next
            && !kept
            && first_block(next)?.map(|header| header.durable) != Some(start_of(&this.segment))
        {
            // A start removes what never counted before it goes on, and seals what it copied as a whole.
            return Err(damaged(&this.segment, SEGMENT_HEADER, "its blocks are missing or garbled"));
        }
        if kept && next.is_none() && moved(this)? {
            return Err(damaged(
                &this.segment,
                SEGMENT_HEADER,
                "the next segment, into which its end was copied, is not there",
            ));
        }
        if let Content::Surveyed(survey) = &this.content {
            let verdict = if !kept {
                Verdict::Abandoned
            } else if survey.end < named(id) {
                return Err(damaged(&this.segment, survey.end, "a block that was durable is missing or garbled"));
            } else if let Some(next) = next {
                let end = end_before(this, survey, next)?;
                Verdict::Whole { end, moved: first_block(next)?.is_some_and(|first| is_copy_from(&first, id)) }
            } else {
                Verdict::Tail { durable: named(id), end: survey.end }
            };
            verdicts.insert(id, verdict);
        }
        if kept {
            next = Some(this);
        }
    }
    Ok(verdicts)
}

/// The highest position in each segment that is called durable anywhere.
fn named(found: &BTreeMap<u64, Found>) -> BTreeMap<u64, u64> {
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    for found in found.values() {
        if let Content::Surveyed(survey) = &found.content {
            for (segment, offset) in &survey.named {
                let highest = all.entry(*segment).or_default();
                *highest = (*highest).max(*offset);
            }
        }
    }
    all
}

/// Whether a start copied the end of a segment away.
fn moved(this: &Found) -> Result<bool, OpenError> {
    let last = match &this.content {
        Content::Surveyed(survey) => survey.blocks.last().map(|(_, header)| *header),
        Content::Indexed(table) => this.segment.block_at(table.binding.last_block)?,
    };
    Ok(last.is_some_and(|header| header.flags & MOVED != 0))
}

/// Where `this` ends, if `next` goes on from it.
fn end_before(this: &Found, survey: &Survey, next: &Found) -> Result<u64, OpenError> {
    match first_block(next)? {
        // A start may have copied a tail that ended in a seal: then the seal does not count.
        Some(first) if first.durable.segment == this.segment.id => {
            if survey.end < first.durable.offset {
                return Err(damaged(&this.segment, survey.end, "its last blocks are missing or garbled"));
            }
            Ok(first.durable.offset.max(SEGMENT_HEADER))
        }
        _ if survey.sealed => Ok(survey.end),
        Some(_) => Err(damaged(&this.segment, survey.end, "its last blocks are missing or garbled")),
        None => Err(damaged(&next.segment, SEGMENT_HEADER, "its first block is missing or garbled")),
    }
}

fn first_block(of: &Found) -> Result<Option<BlockHeader>, OpenError> {
    Ok(match &of.content {
        Content::Surveyed(survey) => survey.blocks.first().map(|(_, header)| *header),
        Content::Indexed(_) => of.segment.block_at(SEGMENT_HEADER)?,
    })
}

/// Whether a start wrote this block to repeat the tail of that segment.
fn is_copy_from(first: &BlockHeader, segment: u64) -> bool {
    first.flags & COPY != 0 && first.durable.segment == segment
}

fn start_of(segment: &Segment) -> LogPosition {
    LogPosition { segment: segment.id, offset: SEGMENT_HEADER }
}

pub(crate) fn damaged(segment: &Segment, offset: u64, what: &'static str) -> OpenError {
    OpenError::Damaged { path: segment.file.path().to_owned(), offset, what }
}
