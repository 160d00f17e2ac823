//! The dispatcher of one subscription.

use geminga_model::{HashRange, Position};

use crate::consumer::{ConsumerId, ConsumerState, Given, NewConsumer};
use crate::replay::Replay;
use crate::slots::Slots;
use crate::why::Why;

/// How a subscription divides entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One consumer, and no second.
    Exclusive,
    /// One active consumer; the others stand by.
    Failover,
    /// Everyone in turn.
    Shared,
    /// By key: entries of a key go to one consumer, in order.
    KeyShared {
        /// Consumers choose the slots of the hash ring that they serve.
        sticky: bool,
        /// Give up order when slots move between consumers.
        out_of_order: bool,
    },
}

impl Kind {
    fn has_active(self) -> bool {
        matches!(self, Kind::Exclusive | Kind::Failover)
    }
}

/// A consumer cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// An exclusive subscription has its consumer.
    #[error("Exclusive consumer is already connected")]
    Exclusive,
    /// The connected consumers divide entries differently.
    #[error("Subscription is of different type: the connected consumers use {0:?}")]
    OtherKind(Kind),
    /// A sticky consumer wants slots that another one serves.
    #[error("Range conflict: {wanted} overlaps {taken}, which another consumer serves")]
    Ranges {
        /// What it wants.
        wanted: HashRange,
        /// What is taken.
        taken: HashRange,
    },
}

/// What to read for the consumers that can take something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextRead {
    /// Nobody can take anything.
    None,
    /// These entries, in order, which were delivered before.
    Replay(Vec<Position>),
    /// What comes after this position, about so many messages.
    After {
        /// The last position that was read.
        position: Position,
        /// The sum of permits.
        messages: u64,
    },
}

/// What becomes of an entry that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// It goes to this consumer.
    To(ConsumerId),
    /// It waits for the consumer of its key; others may go on.
    Waits,
    /// Nobody can take anything now: it is read again later, and so is everything behind it.
    Nobody,
}

/// Entries to deliver again that are read at once.
const REPLAY_BATCH: usize = 128;
/// Entries that may wait for the consumers of their keys while others are read.
///
/// Fact: `keySharedLookAheadMsgInReplayThresholdPerSubscription`, 20,000.
const LOOK_AHEAD: usize = 20_000;

/// Deals entries out; see the crate.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    kind: Kind,
    consumers: Vec<ConsumerState>,
    active: Option<ConsumerId>,
    read_after: Position,
    replay: Replay,
    next_turn: usize,
    slots: Slots,
}

impl Dispatcher {
    /// A dispatcher without consumers that delivers what comes after `position`.
    #[must_use]
    pub fn new(kind: Kind, position: Position) -> Dispatcher {
        Dispatcher {
            kind,
            consumers: Vec::new(),
            active: None,
            read_after: position,
            replay: Replay::default(),
            next_turn: 0,
            slots: Slots::default(),
        }
    }

    /// How entries are divided.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The consumers, in the order in which they joined.
    #[must_use]
    pub fn consumers(&self) -> &[ConsumerState] {
        &self.consumers
    }

    /// The one that entries go to, of an Exclusive or Failover subscription.
    #[must_use]
    pub fn active(&self) -> Option<ConsumerId> {
        self.active
    }

    /// The last position that was read for the first time.
    #[must_use]
    pub fn read_position(&self) -> Position {
        self.read_after
    }

    /// Entries that wait to be delivered again.
    #[must_use]
    pub fn replaying(&self) -> usize {
        self.replay.len()
    }

