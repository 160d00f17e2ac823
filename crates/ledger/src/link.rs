//! The way to a bookie: in the same process or over the network.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use geminga_bookie_wire::{Entry, MasterKey};
use geminga_env::Reply;
use geminga_model::{BookieId, EntryId, LedgerId};
use geminga_quorum::{BookieError, ChangeFailed};
use geminga_records::LedgerMetadata;

/// A bookie, as far as ledgers need it. Calls never wait; every request is answered, in the end with a time-out or
/// because it was dropped.
pub trait BookieLink: Send + Sync + fmt::Debug {
    /// Adds entries, in order, leaving `requests` empty. An answer means that the entry is durable there.
    fn add(&self, requests: &mut Vec<AddRequest>);

    /// Reads consecutive entries.
    fn read(&self, request: ReadRequest);

    /// Reads the last entry it has of a ledger.
    fn read_last(&self, request: ReadLastRequest);

    /// Tells it that a ledger's metadata is gone, so that it need not find out by itself.
    fn forget(&self, ledger: LedgerId);
}

/// The bookies there are.
pub trait Bookies: Send + Sync + fmt::Debug {
    /// Those that take new ledgers.
    fn available(&self) -> Vec<BookieId>;

    /// The link to a bookie. One that is down has a link too, which answers that it cannot be reached.
    fn link(&self, bookie: &BookieId) -> Arc<dyn BookieLink>;
}

/// Consecutive entries of one ledger for a bookie.
#[derive(Debug)]
pub struct AddRequest {
    /// Their ledger.
    pub ledger: LedgerId,
    /// The id of the first.
    pub first: EntryId,
    /// The sealed entries.
    pub bodies: Vec<Entry>,
    /// The ledger's key.
    pub master_key: MasterKey,
    /// Whether this is a recovery add, which a fence does not stop.
    pub recovery: bool,
    /// Where the answers go.
    pub reply: AddReply,
}

/// The right to answer adds of consecutive entries, together or, after [`AddReply::split`], in parts. Answers of one
/// commit are delivered together: [`deliver_adds`].
pub struct AddReply(Option<AddTo>);

struct AddTo {
    sink: Arc<dyn LedgerSink>,
    result: AddResult,
}

impl AddReply {
    pub(crate) fn new(
        sink: Arc<dyn LedgerSink>,
        ledger: LedgerId,
        (first, count): (EntryId, usize),
        index: usize,
        bookie: BookieId,
    ) -> AddReply {
        let result = Err(BookieError::Unreachable);
        AddReply(Some(AddTo { sink, result: AddResult { ledger, first, count, index, bookie, result } }))
    }

    /// Takes off the right to answer the first `count` of its entries.
    #[must_use]
    pub fn split(&mut self, count: usize) -> AddReply {
        let Some(AddTo { sink, result: rest }) = &mut self.0 else { return AddReply(None) };
        let count = count.min(rest.count);
        let result = AddResult { count, bookie: rest.bookie.clone(), ..*rest };
        rest.first.0 = rest.first.0.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        rest.count -= count;
        AddReply(Some(AddTo { sink: Arc::clone(sink), result }))
    }
}

impl Drop for AddReply {
    fn drop(&mut self) {
        if let Some(AddTo { sink, result }) = self.0.take()
            && result.count > 0
        {
            sink.deliver(LedgerEvent::Added(vec![result]));
        }
    }
}

impl fmt::Debug for AddReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddReply")
    }
}

/// Delivers the answers of a commit: one event to each owner, with its answers in their order. Leaves `answers` empty.
pub fn deliver_adds(answers: &mut Vec<(AddReply, Result<(), BookieError>)>) {
    let answered = |(mut reply, result): (AddReply, _)| {
        let to = reply.0.take().filter(|to| to.result.count > 0)?;
        Some(AddTo { result: AddResult { result, ..to.result }, ..to })
    };
    let mut to: Vec<AddTo> = answers.drain(..).filter_map(answered).collect();
    // Stable, so that an owner's answers keep their order.
    to.sort_by_key(|to| Arc::as_ptr(&to.sink).cast::<()>());
    let mut to = to.into_iter().peekable();
    while let Some(AddTo { sink, result }) = to.next() {
        let mut results = vec![result];
        while let Some(next) = to.next_if(|next| Arc::ptr_eq(&next.sink, &sink)) {
            results.push(next.result);
        }
        sink.deliver(LedgerEvent::Added(results));
    }
}

/// A read of consecutive entries.
#[derive(Debug)]
pub struct ReadRequest {
    /// The ledger.
    pub ledger: LedgerId,
    /// The first entry.
    pub first: EntryId,
    /// The last entry wanted; it may not exist.
    pub last: EntryId,
    /// Stop before an entry that would make it more bytes than this; the first is delivered whatever its size.
    pub max_bytes: usize,
    /// Fence the ledger first, with its key.
    pub fence: Option<MasterKey>,
    /// Stored entries from `first` on without a gap, at least one; or why there is not even the first.
    pub reply: Reply<Result<Vec<Bytes>, BookieError>>,
}

/// A read of the last entry that a bookie has of a ledger.
#[derive(Debug)]
pub struct ReadLastRequest {
    /// The ledger.
    pub ledger: LedgerId,
    /// Fence the ledger first, with its key.
    pub fence: Option<MasterKey>,
    /// The stored entry.
    pub reply: Reply<Result<Bytes, BookieError>>,
}

/// What happened to a ledger that is being written.
#[derive(Debug)]
pub enum LedgerEvent {
    /// Bookies answered adds.
    Added(Vec<AddResult>),
    /// An ensemble change came to an end.
    Changed {
        /// The ledger.
        ledger: LedgerId,
        /// The metadata as stored now.
        outcome: Result<Box<LedgerMetadata>, ChangeFailed>,
    },
}

/// A bookie's answer to adds of consecutive entries.
#[derive(Debug)]
pub struct AddResult {
    /// The entries' ledger.
    pub ledger: LedgerId,
    /// The first entry.
    pub first: EntryId,
    /// How many there are.
    pub count: usize,
    /// The bookie's place in the ensemble to which they were sent.
    pub index: usize,
    /// The bookie.
    pub bookie: BookieId,
    /// Whether they are durable there.
    pub result: Result<(), BookieError>,
}

/// The owner of a writer: takes events into its mailbox and hands them to [`Writer::handle_event`](crate::Writer).
pub trait LedgerSink: Send + Sync {
    /// Takes an event; never waits.
    fn deliver(&self, event: LedgerEvent);
}
