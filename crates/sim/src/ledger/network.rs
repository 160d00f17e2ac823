//! The network between actors and bookies: what is lost, and how long the rest takes.

use std::collections::BTreeMap;

use geminga_disk::Seeded;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    ToBookie,
    ToActor,
}

/// The state of all links. Times are in microseconds.
#[derive(Debug)]
pub(super) struct Network {
    /// Messages lost of a hundred.
    pub(super) loss: u64,
    /// How long a straggler may take.
    pub(super) tail: u64,
    /// Stragglers of a hundred messages.
    pub(super) stragglers: u64,
    cut_until: BTreeMap<(usize, usize, Way), u64>,
    slow_until: BTreeMap<(usize, usize), u64>,
}

impl Network {
    pub(super) fn new(seeded: &mut Seeded) -> Network {
        Network {
            loss: [0, 0, 1, 4, 12][seeded.below(5) as usize],
            tail: [4_000, 30_000, 45_000, 150_000][seeded.below(4) as usize],
            stragglers: [2, 10, 30, 70][seeded.below(4) as usize],
            cut_until: BTreeMap::new(),
            slow_until: BTreeMap::new(),
        }
    }

    /// Nothing is lost or slow from now on.
    pub(super) fn heal(&mut self) {
        self.loss = 0;
        self.stragglers = 0;
        self.cut_until.clear();
        self.slow_until.clear();
    }

    pub(super) fn cut(&mut self, actor: usize, bookie: usize, way: Way, until: u64) {
        self.cut_until.insert((actor, bookie, way), until);
    }

    pub(super) fn slow_down(&mut self, actor: usize, bookie: usize, until: u64) {
        self.slow_until.insert((actor, bookie), until);
    }

    /// How long a message takes; `None` if it is lost.
    pub(super) fn delay(
        &self,
        seeded: &mut Seeded,
        now: u64,
        (actor, bookie, way): (usize, usize, Way),
    ) -> Option<u64> {
        let is_cut = self.cut_until.get(&(actor, bookie, way)).is_some_and(|until| now < *until);
        if is_cut || seeded.chance(self.loss) {
            return None;
        }
        let is_slow = self.slow_until.get(&(actor, bookie)).is_some_and(|until| now < *until);
        Some(self.latency(seeded) + if is_slow { seeded.below(60_000) } else { 0 })
    }

    /// How long an undisturbed message takes.
    pub(super) fn latency(&self, seeded: &mut Seeded) -> u64 {
        let straggles = seeded.chance(self.stragglers);
        100 + seeded.below(if straggles { self.tail } else { 1_500 })
    }
}
