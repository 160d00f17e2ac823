//! One seed: work under faults, then healing, a recovery of everything, another power cut, and a look at every entry.

use bytes::Bytes;
use geminga_bookie_wire::{Digester, Entry};
use geminga_disk::Seeded;
use geminga_model::{BookieId, DigestType, EntryId, LedgerId};
use geminga_quorum::ensemble;
use geminga_records::{LedgerMetadata, LedgerState, Quorum};

use super::bookie::SimBookie;
use super::core::{Core, Event, Fault};
use super::network::Network;
use super::reader::SimReader;
use super::tally::Tally;
use super::world::{Actor, World};
use super::writer::{Finish, SimWriter};

/// How many events healing may take until everything is closed, and how many more until nothing happens any more.
const EVENTS_TO_CLOSE: u64 = 20_000;
const EVENTS_TO_REST: u64 = 50_000;

const FAULTS: [Fault; 18] = [
    Fault::Kill,
    Fault::Kill,
    Fault::PowerCut,
    Fault::PowerCut,
    Fault::CutInCommit,
    Fault::FailSync,
    Fault::SlowBookie,
    Fault::SlowBookie,
    Fault::SlowLink,
    Fault::SlowLink,
    Fault::SlowLink,
    Fault::SlowLink,
    Fault::Partition,
    Fault::Partition,
    Fault::Partition,
    Fault::MetadataOutage,
    Fault::EndWriter,
    Fault::EndRecovery,
];

/// Runs one seed and gives a hash of everything that happened: equal seeds have equal hashes.
///
/// # Errors
/// The rule that was broken, as a sentence.
pub fn run_seed(seed: u64, tally: &mut Tally) -> Result<u64, String> {
    let mut run = Run::new(seed)?;
    let outcome = run.whole();
    tally.add(&run.world.core.tally);
    outcome.map(|()| run.world.core.hash())
}

/// What happened in a seed, in words, one line for each event of note; the last says how it ended.
#[must_use]
pub fn trace_seed(seed: u64) -> Vec<String> {
    let mut run = match Run::new(seed) {
        Ok(run) => run,
        Err(why) => return vec![why],
    };
    run.world.core.trace = Some(vec![format!("{:?}", run.quorums)]);
    let outcome = run.whole();
    let mut lines = run.world.core.trace.take().unwrap_or_default();
    lines.push(format!("{outcome:?}"));
    lines
}

struct Run {
    world: World,
    quorums: Vec<Quorum>,
    /// When faults end.
    heal_at: u64,
}

impl Run {
    fn new(seed: u64) -> Result<Run, String> {
        let mut seeded = Seeded::new(seed);
        let bookies = 3 + seeded.below(5);
        let ids: Result<Vec<BookieId>, _> = (0..bookies).map(|i| BookieId::parse(&format!("bookie-{i}"))).collect();
        let ids = ids.map_err(|error| error.to_string())?;
        let ledgers = 1 + seeded.below(2) as usize;
        let network = Network::new(&mut seeded);
        let stores = (ids.iter().enumerate()).map(|(place, id)| SimBookie::new(place, id.clone(), &mut seeded));
        let bookies = stores.collect();
        let core = Core::new(seeded, ids, network, ledgers);
        let mut run = Run { world: World { core, bookies, actors: Vec::new() }, quorums: Vec::new(), heal_at: 0 };
        for ledger in 0..ledgers {
            run.create(ledger)?;
        }
        run.plan();
        Ok(run)
    }

    /// Creates a ledger with its writer and its readers.
    fn create(&mut self, ledger: usize) -> Result<(), String> {
        let World { core, actors, .. } = &mut self.world;
        let most = core.ids.len().min(5) as u64;
        // Small ensembles leave somebody to take over.
        let size = (1 + core.seeded.below(most)).max(1 + core.seeded.below(3)) as usize;
        let write = 1 + core.seeded.below(size as u64) as usize;
        let (write, ack) = match core.seeded.below(3) {
            0 => (write, 1 + core.seeded.below(write as u64) as usize),
            1 => (write.max(size.min(2)), write.max(size.min(2))),
            _ => (write.max(size.min(3)), write.max(size.min(3)).div_ceil(2)),
        };
        let quorum = Quorum::new(size, write, ack).map_err(|error| error.to_string())?;
        let random = core.seeded.bits();
        let ensemble = ensemble::choose(&core.ids, quorum, random).ok_or("too few bookies")?;
        let metadata = LedgerMetadata::open(quorum, ensemble, DigestType::Crc32c, Bytes::new());
        core.metadata.create(&metadata);
        self.quorums.push(quorum);
        let finish = [Finish::Stay, Finish::CloseConfirmed, Finish::CloseNow][core.seeded.below(3) as usize];
        let writer = SimWriter::start((actors.len(), ledger), &metadata, finish, core);
        actors.push(Actor::Writer(Box::new(writer)));
        actors.push(Actor::Reader(SimReader::start(actors.len(), ledger, core)));
        Ok(())
    }

