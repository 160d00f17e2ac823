//! Which producers may be connected beside which others.
//!
//! Facts: a producer that has the topic for itself carries the topic's epoch, which is stored before the producer is
//! told. One that connects again with an older epoch has been superseded for good. Shared producers are refused while
//! another has the topic for itself or waits for that, and are not told by an epoch (Pulsar's PIP-68).

use std::collections::VecDeque;

use geminga_session::Refusal;
use geminga_wire::ServerError;
use geminga_wire::proto::ProducerAccessMode;

use crate::publish::ProducerId;

/// The managed-ledger property that holds the epoch, as decimal text.
pub(crate) const EPOCH_PROPERTY: &str = "pulsar.topic.epoch";

/// The highest that Java reads.
const MAX_EPOCH: u64 = i64::MAX as u64;

/// How a producer is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Beside others.
    Shared,
    /// For itself, once this epoch is stored.
    Alone(u64),
    /// As [`Admission::Alone`]; whoever was there before, waiting ones too, is out.
    AloneByForce(u64),
    /// It waits until nobody else is there.
    Waiting,
}

/// The rule for one topic.
#[derive(Debug, Default)]
pub(crate) struct Access {
    epoch: Option<u64>,
    /// Who has the topic for itself.
    exclusive: Option<ProducerId>,
    /// Who waits to have it, with the epoch that it said.
    waiting: VecDeque<(ProducerId, Option<u64>)>,
    /// Producers that are let in.
    present: usize,
}

impl Access {
    /// The rule for a topic whose epoch is stored as this text.
    pub(crate) fn new(stored: Option<&str>) -> Access {
        Access { epoch: stored.and_then(|text| text.parse().ok()), ..Access::default() }
    }

    /// Lets a producer in, if the others allow it. `said` is the epoch that it had before it connected again.
    pub(crate) fn admit(
        &mut self,
        id: ProducerId,
        mode: ProducerAccessMode,
        said: Option<u64>,
    ) -> Result<Admission, Refusal> {
        let taken = self.exclusive.is_some() || !self.waiting.is_empty();
        let admission = match mode {
            ProducerAccessMode::Shared if taken => {
                let message = "Topic has an existing exclusive producer";
                return Err(Refusal::new(ServerError::ProducerBusy, message));
            }
            ProducerAccessMode::Shared => Admission::Shared,
            ProducerAccessMode::Exclusive if taken => return Err(fenced("Topic has an existing exclusive producer")),
            ProducerAccessMode::Exclusive if self.present > 0 => {
                return Err(fenced("Topic has existing shared producers"));
            }
            ProducerAccessMode::WaitForExclusive if taken || self.present > 0 => Admission::Waiting,
            ProducerAccessMode::Exclusive | ProducerAccessMode::WaitForExclusive => {
                Admission::Alone(self.next_epoch(said)?)
            }
            ProducerAccessMode::ExclusiveWithFencing => Admission::AloneByForce(self.next_epoch(said)?),
        };
        match admission {
            Admission::Shared => self.present += 1,
            Admission::Alone(epoch) => self.give(id, epoch),
            Admission::AloneByForce(epoch) => {
                self.waiting.clear();
                self.present = 0;
                self.give(id, epoch);
            }
            Admission::Waiting => self.waiting.push_back((id, said)),
        }
        Ok(admission)
    }

    fn next_epoch(&self, said: Option<u64>) -> Result<u64, Refusal> {
        match said {
            Some(said) if self.epoch.is_some_and(|epoch| said < epoch) => Err(fenced("Topic epoch has already moved")),
            // Only a client that makes epochs up comes this far.
            Some(said) if said > MAX_EPOCH => Err(fenced("Topic epoch is out of range")),
            None if self.epoch == Some(MAX_EPOCH) => Err(fenced("Topic epoch cannot be raised any more")),
            Some(said) => Ok(said),
            None => Ok(self.epoch.map_or(0, |epoch| epoch + 1)),
        }
    }

    fn give(&mut self, id: ProducerId, epoch: u64) {
        self.epoch = Some(epoch);
        self.exclusive = Some(id);
        self.present += 1;
    }

    /// Who has the topic for itself.
    pub(crate) fn exclusive(&self) -> Option<ProducerId> {
        self.exclusive
    }

    /// A producer that was let in, or waited, is gone.
    pub(crate) fn remove(&mut self, id: ProducerId) {
        let waiting = self.waiting.len();
        self.waiting.retain(|(waits, _)| *waits != id);
        if self.waiting.len() < waiting {
            return;
        }
        self.present = self.present.saturating_sub(1);
        if self.exclusive == Some(id) {
            self.exclusive = None;
        }
    }

    /// Whose turn it is to have the topic, and with which epoch; or who can have it no more.
    pub(crate) fn poll_turn(&mut self) -> Option<(ProducerId, Result<u64, Refusal>)> {
        if self.present > 0 {
            return None;
        }
        let (id, said) = self.waiting.pop_front()?;
        let epoch = self.next_epoch(said);
        if let Ok(epoch) = epoch {
            self.give(id, epoch);
        }
        Some((id, epoch))
    }
}

fn fenced(message: &str) -> Refusal {
    Refusal::new(ServerError::ProducerFenced, message)
}

#[cfg(test)]
mod tests {
    use ProducerAccessMode::{Exclusive, ExclusiveWithFencing, Shared, WaitForExclusive};
    use proptest::prelude::*;

