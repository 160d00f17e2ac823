//! Who is still to be woken after a commit: a part of the subscriptions at a time, so that with very many of them the
//! receipts that were sent before, and the next publishes, do not wait for the last.

use std::ops::Range;

/// Subscriptions that are woken between two yields.
const AT_ONCE: usize = 64;

/// A round over all subscriptions, by their places. It goes on where the last one ended, so that commits in quick
/// succession do not always wake the same ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WakeRound {
    next: usize,
    left: usize,
}

impl WakeRound {
    /// There is something new for all of `subscriptions`. Tells whether they are few enough to be woken at once.
    pub(crate) fn begin(&mut self, subscriptions: usize) -> bool {
        self.left = subscriptions;
        subscriptions <= AT_ONCE
    }

    /// A subscription came or went, and others may have other places now.
    pub(crate) fn places_changed(&mut self, subscriptions: usize) {
        if self.left > 0 {
            self.left = subscriptions;
        }
    }

    /// Whether everybody was woken.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The places of those to wake now.
    pub(crate) fn step(&mut self, subscriptions: usize) -> Range<usize> {
        if self.next >= subscriptions {
            self.next = 0;
        }
        let first = self.next;
        // Up to the last place; from the first on it goes on with the next step.
        let count = self.left.min(AT_ONCE).min(subscriptions - first);
        self.next += count;
        self.left = if count == 0 { 0 } else { self.left - count };
        first..first + count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_are_woken_at_once() {
        let mut round = WakeRound::default();
        assert!(round.begin(3) && round.begin(AT_ONCE) && !round.begin(AT_ONCE + 1));
        assert!(WakeRound::default().is_over());
        round.begin(0);
        assert!(round.is_over() && round.step(0).is_empty());
    }

    proptest! {
        /// `commits` says before which steps there is a commit, `left` which subscription goes before which step.
        #[test]
        fn everybody_is_woken_after_the_last_commit(
            count in 1usize..300,
            commits in prop::collection::vec(any::<bool>(), 0..20),
            leaves in prop::collection::vec(prop::option::weighted(0.2, any::<prop::sample::Index>()), 0..20),
        ) {
            let mut subscriptions: Vec<(usize, bool)> = (0..count).map(|name| (name, false)).collect();
            let mut round = WakeRound::default();
            round.begin(count);
            let mut steps = 0;
            while !round.is_over() {
                if commits.get(steps) == Some(&true) {
                    subscriptions.iter_mut().for_each(|(_, woken)| *woken = false);
                    round.begin(subscriptions.len());
                }
                if let Some(Some(leaves)) = leaves.get(steps) && subscriptions.len() > 1 {
                    subscriptions.remove(leaves.index(subscriptions.len()));
                    round.places_changed(subscriptions.len());
                }
                let woken = round.step(subscriptions.len());
                prop_assert!(woken.len() <= AT_ONCE);
                subscriptions[woken].iter_mut().for_each(|(_, woken)| *woken = true);
                steps += 1;
                prop_assert!(steps < 200);
            }
            prop_assert!(subscriptions.iter().all(|(_, woken)| *woken));
        }
    }

    #[test]
    fn a_commit_at_every_step_does_not_leave_anybody_out() {
        let mut round = WakeRound::default();
        let mut woken = [false; 200];
        for _ in 0..8 {
            round.begin(200);
            woken[round.step(200)].fill(true);
        }
        assert_eq!(woken, [true; 200]);
    }
}
