//! The compare-and-set loop of an ensemble change, as the ledger client runs it.

use geminga_model::{BookieId, EntryId};
use geminga_quorum::{ChangeFailed, ensemble};
use geminga_records::LedgerMetadata;

use super::core::{Core, Event, Task};
use super::metadata::{Heard, Operation};

const RETRY_METADATA: u64 = 100_000;

/// One change. Its outcome is known, one way or the other, before it is reported.
#[derive(Debug)]
pub(super) struct EnsembleChange {
    actor: usize,
    ledger: usize,
    failed: Vec<(usize, BookieId)>,
    last_add_confirmed: EntryId,
    /// The version at which a write may still be applied, though it was given up.
    unsettled: Option<u64>,
    /// What is being stored; `None` while metadata is read.
    storing: Option<Storing>,
}

#[derive(Debug)]
struct Storing {
    metadata: Box<LedgerMetadata>,
    version: u64,
    /// Whether it changes nothing but the version, so that no write given up can be applied any more.
    settles: bool,
}

/// What a change ends with.
pub(super) type Changed = Result<Box<LedgerMetadata>, ChangeFailed>;

impl EnsembleChange {
    pub(super) fn start(
        (actor, ledger): (usize, usize),
        failed: Vec<(usize, BookieId)>,
        last_add_confirmed: EntryId,
        core: &mut Core,
    ) -> EnsembleChange {
        let change = EnsembleChange { actor, ledger, failed, last_add_confirmed, unsettled: None, storing: None };
        change.get(core);
        change
    }

    fn get(&self, core: &mut Core) {
        core.ask_metadata(self.actor, Task::Change, self.ledger, Operation::Get);
    }

    /// The pause after metadata could not be reached is over.
    pub(super) fn wake(&self, core: &mut Core) {
        self.get(core);
    }

    /// Metadata answered; the outcome if there is one.
    pub(super) fn hear(&mut self, heard: Heard, core: &mut Core) -> Option<Changed> {
        match (self.storing.take(), heard) {
            (None, Heard::Found(stored, version)) => return self.found(stored, version, core),
            (None, _) if self.unsettled.is_none() => return Some(Err(ChangeFailed::MetadataUnreachable)),
            (None, _) => core.after(RETRY_METADATA, Event::Timer { actor: self.actor, task: Task::Change }),
            (Some(Storing { metadata, settles: false, .. }), Heard::Stored(_)) => return Some(Ok(metadata)),
            (Some(_), Heard::Stored(_) | Heard::BadVersion) => self.get(core),
            (Some(Storing { version, .. }), _) => {
                self.unsettled = Some(version);
                self.get(core);
            }
        }
        None
    }

    fn found(&mut self, stored: Box<LedgerMetadata>, version: u64, core: &mut Core) -> Option<Changed> {
        // A write that was given up meets another version now.
        self.unsettled = self.unsettled.filter(|at| *at == version);
        let available = core.available();
        match ensemble::change(&stored, self.last_add_confirmed, &self.failed, &available) {
            Err(ChangeFailed::NoReplacement) if self.unsettled.is_some() => {
                core.tally.settling_writes += 1;
                self.store(Storing { metadata: stored, version, settles: true }, core);
                None
            }
            Err(failed) => Some(Err(failed)),
            Ok(ensemble::Change::AlreadyDone) => Some(Ok(stored)),
            Ok(ensemble::Change::Write(changed)) => {
                self.store(Storing { metadata: Box::new(changed), version, settles: false }, core);
                None
            }
        }
    }

    fn store(&mut self, storing: Storing, core: &mut Core) {
        let operation = Operation::Put { metadata: storing.metadata.clone(), version: storing.version };
        core.ask_metadata(self.actor, Task::Change, self.ledger, operation);
        self.storing = Some(storing);
    }
}
