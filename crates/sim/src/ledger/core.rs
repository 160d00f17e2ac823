//! What every actor and bookie of a run shares: time, the queue of events, the network, metadata and the oracle.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;
use geminga_disk::Seeded;
use geminga_model::{BookieId, EntryId, Instant};
use geminga_quorum::BookieError;
use geminga_records::LedgerState;

use super::metadata::{Heard, Operation, SimMetadata};
use super::network::{Network, Way};
use super::oracle::Oracle;
use super::tally::Tally;

/// After how many microseconds a request is given up.
const TIMEOUT: u64 = 50_000;

/// What a bookie is asked to do.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Add { entry: EntryId, body: Bytes, recovery: bool },
    ReadLast { fence: bool },
    Read { entry: EntryId, fence: bool },
}

/// A request on its way to a bookie.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) call: u64,
    pub(super) actor: usize,
    pub(super) ledger: usize,
    pub(super) ask: Ask,
}

/// A bookie's answer; adds are answered with no bytes.
pub(super) type Answer = Result<Bytes, BookieError>;

/// What an actor waits for, in its own terms.
#[derive(Clone, Debug)]
pub(super) enum Expect {
    Added { index: usize, bookie: BookieId, entry: EntryId },
    Last { index: usize },
    Read { index: usize, entry: EntryId },
    Metadata(Task),
}

/// Which of an actor's tasks waits for metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Its only one.
    Main,
    /// The ensemble change of a writer.
    Change,
}

/// Something that happens to an actor.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Answer(Expect, Answer),
    Metadata(Task, Heard),
    Timer(Task),
}

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Kill,
    PowerCut,
    CutInCommit,
    FailSync,
    SlowBookie,
    SlowLink,
    Partition,
    MetadataOutage,
    EndWriter,
    EndRecovery,
}

/// Something that happens at a point in time.
#[derive(Clone, Debug)]
pub(super) enum Event {
    ToBookie {
        bookie: usize,
        sent: u64,
        request: Request,
    },
    /// A bookie's log lane takes what arrived. `life` tells it from a lane that crashed.
    Take {
        bookie: usize,
        life: u64,
    },
    /// The lane answers what it committed.
    Release {
        bookie: usize,
        life: u64,
    },
    Restart {
        bookie: usize,
        life: u64,
    },
    ToActor {
        call: u64,
        answer: Answer,
    },
    GiveUp {
        call: u64,
    },
    ToMetadata {
        call: u64,
        sent: u64,
        ledger: usize,
        operation: Operation,
    },
    FromMetadata {
        call: u64,
        heard: Heard,
    },
    Timer {
        actor: usize,
        task: Task,
    },
    StartRecovery {
        ledger: usize,
    },
    Fault(Fault),
}

#[derive(Debug)]
struct Scheduled {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The greatest is the next: the heap gives out its greatest first.
    fn cmp(&self, other: &Scheduled) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

#[derive(Debug)]
struct Call {
    actor: usize,
    expect: Expect,
}

/// The shared part of a run.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) now: u64,
    pub(super) seeded: Seeded,
    pub(super) ids: Vec<BookieId>,
    /// Which bookies run.
    pub(super) up: Vec<bool>,
    pub(super) network: Network,
    pub(super) metadata: SimMetadata,
    pub(super) oracle: Oracle,
    pub(super) tally: Tally,
    /// Whether faults are over.
    pub(super) healed: bool,
    /// The first rule that was broken.
    pub(super) violation: Option<String>,
    /// What happened, in words, if somebody wants to know.
    pub(super) trace: Option<Vec<String>>,
    queue: BinaryHeap<Scheduled>,
    calls: BTreeMap<u64, Call>,
    numbers: u64,
    hash: u64,
}

impl Core {
    pub(super) fn new(seeded: Seeded, ids: Vec<BookieId>, network: Network, ledgers: usize) -> Core {
        Core {
            now: 0,
            seeded,
            up: vec![true; ids.len()],
            ids,
            network,
            metadata: SimMetadata::default(),
            oracle: Oracle::new(ledgers),
            tally: Tally::default(),
            healed: false,
            violation: None,
            trace: None,
            queue: BinaryHeap::new(),
            calls: BTreeMap::new(),
            numbers: 0,
            hash: 0xCBF2_9CE4_8422_2325,
        }
    }

    pub(super) fn instant(&self) -> Instant {
        Instant(self.now)
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.numbers += 1;
        self.queue.push(Scheduled { at, number: self.numbers, event });
    }

    pub(super) fn after(&mut self, delay: u64, event: Event) {
        self.schedule(self.now + delay, event);
    }

