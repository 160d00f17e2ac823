//! One consumer, as the dispatcher sees it.

use std::collections::BTreeMap;

use geminga_model::{HashRange, Position};

/// A consumer of a subscription, for as long as it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub u64);

/// A consumer that wants to join.
#[derive(Clone, Debug)]
pub struct NewConsumer {
    /// Its id, never used before in this subscription.
    pub id: ConsumerId,
    /// Its name; Failover prefers the first by name.
    pub name: String,
    /// Smaller goes first.
    pub priority: i32,
    /// How many messages it may hold unacked (`maxUnackedMessagesPerConsumer`), of Shared and Key_Shared subscriptions; 0
    /// for no limit.
    pub max_unacked: u64,
    /// The slots that it serves, of a Key_Shared subscription whose consumers choose them; sorted, not overlapping.
    pub ranges: Vec<HashRange>,
}

/// An entry that a consumer was given and did not ack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) messages: u32,
    pub(crate) slot: u32,
}

/// What a consumer has and may have.
#[derive(Clone, Debug)]
pub struct ConsumerState {
    pub(crate) id: ConsumerId,
    pub(crate) name: String,
    pub(crate) priority: i32,
    pub(crate) max_unacked: u64,
    pub(crate) permits: i64,
    pub(crate) room: bool,
    pub(crate) pending: BTreeMap<Position, Given>,
    pub(crate) ranges: Vec<HashRange>,
    pub(crate) unacked: u64,
}

impl ConsumerState {
    pub(crate) fn new(consumer: NewConsumer) -> ConsumerState {
        let NewConsumer { id, name, priority, max_unacked, ranges } = consumer;
        let pending = BTreeMap::new();
        ConsumerState { id, name, priority, max_unacked, permits: 0, room: true, pending, ranges, unacked: 0 }
    }

    /// The consumer.
    #[must_use]
    pub fn id(&self) -> ConsumerId {
        self.id
    }

    /// Messages that it may be sent; below zero after a batch that was larger than what it asked for.
    #[must_use]
    pub fn permits(&self) -> i64 {
        self.permits
    }

    /// Messages that it was sent and did not ack, of Shared and Key_Shared subscriptions; elsewhere 0.
    #[must_use]
    pub fn unacked(&self) -> u64 {
        self.unacked
    }

    /// Whether its connection takes more, as far as is known.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.room
    }

    /// Whether it holds as many unacked messages as it may.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.max_unacked > 0 && self.unacked >= self.max_unacked
    }

    pub(crate) fn can_take(&self) -> bool {
        self.permits > 0 && self.room && !self.is_blocked()
    }

    pub(crate) fn spend(&mut self, messages: u32) {
        self.permits -= i64::from(messages);
    }

    pub(crate) fn give(&mut self, position: Position, given: Given) {
        if let Some(before) = self.pending.insert(position, given) {
            self.unacked -= u64::from(before.messages);
        }
        self.unacked += u64::from(given.messages);
    }

    pub(crate) fn take_back(&mut self, position: Position) -> Option<Given> {
        let given = self.pending.remove(&position)?;
        self.unacked -= u64::from(given.messages);
        Some(given)
    }
}
