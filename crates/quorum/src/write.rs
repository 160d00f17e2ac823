//! The writer of a ledger.
//!
//! Contract:
//! - entries complete in the order of their ids, each when Qa bookies that stored metadata names for it have it;
//! - while the outcome of an ensemble change is open nothing completes, so that its first entry, the one after the last
//!   confirmed, is right;
//! - once a change is stored, every pending entry loses the acks of the replaced members and is sent to their
//!   successors before anything completes;
//! - when no bookie can take over, or metadata is known not to have been touched, completions go on from the unchanged
//!   ensemble, and the failed members are tried again;
//! - an answer that proves another owner (fenced, wrong password) stops the writer for good. What is pending then is
//!   neither stored nor lost: only recovery can tell.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use geminga_bookie_wire::{Digester, Entry, EntryHeader};
use geminga_model::{BookieId, EntryId, Instant, LedgerId, canary};
use geminga_records::{LedgerMetadata, Quorum};

use crate::error::{BookieError, Member};

/// How long a failed member rests before it is tried again when nothing can replace it.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why an ensemble change did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeFailed {
    /// Somebody recovers the ledger: this writer is not its owner any more.
    #[error("the ledger is being recovered by somebody else")]
    Fenced,
    /// The ledger is closed.
    #[error("the ledger was closed by somebody else")]
    Closed,
    /// Its metadata is gone.
    #[error("the ledger was deleted")]
    Deleted,
    /// Too few bookies to replace the failed ones.
    #[error("no other bookie is available")]
    NoReplacement,
    /// Metadata could not be reached, and surely was not changed. Whoever does not know whether a write was applied
    /// must find out before it reports anything.
    #[error("metadata cannot be reached")]
    MetadataUnreachable,
}

