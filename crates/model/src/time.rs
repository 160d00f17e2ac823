//! Points in time, as values: pure code never asks a clock, it is told `now`.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the monotonic clock of this process: microseconds since an arbitrary start. For deadlines and intervals;
/// meaningless outside the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, by: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, by: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(by.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A point on the wall clock: milliseconds since 1970-01-01 UTC, as Pulsar stores and sends it. It may jump; never use
/// it to measure an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub i64);

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let t = Instant(10);
        assert_eq!(t + Duration::from_micros(5), Instant(15));
        assert_eq!(t - Duration::from_secs(1), Instant(0));
        assert_eq!(t + Duration::MAX, Instant(u64::MAX));
        assert_eq!(Instant(3).since(t), Duration::ZERO);
    }
}
