//! A writer: bursts of adds, ensemble changes, and in some runs a close.

use bytes::Bytes;
use geminga_bookie_wire::Entry;
use geminga_model::{EntryId, LedgerId};
use geminga_quorum::{ChangeFailed, LedgerWriter, WriteAction, WriterState};
use geminga_records::{LedgerMetadata, LedgerState};

use super::change::EnsembleChange;
use super::core::{Ask, Core, Event, Expect, Input, Task};
use super::metadata::{Heard, Operation};

/// Pause before a close whose outcome is not known is tried again.
const RETRY_CLOSE: u64 = 30_000;

/// What the writer does when it has written everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// It stays open.
    Stay,
    /// It closes once everything is confirmed.
    CloseConfirmed,
    /// It closes at once; what is pending is not part of the ledger.
    CloseNow,
}

/// The writer of one ledger inside its owner.
#[derive(Debug)]
pub(super) struct SimWriter {
    actor: usize,
    ledger: usize,
    machine: LedgerWriter,
    left: u64,
    finish: Finish,
    change: Option<EnsembleChange>,
    close: Option<Close>,
    /// The deadline of the machine for which a timer runs.
    timer: Option<u64>,
    ended: bool,
    /// Whether its owner must recover the ledger.
    wants_recovery: bool,
}

/// The procedure that writes CLOSED after the last confirmed entry.
#[derive(Clone, Copy, Debug)]
struct Close {
    last: EntryId,
    length: i64,
    step: CloseStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseStep {
    Reading,
    Storing,
    /// The outcome is not known; it is tried again after a pause.
    Resting,
}

impl SimWriter {
    pub(super) fn start(
        (actor, ledger): (usize, usize),
        metadata: &LedgerMetadata,
        finish: Finish,
        core: &mut Core,
    ) -> SimWriter {
        let delay = core.seeded.below(5_000);
        core.after(delay, Event::Timer { actor, task: Task::Main });
        SimWriter {
            actor,
            ledger,
            machine: LedgerWriter::new(LedgerId(ledger as i64), metadata),
            left: 30 + core.seeded.below(70),
            finish,
            change: None,
            close: None,
            timer: None,
            ended: false,
            wants_recovery: false,
        }
    }

    pub(super) fn handle(&mut self, input: Input, core: &mut Core) {
        match input {
            // A closed writer is gone; its answers find nobody.
            Input::Answer(Expect::Added { index, bookie, entry }, answer) if self.close.is_none() && !self.ended => {
                self.machine.handle_added(index, &bookie, (entry, 1), answer.map(drop));
            }
            Input::Answer(..) => {}
            Input::Metadata(Task::Change, heard) => {
                let outcome = self.change.as_mut().and_then(|change| change.hear(heard, core));
                if let Some(outcome) = outcome {
                    self.changed(outcome.as_deref().map_err(|failed| *failed), core);
                }
            }
            Input::Metadata(Task::Main, heard) => self.hear_of_close(heard, core),
            Input::Timer(Task::Change) => {
                if let Some(change) = &self.change {
                    change.wake(core);
                }
            }
            Input::Timer(Task::Main) => self.wake(core),
        }
        self.pump(core);
    }

    /// The ledger that its owner must recover, said once.
    pub(super) fn take_wish(&mut self) -> Option<usize> {
        std::mem::take(&mut self.wants_recovery).then_some(self.ledger)
    }

    fn changed(&mut self, outcome: Result<&LedgerMetadata, ChangeFailed>, core: &mut Core) {
        self.change = None;
        core.note(|| format!("writer {}: ensemble change: {outcome:?}", self.actor));
        let put_off = matches!(outcome, Err(ChangeFailed::NoReplacement | ChangeFailed::MetadataUnreachable));
        core.tally.changes_put_off += u64::from(put_off);
        if self.close.is_none() && !self.ended {
            self.machine.handle_changed(core.instant(), outcome);
        }
    }

    /// Time passed: for the machine, for the next burst, or for another attempt to close.
    fn wake(&mut self, core: &mut Core) {
        if let Some(close) = &mut self.close {
            if close.step == CloseStep::Resting {
                close.step = CloseStep::Reading;
                core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Get);
            }
            return;
        }
        if self.timer.is_some_and(|at| at <= core.now) {
            self.timer = None;
            self.machine.handle_timeout(core.instant());
        }
        if self.left > 0 && self.machine.state() == WriterState::Open {
            let pending = self.machine.last_add_pushed().0 - self.machine.last_add_confirmed().0;
            let burst = (1 + core.seeded.below(6)).min(self.left);
            if pending < 40 {
                (0..burst).for_each(|_| self.add(core));
                self.left -= burst;
            }
            let long = core.seeded.chance(15);
            let pause = core.seeded.below(if long { 30_000 } else { 5_000 });
            core.after(pause, Event::Timer { actor: self.actor, task: Task::Main });
        }
    }

