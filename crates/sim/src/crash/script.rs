//! One seed: work, faults and restarts, and a check after each.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use geminga_bookie_store::{
    BookieStore, LogWriter, MasterKey, OpenError, ReadError, StoreOptions, WriteOutcome, WriteRequest,
};
use geminga_disk::{Disk, DiskErrorKind, OpenMode, Seeded, SimDisk};
use geminga_model::{BookieId, EntryId, LedgerId, UnixMillis};

use super::model::{self, Model};
use super::tally::Tally;

const DIR: &str = "/bookie";

/// Runs one seed. Equal seeds do equal things.
///
/// # Errors
/// The violation found, as a sentence.
pub fn run_seed(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut run = Run::new(seed)?;
    let outcome = run.whole(tally);
    let stats = run.disk.stats();
    tally.failed_syncs += stats.failed_syncs;
    tally.failed_writes += stats.failed_writes;
    tally.full_disk += stats.full;
    outcome
}

pub(super) struct Run {
    pub(super) disk: SimDisk,
    pub(super) seeded: Seeded,
    options: StoreOptions,
    now: i64,
    open: Option<(Arc<BookieStore>, LogWriter)>,
    /// What the store may hold: more than one only where a crash left something undecided that cannot be seen yet.
    candidates: Vec<Model>,
    next_ledger: i64,
    squeezed: bool,
    full_before_crash: bool,
}

impl Run {
    pub(super) fn new(seed: u64) -> Result<Run, String> {
        let mut seeded = Seeded::new(seed);
        let bookie = BookieId::parse("sim:3181").map_err(|e| e.to_string())?;
        let options = StoreOptions {
            segment_bytes: (4 + seeded.below(8)) * 4096,
            reserve_segments: 2,
            pool_segments: seeded.below(3) as usize,
            index_cache_bytes: seeded.below(4096) as usize,
            block_bytes: 1024 + seeded.below(8192) as usize,
            ..StoreOptions::new(bookie, "sim")
        };
        Ok(Run {
            disk: SimDisk::new(seeded.bits()),
            seeded,
            options,
            now: 1_700_000_000_000,
            open: None,
            candidates: vec![Model::default()],
            next_ledger: 0,
            squeezed: false,
            full_before_crash: false,
        })
    }

    fn whole(&mut self, tally: &mut Tally) -> Result<(), String> {
        self.reopen(&[], tally)?;
        for _ in 0..40 + self.seeded.below(60) {
            self.step(tally)?;
        }
        self.set_squeezed(false);
        self.end_quietly(tally)?;
        if self.seeded.chance(30) {
            return self.flip_a_bit(tally);
        }
        self.reopen(&[], tally)
    }

    fn step(&mut self, tally: &mut Tally) -> Result<(), String> {
        self.now += 1 + self.seeded.below(1000) as i64;
        match self.seeded.below(100) {
            0..=69 => self.commit(tally),
            70..=77 => self.tend(tally),
            78..=80 => {
                self.disk.power_cycle();
                tally.cuts_at_rest += 1;
                self.reopen(&[], tally)
            }
            81..=82 => {
                self.disk.kill_process();
                tally.kills += 1;
                self.reopen(&[], tally)
            }
            83..=85 => {
                self.end_quietly(tally)?;
                self.spoil_an_index(tally);
                self.reopen(&[], tally)
            }
            86..=90 => {
                self.disk.cut_power_after(self.seeded.below(12));
                Ok(())
            }
            91 => {
                self.disk.fail_sync_after(self.seeded.below(4));
                Ok(())
            }
            92 => {
                self.disk.fail_write_after(self.seeded.below(4));
                Ok(())
            }
            93..=94 => {
                let squeezed = !self.squeezed;
                self.set_squeezed(squeezed);
                Ok(())
            }
            95 => {
                self.now += 4 * 24 * 3600 * 1000;
                Ok(())
            }
            _ => self.check_reads(),
        }
    }

    fn set_squeezed(&mut self, squeezed: bool) {
        self.squeezed = squeezed;
        let space = self.disk.space(Path::new(DIR));
        let used = space.map_or(0, |space| space.total - space.free);
        self.disk.set_capacity(if squeezed {
            used + self.seeded.below(3) * self.options.segment_bytes
        } else {
            u64::MAX
        });
    }

