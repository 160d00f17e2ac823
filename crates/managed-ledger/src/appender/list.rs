//! What is written into the topic's list of ledgers beside appending: its end, its properties, and that old ledgers left.
//! One procedure at a time writes the list; what is wanted meanwhile waits for it.

use std::sync::Arc;

use geminga_env::OnPanic;
use geminga_metastore::Version;
use geminga_model::{Instant, LedgerId};
use geminga_records::{ManagedLedgerInfo, paths};

use super::{Appender, AppenderEvent, Event, State};
use crate::error::ManagedLedgerError;
use crate::switch::{Ending, Switched, switch, write_list};
use crate::trim::{Trimmed, trim};

impl Appender {
    /// Ends the topic for ever: nothing more is taken in, and when all that was is stored, so is that it is the end. Then
    /// [`Appender::terminated`] tells it.
    pub fn terminate(&mut self, now: Instant) {
        self.terminating = true;
        self.terminate_if_stored(now);
    }

    pub(super) fn terminate_if_stored(&mut self, now: Instant) {
        let wanted = self.terminating && self.info.terminated.is_none() && !self.list_busy;
        if !wanted || self.pending() > 0 || !matches!(self.state, State::Idle | State::Writing(_)) {
            return;
        }
        let ending = match std::mem::replace(&mut self.state, State::Switching { since: now }) {
            State::Writing(current) => Ending::Close(current.writer.ledger(), Box::pin(current.writer.close())),
            _ => Ending::Nothing,
        };
        let info = ManagedLedgerInfo { terminated: Some(self.log.last_confirmed()), ..self.info.clone() };
        self.list_busy = true;
        let procedure = switch(self.ledgers.clone(), self.topic.clone(), info, self.version, ending, None);
        let sink = Arc::clone(&self.sink);
        self.ledgers.env.control.spawn("terminate", OnPanic::ExitProcess, async move {
            sink.deliver(AppenderEvent(Event::Terminated(procedure.await.map(Box::new))));
        });
    }

    pub(super) fn handle_terminated(&mut self, switched: Result<Box<Switched>, ManagedLedgerError>) {
        self.list_busy = false;
        if !matches!(self.state, State::Switching { .. }) {
            return;
        }
        match switched {
            Ok(switched) => {
                self.info = switched.info;
                self.version = switched.version;
                self.state = State::Idle;
                self.work_on_list();
            }
            Err(why) => self.fail(why),
        }
    }

    /// Stores a property of the topic. [`Appender::info`] has it once it is stored; if that fails the appender fails.
    pub fn set_property(&mut self, key: &str, value: String) {
        self.properties.retain(|(set, _)| set != key);
        self.properties.push((key.to_owned(), value));
        self.work_on_list();
    }

    /// Drops the ledgers before `first_kept`, except the one that is written. A later call may ask for more.
    pub fn trim(&mut self, first_kept: LedgerId) {
        let last = self.info.ledgers.last().map_or(LedgerId::NONE, |last| last.ledger);
        let first_kept = first_kept.min(last);
        if self.info.ledgers.first().is_some_and(|first| first.ledger < first_kept) {
            self.trim_to = self.trim_to.max(Some(first_kept));
            self.work_on_list();
        }
    }

    /// Starts what is wanted of the list beside appending, unless it is being written already.
    pub(super) fn work_on_list(&mut self) {
        if self.list_busy || matches!(self.state, State::Switching { .. } | State::Failed(_) | State::Closed) {
            return;
        }
        if !self.properties.is_empty() {
            self.start_properties();
        } else if let Some(first_kept) = self.trim_to.take() {
            self.start_trim(first_kept);
        }
    }

    fn start_properties(&mut self) {
        self.list_busy = true;
        let mut info = self.info.clone();
        for (key, value) in self.properties.drain(..) {
            info.properties.retain(|(stored, _)| *stored != key);
            info.properties.push((key, value));
        }
        let (ledgers, version) = (self.ledgers.clone(), self.version);
        let (path, sink) = (paths::managed_ledger(&self.topic), Arc::clone(&self.sink));
        self.ledgers.env.control.spawn("topic properties", OnPanic::ExitProcess, async move {
            let written = write_list(&ledgers, &path, &info, version).await;
            sink.deliver(AppenderEvent(Event::Properties(written.map(|version| (info, version)))));
        });
    }

    pub(super) fn handle_properties(
        &mut self,
        now: Instant,
        written: Result<(ManagedLedgerInfo, Version), ManagedLedgerError>,
    ) {
        match written {
            Ok((info, version)) => {
                self.info = info;
                self.version = version;
                self.list_is_free(now);
            }
            Err(error) => {
                self.list_busy = false;
                self.fail(error);
            }
        }
    }

    /// Whatever waited until the list was written goes on.
    fn list_is_free(&mut self, now: Instant) {
        self.list_busy = false;
        self.recover_if_lost();
        self.switch_if_drained(now);
        self.start_if_idle(now);
        self.terminate_if_stored(now);
        self.work_on_list();
    }

    fn start_trim(&mut self, first_kept: LedgerId) {
        self.list_busy = true;
        let procedure = trim(self.ledgers.clone(), self.topic.clone(), self.info.clone(), self.version, first_kept);
        let sink = Arc::clone(&self.sink);
        self.ledgers.env.control.spawn("trim", OnPanic::ExitProcess, async move {
            sink.deliver(AppenderEvent(Event::Trimmed(procedure.await)));
        });
    }

    pub(super) fn handle_trimmed(&mut self, now: Instant, trimmed: Result<Trimmed, ManagedLedgerError>) {
        match trimmed {
            Ok(trimmed) => {
                self.info = trimmed.info;
                self.version = trimmed.version;
                self.log.remove_ledgers(&trimmed.removed);
            }
            Err(error) if error.is_passing() => {
                tracing::warn!(topic = %self.topic, %error, "cannot trim now; it is tried at the next occasion");
            }
            Err(error) => {
                self.list_busy = false;
                return self.fail(error);
            }
        }
        self.list_is_free(now);
    }
}
