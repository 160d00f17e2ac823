//! Dispatching: reading what consumers can take, leaving out what is acked, and handing it over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use geminga_dispatch::{Assigned, ConsumerId, Kind, NextRead};
use geminga_env::{OnPanic, Permit};
use geminga_managed_ledger::{CachedRead, LogEntry, ManagedLedgerError};
use geminga_model::{Instant, Position, UnixMillis, key_slot};
use geminga_wire::{Entry, NONE_KEY};

use crate::connection::Delivery;
use crate::subscription::SubscriptionItem;
use crate::subscription_task::{Serving, Subscription};

/// Entries and bytes of one read.
const READ_ENTRIES: usize = 100;
const READ_BYTES: usize = 1 << 20;
/// Entries that are dispatched before others may run.
const TURN: usize = 256;
/// How long after a failed read the next is tried.
const RETRY_READ: Duration = Duration::from_secs(1);

/// The one read from bookies that a subscription may have under way.
///
/// What it holds counts as read-ahead from before the read until the end of the turn in which it arrives: what nobody
/// takes then is let go, and read again when somebody does, so that read-ahead never waits for clients.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    state: State,
    permit: Option<Permit>,
    /// The bytes of the largest entry that was read, which the next read has room for.
    largest: usize,
    /// What is being read is not wanted any more: the subscription was moved.
    stale: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    /// From there on, since then.
    UnderWay(Position, Instant),
    Finished(Vec<LogEntry>),
    Failed(ManagedLedgerError, Instant),
}

impl Reading {
    fn start(&mut self, first: Position, now: Instant) {
        // Nothing is held of what is waited for.
        self.permit = None;
        self.state = State::UnderWay(first, now);
        self.stale = false;
    }

    pub(crate) fn finished(&mut self, now: Instant, read: ReadAhead) {
        self.state = match read.entries {
            _ if std::mem::take(&mut self.stale) => State::None,
            Ok(entries) => {
                self.largest = entries.iter().map(|entry| entry.payload.len()).fold(self.largest, usize::max);
                self.permit = Some(read.permit);
                State::Finished(entries)
            }
            Err(error) => State::Failed(error, now + RETRY_READ),
        };
    }

    fn let_go(&mut self) {
        if matches!(self.state, State::Finished(_)) {
            self.state = State::None;
        }
        self.permit = None;
    }

    /// The dispatcher goes elsewhere: forget what was read or is being read.
    pub(crate) fn restart(&mut self) {
        match self.state {
            State::UnderWay(..) => self.stale = true,
            _ => {
                self.state = State::None;
                self.permit = None;
            }
        }
    }

    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.state, State::UnderWay(..))
    }

    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match &self.state {
            State::Failed(_, at) => Some(*at),
            _ => None,
        }
    }

    /// What is waited for that consumers could take.
    pub(crate) fn why(&self, now: Instant) -> Option<String> {
        match &self.state {
            State::UnderWay(first, since) => Some(format!("reading from {first} on, for {:?}", now.since(*since))),
            State::Failed(error, _) => Some(format!("cannot read, trying again: {error}")),
            State::None | State::Finished(_) => None,
        }
    }
}

/// What a read from bookies brought, or not.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    entries: Result<Vec<LogEntry>, ManagedLedgerError>,
    permit: Permit,
}

enum Found {
    Entries(Vec<LogEntry>),
    /// Nothing now; something will wake the subscription.
    Later,
}

impl Serving {
    /// Dispatches until nobody can take more, there is nothing more, or it is others' turn: then true.
    pub(crate) fn dispatch(&mut self, now: Instant, of: &Subscription) -> bool {
        let wall = of.env.clock.wall();
        let mut dispatched = 0;
        while dispatched < TURN {
            self.look_for_room(of);
            let next = self.dispatcher.next_read();
            let found = match &next {
                NextRead::None => {
                    self.reading.let_go();
                    return false;
                }
                NextRead::Replay(positions) => self.find_replay(now, positions, of),
                NextRead::After { position, messages } => self.find_after(now, *position, *messages, of),
            };
            let Found::Entries(entries) = found else { return false };
            let _read_ahead = self.reading.permit.take();
            for entry in entries {
                if !self.offer(now, wall, entry) {
                    break;
                }
                dispatched += 1;
            }
        }
        true
    }

    /// Leaves out consumers whose connections are full; they are told when that is over.
    fn look_for_room(&mut self, of: &Subscription) {
        for id in self.full.drain(..) {
            self.dispatcher.set_room(id, true);
        }
        let full: Vec<ConsumerId> = (self.dispatcher.consumers().iter())
            .filter(|state| state.permits() > 0 && state.has_room())
            .map(geminga_dispatch::ConsumerState::id)
            .filter(|id| {
                let me = of.me.clone();
                let id = *id;
                let drained = move || -> Box<dyn FnOnce() + Send> {
                    Box::new(move || drop(me.push(SubscriptionItem::Drained(id))))
                };
                self.consumers.get(id).is_some_and(|consumer| !consumer.connection.room_or(drained))
            })
            .collect();
        for id in full {
            self.dispatcher.set_room(id, false);
        }
    }