    /// Adds a consumer. The first one decides the kind. `mark_delete` is where a new active consumer starts.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn add_consumer(&mut self, kind: Kind, consumer: NewConsumer, mark_delete: Position) -> Result<(), Busy> {
        if self.consumers.is_empty() {
            self.kind = kind;
        } else if self.kind != kind {
            return Err(Busy::OtherKind(self.kind));
        } else if kind == Kind::Exclusive {
            return Err(Busy::Exclusive);
        }
        if matches!(kind, Kind::KeyShared { sticky: true, .. }) {
            self.check_ranges(&consumer.ranges)?;
        }
        self.consumers.reserve_exact(1);
        self.consumers.push(ConsumerState::new(consumer));
        self.consumers_changed(mark_delete);
        Ok(())
    }

    fn check_ranges(&self, ranges: &[HashRange]) -> Result<(), Busy> {
        for taken in self.consumers.iter().flat_map(|consumer| &consumer.ranges) {
            if let Some(wanted) = ranges.iter().find(|wanted| wanted.overlaps(*taken)) {
                return Err(Busy::Ranges { wanted: *wanted, taken: *taken });
            }
        }
        Ok(())
    }

    fn consumers_changed(&mut self, mark_delete: Position) {
        if let Kind::KeyShared { sticky, .. } = self.kind {
            self.slots.rebuild(sticky, &self.consumers);
        }
        self.choose_active(mark_delete);
    }

    /// Takes a consumer out. What it was given and did not ack is delivered again.
    pub fn remove_consumer(&mut self, id: ConsumerId, mark_delete: Position) {
        let Some(at) = self.consumers.iter().position(|consumer| consumer.id == id) else { return };
        let gone = self.consumers.remove(at);
        if !self.kind.has_active() {
            for (position, given) in gone.pending {
                self.slots.release(given.slot);
                self.replay.insert(position, given.slot);
            }
        }
        self.consumers_changed(mark_delete);
        if self.consumers.is_empty() {
            // An idle subscription keeps no room for them.
            self.consumers = Vec::new();
            // What waits to be delivered again is found by reading on from the mark-delete position.
            self.rewind(mark_delete);
        }
    }

    /// Fact: Failover prefers the lowest priority level, then the first by name.
    fn choose_active(&mut self, mark_delete: Position) {
        let first = self.consumers.iter().min_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
        let chosen = first.filter(|_| self.kind.has_active()).map(|consumer| consumer.id);
        if chosen != self.active {
            self.active = chosen;
            self.rewind(mark_delete);
        }
    }

    /// Delivers again everything after `mark_delete` that the caller does not leave out as acked: a seek, a new active
    /// consumer, or one that asked for all.
    pub fn rewind(&mut self, mark_delete: Position) {
        self.read_after = mark_delete;
        self.replay.clear();
        self.slots.release_all();
        for consumer in &mut self.consumers {
            consumer.pending.clear();
            consumer.unacked = 0;
        }
    }

    /// Lets a consumer have more messages.
    pub fn flow(&mut self, id: ConsumerId, permits: u32) {
        if let Some(consumer) = self.consumer_mut(id) {
            consumer.permits = consumer.permits.saturating_add(i64::from(permits));
        }
    }

    /// Whether the consumer's connection takes more.
    pub fn set_room(&mut self, id: ConsumerId, room: bool) {
        if let Some(consumer) = self.consumer_mut(id) {
            consumer.room = room;
        }
    }

    /// What to read now.
    #[must_use]
    pub fn next_read(&self) -> NextRead {
        let messages: u64 = self.takers().map(|consumer| consumer.permits.unsigned_abs()).sum();
        if messages == 0 {
            return NextRead::None;
        }
        let after = NextRead::After { position: self.read_after, messages };
        if matches!(self.kind, Kind::KeyShared { .. }) {
            let again = self.replay.of_slots(REPLAY_BATCH, |slot| self.may_take(slot).is_ok());
            return match again.is_empty() {
                false => NextRead::Replay(again),
                true if self.replay.len() < LOOK_AHEAD => after,
                true => NextRead::None,
            };
        }
        let again = self.replay.first(REPLAY_BATCH);
        if again.is_empty() { after } else { NextRead::Replay(again) }
    }

    fn takers(&self) -> impl Iterator<Item = &ConsumerState> {
        let may = |consumer: &&ConsumerState| !self.kind.has_active() || self.active == Some(consumer.id);
        self.consumers.iter().filter(may).filter(|consumer| consumer.can_take())
    }

    /// Assigns an entry of `messages` unacked messages that was read; `slot` is that of its key, which only Key_Shared
    /// looks at.
    pub fn assign(&mut self, position: Position, messages: u32, slot: u32) -> Assigned {
        let to = match self.kind {
            Kind::Exclusive | Kind::Failover => self.takers().next().map(|consumer| consumer.id),
            Kind::Shared => self.next_in_turn(),
            Kind::KeyShared { .. } => {
                let earlier = self.replay.first_of(slot).is_some_and(|first| first < position);
                match self.may_take(slot) {
                    Ok(owner) if !earlier => Some(owner),
                    _ => {
                        self.passed(position);
                        self.replay.insert(position, slot);
                        return Assigned::Waits;
                    }
                }
            }
        };
        let Some(to) = to else { return Assigned::Nobody };
        self.passed(position);
        if matches!(self.kind, Kind::KeyShared { .. }) {
            self.slots.hold(slot, to);
        }
        let is_tracked = !self.kind.has_active();
        if let Some(consumer) = self.consumer_mut(to) {
            consumer.spend(messages);
            // The one active consumer gets what it did not ack by reading on from the mark-delete position.
            if is_tracked {
                consumer.give(position, Given { messages, slot });
            }
        }
        Assigned::To(to)
    }

    /// The consumer that may be given an entry of a slot now, or who must ack first; `None` if its owner cannot take it.
    fn may_take(&self, slot: u32) -> Result<ConsumerId, Option<ConsumerId>> {
        let owner = self.slots.owner(slot, &self.consumers).ok_or(None)?;
        let in_order = !matches!(self.kind, Kind::KeyShared { out_of_order: true, .. });
        match self.slots.holder(slot) {
            Some(holder) if holder != owner && in_order => Err(Some(holder)),
            _ if self.consumers.iter().any(|consumer| consumer.id == owner && consumer.can_take()) => Ok(owner),
            _ => Err(None),
        }
    }

    /// An entry that was read needs no delivery: it is acked, or nobody may have it.
    pub fn skip(&mut self, position: Position) {
        self.passed(position);
    }

    fn passed(&mut self, position: Position) {
        if !self.replay.remove(position) {
            self.read_after = self.read_after.max(position);
        }
    }

    /// The next of those with the lowest priority level that can take an entry.
    fn next_in_turn(&mut self) -> Option<ConsumerId> {
        let level = self.consumers.iter().filter(|c| c.can_take()).map(|c| c.priority).min()?;
        let count = self.consumers.len();
        let at = (0..count)
            .map(|i| (self.next_turn + i) % count)
            .find(|at| self.consumers.get(*at).is_some_and(|c| c.can_take() && c.priority == level))?;
        self.next_turn = at + 1;
        self.consumers.get(at).map(|consumer| consumer.id)
    }

    /// A consumer acked an entry wholly. Also right for one that nobody was given.
    pub fn acked(&mut self, position: Position) {
        self.replay.remove(position);
        if let Some(given) = self.consumers.iter_mut().find_map(|consumer| consumer.take_back(position)) {
            self.slots.release(given.slot);
        }
    }

    /// Everything up to `position` is acked.
    pub fn acked_through(&mut self, position: Position) {
        // Who skips messages also skips reading them.
        self.read_after = self.read_after.max(position);
        self.replay.remove_through(position);
        for consumer in &mut self.consumers {
            let kept = consumer.pending.split_off(&position.next());
            let gone: u64 = consumer.pending.values().map(|given| u64::from(given.messages)).sum();
            consumer.unacked -= gone;
            consumer.pending = kept;
        }
    }

    /// A consumer wants entries again: those given, or all that it holds. On a subscription with one active consumer
    /// it is always all, in order, from `mark_delete` on.
    ///
    /// Tells which entries that is, for whoever counts; none where one consumer is active.
    pub fn redeliver(&mut self, id: ConsumerId, positions: &[Position], mark_delete: Position) -> Vec<Position> {
        if self.kind.has_active() {
            if self.active == Some(id) {
                self.rewind(mark_delete);
            }
            return Vec::new();
        }
        let Some(consumer) = self.consumers.iter_mut().find(|consumer| consumer.id == id) else { return Vec::new() };
        let mut wanted: Vec<Position> =
            if positions.is_empty() { consumer.pending.keys().copied().collect() } else { positions.to_vec() };
        wanted.retain(|position| {
            let Some(given) = consumer.take_back(*position) else { return false };
            self.slots.release(given.slot);
            self.replay.insert(*position, given.slot);
            true
        });
        wanted
    }

    /// Why a consumer is sent nothing now.
    #[must_use]
    pub fn why(&self, id: ConsumerId) -> Option<Why> {
        let consumer = self.consumers.iter().find(|consumer| consumer.id == id)?;
        Some(match self.active {
            Some(active) if active != id => Why::NotActive(active),
            _ if consumer.is_blocked() => Why::Unacked(id, consumer.unacked),
            _ if consumer.permits <= 0 => Why::NoPermits(id),
            _ if !consumer.room => Why::OutboxFull(id),
            _ => self.why_of_keys(id).unwrap_or_else(|| match self.replay.first(1).first() {
                Some(first) => Why::Replaying(self.replay.len(), *first),
                None => Why::NothingNew(self.read_after),
            }),
        })
    }

    /// Why a consumer that could take something waits for others, of a Key_Shared subscription.
    fn why_of_keys(&self, id: ConsumerId) -> Option<Why> {
        if !matches!(self.kind, Kind::KeyShared { .. }) {
            return None;
        }
        let mine = |slot: u32| self.slots.owner(slot, &self.consumers) == Some(id);
        for (entry, slot) in self.replay.iter().filter(|(_, slot)| mine(*slot)) {
            if let Err(Some(holder)) = self.may_take(slot) {
                return Some(Why::KeyHeldBy { entry, holder });
            }
        }
        (self.replay.len() >= LOOK_AHEAD).then(|| Why::LookAhead(self.replay.len()))
    }

    fn consumer_mut(&mut self, id: ConsumerId) -> Option<&mut ConsumerState> {
        self.consumers.iter_mut().find(|consumer| consumer.id == id)
    }
}

#[cfg(test)]
#[path = "dispatcher_tests.rs"]
mod tests;