    /// Chooses when faults strike and recoveries start.
    fn plan(&mut self) {
        let core = &mut self.world.core;
        self.heal_at = 100_000 + core.seeded.below(300_000);
        let at = |core: &mut Core, to: u64| core.seeded.below(to);
        for _ in 0..2 + core.seeded.below(10) {
            let fault = FAULTS[core.seeded.below(FAULTS.len() as u64) as usize];
            let at = at(core, self.heal_at);
            core.schedule(at, Event::Fault(fault));
        }
        for ledger in 0..self.quorums.len() {
            // Mostly while the writer is busy.
            let first = at(core, self.heal_at.min(200_000));
            for _ in 0..core.seeded.below(4) {
                let at = first + core.seeded.below(30_000);
                core.schedule(at, Event::StartRecovery { ledger });
            }
        }
    }

    fn whole(&mut self) -> Result<(), String> {
        while self.world.core.now < self.heal_at && self.step()? {}
        let last = self.heal_and_recover();
        self.close_everything(&last)?;
        for _ in 0..EVENTS_TO_REST {
            if !self.step()? {
                return self.look_at_everything();
            }
        }
        Err("things do not come to rest".to_owned())
    }

    fn step(&mut self) -> Result<bool, String> {
        let went_on = self.world.step();
        self.world.core.violation.take().map_or(Ok(went_on), Err)
    }

    /// Ends all faults and starts a last recovery of each ledger.
    fn heal_and_recover(&mut self) -> Vec<usize> {
        let World { core, bookies, .. } = &mut self.world;
        core.note(|| "faults are over".to_owned());
        core.healed = true;
        core.network.heal();
        core.metadata.out_until = 0;
        bookies.iter_mut().for_each(|bookie| bookie.heal(core));
        (0..self.quorums.len()).map(|ledger| self.world.start_recovery(ledger)).collect()
    }

    fn close_everything(&mut self, last: &[usize]) -> Result<(), String> {
        for _ in 0..EVENTS_TO_CLOSE {
            let done = |actor: &usize| matches!(&self.world.actors[*actor], Actor::Recoverer(r) if r.is_done());
            if last.iter().all(done) {
                return Ok(());
            }
            if !self.step()? {
                break;
            }
        }
        Err("a recovery does not end though nothing fails any more".to_owned())
    }

    /// After another power cut of all bookies: every entry is there, in an ack quorum of copies, and none is another's.
    fn look_at_everything(&mut self) -> Result<(), String> {
        self.world.bookies.iter_mut().for_each(SimBookie::cut_power_for_good);
        for ledger in 0..self.quorums.len() {
            let (metadata, _) = self.world.core.metadata.read(ledger).map_err(|error| error.to_string())?;
            let LedgerState::Closed { last_entry, .. } = metadata.state else {
                return Err(format!("ledger {ledger} is not closed in the end"));
            };
            self.world.core.oracle.ends(ledger, last_entry)?;
            for entry in (0..=last_entry.0).map(EntryId) {
                self.look_at(ledger, entry, &metadata)?;
            }
        }
        self.world.core.violation.take().map_or(Ok(()), Err)
    }

    fn look_at(&mut self, ledger: usize, entry: EntryId, metadata: &LedgerMetadata) -> Result<(), String> {
        let World { core, bookies, .. } = &mut self.world;
        let digester = Digester::new(metadata.digest, &metadata.password);
        let ensemble = metadata.ensemble_of(entry);
        let mut copies = 0;
        for index in metadata.quorum.write_set(entry) {
            let place = core.place_of(&ensemble[index]);
            let Some(bytes) = bookies[place].read_after_power_cut(ledger, entry, core) else { continue };
            let opened = Entry::split(bytes, &digester)
                .and_then(|copy| copy.open(LedgerId(ledger as i64), Some(entry), &digester))
                .map_err(|error| format!("bookie {place} has a damaged copy: {error}"))?;
            core.oracle.found(ledger, entry, &opened)?;
            copies += 1;
        }
        let needed = metadata.quorum.ack;
        if copies < needed {
            let confirmed = core.oracle.confirmed(ledger);
            return Err(format!(
                "ledger {ledger}: entry {entry} of the closed ledger has {copies} copies of {needed} (confirmed to {confirmed})"
            ));
        }
        Ok(())
    }
}
