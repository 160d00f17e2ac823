//! A reader without recovery: it reads metadata and then some entries, confirmed ones and those just behind.

use bytes::Bytes;
use geminga_bookie_wire::Digester;
use geminga_model::{EntryId, LedgerId};
use geminga_quorum::{BookieError, EntryRead, ReadFailed, ReadStep};
use geminga_records::{LedgerMetadata, LedgerState};

use super::core::{Ask, Core, Event, Expect, Input, Task};
use super::metadata::{Heard, Operation};

/// Entries read with one copy of metadata.
const READS: u64 = 4;

/// Reads one ledger now and then.
#[derive(Debug)]
pub(super) struct SimReader {
    actor: usize,
    ledger: usize,
    /// What was confirmed when metadata was asked for: as far as this, metadata must lead to every entry.
    known: EntryId,
    metadata: Option<(Box<LedgerMetadata>, Digester)>,
    read: Option<(EntryId, EntryRead)>,
    reads_left: u64,
}

impl SimReader {
    pub(super) fn start(actor: usize, ledger: usize, core: &mut Core) -> SimReader {
        let delay = core.seeded.below(100_000);
        core.after(delay, Event::Timer { actor, task: Task::Main });
        SimReader { actor, ledger, known: EntryId::NONE, metadata: None, read: None, reads_left: 0 }
    }

    pub(super) fn handle(&mut self, input: Input, core: &mut Core) {
        match input {
            Input::Timer(_) if !core.healed => {
                self.known = core.oracle.confirmed(self.ledger);
                core.ask_metadata(self.actor, Task::Main, self.ledger, Operation::Get);
            }
            Input::Timer(_) => {}
            Input::Metadata(_, Heard::Found(metadata, _)) => {
                if let LedgerState::Closed { last_entry, .. } = metadata.state {
                    self.known = last_entry;
                }
                let digester = Digester::new(metadata.digest, &metadata.password);
                self.metadata = Some((metadata, digester));
                self.reads_left = READS;
                self.next_read(core);
            }
            Input::Metadata(..) => self.rest(core),
            Input::Answer(expect, answer) => {
                if let (Expect::Read { entry, .. }, Some((reading, _))) = (expect, &self.read)
                    && entry == *reading
                {
                    self.answered(answer, core);
                }
            }
        }
    }

    fn rest(&mut self, core: &mut Core) {
        let pause = core.seeded.below(120_000);
        core.after(pause, Event::Timer { actor: self.actor, task: Task::Main });
    }

    fn next_read(&mut self, core: &mut Core) {
        let Some((metadata, _)) = self.metadata.as_ref().filter(|_| self.reads_left > 0) else {
            return self.rest(core);
        };
        self.reads_left -= 1;
        let entry = EntryId(core.seeded.below((self.known.0 + 4) as u64) as i64);
        let mut read = EntryRead::new(LedgerId(self.ledger as i64), entry, metadata);
        let step = read.next_step();
        self.read = Some((entry, read));
        self.step(entry, step, core);
    }

    fn answered(&mut self, answer: Result<Bytes, BookieError>, core: &mut Core) {
        let (Some((entry, read)), Some((_, digester))) = (&mut self.read, &self.metadata) else { return };
        let (entry, step) = (*entry, read.handle_read(answer, digester));
        self.step(entry, step, core);
    }

    fn step(&mut self, entry: EntryId, step: ReadStep, core: &mut Core) {
        match step {
            ReadStep::Ask(bookie) => {
                let expect = Expect::Read { index: 0, entry };
                core.ask(self.actor, self.ledger, &bookie, Ask::Read { entry, fence: false }, expect);
                return;
            }
            ReadStep::Found(found) => {
                core.tally.reads += 1;
                let verdict = core.oracle.found(self.ledger, entry, &found);
                core.judge(verdict);
            }
            ReadStep::Failed(failed) => {
                core.tally.failed_reads += 1;
                if failed == ReadFailed::NoEntry && entry <= self.known {
                    let why = format!("ledger {}: no bookie has the confirmed entry {entry}", self.ledger);
                    core.judge(Err(why));
                }
            }
        }
        self.read = None;
        self.next_read(core);
    }
}