    /// The next event; time goes on to it.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        let Scheduled { at, number, event } = self.queue.pop()?;
        self.now = self.now.max(at);
        self.fold(at);
        self.fold(number);
        Some(event)
    }

    /// Makes `number` part of what equal seeds must have in common.
    pub(super) fn fold(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10} {}", self.now, what()));
        }
    }

    pub(super) fn judge(&mut self, verdict: Result<(), String>) {
        if let Err(why) = verdict {
            self.violation.get_or_insert(why);
        }
    }

    pub(super) fn place_of(&self, bookie: &BookieId) -> usize {
        self.ids.iter().position(|id| id == bookie).unwrap_or(0)
    }

    /// The bookies that the registry knows to run, from an arbitrary one on. It learns late that one stopped.
    pub(super) fn available(&mut self) -> Vec<BookieId> {
        let start = self.seeded.below(self.ids.len() as u64) as usize;
        let places = (0..self.ids.len()).map(|i| (i + start) % self.ids.len());
        let mut available = Vec::new();
        for place in places {
            if self.up[place] || (!self.healed && self.seeded.chance(30)) {
                available.push(self.ids[place].clone());
            }
        }
        available
    }

    fn call(&mut self, actor: usize, expect: Expect) -> u64 {
        self.numbers += 1;
        let call = self.numbers;
        self.calls.insert(call, Call { actor, expect });
        self.after(TIMEOUT, Event::GiveUp { call });
        call
    }

    /// Sends a request to a bookie. It is answered in every case, in the end with a time-out.
    pub(super) fn ask(&mut self, actor: usize, ledger: usize, bookie: &BookieId, ask: Ask, expect: Expect) {
        let place = self.place_of(bookie);
        let call = self.call(actor, expect);
        let request = Request { call, actor, ledger, ask };
        match self.network.delay(&mut self.seeded, self.now, (actor, place, Way::ToBookie)) {
            Some(delay) => {
                let sent = self.now;
                self.after(delay, Event::ToBookie { bookie: place, sent, request });
            }
            None => self.tally.lost_requests += 1,
        }
    }

    /// Sends a bookie's answer back.
    pub(super) fn answer(&mut self, bookie: usize, request: &Request, answer: Answer) {
        match self.network.delay(&mut self.seeded, self.now, (request.actor, bookie, Way::ToActor)) {
            Some(delay) => self.after(delay, Event::ToActor { call: request.call, answer }),
            None => self.tally.lost_replies += 1,
        }
    }

    /// Asks metadata. It is answered in every case, in the end with [`Heard::Nothing`].
    pub(super) fn ask_metadata(&mut self, actor: usize, task: Task, ledger: usize, operation: Operation) {
        let call = self.call(actor, Expect::Metadata(task));
        if self.is_metadata_lost() {
            self.tally.lost_metadata_requests += 1;
        } else {
            let (delay, sent) = (self.network.latency(&mut self.seeded), self.now);
            self.after(delay, Event::ToMetadata { call, sent, ledger, operation });
        }
    }

    fn is_metadata_lost(&mut self) -> bool {
        self.now < self.metadata.out_until || self.seeded.chance(self.network.loss)
    }

    /// An operation reaches metadata.
    pub(super) fn do_metadata(&mut self, call: u64, sent: u64, ledger: usize, operation: Operation) {
        if self.now < self.metadata.out_until {
            self.tally.lost_metadata_requests += 1;
            return;
        }
        let (stored, version) = match self.metadata.read(ledger) {
            Ok(found) => found,
            Err(error) => return self.judge(Err(format!("stored metadata cannot be read: {error}"))),
        };
        let heard = match operation {
            Operation::Get => Heard::Found(Box::new(stored), version),
            Operation::Put { metadata, version } => match self.metadata.put(ledger, &metadata, version) {
                None => {
                    self.tally.bad_versions += 1;
                    Heard::BadVersion
                }
                Some(now) => {
                    self.tally.late_metadata_writes += u64::from(self.now > sent + TIMEOUT);
                    if metadata.state == LedgerState::Open && metadata.segments != stored.segments {
                        self.tally.ensemble_changes += 1;
                    }
                    self.note(|| format!("metadata {ledger} v{now}: {:?} {:?}", metadata.state, metadata.segments));
                    let verdict = self.oracle.changes(ledger, &stored, &metadata);
                    self.judge(verdict);
                    Heard::Stored(now)
                }
            },
        };
        if self.is_metadata_lost() {
            self.tally.lost_metadata_replies += 1;
        } else {
            let delay = self.network.latency(&mut self.seeded);
            self.after(delay, Event::FromMetadata { call, heard });
        }
    }

    /// Whoever made the call hears the answer, unless it was given up.
    pub(super) fn resolve(&mut self, call: u64, answer: Answer) -> Option<(usize, Input)> {
        let Call { actor, expect } = self.calls.remove(&call)?;
        self.fold(answer.as_ref().map_or_else(|error| *error as u64, |bytes| bytes.len() as u64));
        match expect {
            Expect::Metadata(task) => Some((actor, Input::Metadata(task, Heard::Nothing))),
            expect => Some((actor, Input::Answer(expect, answer))),
        }
    }

    /// Answers to this actor's calls are not wanted any more.
    pub(super) fn forget_calls(&mut self, actor: usize) {
        self.calls.retain(|_, call| call.actor != actor);
    }

    /// As [`Core::resolve`], for metadata.
    pub(super) fn resolve_metadata(&mut self, call: u64, heard: Heard) -> Option<(usize, Input)> {
        match self.calls.remove(&call)? {
            Call { actor, expect: Expect::Metadata(task) } => Some((actor, Input::Metadata(task, heard))),
            Call { .. } => None,
        }
    }

    pub(super) fn note_arrival(&mut self, sent: u64) {
        self.tally.late_requests += u64::from(self.now > sent + TIMEOUT);
    }
}
