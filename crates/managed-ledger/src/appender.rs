//! The write side of a topic's log, inside the topic's task.
//!
//! Contract: appends complete in their order, each with the position at which it is stored; or the appender fails as a
//! whole, after which nothing is known of those that did not complete, and the topic must be opened anew.
//!
//! Order: [`Appender::append`] takes in, [`Appender::flush`] sends what a turn took in, events come back to
//! [`Appender::handle_event`], then [`Appender::take_completed`] tells what is stored. When a ledger is full the next one
//! is made while the old one is still written; then the old one is drained, closed, and both are written into the list
//! in one compare-and-set. A ledger that was fenced by somebody who is not the topic's owner is recovered, what its end
//! includes is complete, and the rest goes into the next ledger.

mod list;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_env::OnPanic;
use geminga_ledger::{CreatedLedger, LedgerError, LedgerEvent, LedgerSink, Writer};
use geminga_metastore::Version;
use geminga_model::{EntryId, Instant, LedgerId, Position, TopicName, canary};
use geminga_quorum::WriterState;
use geminga_records::ManagedLedgerInfo;

use crate::error::ManagedLedgerError;
use crate::log::{Log, LogEntry};
use crate::open::Opened;
use crate::options::ManagedLedgers;
use crate::switch::{Ending, Switched, switch};
use crate::trim::Trimmed;

/// How long after a failed attempt the next ledger is tried to be made again.
const RETRY_CREATE: Duration = Duration::from_secs(1);

/// What comes back to the appender through its owner's mailbox.
#[derive(Debug)]
pub struct AppenderEvent(Event);

#[derive(Debug)]
enum Event {
    Ledger(LedgerEvent),
    NextLedger(Result<CreatedLedger, LedgerError>),
    Switched(Result<Box<Switched>, ManagedLedgerError>),
    Trimmed(Result<Trimmed, ManagedLedgerError>),
    Properties(Result<(ManagedLedgerInfo, Version), ManagedLedgerError>),
    Terminated(Result<Box<Switched>, ManagedLedgerError>),
}

/// The owner of an appender: takes its events into the owner's mailbox.
pub trait AppenderSink: Send + Sync {
    /// Takes an event; never waits.
    fn deliver(&self, event: AppenderEvent);
}

struct ToOwner(Arc<dyn AppenderSink>);

impl LedgerSink for ToOwner {
    fn deliver(&self, event: LedgerEvent) {
        self.0.deliver(AppenderEvent(Event::Ledger(event)));
    }
}

/// What the appender is doing, for explanations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppenderState {
    /// No ledger is open; the next append makes one.
    Idle,
    /// Entries go to this ledger.
    Writing(LedgerId),
    /// The full ledger is drained and closed, or a lost one recovered, before the next is written.
    Switching {
        /// Since when.
        since: Instant,
    },
    /// It cannot go on; the topic must be opened anew.
    Failed(ManagedLedgerError),
    /// It is closed.
    Closed,
}

enum State {
    Idle,
    Writing(Current),
    /// No more adds to the current ledger; what is pending is waited for.
    Draining(Current, Box<CreatedLedger>),
    Switching {
        since: Instant,
    },
    Failed(ManagedLedgerError),
    Closed,
}

struct Current {
    writer: Writer,
    opened_at: Instant,
    next_requested: bool,
    retry_next_at: Option<Instant>,
}

/// Appends to one topic's log; see the module.
pub struct Appender {
    ledgers: ManagedLedgers,
    topic: TopicName,
    log: Arc<Log>,
    sink: Arc<dyn AppenderSink>,
    info: ManagedLedgerInfo,
    version: Version,
    state: State,
    /// The next entry to be confirmed.
    next: Position,
    /// Were on their way into a ledger that was lost; its end tells which of them, from `next` on, are stored.
    unknown: VecDeque<Bytes>,
    /// Not in any ledger yet.
    waiting: VecDeque<Bytes>,
    completed: Vec<Position>,
    /// Payloads on their way from the writer to the log; empty between events.
    payloads: Vec<Bytes>,
    confirmed: Vec<LogEntry>,
    /// The list is being written by a procedure.
    list_busy: bool,
    /// The current ledger was lost, and its end is still to be looked for.
    lost: Option<LedgerId>,
    trim_to: Option<LedgerId>,
    /// Properties that are not stored yet.
    properties: Vec<(String, String)>,
    /// The topic is to end when what was taken in is stored.
    terminating: bool,
}

