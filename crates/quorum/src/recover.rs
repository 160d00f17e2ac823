//! Finding the end of a ledger whose writer is gone, or is to be stopped.
//!
//! The driver first writes IN_RECOVERY by compare-and-set, so that the old writer can neither change its ensemble nor
//! close. Then, from one snapshot of the metadata:
//!
//! 1. the last ensemble is fenced and asked for its last entries, until so many answered that no ack quorum can hide
//!    among the others; the greatest last-add-confirmed found is where the search begins;
//! 2. entry after entry is read from its write set, each read fencing too. A sound copy means it may have been
//!    acknowledged; Qw − Qa + 1 bookies that are sure not to have it mean that it was not; anything else fails the
//!    recovery, which can be tried again: nothing is truncated on uncertainty;
//! 3. each entry found is written back to its whole write set and needs the ack quorum. Members that fail are replaced
//!    in memory only;
//! 4. the driver writes CLOSED with the outcome, unless somebody else closed the ledger first.
//!
//! Negative answers are only counted from the ensembles of the snapshot: a bookie that took over later has nothing and
//! would vote absence.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use geminga_bookie_wire::{Digester, Entry, OpenedEntry};
use geminga_model::{BookieId, EntryId, LedgerId, canary};
use geminga_records::{LedgerMetadata, Quorum, Segment};

use crate::ensemble::{replace, with_segment};
use crate::error::BookieError;

/// Entries that are searched for at the same time.
const READ_AHEAD: usize = 8;

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    /// Fence the ledger at this bookie and read its last entry: to [`LedgerRecovery::handle_last`].
    FenceAndReadLast {
        /// The bookie's place in the last ensemble.
        index: usize,
        /// The bookie.
        bookie: BookieId,
    },
    /// Read an entry, fencing the ledger if `fence`: to [`LedgerRecovery::handle_read`].
    Read {
        /// The bookie's place in the entry's ensemble.
        index: usize,
        /// The bookie.
        bookie: BookieId,
        /// The entry.
        entry: EntryId,
        /// Whether the read fences.
        fence: bool,
    },
    /// Write an entry back as a recovery add: to [`LedgerRecovery::handle_written`].
    WriteBack {
        /// The bookie's place in the ensemble as recovery sees it.
        index: usize,
        /// The bookie.
        bookie: BookieId,
        /// The entry's id.
        entry: EntryId,
        /// Its bytes, as they were found.
        body: Entry,
    },
}

/// Where the ledger ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredEnd {
    /// The last entry; −1 if there is none.
    pub last_entry: EntryId,
    /// Payload bytes, as far as they are known.
    pub length: i64,
    /// The segments to write, with the members that recovery replaced.
    pub segments: Vec<Segment>,
}

/// Why the end could not be found. The ledger stays IN_RECOVERY, fenced, and recovery can be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryFailed {
    /// Too few bookies of the last ensemble answered to rule out an acknowledged entry among the others.
    #[error("too few bookies of the last ensemble answered ({0})")]
    NotCovered(BookieError),
    /// Whether an entry was acknowledged cannot be told from the answers.
    #[error("cannot tell whether entry {0} was acknowledged ({1})")]
    CannotTell(EntryId, BookieError),
    /// An entry could not be written back to an ack quorum.
    #[error("entry {0} cannot be written back to enough bookies ({1})")]
    NotEnoughBookies(EntryId, BookieError),
    /// The password is not the ledger's.
    #[error("wrong password")]
    Unauthorized,
}

#[derive(Debug, Default)]
struct Search {
    absent: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    found: Option<(Entry, OpenedEntry)>,
}

#[derive(Debug)]
struct WriteBack {
    body: Entry,
    length: i64,
    acks: u64,
}