    use super::*;

    fn id(n: u64) -> ProducerId {
        ProducerId(n)
    }

    fn code(result: Result<Admission, Refusal>) -> ServerError {
        result.unwrap_err().error
    }

    #[test]
    fn modes_beside_each_other() {
        let mut access = Access::new(None);
        assert_eq!(access.admit(id(1), Shared, None), Ok(Admission::Shared));
        assert_eq!(access.admit(id(2), Shared, None), Ok(Admission::Shared));
        assert_eq!(code(access.admit(id(3), Exclusive, None)), ServerError::ProducerFenced);
        assert_eq!(access.admit(id(4), WaitForExclusive, None), Ok(Admission::Waiting));
        assert_eq!(code(access.admit(id(5), Shared, None)), ServerError::ProducerBusy);
        access.remove(id(1));
        assert_eq!(access.poll_turn(), None);
        access.remove(id(2));
        assert_eq!(access.poll_turn(), Some((id(4), Ok(0))));
        assert_eq!(code(access.admit(id(6), Exclusive, None)), ServerError::ProducerFenced);
        assert_eq!(access.admit(id(7), WaitForExclusive, None), Ok(Admission::Waiting));
        assert_eq!(access.admit(id(8), ExclusiveWithFencing, None), Ok(Admission::AloneByForce(1)));
        access.remove(id(8));
        assert_eq!(access.poll_turn(), None, "whoever waited was fenced with the holder");
        assert_eq!(access.admit(id(9), Exclusive, None), Ok(Admission::Alone(2)));
    }

    #[test]
    fn epochs_outlive_producers_and_restarts() {
        let mut access = Access::new(Some("4"));
        assert_eq!(code(access.admit(id(1), Exclusive, Some(3))), ServerError::ProducerFenced);
        assert_eq!(access.admit(id(2), Exclusive, Some(4)), Ok(Admission::Alone(4)));
        assert_eq!(code(access.admit(id(3), ExclusiveWithFencing, Some(3))), ServerError::ProducerFenced);
        assert_eq!(access.admit(id(4), WaitForExclusive, Some(3)), Ok(Admission::Waiting));
        access.remove(id(2));
        assert!(matches!(access.poll_turn(), Some((ProducerId(4), Err(_)))));
        assert_eq!(access.admit(id(5), Exclusive, Some(9)), Ok(Admission::Alone(9)));
        access.remove(id(5));
        assert_eq!(access.admit(id(6), Exclusive, None), Ok(Admission::Alone(10)));
        access.remove(id(6));
        assert_eq!(code(access.admit(id(7), Exclusive, Some(u64::MAX))), ServerError::ProducerFenced);
        assert_eq!(access.admit(id(7), Exclusive, Some(MAX_EPOCH)), Ok(Admission::Alone(MAX_EPOCH)));
        access.remove(id(7));
        assert_eq!(code(access.admit(id(8), Exclusive, None)), ServerError::ProducerFenced);
    }

    proptest! {
        /// Whoever has the topic for itself is alone, epochs never go back, and who waits gets its turn.
        #[test]
        fn one_is_alone_and_epochs_rise(steps in prop::collection::vec((0_u8..6, 0_u64..6), 1..80)) {
            let mut access = Access::new(None);
            let (mut shared, mut alone, mut waiting) = (Vec::new(), None, Vec::new());
            let (mut epoch, mut next) = (None, 0);
            for (step, pick) in steps {
                let modes = [Shared, Exclusive, ExclusiveWithFencing, WaitForExclusive];
                if let Some(mode) = modes.get(step as usize) {
                    next += 1;
                    match access.admit(id(next), *mode, None) {
                        Ok(Admission::Shared) => {
                            prop_assert!(alone.is_none() && waiting.is_empty());
                            shared.push(next);
                        }
                        Ok(Admission::Alone(now)) => {
                            prop_assert!(alone.is_none() && shared.is_empty() && waiting.is_empty());
                            prop_assert!(Some(now) > epoch);
                            (alone, epoch) = (Some(next), Some(now));
                        }
                        Ok(Admission::AloneByForce(now)) => {
                            prop_assert!(Some(now) > epoch);
                            (alone, epoch) = (Some(next), Some(now));
                            shared.clear();
                            waiting.clear();
                        }
                        Ok(Admission::Waiting) => {
                            prop_assert!(alone.is_some() || !shared.is_empty() || !waiting.is_empty());
                            waiting.push(next);
                        }
                        Err(_) => prop_assert!(alone.is_some() || !shared.is_empty() || !waiting.is_empty()),
                    }
                } else {
                    let all: Vec<u64> = shared.iter().chain(&alone).chain(&waiting).copied().collect();
                    let Some(gone) = all.get(pick as usize % all.len().max(1)).copied() else { continue };
                    shared.retain(|p| *p != gone);
                    waiting.retain(|p| *p != gone);
                    alone = alone.filter(|p| *p != gone);
                    access.remove(id(gone));
                }
                let turn = access.poll_turn();
                if alone.is_none() && shared.is_empty() && !waiting.is_empty() {
                    let first = waiting.remove(0);
                    let now = epoch.map_or(0, |epoch| epoch + 1);
                    prop_assert_eq!(turn, Some((id(first), Ok(now))));
                    (alone, epoch) = (Some(first), Some(now));
                } else {
                    prop_assert_eq!(turn, None);
                }
            }
        }
    }
}