    /// One group commit. Every candidate says what it must answer.
    pub(super) fn commit(&mut self, tally: &mut Tally) -> Result<(), String> {
        let requests: Vec<WriteRequest> = (0..1 + self.seeded.below(12)).map(|_| self.request()).collect();
        let now = self.now;
        let Some((store, log)) = &mut self.open else { return Err("the store is not open".to_owned()) };
        // A roll may end the read-only state in the middle of the commit.
        self.full_before_crash = self.squeezed || store.is_read_only();
        let Ok(outcomes) = log.commit(&mut requests.clone(), UnixMillis(now)) else {
            return self.crash_with(&requests, tally, |tally| &mut tally.cuts_in_commit);
        };
        tally.commits += 1;
        let before = self.candidates.clone();
        let mut complaint = String::new();
        self.candidates.retain_mut(|model| {
            for (request, outcome) in requests.iter().zip(&outcomes) {
                if *outcome == WriteOutcome::ReadOnly {
                    continue;
                }
                let expected = model.apply(request, now);
                if expected != *outcome {
                    complaint = format!("{} answered {outcome:?}, not {expected:?}", name(request));
                    return false;
                }
            }
            model.forget(now);
            true
        });
        let first = before.first().ok_or("there is no candidate")?;
        for (request, outcome) in requests.iter().zip(&outcomes) {
            count(tally, request, *outcome, first);
        }
        if self.candidates.is_empty() { Err(complaint) } else { Ok(()) }
    }

    fn request(&mut self) -> WriteRequest {
        if self.next_ledger < 4 || self.seeded.chance(3) {
            self.next_ledger += 1;
        }
        // Recent ledgers are busy, old ones are touched now and then.
        let window = if self.seeded.chance(85) { 5 } else { self.next_ledger };
        let ledger = LedgerId((self.next_ledger - 1 - self.seeded.below(window as u64) as i64).max(0));
        let key = MasterKey::new(&[ledger.0 as u8 + u8::from(self.seeded.chance(1)) * 100]).unwrap_or_default();
        match self.seeded.below(100) {
            0..=79 => {
                let last = self
                    .candidates
                    .first()
                    .and_then(|m| m.ledgers.get(&ledger.0))
                    .and_then(|l| l.entries.keys().next_back());
                let next = last.map_or(0, |last| last + 1);
                let entry = match self.seeded.below(10) {
                    0 => EntryId(self.seeded.below(next as u64 + 1) as i64),
                    1 => EntryId(next + self.seeded.below(3) as i64),
                    _ => EntryId(next),
                };
                let large = self.seeded.chance(5);
                let payload =
                    vec![self.seeded.bits() as u8; self.seeded.below(if large { 6000 } else { 400 }) as usize];
                let lac = entry.0 - 1 - self.seeded.below(3) as i64;
                let body = model::entry(ledger, entry, lac.max(-1), &payload);
                let recovery = self.seeded.chance(15);
                WriteRequest::Add {
                    ledger,
                    entry,
                    body,
                    master_key: key,
                    recovery,
                    high_priority: self.seeded.chance(3),
                }
            }
            80..=86 => WriteRequest::Fence { ledger, master_key: key },
            87..=90 => {
                let body = Bytes::from(vec![self.seeded.bits() as u8; 1 + self.seeded.below(40) as usize]);
                WriteRequest::SetExplicitLac { ledger, master_key: key, body }
            }
            91..=98 => WriteRequest::Delete { ledger },
            _ => WriteRequest::Force,
        }
    }

    /// What the log lane does between commits, and the maintaining thread beside it.
    fn tend(&mut self, tally: &mut Tally) -> Result<(), String> {
        let choice = self.seeded.below(4);
        let now = UnixMillis(self.now);
        let Some((store, log)) = &mut self.open else { return Err("the store is not open".to_owned()) };
        let before = store.stats();
        let done = match choice {
            0 => log.clean(now, 1).map(|dropped| tally.drops += dropped as u64).is_ok(),
            1 => store.maintain().is_ok(),
            _ => log.idle(now).is_ok(),
        };
        if !done {
            if choice == 1 {
                // The maintaining thread failed, not the log; the process ends all the same.
                self.open = None;
            }
            return self.crash_with(&[], tally, |tally| &mut tally.cuts_in_cleaning);
        }
        let after = store.stats();
        tally.drops += before.segments.saturating_sub(after.segments) as u64;
        tally.seals += before.unsealed.saturating_sub(after.unsealed) as u64;
        self.check_all("after maintenance")
    }