impl Appender {
    pub(crate) fn new(opened: Opened, sink: Arc<dyn AppenderSink>) -> Appender {
        let Opened { log, info, version, topic, ledgers } = opened;
        Appender {
            ledgers,
            topic,
            log,
            sink,
            info,
            version,
            state: State::Idle,
            next: Position::EARLIEST,
            unknown: VecDeque::new(),
            waiting: VecDeque::new(),
            completed: Vec::new(),
            payloads: Vec::new(),
            confirmed: Vec::new(),
            list_busy: false,
            lost: None,
            trim_to: None,
            properties: Vec::new(),
            terminating: false,
        }
    }

    /// The read side.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The list of ledgers as stored.
    #[must_use]
    pub fn info(&self) -> &ManagedLedgerInfo {
        &self.info
    }

    /// What it is doing.
    #[must_use]
    pub fn state(&self) -> AppenderState {
        match &self.state {
            State::Idle => AppenderState::Idle,
            State::Writing(current) => AppenderState::Writing(current.writer.ledger()),
            State::Draining(current, _) => AppenderState::Switching { since: current.opened_at },
            State::Switching { since } => AppenderState::Switching { since: *since },
            State::Failed(why) => AppenderState::Failed(why.clone()),
            State::Closed => AppenderState::Closed,
        }
    }

    /// Appends that did not complete.
    #[must_use]
    pub fn pending(&self) -> usize {
        let written = match &self.state {
            State::Writing(current) | State::Draining(current, _) => current.writer.pending(),
            _ => 0,
        };
        written + self.unknown.len() + self.waiting.len()
    }

    /// Takes an entry in.
    ///
    /// # Errors
    /// Gives the payload back if the appender failed, is closed, or the topic is terminated.
    pub fn append(&mut self, now: Instant, payload: Bytes) -> Result<(), Bytes> {
        if self.terminating || self.info.terminated.is_some() {
            return Err(payload);
        }
        match &mut self.state {
            State::Failed(_) | State::Closed => return Err(payload),
            State::Writing(current) => {
                if current.writer.state() == WriterState::Open {
                    current.writer.add(payload);
                    self.request_next_if_full(now);
                } else {
                    // The writer was lost; the event that tells so is being worked off.
                    self.waiting.push_back(payload);
                }
            }
            State::Idle => {
                self.waiting.push_back(payload);
                self.start_if_idle(now);
            }
            State::Draining(..) | State::Switching { .. } => self.waiting.push_back(payload),
        }
        Ok(())
    }

    /// Sends what was taken in since the last flush.
    pub fn flush(&mut self) {
        if let State::Writing(current) | State::Draining(current, _) = &mut self.state {
            current.writer.flush();
        }
    }

    /// Moves the positions of appends that completed to the end of `into`, in the order of the appends.
    pub fn take_completed(&mut self, into: &mut Vec<Position>) {
        into.append(&mut self.completed);
    }

