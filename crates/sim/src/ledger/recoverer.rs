//! A recovery of one ledger, tried again until it is closed.

use geminga_model::{EntryId, LedgerId};
use geminga_quorum::{LedgerRecovery, RecoveredEnd, RecoveryAction};
use geminga_records::{LedgerMetadata, LedgerState};

use super::core::{Ask, Core, Event, Expect, Input, Task};
use super::metadata::{Heard, Operation};
use super::writer::whole;

/// Whoever recovers a ledger.
#[derive(Debug)]
pub(super) struct SimRecoverer {
    actor: usize,
    ledger: usize,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// Metadata is read.
    Reading,
    /// IN_RECOVERY is stored.
    Marking(Box<LedgerMetadata>),
    /// The machine works, from metadata of this version.
    Finding {
        machine: Box<LedgerRecovery>,
        metadata: Box<LedgerMetadata>,
        version: u64,
    },
    /// CLOSED is stored.
    Closing(RecoveredEnd),
    /// Metadata is read again, because it changed before CLOSED could be stored.
    Rereading(RecoveredEnd),
    /// A failure; it starts again after a pause.
    Resting,
    Done,
}

impl SimRecoverer {
    pub(super) fn start(actor: usize, ledger: usize, core: &mut Core) -> SimRecoverer {
        core.tally.recoveries += 1;
        core.ask_metadata(actor, Task::Main, ledger, Operation::Get);
        SimRecoverer { actor, ledger, step: Step::Reading }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.step, Step::Done)
    }

    pub(super) fn handle(&mut self, input: Input, core: &mut Core) {
        match input {
            Input::Answer(expect, answer) => {
                if let Step::Finding { machine, .. } = &mut self.step {
                    match expect {
                        Expect::Last { index } => machine.handle_last(index, answer),
                        Expect::Read { index, entry } => machine.handle_read(index, entry, answer),
                        Expect::Added { index, bookie, entry } => {
                            machine.handle_written(index, &bookie, entry, answer.map(drop));
                        }
                        Expect::Metadata(_) => {}
                    }
                    self.pump(core);
                }
            }
            Input::Metadata(_, heard) => self.hear(heard, core),
            Input::Timer(_) => {
                self.step = Step::Reading;
                core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Get);
            }
        }
    }

    fn hear(&mut self, heard: Heard, core: &mut Core) {
        match (std::mem::replace(&mut self.step, Step::Resting), heard) {
            (Step::Reading, Heard::Found(metadata, version)) => self.begin(metadata, version, core),
            (Step::Marking(metadata), Heard::Stored(version)) => self.find(metadata, version, core),
            (Step::Marking(_), Heard::BadVersion) => {
                self.step = Step::Reading;
                core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Get);
            }
            (Step::Rereading(end), Heard::Found(metadata, version)) => self.close(end, metadata, version, core),
            (Step::Closing(end), Heard::Stored(_)) => {
                core.tally.recoveries_won += 1;
                self.done(end.last_entry, core);
            }
            (Step::Closing(end), Heard::BadVersion) => {
                self.step = Step::Rereading(end);
                core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Get);
            }
            (step @ (Step::Finding { .. } | Step::Done), _) => self.step = step,
            _ => self.rest(core),
        }
    }

    fn begin(&mut self, mut metadata: Box<LedgerMetadata>, version: u64, core: &mut Core) {
        match metadata.state {
            LedgerState::Closed { last_entry, .. } => {
                core.tally.recoveries_beaten += 1;
                self.done(last_entry, core);
            }
            LedgerState::InRecovery => self.find(metadata, version, core),
            LedgerState::Open => {
                metadata.state = LedgerState::InRecovery;
                let operation = Operation::Put { metadata: metadata.clone(), version };
                core.ask_metadata(self.actor, Task::Main, self.ledger, operation);
                self.step = Step::Marking(metadata);
            }
        }
    }

    fn find(&mut self, metadata: Box<LedgerMetadata>, version: u64, core: &mut Core) {
        let ledger = LedgerId(self.ledger as i64);
        let available = core.available();
        core.note(|| format!("recovery {} of {} begins", self.actor, self.ledger));
        let machine = Box::new(LedgerRecovery::new(ledger, (*metadata).clone(), available));
        self.step = Step::Finding { machine, metadata, version };
        self.pump(core);
    }

    fn pump(&mut self, core: &mut Core) {
        let Step::Finding { machine, .. } = &mut self.step else { return };
        let mut actions = Vec::new();
        machine.take_actions(&mut actions);
        for action in actions {
            let (bookie, ask, expect) = match action {
                RecoveryAction::FenceAndReadLast { index, bookie } => {
                    (bookie, Ask::ReadLast { fence: true }, Expect::Last { index })
                }
                RecoveryAction::Read { index, bookie, entry, fence } => {
                    (bookie, Ask::Read { entry, fence }, Expect::Read { index, entry })
                }
                RecoveryAction::WriteBack { index, bookie, entry, body } => {
                    core.tally.write_backs += 1;
                    let expect = Expect::Added { index, bookie: bookie.clone(), entry };
                    (bookie, Ask::Add { entry, body: whole(&body), recovery: true }, expect)
                }
            };
            core.ask(self.actor, self.ledger, &bookie, ask, expect);
        }
        let Some(outcome) = machine.outcome().cloned() else { return };
        core.note(|| format!("recovery {} of {}: {outcome:?}", self.actor, self.ledger));
        match (outcome, std::mem::replace(&mut self.step, Step::Resting)) {
            (Ok(end), Step::Finding { metadata, version, .. }) => self.close(end, metadata, version, core),
            _ => self.rest(core),
        }
    }

    /// Writes CLOSED, or accepts what somebody else wrote meanwhile.
    fn close(&mut self, end: RecoveredEnd, mut metadata: Box<LedgerMetadata>, version: u64, core: &mut Core) {
        if let LedgerState::Closed { last_entry, .. } = metadata.state {
            core.tally.recoveries_beaten += 1;
            self.done(last_entry, core);
            return;
        }
        let replaced = end.segments.iter().filter(|segment| !metadata.segments.contains(segment)).count();
        core.tally.recovery_replacements += replaced as u64;
        metadata.state = LedgerState::Closed { last_entry: end.last_entry, length: end.length };
        metadata.segments.clone_from(&end.segments);
        core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Put { metadata, version });
        self.step = Step::Closing(end);
    }

    fn done(&mut self, last: EntryId, core: &mut Core) {
        self.step = Step::Done;
        let verdict = core.oracle.ends(self.ledger, last);
        core.judge(verdict);
    }

    fn rest(&mut self, core: &mut Core) {
        core.tally.recoveries_failed += 1;
        self.step = Step::Resting;
        // The next attempt has a mailbox of its own.
        core.forget_calls(self.actor);
        let pause = 1_000 + core.seeded.below(80_000);
        core.after(pause, Event::Timer { actor: self.actor, task: Task::Main });
    }
}