    /// The disk failed under the log: the process ends, with or without a power cut, and starts again.
    fn crash_with(
        &mut self,
        undecided: &[WriteRequest],
        tally: &mut Tally,
        count: fn(&mut Tally) -> &mut u64,
    ) -> Result<(), String> {
        if let Some((_, log)) = &mut self.open
            && log.commit(&mut vec![WriteRequest::Force], UnixMillis(self.now)).is_ok()
        {
            return Err("the log goes on after it failed".to_owned());
        }
        if self.disk.is_off() {
            *count(tally) += 1;
            self.disk.power_cycle();
        } else if self.seeded.chance(50) {
            self.disk.power_cycle();
        } else {
            self.disk.kill_process();
        }
        self.reopen(undecided, tally)
    }

    /// Opens the store, through crashes in opening, and checks what it holds.
    pub(super) fn reopen(&mut self, undecided: &[WriteRequest], tally: &mut Tally) -> Result<(), String> {
        let read_only = self.open.as_ref().is_some_and(|(store, _)| store.is_read_only());
        self.full_before_crash |= self.squeezed || read_only;
        self.open = None;
        let mut attempts = 0;
        loop {
            attempts += 1;
            if attempts < 4 && self.seeded.chance(35) {
                self.disk.cut_power_after(self.seeded.below(20));
            }
            let failures = self.disk.stats();
            let disk = Arc::new(self.disk.clone());
            let error = match BookieStore::open(disk, Path::new(DIR), &self.options, UnixMillis(self.now)) {
                Ok(open) => {
                    self.open = Some(open);
                    break;
                }
                Err(error) => error,
            };
            let after = self.disk.stats();
            if self.disk.is_off() {
                tally.cuts_in_open += 1;
                self.disk.power_cycle();
            } else if after.failed_syncs + after.failed_writes > failures.failed_syncs + failures.failed_writes {
                self.disk.kill_process();
            } else if self.squeezed && matches!(&error, OpenError::Disk(e) if e.kind == DiskErrorKind::NoSpace) {
                self.set_squeezed(false);
            } else {
                return Err(format!("the store does not open: {error}"));
            }
        }
        tally.opens += 1;
        self.decide(undecided)
    }

    /// Keeps the candidates that the store equals after some number of the undecided requests.
    fn decide(&mut self, undecided: &[WriteRequest]) -> Result<(), String> {
        let Some((store, _)) = &self.open else { return Err("the store is not open".to_owned()) };
        let shown = model::look_at(store)?;
        let mut reached = std::mem::take(&mut self.candidates);
        let mut frontier = reached.clone();
        for request in undecided {
            let before = frontier.clone();
            for model in &mut frontier {
                model.apply(request, self.now);
            }
            if self.full_before_crash {
                // On a full disk the store may have refused any of them, for its size or its kind.
                frontier.extend(before);
            }
            without_doubles(&mut frontier);
            reached.extend(frontier.iter().cloned());
        }
        without_doubles(&mut reached);
        let mut complaint = String::new();
        reached.retain(|model| {
            let difference = model::difference(&shown, &model.ledgers);
            let equal = difference.is_none();
            complaint = difference.unwrap_or_default();
            equal
        });
        if reached.is_empty() {
            return Err(format!("after opening: {complaint}"));
        }
        self.candidates = reached;
        Ok(())
    }

