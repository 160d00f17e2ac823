//! The bookie of a standalone: the store behind a [`BookieLink`] in the same process.
//!
//! One lane owns the log and commits together whatever arrived during the last sync. Reads have lanes of their own and
//! never wait for a sync; a read that fences is done after the fence is durable. A failure of the log ends the process:
//! a sync is never tried again, and a restart loses nothing that was answered.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use geminga_bookie_store::{
    AddEntry, BookieStore, Fatal, LogWriter, MasterKey as StoreKey, OpenError, ReadError, StoreOptions, WriteOutcome,
    WriteRequest,
};
use geminga_bookie_wire::MasterKey;
use geminga_disk::Disk;
use geminga_env::{Clock, Closed, Env, Lane, Mailbox, Reply, mailbox, start_lane};
use geminga_ledger::{AddReply, AddRequest, BookieLink, Bookies, ReadLastRequest, ReadRequest, deliver_adds};
use geminga_model::{BookieId, EntryId, Instant, LedgerId};
use geminga_quorum::BookieError;

/// Lanes that read.
const READERS: usize = 2;
/// How long the log has nothing to do before it announces how far it is durable.
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// The code with which the process ends when its log failed.
const EXIT_LOG_FAILED: i32 = 74;

/// The one bookie there is. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct LocalBookie {
    id: BookieId,
    log: Mailbox<LogItem>,
    readers: Arc<Vec<Mailbox<ReadItem>>>,
    next_reader: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum LogItem {
    Add(AddRequest),
    Fence(LedgerId, MasterKey, ReadItem),
    Forget(LedgerId),
    Close(Reply<()>),
}

#[derive(Debug)]
enum ReadItem {
    Run(ReadRequest),
    Last(ReadLastRequest),
}

impl ReadItem {
    fn fail(self, error: BookieError) {
        match self {
            ReadItem::Run(request) => request.reply.send(Err(error)),
            ReadItem::Last(request) => request.reply.send(Err(error)),
        }
    }
}

/// Why the bookie does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BookieFailed {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl LocalBookie {
    /// Opens the store in `dir` and starts its lanes.
    pub(crate) fn start(
        env: &Env,
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: StoreOptions,
    ) -> Result<LocalBookie, BookieFailed> {
        let id = options.bookie.clone();
        let (store, writer) = BookieStore::open(disk, dir, &options, env.clock.wall())?;
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let (mailbox, inbox) = mailbox();
            let lane = ReadLane { store: Arc::clone(&store) };
            start_lane(env.lanes, &env.control, env.clock, "bookie-read", inbox, lane)?;
            readers.push(mailbox);
        }
        let (log, inbox) = mailbox();
        let bookie = LocalBookie { id, log, readers: Arc::new(readers), next_reader: Arc::new(AtomicUsize::new(0)) };
        let lane = LogLane {
            clock: env.clock,
            writer: Some(writer),
            bookie: bookie.clone(),
            pending: Vec::new(),
            waiting_bytes: 0,
            adds: Vec::new(),
            idle_at: None,
        };
        start_lane(env.lanes, &env.control, env.clock, "bookie-log", inbox, lane)?;
        Ok(bookie)
    }

    /// Ends the log cleanly, so that the next start replays nothing.
    pub(crate) fn close(&self, done: Reply<()>) {
        if let Err(Closed(LogItem::Close(done))) = self.log.push(LogItem::Close(done)) {
            done.send(());
        }
    }

    fn submit_read(&self, item: ReadItem) {
        let next = self.next_reader.fetch_add(1, Ordering::Relaxed);
        if let Some(reader) = self.readers.get(next % self.readers.len().max(1))
            && let Err(Closed(item)) = reader.push(item)
        {
            item.fail(BookieError::Unreachable);
        }
    }

    fn fence_or_read(&self, ledger: LedgerId, fence: Option<MasterKey>, item: ReadItem) {
        match fence {
            None => self.submit_read(item),
            Some(key) => {
                if let Err(Closed(LogItem::Fence(_, _, item))) = self.log.push(LogItem::Fence(ledger, key, item)) {
                    item.fail(BookieError::Unreachable);
                }
            }
        }
    }
}

