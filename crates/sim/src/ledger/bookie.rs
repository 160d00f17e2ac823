//! A bookie: the real store on a simulated disk, behind a lane that commits whatever arrived and then answers.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use geminga_bookie_store::{BookieStore, LogWriter, MasterKey, ReadError, StoreOptions, WriteOutcome, WriteRequest};
use geminga_disk::{Seeded, SimDisk};
use geminga_model::{BookieId, EntryId, LedgerId, UnixMillis};
use geminga_quorum::BookieError;

use super::core::{Answer, Ask, Core, Event, Request};

const DIR: &str = "/bookie";
/// The wall clock of all bookies; nothing here depends on it.
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// How a bookie's process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Kill,
    PowerCut,
}

/// One bookie.
#[derive(Debug)]
pub(super) struct SimBookie {
    place: usize,
    disk: SimDisk,
    options: StoreOptions,
    /// Opened when the first request comes.
    open: Option<(Arc<BookieStore>, LogWriter)>,
    inbox: Vec<Request>,
    /// Committed and not answered yet.
    committed: Vec<(Request, WriteOutcome)>,
    busy: bool,
    /// Counts ends of the process.
    life: u64,
    pub(super) slow_until: u64,
    pub(super) cut_in_next_commit: bool,
    pub(super) fail_next_sync: bool,
}

impl SimBookie {
    pub(super) fn new(place: usize, id: BookieId, seeded: &mut Seeded) -> SimBookie {
        let options = StoreOptions {
            segment_bytes: (4 + seeded.below(3)) * 4096,
            reserve_segments: 1,
            pool_segments: seeded.below(2) as usize,
            index_cache_bytes: 4096,
            block_bytes: 1024 + seeded.below(8192) as usize,
            ..StoreOptions::new(id, "sim")
        };
        SimBookie {
            place,
            disk: SimDisk::new(seeded.bits()),
            options,
            open: None,
            inbox: Vec::new(),
            committed: Vec::new(),
            busy: false,
            life: 0,
            slow_until: 0,
            cut_in_next_commit: false,
            fail_next_sync: false,
        }
    }

    /// Opens the store if it is not open. Power cuts on the way are lived through.
    fn store(&mut self, core: &mut Core) -> Option<&mut (Arc<BookieStore>, LogWriter)> {
        let mut attempts = 0;
        while self.open.is_none() {
            attempts += 1;
            if !core.healed && attempts < 3 && core.seeded.chance(10) {
                self.disk.cut_power_after(core.seeded.below(12));
            }
            let failed_syncs = self.disk.stats().failed_syncs;
            match BookieStore::open(Arc::new(self.disk.clone()), Path::new(DIR), &self.options, NOW) {
                Ok(open) => {
                    core.tally.opens += 1;
                    self.open = Some(open);
                }
                Err(_) if self.disk.is_off() => {
                    core.tally.cuts_in_open += 1;
                    self.disk.power_cycle();
                }
                Err(_) if self.disk.stats().failed_syncs > failed_syncs => {
                    core.tally.failed_syncs += 1;
                    self.disk.kill_process();
                }
                Err(error) => {
                    core.judge(Err(format!("the store of {} does not open: {error}", core.ids[self.place])));
                    return None;
                }
            }
        }
        self.open.as_mut()
    }

    /// A request arrives.
    pub(super) fn handle(&mut self, request: Request, core: &mut Core) {
        if !core.up[self.place] {
            if core.seeded.chance(50) {
                core.answer(self.place, &request, Err(BookieError::Unreachable));
            }
            return;
        }
        match request.ask {
            Ask::Read { fence: false, .. } | Ask::ReadLast { fence: false } => {
                let answer = self.read(&request, core);
                core.answer(self.place, &request, answer);
            }
            Ask::Add { .. } | Ask::Read { .. } | Ask::ReadLast { .. } => {
                self.inbox.push(request);
                self.wake(core);
            }
        }
    }

    fn wake(&mut self, core: &mut Core) {
        if !self.busy && !self.inbox.is_empty() {
            self.busy = true;
            let delay = 20 + core.seeded.below(300);
            core.after(delay, Event::Take { bookie: self.place, life: self.life });
        }
    }

    /// The lane commits whatever arrived.
    pub(super) fn take(&mut self, life: u64, core: &mut Core) {
        if life != self.life {
            return;
        }
        let batch = std::mem::take(&mut self.inbox);
        let mut requests: Vec<WriteRequest> = batch.iter().map(write_request).collect();
        let (cut, fail) = (std::mem::take(&mut self.cut_in_next_commit), std::mem::take(&mut self.fail_next_sync));
        let disk = self.disk.clone();
        let Some((_, log)) = self.store(core) else { return };
        if cut {
            disk.cut_power_after(core.seeded.below(3));
        }
        if fail {
            disk.fail_sync_after(0);
        }
        match log.commit(&mut requests, NOW) {
            Ok(outcomes) => {
                core.tally.commits += 1;
                self.committed = batch.into_iter().zip(outcomes).collect();
                let sync = 100 + core.seeded.below(if core.now < self.slow_until { 60_000 } else { 1_500 });
                core.after(sync, Event::Release { bookie: self.place, life });
            }
            Err(_) => self.fail(core),
        }
    }

    /// The log failed: the process ends.
    fn fail(&mut self, core: &mut Core) {
        if self.disk.is_off() {
            core.tally.cuts_in_commit += 1;
            self.end(None, core);
        } else {
            core.tally.failed_syncs += 1;
            let end = if core.seeded.chance(50) { End::Kill } else { End::PowerCut };
            self.end(Some(end), core);
        }
    }