    fn find_after(&mut self, now: Instant, after: Position, messages: u64, of: &Subscription) -> Found {
        let most = usize::try_from(messages).unwrap_or(READ_ENTRIES).min(READ_ENTRIES);
        if let Some(entries) = self.take_read(now) {
            let new: Vec<LogEntry> = entries.into_iter().filter(|entry| entry.position > after).collect();
            if !new.is_empty() {
                return Found::Entries(new);
            }
        }
        if matches!(self.reading.state, State::UnderWay(..) | State::Failed(..)) {
            return Found::Later;
        }
        match of.log.read_cached(after, most, READ_BYTES) {
            CachedRead::Entries(entries) => Found::Entries(entries),
            CachedRead::Cold(first) => {
                self.read(first, most, of);
                Found::Later
            }
            CachedRead::NothingNew => {
                of.waiting.store(true, Ordering::Release);
                // What was committed between the look and the flag would wake nobody.
                match of.log.read_cached(after, most, READ_BYTES) {
                    CachedRead::Entries(entries) if of.waiting.swap(false, Ordering::AcqRel) => Found::Entries(entries),
                    _ => Found::Later,
                }
            }
        }
    }

    /// Entries that are delivered again: as far as they follow each other in one read.
    fn find_replay(&mut self, now: Instant, positions: &[Position], of: &Subscription) -> Found {
        let Some(&first) = positions.first() else { return Found::Later };
        let run = positions
            .iter()
            .zip(first.entry.0..)
            .take_while(|(p, entry)| p.ledger == first.ledger && p.entry.0 == *entry);
        let run = run.count();
        let wanted = |entries: Vec<LogEntry>| -> Vec<LogEntry> {
            entries.into_iter().filter(|entry| positions.contains(&entry.position)).collect()
        };
        if let Some(entries) = self.take_read(now) {
            let again = wanted(entries);
            if !again.is_empty() {
                return Found::Entries(again);
            }
        }
        if matches!(self.reading.state, State::UnderWay(..) | State::Failed(..)) {
            return Found::Later;
        }
        let before = Position { ledger: first.ledger, entry: geminga_model::EntryId(first.entry.0 - 1) };
        match of.log.read_cached(before, run, READ_BYTES) {
            CachedRead::Entries(entries) if entries.first().is_some_and(|entry| entry.position == first) => {
                Found::Entries(wanted(entries))
            }
            CachedRead::Cold(position) if position == first => {
                self.read(first, run, of);
                Found::Later
            }
            // The entry is not part of the topic any more.
            _ => {
                self.dispatcher.skip(first);
                Found::Entries(Vec::new())
            }
        }
    }

    fn take_read(&mut self, now: Instant) -> Option<Vec<LogEntry>> {
        match &mut self.reading.state {
            State::Finished(entries) => {
                let entries = std::mem::take(entries);
                self.reading.state = State::None;
                Some(entries)
            }
            State::Failed(_, retry_at) if *retry_at <= now => {
                self.reading.state = State::None;
                None
            }
            _ => None,
        }
    }

    fn read(&mut self, first: Position, entries: usize, of: &Subscription) {
        self.reading.start(first, of.env.clock.now());
        let (log, me, budget) = (Arc::clone(&of.log), of.me.clone(), of.read_ahead().clone());
        let room = self.reading.largest.max(READ_BYTES);
        of.env.data.spawn("read", OnPanic::ExitProcess, async move {
            let mut permit = budget.acquire(room).await;
            let entries = log.read(first, entries, READ_BYTES).await;
            let bytes = entries.iter().flatten().map(|entry| entry.payload.len()).sum();
            permit.shrink(bytes);
            drop(me.push(SubscriptionItem::Read(ReadAhead { entries, permit })));
        });
    }

    /// Gives an entry to a consumer, or leaves it out because it is acked; false if nobody can take it.
    fn offer(&mut self, now: Instant, wall: UnixMillis, entry: LogEntry) -> bool {
        let LogEntry { position, payload } = entry;
        if self.cursor.is_acked(position) {
            self.dispatcher.skip(position);
            return true;
        }
        let parsed = Entry::parse(payload.clone());
        let summary = parsed.as_ref().ok().and_then(|entry| entry.summary().ok());
        let left = self.cursor.unacked_of(position);
        // What cannot be read counts as one message; the client says what is wrong with it.
        let messages =
            left.map(geminga_cursor::UnackedSet::count).or(summary.as_ref().map(|s| s.messages())).unwrap_or(1);
        let slot = match self.dispatcher.kind() {
            Kind::KeyShared { .. } => {
                summary.as_ref().map_or_else(|| key_slot(NONE_KEY), geminga_wire::MetadataSummary::sticky_key_slot)
            }
            Kind::Exclusive | Kind::Failover | Kind::Shared => 0,
        };
        let ack_set = left.map(geminga_cursor::UnackedSet::words).unwrap_or_default();
        let to = match self.dispatcher.assign(position, messages, slot) {
            Assigned::To(to) => to,
            Assigned::Waits => return true,
            Assigned::Nobody => return false,
        };
        let redelivery_count = self.cursor.redelivery_count(position);
        let delivery = Delivery { position, payload, redelivery_count, ack_set, consumer_epoch: None };
        if !self.consumers.push(now, wall, to, messages, delivery) {
            // Looked at again before the next read, where it asks to be told.
            self.full.push(to);
            self.dispatcher.set_room(to, false);
        }
        true
    }
}