/// Recovers one ledger; see the module.
#[derive(Debug)]
pub struct LedgerRecovery {
    ledger: LedgerId,
    snapshot: LedgerMetadata,
    digester: Digester,
    available: Vec<BookieId>,
    /// Answers of the last ensemble: usable, not usable, or none yet.
    fenced: Vec<Option<bool>>,
    fencing: bool,
    last_seen: BTreeMap<EntryId, i64>,
    /// Confirmed by the old writer or written back.
    confirmed: EntryId,
    length: i64,
    /// Searched entries from `next_search` on; those before are decided.
    searches: BTreeMap<EntryId, Search>,
    next_search: EntryId,
    end_known: bool,
    write_backs: VecDeque<WriteBack>,
    segments: Vec<Segment>,
    failed: BTreeSet<BookieId>,
    outcome: Option<Result<RecoveredEnd, RecoveryFailed>>,
    actions: Vec<RecoveryAction>,
}

impl LedgerRecovery {
    /// Starts the recovery of a ledger from a snapshot of its metadata, in which it is IN_RECOVERY. `available` are
    /// bookies that may replace failed ones.
    #[must_use]
    pub fn new(ledger: LedgerId, snapshot: LedgerMetadata, available: Vec<BookieId>) -> LedgerRecovery {
        let last = snapshot.last_segment().clone();
        let actions = (last.ensemble.iter().enumerate())
            .map(|(index, bookie)| RecoveryAction::FenceAndReadLast { index, bookie: bookie.clone() })
            .collect();
        LedgerRecovery {
            ledger,
            digester: Digester::new(snapshot.digest, &snapshot.password),
            available,
            fenced: vec![None; last.ensemble.len()],
            fencing: true,
            last_seen: BTreeMap::new(),
            confirmed: last.first_entry.previous(),
            length: 0,
            searches: BTreeMap::new(),
            next_search: EntryId::NONE,
            end_known: false,
            write_backs: VecDeque::new(),
            segments: snapshot.segments.clone(),
            failed: BTreeSet::new(),
            outcome: None,
            actions,
            snapshot,
        }
    }

    /// Moves what is to be done to the end of `into`, in order.
    pub fn take_actions(&mut self, into: &mut Vec<RecoveryAction>) {
        into.append(&mut self.actions);
    }

    /// The outcome, once there is one.
    #[must_use]
    pub fn outcome(&self) -> Option<&Result<RecoveredEnd, RecoveryFailed>> {
        self.outcome.as_ref()
    }

