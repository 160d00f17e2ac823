//! Counters with rates. Nothing ticks: a minute is closed by whoever comes first after it, to count or to read.

use std::time::Duration;

use geminga_model::Instant;

/// Rates are those of the last whole window. Fact: `statsUpdateFrequencyInSecs`, 60.
const WINDOW: Duration = Duration::from_secs(60);

fn window(now: Instant) -> u64 {
    now.0 / u64::try_from(WINDOW.as_micros()).unwrap_or(u64::MAX)
}

/// Counts, and knows how many a second there were in the last minute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    total: u64,
    window: u64,
    current: u64,
    last: u64,
}

impl Meter {
    pub(crate) fn add(&mut self, now: Instant, count: u64) {
        if count == 0 {
            return;
        }
        let window = window(now);
        if window != self.window {
            self.last = if window == self.window + 1 { self.current } else { 0 };
            self.current = 0;
            self.window = window;
        }
        self.current += count;
        self.total += count;
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    #[allow(clippy::cast_precision_loss)] // nobody reads the 16th digit of a rate
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        let last = match window(now).saturating_sub(self.window) {
            0 => self.last,
            1 => self.current,
            _ => 0,
        };
        last as f64 / WINDOW.as_secs_f64()
    }
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) messages: Meter,
    pub(crate) bytes: Meter,
}

impl Traffic {
    pub(crate) fn add(&mut self, now: Instant, messages: u64, bytes: u64) {
        self.messages.add(now, messages);
        self.bytes.add(now, bytes);
    }
}

/// How many of the last whole minute were in which range. Fact: Pulsar's histograms are not cumulative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram<const N: usize> {
    window: u64,
    current: Counts<N>,
    last: Counts<N>,
}

/// Numbers in ranges, and the sum of what was counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts<const N: usize> {
    /// How many were in each range; the last one has no upper end.
    pub ranges: [u32; N],
    /// The sum.
    pub sum: u64,
}

impl<const N: usize> Default for Counts<N> {
    fn default() -> Counts<N> {
        Counts { ranges: [0; N], sum: 0 }
    }
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Histogram<N> {
        Histogram { window: 0, current: Counts::default(), last: Counts::default() }
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts `values`; `ends` are the upper ends of the ranges but the last, ascending.
    pub(crate) fn add(&mut self, now: Instant, ends: &[u64], values: impl Iterator<Item = u64>) {
        let window = window(now);
        if window != self.window {
            self.last = if window == self.window + 1 { self.current } else { Counts::default() };
            self.current = Counts::default();
            self.window = window;
        }
        for value in values {
            let range = ends.partition_point(|end| *end < value);
            if let Some(count) = self.current.ranges.get_mut(range) {
                *count = count.saturating_add(1);
            }
            self.current.sum = self.current.sum.saturating_add(value);
        }
    }

    pub(crate) fn last(&self, now: Instant) -> Counts<N> {
        match window(now).saturating_sub(self.window) {
            0 => self.last,
            1 => self.current,
            _ => Counts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000)
    }

    #[test]
    fn a_rate_is_that_of_the_last_whole_minute() {
        let mut meter = Meter::default();
        meter.add(at(10), 60);
        meter.add(at(59), 60);
        assert_eq!((meter.rate(at(59)), meter.rate(at(60)), meter.rate(at(119))), (0.0, 2.0, 2.0));
        assert_eq!(meter.rate(at(120)), 0.0);
        meter.add(at(70), 30);
        assert_eq!((meter.rate(at(70)), meter.rate(at(130)), meter.total()), (2.0, 0.5, 150));
        meter.add(at(1000), 6);
        assert_eq!((meter.rate(at(1000)), meter.rate(at(1020))), (0.0, 0.1));
    }

    #[test]
    fn ranges() {
        let mut histogram = Histogram::<3>::default();
        histogram.add(at(1), &[10, 100], [1, 10, 11, 100, 101].into_iter());
        assert_eq!(histogram.last(at(1)), Counts::default());
        assert_eq!(histogram.last(at(61)), Counts { ranges: [2, 2, 1], sum: 223 });
        assert_eq!(histogram.last(at(121)), Counts::default());
        histogram.add(at(61), &[10, 100], std::iter::once(5));
        assert_eq!(histogram.last(at(61)).sum, 223);
    }
}