impl BookieLink for LocalBookie {
    fn add(&self, requests: &mut Vec<AddRequest>) {
        let mut items = requests.drain(..).map(LogItem::Add).collect();
        // After the end of the log the requests answer by being dropped.
        let _ = self.log.push_all(&mut items);
    }

    fn read(&self, request: ReadRequest) {
        self.fence_or_read(request.ledger, request.fence, ReadItem::Run(request));
    }

    fn read_last(&self, request: ReadLastRequest) {
        self.fence_or_read(request.ledger, request.fence, ReadItem::Last(request));
    }

    fn forget(&self, ledger: LedgerId) {
        // Lost with the end of the log, it is found by comparing with metadata.
        drop(self.log.push(LogItem::Forget(ledger)));
    }
}

impl Bookies for LocalBookie {
    fn available(&self) -> Vec<BookieId> {
        vec![self.id.clone()]
    }

    fn link(&self, bookie: &BookieId) -> Arc<dyn BookieLink> {
        if *bookie == self.id { Arc::new(self.clone()) } else { Arc::new(NoBookie) }
    }
}

/// A bookie that metadata names and that is not this process.
#[derive(Debug)]
struct NoBookie;

impl BookieLink for NoBookie {
    fn add(&self, requests: &mut Vec<AddRequest>) {
        requests.clear();
    }

    fn read(&self, request: ReadRequest) {
        request.reply.send(Err(BookieError::Unreachable));
    }

    fn read_last(&self, request: ReadLastRequest) {
        request.reply.send(Err(BookieError::Unreachable));
    }

    fn forget(&self, _ledger: LedgerId) {}
}

/// Who waits for the outcome of a request to the log.
enum Waiting {
    Add(AddReply),
    Fence(ReadItem),
    Nobody,
}

/// A commit takes no more than about this, so that its receipts bring the next entries while the rest is written.
const COMMIT_BYTES: usize = 1 << 20;

struct LogLane {
    clock: Clock,
    writer: Option<LogWriter>,
    bookie: LocalBookie,
    /// Who is answered when what was taken is durable.
    pending: Vec<(Waiting, WriteOutcome)>,
    /// Bytes of the entries that were taken.
    waiting_bytes: usize,
    adds: Vec<(AddReply, Result<(), BookieError>)>,
    /// When to announce how far the log is durable, if nothing else comes.
    idle_at: Option<Instant>,
}

impl Lane for LogLane {
    type Item = LogItem;

    fn work(&mut self, batch: &mut Vec<LogItem>) {
        let mut closing = None;
        for item in batch.drain(..) {
            match item {
                LogItem::Add(request) => self.add(request),
                LogItem::Fence(ledger, key, then) => {
                    self.request(WriteRequest::Fence { ledger, master_key: store_key(key) }, Waiting::Fence(then));
                }
                LogItem::Forget(ledger) => self.request(WriteRequest::Delete { ledger }, Waiting::Nobody),
                LogItem::Close(done) => closing = Some(done),
            }
        }
        self.commit();
        self.idle_at = Some(self.clock.now() + IDLE_AFTER);
        if let Some(done) = closing {
            let closed = self.writer.take().map_or(Ok(()), |writer| writer.close(self.clock.wall()));
            survive(closed);
            done.send(());
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.idle_at
    }

    fn idle(&mut self) {
        if self.idle_at.is_some_and(|at| at <= self.clock.now()) {
            self.idle_at = None;
            let now = self.clock.wall();
            survive(self.writer.as_mut().map_or(Ok(()), |writer| writer.idle(now)));
        }
    }

    fn ended(&self) -> bool {
        self.writer.is_none()
    }
}

impl LogLane {
    fn add(&mut self, request: AddRequest) {
        let AddRequest { ledger, first, bodies, master_key, recovery, mut reply } = request;
        let (master_key, wall) = (store_key(master_key), self.clock.wall());
        // Equal outcomes in a row are one answer.
        let (mut count, mut outcome) = (0, WriteOutcome::Ok);
        for (entry, body) in (first.0..).map(EntryId).zip(bodies) {
            let Some(writer) = &mut self.writer else { return };
            let parts = [&body.head[..], &body.payload[..]];
            let add = AddEntry { ledger, entry, body: parts, master_key, recovery, high_priority: false };
            let taken = survive(writer.take_entry(&add, wall));
            if taken != outcome {
                self.pending.push((Waiting::Add(reply.split(std::mem::take(&mut count))), outcome));
                outcome = taken;
            }
            count += 1;
            self.waiting_bytes += body.len();
            if self.waiting_bytes >= COMMIT_BYTES {
                self.pending.push((Waiting::Add(reply.split(std::mem::take(&mut count))), outcome));
                self.commit();
            }
        }
        self.pending.push((Waiting::Add(reply), outcome));
    }

