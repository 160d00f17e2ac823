//! The one clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use geminga_model::{Instant, UnixMillis};

/// The wall clock at which simulated time starts: 2023-11-14T22:13:20Z.
const SIMULATED_START: UnixMillis = UnixMillis(1_700_000_000_000);

/// Tells time and waits for it. Under a runtime whose time is paused both follow that runtime, so a simulation's hours
/// pass in no time and every run is the same.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: tokio::time::Instant,
    simulated: bool,
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn real() -> Clock {
        Clock { start: tokio::time::Instant::now(), simulated: false }
    }

    /// A clock that starts at a fixed date and moves with the paused time of the current runtime.
    #[must_use]
    pub fn simulated() -> Clock {
        Clock { start: tokio::time::Instant::now(), simulated: true }
    }

    /// Now, for deadlines and intervals.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::default() + self.start.elapsed()
    }

    /// Now, as Pulsar stores it. May jump.
    #[must_use]
    pub fn wall(&self) -> UnixMillis {
        let since_epoch = if self.simulated {
            Duration::from_millis(u64::try_from(SIMULATED_START.0).unwrap_or(0)) + self.start.elapsed()
        } else {
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
        };
        UnixMillis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    /// Waits until `deadline`. Cancel-safe.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(self.start + Duration::from_micros(deadline.0)).await;
    }

    /// Waits until `deadline` if there is one, else for ever. For the timer arm of an owner's `select!`. Cancel-safe.
    pub async fn sleep_until_some(&self, deadline: Option<Instant>) {
        match deadline {
            Some(deadline) => self.sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_time_follows_the_runtime() {
        let clock = Clock::simulated();
        assert_eq!((clock.now(), clock.wall()), (Instant(0), SIMULATED_START));
        clock.sleep_until(Instant::default() + Duration::from_secs(3600)).await;
        assert_eq!(clock.now(), Instant(3_600_000_000));
        assert_eq!(clock.wall(), UnixMillis(SIMULATED_START.0 + 3_600_000));
    }

    #[test]
    fn real_time_works_outside_a_runtime() {
        let clock = Clock::real();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.wall() > SIMULATED_START);
    }
}