    /// The lane answers what it committed, and goes on.
    pub(super) fn release(&mut self, life: u64, core: &mut Core) {
        if life != self.life {
            return;
        }
        for (request, outcome) in std::mem::take(&mut self.committed) {
            core.tally.fenced_adds += u64::from(outcome == WriteOutcome::Fenced);
            let answer = match (&request.ask, outcome) {
                (Ask::Add { .. }, outcome) => error_of(outcome).map_or(Ok(Bytes::new()), Err),
                (_, WriteOutcome::Ok | WriteOutcome::NoLedger) => self.read(&request, core),
                (_, outcome) => Err(error_of(outcome).unwrap_or(BookieError::Io)),
            };
            core.note(|| {
                let answer = answer.as_ref().map(Bytes::len);
                let Request { actor, ledger, ask, .. } = &request;
                let bookie = self.place;
                match ask {
                    Ask::Add { entry, recovery, .. } => {
                        format!("bookie {bookie} answers {actor}: add {ledger}:{entry} recovery {recovery}: {answer:?}")
                    }
                    ask => format!("bookie {bookie} answers {actor}: {ledger} {ask:?}: {answer:?}"),
                }
            });
            core.answer(self.place, &request, answer);
        }
        self.busy = false;
        if self.inbox.is_empty() {
            self.tend(core);
        } else {
            self.wake(core);
        }
    }

    /// What the lane does when nothing arrives.
    fn tend(&mut self, core: &mut Core) {
        if !core.seeded.chance(10) {
            return;
        }
        let Some((_, log)) = self.store(core) else { return };
        if log.idle(NOW).is_err() {
            self.fail(core);
        }
    }

    /// The process ends, and starts again after a while. `None`: the power is off already.
    pub(super) fn end(&mut self, end: Option<End>, core: &mut Core) {
        if !core.up[self.place] {
            return;
        }
        match end {
            Some(End::Kill) => {
                core.tally.kills += u64::from(!core.healed);
                self.disk.kill_process();
            }
            Some(End::PowerCut) => {
                core.tally.power_cuts += u64::from(!core.healed);
                self.disk.power_cycle();
            }
            None => self.disk.power_cycle(),
        }
        core.note(|| format!("bookie {} ends: {end:?}", self.place));
        self.open = None;
        self.busy = false;
        self.life += 1;
        let waiting = self.committed.drain(..).map(|(request, _)| request).chain(self.inbox.drain(..));
        for request in waiting.collect::<Vec<_>>() {
            if core.seeded.chance(50) {
                core.answer(self.place, &request, Err(BookieError::Unreachable));
            }
        }
        core.up[self.place] = false;
        let pause = if core.healed { 1_000 } else { 2_000 + core.seeded.below(250_000) };
        core.after(pause, Event::Restart { bookie: self.place, life: self.life });
    }

    pub(super) fn restart(&mut self, life: u64, core: &mut Core) {
        if life == self.life {
            core.up[self.place] = true;
        }
    }

    /// Faults are over: what was armed and did not strike is taken back, and the process runs.
    pub(super) fn heal(&mut self, core: &mut Core) {
        self.slow_until = 0;
        self.cut_in_next_commit = false;
        self.fail_next_sync = false;
        // A power cut that is still to come can be taken back only by one of the two.
        let end = if core.seeded.chance(50) { End::Kill } else { End::PowerCut };
        self.end(Some(end), core);
        core.up[self.place] = true;
    }

    fn read(&mut self, request: &Request, core: &mut Core) -> Answer {
        let ledger = LedgerId(request.ledger as i64);
        let place = self.place;
        let Some((store, _)) = self.store(core) else { return Err(BookieError::Io) };
        let read = match request.ask {
            Ask::Read { entry, .. } => store.read(ledger, entry),
            Ask::ReadLast { .. } | Ask::Add { .. } => store.read_last(ledger),
        };
        read.map_err(|error| match error {
            ReadError::NoEntry => BookieError::NoEntry,
            ReadError::NoLedger => BookieError::NoLedger,
            ReadError::Io(_) | ReadError::Damaged { .. } => {
                core.judge(Err(format!("bookie {place} cannot read its disk: {error}")));
                BookieError::Io
            }
        })
    }

    /// The bytes of an entry after one more power cut.
    pub(super) fn read_after_power_cut(&mut self, ledger: usize, entry: EntryId, core: &mut Core) -> Option<Bytes> {
        let (store, _) = self.store(core)?;
        store.read(LedgerId(ledger as i64), entry).ok()
    }

    pub(super) fn cut_power_for_good(&mut self) {
        self.open = None;
        self.life += 1;
        self.disk.power_cycle();
    }
}

fn write_request(request: &Request) -> WriteRequest {
    let ledger = LedgerId(request.ledger as i64);
    match &request.ask {
        Ask::Add { entry, body, recovery } => WriteRequest::Add {
            ledger,
            entry: *entry,
            body: body.clone(),
            master_key: MasterKey::default(),
            recovery: *recovery,
            high_priority: false,
        },
        Ask::Read { .. } | Ask::ReadLast { .. } => WriteRequest::Fence { ledger, master_key: MasterKey::default() },
    }
}

fn error_of(outcome: WriteOutcome) -> Option<BookieError> {
    match outcome {
        WriteOutcome::Ok => None,
        WriteOutcome::Fenced => Some(BookieError::Fenced),
        WriteOutcome::Unauthorized => Some(BookieError::Unauthorized),
        WriteOutcome::NoLedger => Some(BookieError::NoLedger),
        WriteOutcome::ReadOnly => Some(BookieError::ReadOnly),
        WriteOutcome::InvalidEntry => Some(BookieError::Damaged),
    }
}