    /// A group commit that the power cuts short; then everything it can have left, each opened twice.
    pub(super) fn commit_into_every_image(&mut self, most_units: usize, tally: &mut Tally) -> Result<(), String> {
        let requests: Vec<WriteRequest> = (0..1 + self.seeded.below(4)).map(|_| self.request()).collect();
        let Some((_, log)) = &mut self.open else { return Err("the store is not open".to_owned()) };
        self.disk.cut_power_after(self.seeded.below(4));
        let answered = log.commit(&mut requests.clone(), UnixMillis(self.now)).is_ok();
        let (undecided, decided) = if answered { requests.split_at(0) } else { requests.split_at(requests.len()) };
        for model in &mut self.candidates {
            for request in decided {
                model.apply(request, self.now);
            }
        }
        self.open = None;
        let Some(images) = self.disk.crash_images(most_units) else { return Ok(()) };
        let candidates = self.candidates.clone();
        for image in images {
            tally.images += 1;
            self.disk = image;
            self.candidates.clone_from(&candidates);
            self.reopen(undecided, tally)?;
            self.disk.power_cycle();
            self.reopen(&[], tally)?;
        }
        Ok(())
    }

    pub(super) fn check_all(&self, when: &str) -> Result<(), String> {
        let Some((store, _)) = &self.open else { return Ok(()) };
        let shown = model::look_at(store)?;
        let mut complaint = String::new();
        for model in &self.candidates {
            match model::difference(&shown, &model.ledgers) {
                None => return Ok(()),
                Some(difference) => complaint = difference,
            }
        }
        Err(format!("{when}: {complaint}"))
    }

    /// Single reads, of what is there and of what is not.
    fn check_reads(&mut self) -> Result<(), String> {
        let Some((store, _)) = &self.open else { return Ok(()) };
        let Some(model) = self.candidates.first() else { return Ok(()) };
        for _ in 0..20 {
            let ledger = self.seeded.below(self.next_ledger as u64 + 2) as i64;
            let entry = self.seeded.below(60) as i64;
            let expected = match model.ledgers.get(&ledger) {
                None => Err(ReadError::NoLedger),
                Some(known) => known.entries.get(&entry).cloned().ok_or(ReadError::NoEntry),
            };
            let answer = store.read(LedgerId(ledger), EntryId(entry));
            if answer != expected {
                return Err(format!("reading {ledger}:{entry} answers {:?}", answer.map(|body| body.len())));
            }
            if let Some(known) = model.ledgers.get(&ledger) {
                let last = known.entries.values().next_back().cloned().ok_or(ReadError::NoEntry);
                if store.read_last(LedgerId(ledger)) != last {
                    return Err(format!("reading the last entry of {ledger} answers wrongly"));
                }
            }
        }
        Ok(())
    }

    /// Ends so that everything answered is known to be durable: by an idle log or a clean stop.
    fn end_quietly(&mut self, tally: &mut Tally) -> Result<(), String> {
        let Some((_, mut log)) = self.open.take() else { return Ok(()) };
        let now = UnixMillis(self.now);
        let ended = if self.seeded.chance(50) {
            log.idle(now).map(|()| self.disk.kill_process())
        } else {
            log.close(now).map(|()| tally.closes += 1)
        };
        if ended.is_err() {
            if self.disk.is_off() {
                tally.cuts_in_cleaning += 1;
            }
            self.disk.power_cycle();
            self.reopen(&[], tally)?;
            return self.end_quietly(tally);
        }
        // Faults not used up must not meet the next start.
        self.disk.power_cycle();
        Ok(())
    }

    fn files(&self, kinds: &[&str]) -> Vec<String> {
        let names = self.disk.list(Path::new(DIR)).unwrap_or_default();
        names.into_iter().filter(|name| kinds.iter().any(|kind| name.ends_with(kind))).collect()
    }

    /// An index is a copy: without it, everything must still be found.
    fn spoil_an_index(&mut self, tally: &mut Tally) {
        let indexes = self.files(&[".idx"]);
        let Some(name) = indexes.get(self.seeded.below(indexes.len() as u64) as usize) else { return };
        let path = Path::new(DIR).join(name);
        tally.bad_indexes += 1;
        let len = self.disk.contents(&path).map_or(0, |bytes| bytes.len() as u64);
        match self.seeded.below(3) {
            0 => {
                let _ = self.disk.unlink(&path).and_then(|()| self.disk.sync_dir(Path::new(DIR)));
            }
            1 => {
                let cut = self.seeded.below(len);
                let _ = self.disk.open(&path, OpenMode::Write).and_then(|file| file.set_len(cut).and(file.sync_data()));
            }
            _ => self.disk.flip_bit(&path, self.seeded.below(len), self.seeded.below(8) as u8),
        }
    }

