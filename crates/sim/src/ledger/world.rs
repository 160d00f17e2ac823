//! The loop: takes the next event and gives it to whom it concerns.

use super::bookie::{End, SimBookie};
use super::core::{Core, Event, Fault, Input};
use super::network::Way;
use super::reader::SimReader;
use super::recoverer::SimRecoverer;
use super::writer::SimWriter;

/// Actors that faults speak of; those who come later have links of their own, untouched.
pub(super) const ACTORS: usize = 16;

#[derive(Debug)]
pub(super) enum Actor {
    Writer(Box<SimWriter>),
    Recoverer(SimRecoverer),
    Reader(SimReader),
    /// Its process ended.
    Dead,
}

/// Everybody.
#[derive(Debug)]
pub(super) struct World {
    pub(super) core: Core,
    pub(super) bookies: Vec<SimBookie>,
    pub(super) actors: Vec<Actor>,
}

impl World {
    /// Handles one event; `false` if there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some(event) = self.core.next_event() else { return false };
        let core = &mut self.core;
        match event {
            Event::ToBookie { bookie, sent, request } => {
                core.note_arrival(sent);
                self.bookies[bookie].handle(request, core);
            }
            Event::Take { bookie, life } => self.bookies[bookie].take(life, core),
            Event::Release { bookie, life } => self.bookies[bookie].release(life, core),
            Event::Restart { bookie, life } => self.bookies[bookie].restart(life, core),
            Event::ToActor { call, answer } => {
                let input = core.resolve(call, answer);
                self.deliver(input);
            }
            Event::GiveUp { call } => {
                let input = core.resolve(call, Err(geminga_quorum::BookieError::Timeout));
                self.deliver(input);
            }
            Event::ToMetadata { call, sent, ledger, operation } => core.do_metadata(call, sent, ledger, operation),
            Event::FromMetadata { call, heard } => {
                let input = core.resolve_metadata(call, heard);
                self.deliver(input);
            }
            Event::Timer { actor, task } => self.deliver(Some((actor, Input::Timer(task)))),
            Event::StartRecovery { ledger } => drop(self.start_recovery(ledger)),
            Event::Fault(fault) => self.strike(fault),
        }
        true
    }

    /// Starts a recovery; its place among the actors.
    pub(super) fn start_recovery(&mut self, ledger: usize) -> usize {
        let actor = self.actors.len();
        self.actors.push(Actor::Recoverer(SimRecoverer::start(actor, ledger, &mut self.core)));
        actor
    }

    fn deliver(&mut self, input: Option<(usize, Input)>) {
        let Some((actor, input)) = input else { return };
        let core = &mut self.core;
        match self.actors.get_mut(actor) {
            Some(Actor::Writer(writer)) => {
                writer.handle(input, core);
                if let Some(ledger) = writer.take_wish() {
                    let pause = core.seeded.below(20_000);
                    core.after(pause, Event::StartRecovery { ledger });
                }
            }
            Some(Actor::Recoverer(recoverer)) => recoverer.handle(input, core),
            Some(Actor::Reader(reader)) => reader.handle(input, core),
            Some(Actor::Dead) | None => {}
        }
    }

    fn strike(&mut self, fault: Fault) {
        if self.core.healed {
            return;
        }
        let core = &mut self.core;
        let bookie = core.seeded.below(self.bookies.len() as u64) as usize;
        let actor = core.seeded.below(ACTORS.min(self.actors.len() + 2) as u64) as usize;
        let until = core.now + 20_000 + core.seeded.below(400_000);
        core.note(|| format!("fault {fault:?}: bookie {bookie}, actor {actor}, until {until}"));
        match fault {
            Fault::Kill => self.bookies[bookie].end(Some(End::Kill), core),
            Fault::PowerCut => self.bookies[bookie].end(Some(End::PowerCut), core),
            Fault::CutInCommit => self.bookies[bookie].cut_in_next_commit = true,
            Fault::FailSync => self.bookies[bookie].fail_next_sync = true,
            Fault::SlowBookie => {
                core.tally.slow_bookies += 1;
                self.bookies[bookie].slow_until = until;
            }
            Fault::SlowLink => {
                core.tally.slow_links += 1;
                core.network.slow_down(actor, bookie, until);
            }
            Fault::Partition => {
                core.tally.partitions += 1;
                let ways: &[Way] = match core.seeded.below(3) {
                    0 => &[Way::ToBookie],
                    1 => &[Way::ToActor],
                    _ => &[Way::ToBookie, Way::ToActor],
                };
                let (actors, bookies) = (core.seeded.bits(), core.seeded.bits());
                for actor in (0..ACTORS).filter(|actor| actors >> actor & 1 == 1) {
                    for bookie in (0..self.bookies.len()).filter(|bookie| bookies >> bookie & 1 == 1) {
                        ways.iter().for_each(|way| core.network.cut(actor, bookie, *way, until));
                    }
                }
            }
            Fault::MetadataOutage => {
                core.tally.metadata_outages += 1;
                core.metadata.out_until = until;
            }
            Fault::EndWriter => self.end_actor(actor, true),
            Fault::EndRecovery => self.end_actor(actor, false),
        }
    }

    /// Ends the first living writer, or recovery, from `from` on.
    fn end_actor(&mut self, from: usize, writer: bool) {
        let count = self.actors.len();
        let found = (0..count).map(|i| (i + from) % count).find(|place| match &self.actors[*place] {
            Actor::Writer(_) => writer,
            Actor::Recoverer(recoverer) => !writer && !recoverer.is_done(),
            Actor::Reader(_) | Actor::Dead => false,
        });
        let Some(place) = found else { return };
        if writer {
            self.core.tally.dead_writers += 1;
        } else {
            self.core.tally.dead_recoveries += 1;
        }
        self.core.note(|| format!("actor {place} dies"));
        self.actors[place] = Actor::Dead;
        self.core.forget_calls(place);
    }
}