/// Whether the writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterState {
    /// It does.
    Open,
    /// No more adds: its owner closes it.
    Closing,
    /// Another owner has the ledger, for the given reason. Recover it to learn where it ends.
    Lost(ChangeFailed),
}

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteAction {
    /// Send consecutive entries to a bookie and report the answers to [`LedgerWriter::handle_added`].
    Send {
        /// The bookie's place in the ensemble.
        index: usize,
        /// The bookie.
        bookie: BookieId,
        /// The id of the first entry.
        first: EntryId,
        /// The entries.
        bodies: Vec<Entry>,
    },
    /// Replace failed bookies in metadata (see [`crate::ensemble::change`]) and report the outcome to
    /// [`LedgerWriter::handle_changed`].
    ChangeEnsemble {
        /// The failed members and their places.
        failed: Vec<(usize, BookieId)>,
        /// The last confirmed entry; it does not move until the outcome is reported.
        last_add_confirmed: EntryId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// Every member is believed to work.
    None,
    /// The outcome of a change is open: nothing completes.
    Deciding,
    /// Nothing can be changed now; the failed members are tried again at the given time.
    Waiting { retry_at: Instant },
}

#[derive(Debug)]
struct PendingAdd {
    body: Entry,
    /// Payload bytes of the ledger up to this entry.
    length: i64,
    /// Bit i: the member at index i of the ensemble has the entry.
    acks: u64,
}

/// Writes one ledger; see the module's contract.
#[derive(Debug)]
pub struct LedgerWriter {
    ledger: LedgerId,
    quorum: Quorum,
    digester: Digester,
    ensemble: Vec<BookieId>,
    state: WriterState,
    confirmed: EntryId,
    confirmed_length: i64,
    pending: VecDeque<PendingAdd>,
    failed: BTreeMap<usize, BookieId>,
    change: Change,
    actions: Vec<WriteAction>,
    /// Payloads of confirmed entries that were not taken yet.
    stored: Vec<Bytes>,
}

impl LedgerWriter {
    /// The writer of a ledger that was just created with `metadata`.
    #[must_use]
    pub fn new(ledger: LedgerId, metadata: &LedgerMetadata) -> LedgerWriter {
        LedgerWriter {
            ledger,
            quorum: metadata.quorum,
            digester: Digester::new(metadata.digest, &metadata.password),
            ensemble: metadata.last_segment().ensemble.clone(),
            state: WriterState::Open,
            confirmed: EntryId::NONE,
            confirmed_length: 0,
            pending: VecDeque::new(),
            failed: BTreeMap::new(),
            change: Change::None,
            actions: Vec::new(),
            stored: Vec::new(),
        }
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// Whether it writes.
    #[must_use]
    pub fn state(&self) -> WriterState {
        self.state
    }

    /// The last entry that is stored for sure, with every one before it. Whoever waits for an entry compares it with
    /// this after each `handle_*` call.
    #[must_use]
    pub fn last_add_confirmed(&self) -> EntryId {
        self.confirmed
    }

    /// Payload bytes up to the last confirmed entry.
    #[must_use]
    pub fn confirmed_length(&self) -> i64 {
        self.confirmed_length
    }

    /// The last entry handed in, confirmed or not.
    #[must_use]
    pub fn last_add_pushed(&self) -> EntryId {
        EntryId(self.confirmed.0 + i64::try_from(self.pending.len()).unwrap_or(i64::MAX))
    }

    /// The members that failed and are not replaced, in the order of their places; for explanations.
    pub fn failed_members(&self) -> impl Iterator<Item = (usize, &BookieId)> {
        self.failed.iter().map(|(index, bookie)| (*index, bookie))
    }

    /// How many entries were handed in and are not confirmed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// When [`LedgerWriter::handle_timeout`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.change {
            Change::Waiting { retry_at } => Some(retry_at),
            Change::None | Change::Deciding => None,
        }
    }

    /// Whether nothing is pending and nothing is to be done.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.actions.is_empty() && self.stored.is_empty()
    }

    /// Gives back what room an idle writer holds.
    pub fn rest(&mut self) {
        if self.is_idle() {
            self.pending = VecDeque::new();
            self.actions = Vec::new();
            self.stored = Vec::new();
        }
    }

    /// Moves what is to be done to the end of `into`, in order.
    pub fn take_actions(&mut self, into: &mut Vec<WriteAction>) {
        into.append(&mut self.actions);
    }

    /// Moves the payloads of the entries that were confirmed since the last call to the end of `into`, in order. This or
    /// [`LedgerWriter::forget_stored`] is called after each `handle_*` call: they are kept until then.
    pub fn take_stored(&mut self, into: &mut Vec<Bytes>) {
        into.append(&mut self.stored);
    }

    /// For who does not want them.
    pub fn forget_stored(&mut self) {
        self.stored.clear();
    }

    /// Adds an entry; `None` if the writer is not open.
    pub fn add(&mut self, payload: Bytes) -> Option<EntryId> {
        if self.state != WriterState::Open {
            return None;
        }
        let entry = self.last_add_pushed().next();
        let before = self.pending.back().map_or(self.confirmed_length, |add| add.length);
        let length = before.saturating_add(i64::try_from(payload.len()).unwrap_or(i64::MAX));
        let header =
            EntryHeader { ledger: self.ledger, entry, last_add_confirmed: self.confirmed, ledger_length: length };
        let body = Entry::seal(header, payload, &self.digester);
        for index in self.quorum.write_set(entry) {
            self.send(index, entry, body.clone());
        }
        self.pending.push_back(PendingAdd { body, length, acks: 0 });
        Some(entry)
    }

    /// A bookie answered the adds of `count` entries from `first` on, or will not any more.
    pub fn handle_added(
        &mut self,
        index: usize,
        bookie: &BookieId,
        (first, count): (EntryId, usize),
        result: Result<(), BookieError>,
    ) {
        if matches!(self.state, WriterState::Lost(_)) || self.ensemble.get(index) != Some(bookie) {
            // The answer of a member that was replaced says nothing about the ensemble that metadata names.
            return;
        }
        match result {
            Ok(()) => {
                // Some may be confirmed already, by other members.
                let at = |id: i64| usize::try_from(id.saturating_sub(self.confirmed.next().0)).unwrap_or(0);
                let end = first.0.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
                let (from, to) = (at(first.0).min(self.pending.len()), at(end).min(self.pending.len()));
                self.pending.range_mut(from..to).for_each(|add| add.acks |= 1 << index);
                self.confirm();
            }
            Err(BookieError::Fenced | BookieError::Unauthorized) => self.lose(ChangeFailed::Fenced),
            Err(_) => {
                self.failed.insert(index, bookie.clone());
                if self.change == Change::None {
                    self.request_change();
                }
            }
        }
    }

    /// The outcome of a [`WriteAction::ChangeEnsemble`]: the metadata as it is stored now.
    pub fn handle_changed(&mut self, now: Instant, outcome: Result<&LedgerMetadata, ChangeFailed>) {
        if self.change != Change::Deciding || matches!(self.state, WriterState::Lost(_)) {
            return;
        }
        match outcome {
            Ok(metadata) => {
                self.change = Change::None;
                self.adopt(&metadata.last_segment().ensemble);
                self.confirm();
                if !self.failed.is_empty() {
                    self.request_change();
                }
            }
            Err(ChangeFailed::NoReplacement | ChangeFailed::MetadataUnreachable) => {
                self.change = Change::Waiting { retry_at: now + RETRY_AFTER };
                self.confirm();
            }
            Err(lost @ (ChangeFailed::Fenced | ChangeFailed::Closed | ChangeFailed::Deleted)) => self.lose(lost),
        }
    }

    /// Time has passed: tries members again that could not be replaced.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Change::Waiting { retry_at } = self.change else { return };
        if now < retry_at {
            return;
        }
        self.change = Change::None;
        for index in std::mem::take(&mut self.failed).into_keys() {
            self.resend(index);
        }
    }

    /// Refuses further adds. Pending ones may still complete; when [`LedgerWriter::last_add_confirmed`] is where its
    /// owner wants it, the owner writes CLOSED with it and [`LedgerWriter::confirmed_length`].
    pub fn close(&mut self) {
        if self.state == WriterState::Open {
            self.state = WriterState::Closing;
        }
    }

    /// Takes the payloads that were handed in and never confirmed, with their ids, for whoever continues in another
    /// ledger. Nothing of them may be written elsewhere before the end of this ledger is known.
    pub fn take_pending(&mut self) -> Vec<(EntryId, Bytes)> {
        self.close();
        let first = self.confirmed.next().0;
        std::mem::take(&mut self.pending)
            .into_iter()
            .zip(first..)
            .map(|(add, id)| (EntryId(id), add.body.payload))
            .collect()
    }

    /// Confirms from the head on while entries have their ack quorum.
    fn confirm(&mut self) {
        if self.change == Change::Deciding {
            return;
        }
        while let Some(add) = self.pending.pop_front_if(|add| add.acks.count_ones() as usize >= self.quorum.ack) {
            self.confirmed_length = add.length;
            self.confirmed = self.confirmed.next();
            self.stored.push(add.body.payload);
        }
    }

    fn lose(&mut self, why: ChangeFailed) {
        self.state = WriterState::Lost(why);
        self.actions.clear();
    }

    fn request_change(&mut self) {
        self.change = Change::Deciding;
        let failed = self.failed.iter().map(|(index, bookie)| (*index, bookie.clone())).collect();
        self.actions.push(WriteAction::ChangeEnsemble { failed, last_add_confirmed: self.confirmed });
    }

    /// Takes over the stored ensemble: replaced members lose their acks, and their successors get what is pending.
    fn adopt(&mut self, stored: &[BookieId]) {
        let replaced: Vec<Member> = (self.ensemble.iter().zip(stored).enumerate())
            .filter(|(_, (old, new))| old != new)
            .map(|(index, (_, new))| Member { index, bookie: new.clone() })
            .collect();
        self.ensemble = stored.to_vec();
        for Member { index, bookie } in replaced {
            // A failure that was reported meanwhile by the successor itself cannot be here: nothing was sent to it.
            self.failed.retain(|failed, old| *failed != index || *old == bookie);
            if !canary!("LED-5") {
                for add in &mut self.pending {
                    add.acks &= !(1 << index);
                }
            }
            self.resend(index);
        }
    }

    /// Sends what the member at `index` should have and did not acknowledge.
    fn resend(&mut self, index: usize) {
        let first = self.confirmed.next().0;
        let missing: Vec<(EntryId, Entry)> = (first..)
            .map(EntryId)
            .zip(&self.pending)
            .filter(|(entry, add)| add.acks & 1 << index == 0 && self.quorum.stores(*entry, index))
            .map(|(entry, add)| (entry, add.body.clone()))
            .collect();
        for (entry, body) in missing {
            self.send(index, entry, body);
        }
    }

    fn send(&mut self, index: usize, entry: EntryId, body: Entry) {
        let Some(bookie) = self.ensemble.get(index) else { return };
        // It continues what goes to this member, if nothing but sends to others came since.
        for action in self.actions.iter_mut().rev().take(self.quorum.ensemble) {
            match action {
                WriteAction::Send { index: to, bookie: known, first, bodies } if *to == index => {
                    if known == bookie && first.0 + bodies.len() as i64 == entry.0 {
                        return bodies.push(body);
                    }
                    break;
                }
                WriteAction::Send { .. } => {}
                WriteAction::ChangeEnsemble { .. } => break,
            }
        }
        self.actions.push(WriteAction::Send { index, bookie: bookie.clone(), first: entry, bodies: vec![body] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_model::DigestType;

    fn bookies(names: &str) -> Vec<BookieId> {
        names.chars().map(|name| BookieId::parse(&name.to_string()).unwrap()).collect()
    }

    fn metadata(ensemble: &str, write: usize, ack: usize) -> LedgerMetadata {
        let quorum = Quorum::new(ensemble.len(), write, ack).unwrap();
        LedgerMetadata::open(quorum, bookies(ensemble), DigestType::Crc32c, Bytes::new())
    }

    struct Bench {
        writer: LedgerWriter,
        sent: Vec<(String, i64)>,
        changes: Vec<(Vec<(usize, BookieId)>, EntryId)>,
    }

    impl Bench {
        fn new(ensemble: &str, write: usize, ack: usize) -> Bench {
            let writer = LedgerWriter::new(LedgerId(1), &metadata(ensemble, write, ack));
            Bench { writer, sent: vec![], changes: vec![] }
        }

        fn add(&mut self) {
            assert!(self.writer.add(Bytes::from_static(b"xy")).is_some());
            self.drain();
        }

        fn answer(&mut self, bookie: &str, entry: i64, result: Result<(), BookieError>) {
            let bookie = BookieId::parse(bookie).unwrap();
            let index = self.writer.ensemble.iter().position(|b| *b == bookie).unwrap_or(0);
            self.writer.handle_added(index, &bookie, (EntryId(entry), 1), result);
            self.drain();
        }

        fn drain(&mut self) {
            let mut actions = Vec::new();
            self.writer.take_actions(&mut actions);
            for action in actions {
                match action {
                    WriteAction::Send { bookie, first, bodies, .. } => {
                        let entries = (first.0..).zip(bodies);
                        self.sent.extend(entries.map(|(entry, _)| (bookie.to_string(), entry)));
                    }
                    WriteAction::ChangeEnsemble { failed, last_add_confirmed } => {
                        self.changes.push((failed, last_add_confirmed));
                    }
                }
            }
        }

        fn confirmed(&self) -> i64 {
            self.writer.last_add_confirmed().0
        }
    }

    #[test]
    fn completes_in_order_with_the_ack_quorum() {
        let mut bench = Bench::new("abc", 3, 2);
        bench.add();
        bench.add();
        assert_eq!(bench.sent.len(), 6);
        bench.answer("a", 1, Ok(()));
        bench.answer("b", 1, Ok(()));
        assert_eq!(bench.confirmed(), -1);
        bench.answer("c", 0, Ok(()));
        bench.answer("c", 0, Ok(()));
        assert_eq!(bench.confirmed(), -1, "the same bookie twice is one ack");
        bench.answer("b", 0, Ok(()));
        assert_eq!((bench.confirmed(), bench.writer.confirmed_length()), (1, 4));
    }

    #[test]
    fn a_change_holds_completions_and_unacks_the_replaced() {
        let mut bench = Bench::new("ab", 2, 2);
        bench.add();
        bench.add();
        bench.answer("a", 0, Ok(()));
        bench.answer("a", 1, Ok(()));
        bench.answer("b", 1, Ok(()));
        bench.answer("b", 0, Err(BookieError::Timeout));
        assert_eq!(bench.changes, [(vec![(1, BookieId::parse("b").unwrap())], EntryId(-1))]);
        bench.answer("b", 0, Ok(()));
        assert_eq!(bench.confirmed(), -1, "nothing completes while the change is open");
        bench.sent.clear();
        bench.writer.handle_changed(Instant(0), Ok(&metadata("ac", 2, 2)));
        bench.drain();
        assert_eq!(bench.confirmed(), -1);
        assert_eq!(bench.sent, [("c".to_owned(), 0), ("c".to_owned(), 1)]);
        bench.writer.handle_added(1, &BookieId::parse("b").unwrap(), (EntryId(0), 1), Ok(()));
        assert_eq!(bench.confirmed(), -1, "a replaced member does not count");
        bench.answer("c", 0, Ok(()));
        bench.answer("c", 1, Ok(()));
        assert_eq!(bench.confirmed(), 1);
    }

    #[test]
    fn an_entry_that_does_not_touch_the_replaced_member_completes_after_the_change() {
        // Entry 0 is on a and b, entry 1 on b and c: c fails.
        let mut bench = Bench::new("abc", 2, 2);
        bench.add();
        bench.add();
        bench.answer("c", 1, Err(BookieError::ReadOnly));
        bench.answer("a", 0, Ok(()));
        bench.answer("b", 0, Ok(()));
        assert_eq!(bench.confirmed(), -1);
        bench.writer.handle_changed(Instant(0), Ok(&metadata("abd", 2, 2)));
        assert_eq!(bench.confirmed(), 0);
    }

    #[test]
    fn without_a_replacement_it_goes_on_and_tries_again() {
        let mut bench = Bench::new("abc", 3, 2);
        bench.add();
        bench.answer("c", 0, Err(BookieError::Unreachable));
        bench.answer("a", 0, Ok(()));
        bench.answer("b", 0, Ok(()));
        bench.writer.handle_changed(Instant(0), Err(ChangeFailed::NoReplacement));
        assert_eq!(bench.confirmed(), 0);
        bench.add();
        let retry_at = bench.writer.deadline().unwrap();
        bench.sent.clear();
        bench.writer.handle_timeout(retry_at);
        bench.drain();
        assert_eq!(bench.sent, [("c".to_owned(), 1)]);
        assert_eq!(bench.writer.deadline(), None);
    }

    #[test]
    fn failures_during_a_change_are_one_more_change() {
        let mut bench = Bench::new("abc", 3, 2);
        bench.add();
        bench.answer("a", 0, Err(BookieError::Timeout));
        bench.answer("b", 0, Err(BookieError::Timeout));
        bench.answer("b", 0, Err(BookieError::Timeout));
        assert_eq!(bench.changes.len(), 1);
        bench.writer.handle_changed(Instant(0), Ok(&metadata("dbc", 3, 2)));
        bench.drain();
        assert_eq!(bench.changes.len(), 2);
        assert_eq!(bench.changes[1].0, [(1, BookieId::parse("b").unwrap())]);
    }

    #[test]
    fn runs_are_sent_and_answered_together() {
        let mut bench = Bench::new("ab", 2, 2);
        (0..5).for_each(|_| assert!(bench.writer.add(Bytes::from_static(b"xy")).is_some()));
        let mut actions = Vec::new();
        bench.writer.take_actions(&mut actions);
        let runs: Vec<_> = actions
            .iter()
            .map(|action| match action {
                WriteAction::Send { index, first, bodies, .. } => (*index, first.0, bodies.len()),
                WriteAction::ChangeEnsemble { .. } => panic!("nothing failed"),
            })
            .collect();
        assert_eq!(runs, [(0, 0, 5), (1, 0, 5)]);
        let [a, b] = ["a", "b"].map(|name| BookieId::parse(name).unwrap());
        // Every answer may come twice and in parts.
        for (bookie, first, count, confirmed) in
            [(&a, 0, 5, -1), (&b, 1, 2, -1), (&b, 0, 2, 2), (&b, 0, 2, 2), (&a, 2, 9, 2), (&b, 2, 2, 3), (&b, 0, 5, 4)]
        {
            let index = usize::from(*bookie == b);
            bench.writer.handle_added(index, bookie, (EntryId(first), count), Ok(()));
            assert_eq!(bench.confirmed(), confirmed, "{first} {count}");
        }
        let mut stored = Vec::new();
        bench.writer.take_stored(&mut stored);
        assert_eq!(stored.len(), 5);
        bench.writer.rest();
        assert!(bench.writer.is_idle());
    }

    #[test]
    fn a_fence_stops_it_and_keeps_what_is_pending() {
        let mut bench = Bench::new("ab", 2, 2);
        bench.add();
        bench.add();
        bench.answer("a", 0, Ok(()));
        bench.answer("b", 0, Ok(()));
        bench.answer("b", 1, Err(BookieError::Fenced));
        assert_eq!(bench.writer.state(), WriterState::Lost(ChangeFailed::Fenced));
        bench.answer("a", 1, Ok(()));
        assert_eq!(bench.confirmed(), 0);
        assert_eq!(bench.writer.add(Bytes::new()), None);
        let pending = bench.writer.take_pending();
        assert_eq!(pending, [(EntryId(1), Bytes::from_static(b"xy"))]);
    }
}