    fn add(&mut self, core: &mut Core) {
        let large = core.seeded.chance(10);
        let size = 8 + core.seeded.below(if large { 3_000 } else { 200 });
        let random = core.seeded.bits().to_be_bytes();
        let payload: Bytes = random.iter().copied().cycle().take(size as usize).collect::<Vec<_>>().into();
        if let Some(entry) = self.machine.add(payload.clone()) {
            core.tally.adds += 1;
            let verdict = core.oracle.sent(self.ledger, entry, payload);
            core.judge(verdict);
        }
    }

    /// Does what the machine wants, and sees how far it is.
    fn pump(&mut self, core: &mut Core) {
        if self.ended || self.close.is_some() {
            return;
        }
        let mut actions = Vec::new();
        self.machine.take_actions(&mut actions);
        for action in actions {
            match action {
                WriteAction::Send { index, bookie, first, bodies } => {
                    for (entry, body) in (first.0..).map(EntryId).zip(&bodies) {
                        let ask = Ask::Add { entry, body: whole(body), recovery: false };
                        let expect = Expect::Added { index, bookie: bookie.clone(), entry };
                        core.ask(self.actor, self.ledger, &bookie, ask, expect);
                    }
                }
                WriteAction::ChangeEnsemble { failed, last_add_confirmed } => {
                    let who = (self.actor, self.ledger);
                    self.change = Some(EnsembleChange::start(who, failed, last_add_confirmed, core));
                }
            }
        }
        self.report(core);
        if let Some(deadline) = self.machine.deadline()
            && self.timer.is_none()
        {
            self.timer = Some(deadline.0);
            core.schedule(deadline.0, Event::Timer { actor: self.actor, task: Task::Main });
        }
        match self.machine.state() {
            WriterState::Lost(why) => {
                self.ended = true;
                core.tally.writers_fenced += 1;
                core.note(|| format!("writer {} stops: {why}", self.actor));
                self.wants_recovery = true;
            }
            WriterState::Open | WriterState::Closing => self.close_if_due(core),
        }
    }

    fn report(&mut self, core: &mut Core) {
        let (before, now) = (core.oracle.confirmed(self.ledger), self.machine.last_add_confirmed());
        if before != now {
            core.tally.confirmed += (now.0 - before.0).max(0) as u64;
            core.note(|| format!("writer {}: confirmed {}:{now}", self.actor, self.ledger));
            let verdict = core.oracle.confirm(self.ledger, now);
            core.judge(verdict);
        }
        let mut payloads = Vec::new();
        self.machine.take_stored(&mut payloads);
        let verdict = core.oracle.given_back(self.ledger, before, &payloads);
        core.judge(verdict);
    }

    fn close_if_due(&mut self, core: &mut Core) {
        let all = self.machine.last_add_confirmed() == self.machine.last_add_pushed();
        let due = match self.finish {
            Finish::Stay => false,
            Finish::CloseConfirmed => all,
            Finish::CloseNow => true,
        };
        if self.left == 0 && due {
            self.machine.close();
            let (last, length) = (self.machine.last_add_confirmed(), self.machine.confirmed_length());
            core.note(|| format!("writer {} closes {} at {last}", self.actor, self.ledger));
            self.close = Some(Close { last, length, step: CloseStep::Reading });
            core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Get);
        }
    }

    fn hear_of_close(&mut self, heard: Heard, core: &mut Core) {
        let Some(close) = &mut self.close else { return };
        match (close.step, heard) {
            (CloseStep::Reading, Heard::Found(metadata, version)) => {
                if let LedgerState::Closed { last_entry, .. } = metadata.state {
                    if last_entry == close.last {
                        core.tally.closes += 1;
                    } else {
                        core.tally.closed_elsewhere += 1;
                    }
                    let verdict = core.oracle.ends(self.ledger, last_entry);
                    core.judge(verdict);
                    self.finished();
                    return;
                }
                close.step = CloseStep::Storing;
                let state = LedgerState::Closed { last_entry: close.last, length: close.length };
                let metadata = Box::new(LedgerMetadata { state, ..*metadata });
                core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Put { metadata, version });
            }
            (CloseStep::Storing, Heard::Stored(_)) => {
                core.tally.closes += 1;
                let verdict = core.oracle.ends(self.ledger, close.last);
                core.judge(verdict);
                self.finished();
            }
            (CloseStep::Storing, Heard::BadVersion) => {
                close.step = CloseStep::Reading;
                core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Get);
            }
            _ => {
                close.step = CloseStep::Resting;
                core.after(RETRY_CLOSE, Event::Timer { actor: self.actor, task: Task::Main });
            }
        }
    }

    fn finished(&mut self) {
        self.close = None;
        self.ended = true;
    }
}

/// The bytes that a bookie gets.
pub(super) fn whole(entry: &Entry) -> Bytes {
    [&entry.head[..], &entry.payload[..]].concat().into()
}
