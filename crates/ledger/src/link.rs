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

/// One entry for a bookie.
#[derive(Debug)]
pub struct AddRequest {
    /// The entry's ledger.
    pub ledger: LedgerId,
    /// The entry's id.
    pub entry: EntryId,
    /// The sealed entry.
    pub body: Entry,
    /// The ledger's key.
    pub master_key: MasterKey,
    /// Whether this is a recovery add, which a fence does not stop.
    pub recovery: bool,
    /// Where the answer goes.
    pub reply: AddReply,
}

/// The right to answer one add. Answers of one commit are delivered together: [`deliver_adds`].
pub struct AddReply(Option<AddTo>);

struct AddTo {
    sink: Arc<dyn LedgerSink>,
    ledger: LedgerId,
    entry: EntryId,
    index: usize,
    bookie: BookieId,
}

impl AddReply {
    pub(crate) fn new(
        sink: Arc<dyn LedgerSink>,
        ledger: LedgerId,
        entry: EntryId,
        index: usize,
        bookie: BookieId,
    ) -> AddReply {
        AddReply(Some(AddTo { sink, ledger, entry, index, bookie }))
    }
}

impl Drop for AddReply {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            let AddTo { sink, ledger, entry, index, bookie } = to;
            let result = Err(BookieError::Unreachable);
            sink.deliver(LedgerEvent::Added(vec![AddResult { ledger, entry, index, bookie, result }]));
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
    let mut to: Vec<(AddTo, Result<(), BookieError>)> =
        answers.drain(..).filter_map(|(mut reply, result)| reply.0.take().map(|to| (to, result))).collect();
    // Stable, so that an owner's answers keep their order.
    to.sort_by_key(|(to, _)| Arc::as_ptr(&to.sink).cast::<()>());
    let mut to = to.into_iter().peekable();
    while let Some((AddTo { sink, ledger, entry, index, bookie }, result)) = to.next() {
        let mut results = vec![AddResult { ledger, entry, index, bookie, result }];
        while let Some((next, result)) = to.next_if(|(next, _)| Arc::ptr_eq(&next.sink, &sink)) {
            let AddTo { ledger, entry, index, bookie, .. } = next;
            results.push(AddResult { ledger, entry, index, bookie, result });
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

/// A bookie's answer to an add.
#[derive(Debug)]
pub struct AddResult {
    /// The entry's ledger.
    pub ledger: LedgerId,
    /// The entry.
    pub entry: EntryId,
    /// The bookie's place in the ensemble to which it was sent.
    pub index: usize,
    /// The bookie.
    pub bookie: BookieId,
    /// Whether the entry is durable there.
    pub result: Result<(), BookieError>,
}

/// The owner of a writer: takes events into its mailbox and hands them to [`Writer::handle_event`](crate::Writer).
pub trait LedgerSink: Send + Sync {
    /// Takes an event; never waits.
    fn deliver(&self, event: LedgerEvent);
}
