//! Which consumer of a Key_Shared subscription serves which slot of the hash ring, and which slots are held.

use std::collections::BTreeMap;

use geminga_model::{KEY_HASH_SLOTS, murmur3_32};

use crate::consumer::{ConsumerId, ConsumerState};

/// Points of each consumer on the ring.
///
/// Fact: `subscriptionKeySharedConsistentHashingReplicaPoints`, 100.
const POINTS: u32 = 100;

/// The owners of slots: chosen by the consumers, or by consistent hashing so that a consumer that joins or leaves moves
/// few of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    sticky: bool,
    /// Of the consistent hash: point to consumer.
    points: BTreeMap<u32, ConsumerId>,
    /// Slots with entries that were given out and are not acked, who has them, and how many.
    held: BTreeMap<u32, (ConsumerId, u32)>,
}

impl Slots {
    /// The consumers changed.
    pub(crate) fn rebuild(&mut self, sticky: bool, consumers: &[ConsumerState]) {
        self.sticky = sticky;
        self.points.clear();
        if sticky {
            return;
        }
        for consumer in consumers {
            for point in 0..POINTS {
                // The id keeps apart consumers of one name.
                let text = format!("{}\0{}\0{point}", consumer.name, consumer.id.0);
                let slot = (murmur3_32(text.as_bytes()) & 0x7fff_ffff) % KEY_HASH_SLOTS;
                self.points.entry(slot).or_insert(consumer.id);
            }
        }
    }

    /// Who is to get entries of a slot; nobody if no consumer chose it.
    pub(crate) fn owner(&self, slot: u32, consumers: &[ConsumerState]) -> Option<ConsumerId> {
        if self.sticky {
            let serves = |consumer: &&ConsumerState| consumer.ranges.iter().any(|range| range.contains(slot));
            return consumers.iter().find(serves).map(|consumer| consumer.id);
        }
        self.points.range(slot..).chain(&self.points).next().map(|(_, id)| *id)
    }

    /// Who has unacked entries of a slot.
    pub(crate) fn holder(&self, slot: u32) -> Option<ConsumerId> {
        self.held.get(&slot).map(|(id, _)| *id)
    }

    pub(crate) fn hold(&mut self, slot: u32, by: ConsumerId) {
        let (holder, count) = self.held.entry(slot).or_insert((by, 0));
        *holder = by;
        *count += 1;
    }

    pub(crate) fn release(&mut self, slot: u32) {
        if let Some((_, count)) = self.held.get_mut(&slot) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&slot);
            }
        }
    }

    pub(crate) fn release_all(&mut self) {
        self.held.clear();
    }
}
