//! Randomness, seeded so that a simulation repeats.

use std::sync::Arc;

use parking_lot::Mutex;

/// A source of random numbers, shared by clones. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    /// Different in every process.
    #[must_use]
    pub fn from_entropy() -> Random {
        Random(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// The same sequence for the same seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Random {
        Random(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// Any number.
    #[must_use]
    pub fn u64(&self) -> u64 {
        self.0.lock().u64(..)
    }

    /// A number below `bound`; 0 if the bound is 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.lock().u64(..bound) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats() {
        let (a, b) = (Random::from_seed(7), Random::from_seed(7));
        assert!((0..10).all(|_| a.u64() == b.u64()));
        assert!((0..100).all(|_| a.below(3) < 3) && a.below(0) == 0);
        assert_ne!(Random::from_entropy().u64(), Random::from_entropy().u64());
    }
}