    /// What recovery is doing, for explanations.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match (self.outcome.is_some(), self.fencing, self.end_known) {
            (true, _, _) => "decided",
            (_, true, _) => "fencing the last ensemble",
            (_, _, false) => "searching for the last entry",
            (_, _, true) => "writing entries back",
        }
    }

    fn quorum(&self) -> Quorum {
        self.snapshot.quorum
    }

    /// A bookie of the last ensemble was fenced, and gave its last entry or the lack of one.
    pub fn handle_last(&mut self, index: usize, answer: Result<Bytes, BookieError>) {
        if !self.fencing || self.outcome.is_some() || self.fenced.get(index) != Some(&None) {
            return;
        }
        let opened = answer.and_then(|bytes| open(bytes, self.ledger, None, &self.digester));
        let usable = match opened {
            Ok((_, entry)) => {
                self.confirmed = self.confirmed.max(entry.header.last_add_confirmed);
                self.last_seen.insert(entry.header.entry, entry.header.ledger_length);
                Ok(())
            }
            Err(error) if error.is_absence() => Ok(()),
            Err(error) => Err(error),
        };
        if usable == Err(BookieError::Unauthorized) {
            return self.fail(RecoveryFailed::Unauthorized);
        }
        if let Some(slot) = self.fenced.get_mut(index) {
            *slot = Some(usable.is_ok());
        }
        if self.is_covered() {
            self.start_search();
        } else if let (Err(error), true) = (usable, self.fenced.iter().all(Option::is_some)) {
            self.fail(RecoveryFailed::NotCovered(error));
        } else if self.fenced.iter().all(Option::is_some) {
            self.fail(RecoveryFailed::NotCovered(BookieError::Unreachable));
        }
    }

    /// Whether no window of Qw neighbours has as many as Qa bookies without a usable answer.
    fn is_covered(&self) -> bool {
        let quorum = self.quorum();
        let size = i64::try_from(quorum.ensemble).unwrap_or(i64::MAX);
        (0..size).all(|first| {
            let unknown = quorum.write_set(EntryId(first)).filter(|i| self.fenced.get(*i) != Some(&Some(true))).count();
            unknown < quorum.ack
        })
    }

    fn start_search(&mut self) {
        self.fencing = false;
        match self.last_seen.get(&self.confirmed) {
            Some(length) => self.length = *length,
            // Its length is read from the entry itself, which comes first in the search.
            None => self.length = self.last_seen.range(..self.confirmed).next_back().map_or(0, |(_, length)| *length),
        }
        self.next_search = if self.confirmed >= EntryId(0) { self.confirmed } else { EntryId(0) };
        self.search_on();
    }

    fn search_on(&mut self) {
        let mut entry = self.searches.last_key_value().map_or(self.next_search, |(last, _)| last.next());
        while self.searches.len() < READ_AHEAD && !self.end_known {
            let ensemble = self.snapshot.ensemble_of(entry);
            for index in self.quorum().write_set(entry) {
                if let Some(bookie) = ensemble.get(index) {
                    let fence = !canary!("LED-1");
                    self.actions.push(RecoveryAction::Read { index, bookie: bookie.clone(), entry, fence });
                }
            }
            self.searches.insert(entry, Search::default());
            entry = entry.next();
        }
    }

    /// A bookie answered a read.
    pub fn handle_read(&mut self, index: usize, entry: EntryId, answer: Result<Bytes, BookieError>) {
        if self.outcome.is_some() {
            return;
        }
        let Some(search) = self.searches.get_mut(&entry) else { return };
        match answer.and_then(|bytes| open(bytes, self.ledger, Some(entry), &self.digester)) {
            Ok(found) => {
                search.found.get_or_insert(found);
            }
            Err(BookieError::Unauthorized) => return self.fail(RecoveryFailed::Unauthorized),
            Err(error) if error.is_absence() => drop(search.absent.insert(index)),
            Err(_) => drop(search.failed.insert(index)),
        }
        self.decide();
    }

    /// Decides the searched entries in order, as far as the answers go.
    fn decide(&mut self) {
        let Quorum { write, ack, .. } = self.quorum();
        while let Some((&entry, search)) = self.searches.first_key_value() {
            let known = entry <= self.confirmed;
            let answered = search.absent.len() + search.failed.len() == write;
            match &search.found {
                // The last confirmed entry is only read for its length.
                Some((_, opened)) if known => self.length = opened.header.ledger_length,
                Some(_) => {
                    if let Some((body, opened)) = self.searches.remove(&entry).and_then(|search| search.found) {
                        self.write_back(entry, body, opened.header.ledger_length);
                    }
                }
                None if known && answered => {}
                None if !known && search.absent.len() > write - ack => {
                    self.end_known = true;
                    self.searches.clear();
                    self.finish_if_done();
                    return;
                }
                None if !known && answered => {
                    return self.fail(RecoveryFailed::CannotTell(entry, BookieError::Unknown));
                }
                None => return,
            }
            self.searches.remove(&entry);
            self.next_search = entry.next();
            self.search_on();
        }
    }

    fn write_back(&mut self, entry: EntryId, body: Entry, length: i64) {
        self.write_backs.push_back(WriteBack { body: body.clone(), length, acks: 0 });
        for index in self.quorum().write_set(entry) {
            self.send(index, entry, body.clone());
        }
    }

    fn ensemble(&self) -> &[BookieId] {
        self.segments.last().map_or(&[], |segment| &segment.ensemble)
    }

    fn send(&mut self, index: usize, entry: EntryId, body: Entry) {
        if let Some(bookie) = self.ensemble().get(index).cloned() {
            self.actions.push(RecoveryAction::WriteBack { index, bookie, entry, body });
        }
    }

    /// A bookie answered a recovery add.
    pub fn handle_written(&mut self, index: usize, bookie: &BookieId, entry: EntryId, answer: Result<(), BookieError>) {
        if self.outcome.is_some() || self.ensemble().get(index) != Some(bookie) {
            return;
        }
        match answer {
            Ok(()) => {
                let offset = usize::try_from(entry.0 - self.confirmed.0 - 1).ok();
                if let Some(write_back) = offset.and_then(|offset| self.write_backs.get_mut(offset)) {
                    write_back.acks |= 1 << index;
                }
                self.confirm();
            }
            Err(BookieError::Unauthorized) => self.fail(RecoveryFailed::Unauthorized),
            Err(error) => self.replace(index, bookie, entry, error),
        }
    }

    fn confirm(&mut self) {
        while let Some(first) = self.write_backs.front() {
            if (first.acks.count_ones() as usize) < self.quorum().ack {
                break;
            }
            self.length = first.length;
            self.confirmed = self.confirmed.next();
            self.write_backs.pop_front();
        }
        self.finish_if_done();
    }

    fn finish_if_done(&mut self) {
        if self.end_known && self.write_backs.is_empty() && self.outcome.is_none() {
            let end = RecoveredEnd {
                last_entry: self.confirmed,
                length: self.length,
                segments: self.segments.iter().filter(|s| self.is_used(s)).cloned().collect(),
            };
            self.outcome = Some(Ok(end));
        }
    }

    /// A segment that recovery added for entries that then proved absent says nothing; those of the snapshot stay.
    fn is_used(&self, segment: &Segment) -> bool {
        segment.first_entry <= self.confirmed || self.snapshot.segments.contains(segment)
    }

    /// Replaces a member that failed a write-back, or goes on without it.
    fn replace(&mut self, index: usize, bookie: &BookieId, entry: EntryId, error: BookieError) {
        self.failed.insert(bookie.clone());
        let candidates: Vec<BookieId> =
            self.available.iter().filter(|bookie| !self.failed.contains(*bookie)).cloned().collect();
        let ensemble = replace(self.ensemble(), &[&(index, bookie.clone())], &candidates);
        if ensemble == self.ensemble() {
            let working = self
                .quorum()
                .write_set(entry)
                .filter(|i| self.ensemble().get(*i).is_some_and(|bookie| !self.failed.contains(bookie)));
            if working.count() < self.quorum().ack {
                self.fail(RecoveryFailed::NotEnoughBookies(entry, error));
            }
            return;
        }
        self.segments = with_segment(&self.segments, Segment { first_entry: self.confirmed.next(), ensemble });
        let first = self.confirmed.next().0;
        let mut resend = Vec::new();
        let quorum = self.quorum();
        for (id, write_back) in (first..).zip(&mut self.write_backs) {
            if quorum.stores(EntryId(id), index) {
                write_back.acks &= !(1 << index);
                resend.push((EntryId(id), write_back.body.clone()));
            }
        }
        for (id, body) in resend {
            self.send(index, id, body);
        }
    }

    fn fail(&mut self, why: RecoveryFailed) {
        self.actions.clear();
        self.outcome = Some(Err(why));
    }
}

fn open(
    bytes: Bytes,
    ledger: LedgerId,
    entry: Option<EntryId>,
    digester: &Digester,
) -> Result<(Entry, OpenedEntry), BookieError> {
    let split = Entry::split(bytes, digester).map_err(|_| BookieError::Damaged)?;
    let opened = split.clone().open(ledger, entry, digester).map_err(|_| BookieError::Damaged)?;
    Ok((split, opened))
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