    /// When [`Appender::handle_timeout`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Writing(current) => {
                let retries = [current.writer.deadline(), current.retry_next_at];
                let full = (current.writer.last_add_pushed() > EntryId::NONE && !current.next_requested)
                    .then(|| current.opened_at + self.ledgers.rollover.max_age);
                retries.into_iter().chain([full]).flatten().min()
            }
            State::Draining(current, _) => current.writer.deadline(),
            _ => None,
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let State::Writing(current) | State::Draining(current, _) = &mut self.state {
            current.writer.handle_timeout(now);
        }
        self.request_next_if_full(now);
    }

    /// Takes an event.
    pub fn handle_event(&mut self, now: Instant, event: AppenderEvent) {
        match event.0 {
            Event::Ledger(event) => self.handle_ledger(now, event),
            Event::NextLedger(created) => self.handle_next(now, created),
            Event::Switched(switched) => self.handle_switched(now, switched),
            Event::Trimmed(trimmed) => self.handle_trimmed(now, trimmed),
            Event::Properties(written) => self.handle_properties(now, written),
            Event::Terminated(switched) => self.handle_terminated(switched),
        }
    }

    /// The last position of the topic for ever, if it is terminated.
    #[must_use]
    pub fn terminated(&self) -> Option<Position> {
        self.info.terminated
    }

    /// The procedure that closes the ledger and stamps the list, after which another broker need not recover anything.
    /// Appends that did not complete are not part of the log.
    pub fn close(&mut self) -> impl Future<Output = Result<(), ManagedLedgerError>> + Send + 'static {
        let state = std::mem::replace(&mut self.state, State::Closed);
        let (ledgers, topic) = (self.ledgers.clone(), self.topic.clone());
        let (info, version, busy) = (self.info.clone(), self.version, self.list_busy);
        async move {
            match state {
                State::Writing(current) | State::Draining(current, _) if !busy => {
                    let ledger = current.writer.ledger();
                    let ending = Ending::Close(ledger, Box::pin(current.writer.close()));
                    switch(ledgers, topic, info, version, ending, None).await.map(drop)
                }
                // In the middle of a switch or trim the list is left to the next open, which finds the end.
                _ => Ok(()),
            }
        }
    }

    fn handle_ledger(&mut self, now: Instant, event: LedgerEvent) {
        let changed = matches!(event, LedgerEvent::Changed { outcome: Ok(_), .. });
        let (State::Writing(current) | State::Draining(current, _)) = &mut self.state else { return };
        current.writer.handle_event_keeping(now, event, &mut self.payloads);
        if changed {
            self.log.set_ledger(current.writer.ledger(), Arc::clone(current.writer.metadata()));
        }
        let (ledger, state) = (current.writer.ledger(), current.writer.state());
        if let WriterState::Lost(why) = state {
            tracing::warn!(topic = %self.topic, %ledger, reason = %why, "the ledger was fenced; looking for its end");
            self.unknown.extend(current.writer.take_pending().into_iter().map(|(_, payload)| payload));
            self.confirm();
            let before = std::mem::replace(&mut self.state, State::Switching { since: now });
            if let State::Draining(_, created) = before {
                self.discard(created.ledger);
            }
            self.lost = Some(ledger);
            self.recover_if_lost();
        } else {
            self.confirm();
            self.switch_if_drained(now);
            self.terminate_if_stored(now);
        }
    }

    /// Looks for the end of a lost ledger, once the list is not being written for another reason.
    fn recover_if_lost(&mut self) {
        if self.list_busy {
            return;
        }
        if let Some(ledger) = self.lost.take() {
            self.start_switch(Ending::Lost(ledger), None);
        }
    }

    /// The payloads at hand are stored, from `next` on.
    fn confirm(&mut self) {
        for payload in self.payloads.drain(..) {
            let position = self.next;
            self.completed.push(position);
            self.confirmed.push(LogEntry { position, payload });
            self.next = position.next();
        }
        self.log.confirmed(&mut self.confirmed);
        if self.pending() == 0 {
            // An idle topic keeps no room for entries.
            self.payloads = Vec::new();
            self.confirmed = Vec::new();
        }
    }

    fn request_next_if_full(&mut self, now: Instant) {
        let State::Writing(current) = &mut self.state else { return };
        let rollover = self.ledgers.rollover;
        let (entries, age) = (current.writer.last_add_pushed().0 + 1, now.since(current.opened_at));
        let full = entries >= rollover.max_entries
            || current.writer.confirmed_length() >= rollover.max_bytes
            || (age >= rollover.max_age && entries > 0);
        let resting = current.retry_next_at.is_some_and(|at| now < at);
        if !full || age < rollover.min_age || current.next_requested || resting {
            return;
        }
        current.next_requested = true;
        current.retry_next_at = None;
        let (ledgers, topic, sink) = (self.ledgers.clone(), self.topic.clone(), Arc::clone(&self.sink));
        self.ledgers.env.control.spawn("next ledger", OnPanic::ExitProcess, async move {
            let created = ledgers.ledgers.create(&ledgers.data_ledger(&topic)).await;
            sink.deliver(AppenderEvent(Event::NextLedger(created)));
        });
    }

    fn handle_next(&mut self, now: Instant, created: Result<CreatedLedger, LedgerError>) {
        match (std::mem::replace(&mut self.state, State::Idle), created) {
            (State::Writing(current), Ok(created)) => {
                self.state = State::Draining(current, Box::new(created));
                self.switch_if_drained(now);
            }
            (State::Writing(mut current), Err(error)) => {
                tracing::warn!(topic = %self.topic, %error, "cannot make the next ledger yet; the full one goes on");
                current.next_requested = false;
                current.retry_next_at = Some(now + RETRY_CREATE);
                self.state = State::Writing(current);
            }
            // The ledger was lost meanwhile. What was made for it is empty and named by nothing.
            (other, created) => {
                self.state = other;
                if let Ok(created) = created {
                    self.discard(created.ledger);
                }
            }
        }
    }

    fn discard(&self, ledger: LedgerId) {
        let ledgers = self.ledgers.clone();
        self.ledgers.env.control.spawn("unused ledger", OnPanic::Log, async move {
            if let Err(error) = ledgers.ledgers.delete(ledger).await {
                tracing::warn!(%ledger, %error, "an unused ledger remains");
            }
        });
    }

    fn switch_if_drained(&mut self, now: Instant) {
        if !matches!(&self.state, State::Draining(current, _) if current.writer.pending() == 0) || self.list_busy {
            return;
        }
        if let State::Draining(current, created) = std::mem::replace(&mut self.state, State::Switching { since: now }) {
            let ledger = current.writer.ledger();
            self.start_switch(Ending::Close(ledger, Box::pin(current.writer.close())), Some(*created));
        }
    }

    fn start_if_idle(&mut self, now: Instant) {
        if matches!(self.state, State::Idle) && !self.waiting.is_empty() && !self.list_busy {
            self.state = State::Switching { since: now };
            self.start_switch(Ending::Nothing, None);
        }
    }

    fn start_switch(&mut self, ending: Ending, created: Option<CreatedLedger>) {
        self.list_busy = true;
        let procedure =
            switch(self.ledgers.clone(), self.topic.clone(), self.info.clone(), self.version, ending, Some(created));
        let sink = Arc::clone(&self.sink);
        self.ledgers.env.control.spawn("ledger switch", OnPanic::ExitProcess, async move {
            let switched = procedure.await.map(Box::new);
            sink.deliver(AppenderEvent(Event::Switched(switched)));
        });
    }

    fn handle_switched(&mut self, now: Instant, switched: Result<Box<Switched>, ManagedLedgerError>) {
        self.list_busy = false;
        if !matches!(self.state, State::Switching { .. }) {
            return;
        }
        let switched = match switched {
            Ok(switched) => *switched,
            Err(why) => return self.fail(why),
        };
        self.info = switched.info;
        self.version = switched.version;
        if let Some(closed) = &switched.closed {
            self.log.set_entries(closed.ledger, closed.last_entry.0 + 1);
            if !canary!("resubmit_recovered") {
                let stored = usize::try_from(closed.last_entry.0 + 1 - self.next.entry.0).unwrap_or(0);
                self.payloads.extend(self.unknown.drain(..stored.min(self.unknown.len())));
                self.confirm();
            }
        }
        if let Some(dropped) = switched.dropped {
            self.log.remove_ledgers(&[dropped]);
            self.discard(dropped);
        }
        let Some(created) = switched.created else { return self.fail(ManagedLedgerError::Fenced) };
        let writer = self.ledgers.ledgers.writer(created, Arc::new(ToOwner(Arc::clone(&self.sink))));
        self.log.set_ledger(writer.ledger(), Arc::clone(writer.metadata()));
        self.next = Position { ledger: writer.ledger(), entry: EntryId(0) };
        let mut current = Current { writer, opened_at: now, next_requested: false, retry_next_at: None };
        // What was lost comes before what came later.
        for payload in self.unknown.drain(..).chain(self.waiting.drain(..)) {
            current.writer.add(payload);
        }
        (self.unknown, self.waiting) = Default::default();
        self.state = State::Writing(current);
        self.request_next_if_full(now);
        self.terminate_if_stored(now);
        self.work_on_list();
    }

    fn fail(&mut self, why: ManagedLedgerError) {
        tracing::warn!(topic = %self.topic, reason = %why, "the topic's log cannot go on");
        self.state = State::Failed(why);
        self.unknown.clear();
        self.waiting.clear();
    }
}

impl std::fmt::Debug for Appender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Appender").field("topic", &self.topic).field("state", &self.state()).finish_non_exhaustive()
    }
}
