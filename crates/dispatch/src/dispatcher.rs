//! The dispatcher of one subscription.

use std::collections::{BTreeMap, BTreeSet};

use geminga_model::Position;

use crate::consumer::{ConsumerId, ConsumerState, NewConsumer};
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

/// Entries to deliver again that are read at once.
const REPLAY_BATCH: usize = 128;

/// Deals entries out; see the crate.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    kind: Kind,
    consumers: Vec<ConsumerState>,
    active: Option<ConsumerId>,
    read_after: Position,
    replay: BTreeSet<Position>,
    redeliveries: BTreeMap<Position, u32>,
    next_turn: usize,
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
            replay: BTreeSet::new(),
            redeliveries: BTreeMap::new(),
            next_turn: 0,
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

    /// How often an entry was asked to be delivered again.
    #[must_use]
    pub fn redelivery_count(&self, position: Position) -> u32 {
        self.redeliveries.get(&position).copied().unwrap_or(0)
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
        self.consumers.push(ConsumerState::new(consumer));
        self.choose_active(mark_delete);
        Ok(())
    }

    /// Takes a consumer out. What it was given and did not ack is delivered again.
    pub fn remove_consumer(&mut self, id: ConsumerId, mark_delete: Position) {
        let Some(at) = self.consumers.iter().position(|consumer| consumer.id == id) else { return };
        let gone = self.consumers.remove(at);
        match self.kind {
            Kind::Shared => self.replay.extend(gone.pending.into_keys()),
            Kind::Exclusive | Kind::Failover => self.choose_active(mark_delete),
        }
        if self.consumers.is_empty() {
            // What waits to be delivered again is found by reading on from the mark-delete position.
            self.rewind(mark_delete);
        }
    }

    /// Fact: Failover prefers the lowest priority level, then the first by name.
    fn choose_active(&mut self, mark_delete: Position) {
        let first = match self.kind {
            Kind::Shared => None,
            Kind::Exclusive | Kind::Failover => {
                self.consumers.iter().min_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)))
            }
        };
        let chosen = first.map(|consumer| consumer.id);
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
        let takers = self.takers();
        let messages: u64 = takers.map(|consumer| consumer.permits.unsigned_abs()).sum();
        if messages == 0 {
            NextRead::None
        } else if self.replay.is_empty() {
            NextRead::After { position: self.read_after, messages }
        } else {
            NextRead::Replay(self.replay.iter().take(REPLAY_BATCH).copied().collect())
        }
    }

    fn takers(&self) -> impl Iterator<Item = &ConsumerState> {
        let may = |consumer: &&ConsumerState| self.kind == Kind::Shared || self.active == Some(consumer.id);
        self.consumers.iter().filter(may).filter(|consumer| consumer.can_take())
    }

    /// Assigns an entry of `messages` unacked messages that was read; `None` if nobody can take it now: then it is
    /// read again later, and so must everything behind it.
    pub fn assign(&mut self, position: Position, messages: u32) -> Option<ConsumerId> {
        let at = match self.kind {
            Kind::Exclusive | Kind::Failover => {
                self.consumers.iter().position(|c| self.active == Some(c.id) && c.can_take())?
            }
            Kind::Shared => self.next_in_turn()?,
        };
        self.passed(position);
        let consumer = self.consumers.get_mut(at)?;
        consumer.give(position, messages);
        Some(consumer.id)
    }

    /// An entry that was read needs no delivery: it is acked, or nobody may have it.
    pub fn skip(&mut self, position: Position) {
        self.passed(position);
    }

    fn passed(&mut self, position: Position) {
        if !self.replay.remove(&position) {
            self.read_after = self.read_after.max(position);
        }
    }

    /// The next of those with the lowest priority level that can take an entry.
    fn next_in_turn(&mut self) -> Option<usize> {
        let level = self.consumers.iter().filter(|c| c.can_take()).map(|c| c.priority).min()?;
        let count = self.consumers.len();
        let at = (0..count)
            .map(|i| (self.next_turn + i) % count)
            .find(|at| self.consumers.get(*at).is_some_and(|c| c.can_take() && c.priority == level))?;
        self.next_turn = at + 1;
        Some(at)
    }

    /// A consumer acked an entry wholly. Also right for one that nobody was given.
    pub fn acked(&mut self, position: Position) {
        self.replay.remove(&position);
        self.redeliveries.remove(&position);
        for consumer in &mut self.consumers {
            if consumer.take_back(position) {
                break;
            }
        }
    }

    /// Everything up to `position` is acked.
    pub fn acked_through(&mut self, position: Position) {
        self.replay = self.replay.split_off(&position.next());
        self.redeliveries = self.redeliveries.split_off(&position.next());
        for consumer in &mut self.consumers {
            let kept = consumer.pending.split_off(&position.next());
            let gone: u64 = consumer.pending.values().map(|messages| u64::from(*messages)).sum();
            consumer.unacked -= gone;
            consumer.pending = kept;
        }
    }

    /// A consumer wants entries again: those given, or all that it holds. On a subscription with one active consumer
    /// it is always all, in order, from `mark_delete` on.
    pub fn redeliver(&mut self, id: ConsumerId, positions: &[Position], mark_delete: Position) {
        if self.kind != Kind::Shared {
            if self.active == Some(id) {
                self.rewind(mark_delete);
            }
            return;
        }
        let Some(consumer) = self.consumers.iter_mut().find(|consumer| consumer.id == id) else { return };
        let wanted: Vec<Position> =
            if positions.is_empty() { consumer.pending.keys().copied().collect() } else { positions.to_vec() };
        for position in wanted {
            if consumer.take_back(position) {
                self.replay.insert(position);
                *self.redeliveries.entry(position).or_default() += 1;
            }
        }
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
            _ => match self.replay.first() {
                Some(first) => Why::Replaying(self.replay.len(), *first),
                None => Why::NothingNew(self.read_after),
            },
        })
    }

    fn consumer_mut(&mut self, id: ConsumerId) -> Option<&mut ConsumerState> {
        self.consumers.iter_mut().find(|consumer| consumer.id == id)
    }
}

#[cfg(test)]
#[path = "dispatcher_tests.rs"]
mod tests;