    /// A flipped bit is refused at opening, or at reading, or does no harm; it never changes an answer.
    fn flip_a_bit(&mut self, tally: &mut Tally) -> Result<(), String> {
        let files = self.files(&[".idx", ".log", "INSTANCE"]);
        let Some(name) = files.get(self.seeded.below(files.len() as u64) as usize) else { return Ok(()) };
        let path = Path::new(DIR).join(name);
        let len = self.disk.contents(&path).map_or(0, |bytes| bytes.len() as u64);
        // Half of them among the first bytes, where headers are.
        let range = if self.seeded.chance(50) { len } else { len.min(6000) };
        self.disk.flip_bit(&path, self.seeded.below(range), self.seeded.below(8) as u8);
        let disk = Arc::new(self.disk.clone());
        let opened = BookieStore::open(disk, Path::new(DIR), &self.options, UnixMillis(self.now));
        let store = match opened {
            Ok((store, _)) => store,
            Err(OpenError::Damaged { .. } | OpenError::Version { .. } | OpenError::WrongOwner { .. }) => {
                tally.flips_refused += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("a flipped bit in {name} is refused wrongly: {error}")),
        };
        tally.flips_served += 1;
        let agrees = |model: &Model| {
            store.ledgers() == model.ledgers.keys().copied().map(LedgerId).collect::<Vec<_>>()
                && model.ledgers.iter().all(|(id, known)| serves(&store, *id, &known.entries))
        };
        if self.candidates.iter().any(agrees) { Ok(()) } else { Err(format!("a flipped bit in {name} is not noticed")) }
    }
}

fn without_doubles(models: &mut Vec<Model>) {
    let mut at = 0;
    while at < models.len() {
        if models[..at].contains(&models[at]) {
            models.swap_remove(at);
        } else {
            at += 1;
        }
    }
}

fn serves(store: &BookieStore, ledger: i64, entries: &BTreeMap<i64, Bytes>) -> bool {
    entries.iter().all(|(entry, body)| match store.read(LedgerId(ledger), EntryId(*entry)) {
        Ok(read) => read == *body,
        Err(error) => matches!(error, ReadError::Damaged { .. }),
    })
}

fn name(request: &WriteRequest) -> String {
    match request {
        WriteRequest::Add { ledger, entry, recovery, .. } => format!("add {ledger}:{entry} (recovery {recovery})"),
        WriteRequest::Fence { ledger, .. } => format!("fence {ledger}"),
        WriteRequest::SetExplicitLac { ledger, .. } => format!("explicit LAC {ledger}"),
        WriteRequest::Delete { ledger } => format!("delete {ledger}"),
        WriteRequest::Force => "force".to_owned(),
    }
}

fn count(tally: &mut Tally, request: &WriteRequest, outcome: WriteOutcome, before: &Model) {
    match (request, outcome) {
        (WriteRequest::Add { ledger, entry, recovery, .. }, WriteOutcome::Ok) => {
            tally.adds += 1;
            let known = before.ledgers.get(&ledger.0);
            tally.recovery_adds += u64::from(*recovery && known.is_some_and(|known| known.fenced));
            tally.duplicate_adds += u64::from(known.is_some_and(|known| known.entries.contains_key(&entry.0)));
        }
        (WriteRequest::Add { ledger, .. }, WriteOutcome::Fenced) if before.ledgers.contains_key(&ledger.0) => {
            tally.fenced_adds += 1;
        }
        (WriteRequest::Add { .. }, WriteOutcome::Fenced) => tally.refused_after_delete += 1,
        (WriteRequest::Fence { .. }, WriteOutcome::Ok) => tally.fences += 1,
        (WriteRequest::SetExplicitLac { .. }, WriteOutcome::Ok) => tally.explicit_lacs += 1,
        (WriteRequest::Delete { .. }, WriteOutcome::Ok) => tally.deletes += 1,
        (_, WriteOutcome::Unauthorized) => tally.unauthorized += 1,
        (_, WriteOutcome::ReadOnly) => tally.read_only += 1,
        _ => {}
    }
}