    fn request(&mut self, request: WriteRequest, waiting: Waiting) {
        let Some(writer) = &mut self.writer else { return };
        let outcome = survive(writer.take(request, self.clock.wall()));
        self.pending.push((waiting, outcome));
    }

    fn commit(&mut self) {
        self.waiting_bytes = 0;
        let Some(writer) = &mut self.writer else { return };
        survive(writer.make_durable(self.clock.wall()));
        for (waiting, outcome) in self.pending.drain(..) {
            match waiting {
                Waiting::Add(reply) => self.adds.push((reply, answer(outcome))),
                Waiting::Fence(item) => match answer(outcome) {
                    // A ledger that was fenced and deleted answers a read as one that is not there.
                    Ok(()) | Err(BookieError::NoLedger) => self.bookie.submit_read(item),
                    Err(error) => item.fail(error),
                },
                Waiting::Nobody => {}
            }
        }
        deliver_adds(&mut self.adds);
    }
}

/// The process does not outlive its log: what it goes on to answer could be lost.
fn survive<T>(result: Result<T, Fatal>) -> T {
    match result {
        Ok(value) => value,
        Err(fatal) => {
            tracing::error!(error = %fatal, "the log failed: ending the process; a restart loses nothing that was answered");
            std::process::exit(EXIT_LOG_FAILED)
        }
    }
}

fn store_key(key: MasterKey) -> StoreKey {
    // Both are 20 bytes.
    StoreKey::new(&key.0).unwrap_or_default()
}

fn answer(outcome: WriteOutcome) -> Result<(), BookieError> {
    match outcome {
        WriteOutcome::Ok => Ok(()),
        WriteOutcome::Fenced => Err(BookieError::Fenced),
        WriteOutcome::Unauthorized => Err(BookieError::Unauthorized),
        WriteOutcome::NoLedger => Err(BookieError::NoLedger),
        WriteOutcome::ReadOnly => Err(BookieError::ReadOnly),
        WriteOutcome::InvalidEntry => Err(BookieError::Damaged),
    }
}

fn read_error(error: &ReadError) -> BookieError {
    match error {
        ReadError::NoEntry => BookieError::NoEntry,
        ReadError::NoLedger => BookieError::NoLedger,
        ReadError::Io(_) | ReadError::Damaged { .. } => {
            tracing::error!(%error, "an entry cannot be read");
            BookieError::Io
        }
    }
}

struct ReadLane {
    store: Arc<BookieStore>,
}

impl Lane for ReadLane {
    type Item = ReadItem;

    fn work(&mut self, batch: &mut Vec<ReadItem>) {
        for item in batch.drain(..) {
            match item {
                ReadItem::Run(request) => {
                    let answer = self.run(&request);
                    request.reply.send(answer);
                }
                ReadItem::Last(request) => {
                    request.reply.send(self.store.read_last(request.ledger).map_err(|error| read_error(&error)));
                }
            }
        }
    }

    fn ended(&self) -> bool {
        false
    }
}

impl ReadLane {
    fn run(&self, request: &ReadRequest) -> Result<Vec<Bytes>, BookieError> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for id in request.first.0..=request.last.0 {
            match self.store.read(request.ledger, EntryId(id)) {
                Ok(entry) if entries.is_empty() || bytes + entry.len() <= request.max_bytes => {
                    bytes += entry.len();
                    entries.push(entry);
                }
                // What came before is an answer; the reader asks for the rest again and hears then what is wrong.
                Ok(_) => break,
                Err(_) if !entries.is_empty() => break,
                Err(error) => return Err(read_error(&error)),
            }
        }
        Ok(entries)
    }
}
