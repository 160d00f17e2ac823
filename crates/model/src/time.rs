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

impl UnixMillis {
    /// As ISO 8601 in UTC: `2023-11-14T22:13:20.000Z`.
    #[must_use]
    pub fn iso8601(self) -> String {
        let (seconds, millis) = (self.0.div_euclid(1000), self.0.rem_euclid(1000));
        let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // Years that begin in March have their leap day last; eras of 400 of them have the same number of days.
        let from_march = days + 719_468;
        let (era, of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl UnixMillis {
    /// Reads ISO 8601 with a time of day: `2023-11-14T22:13:20Z`, also with fractions of a second, and with an offset in
    /// place of `Z`. Without either it is UTC.
    #[must_use]
    pub fn parse_iso8601(text: &str) -> Option<UnixMillis> {
        let number = |part: &str| part.parse::<i64>().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
        let (date, time) = text.split_once('T')?;
        let mut date = date.splitn(3, '-').map(number);
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let at = time.find(['Z', '+', '-']).unwrap_or(time.len());
        let (time, zone) = time.split_at(at);
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let mut time = time.splitn(3, ':').map(number);
        let (hour, minute, second) = (time.next()??, time.next()??, time.next().unwrap_or(Some(0))?);
        let millis = number(format!("{fraction:0<3}").get(..3)?)?;
        let offset = match zone.split_at_checked(1) {
            None | Some(("Z", "")) => 0,
            Some((sign, rest)) => {
                let (hours, minutes) = rest.split_once(':').or_else(|| rest.split_at_checked(2))?;
                let minutes = number(hours)? * 60 + if minutes.is_empty() { 0 } else { number(minutes)? };
                if sign == "-" { -minutes } else { minutes }
            }
        };
        let legal = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        if !legal || hour > 23 || minute > 59 || second > 60 || offset.abs() > 24 * 60 {
            return None;
        }
        // As in `iso8601`, years begin in March.
        let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let of_year = (153 * from_march + 2) / 5 + day - 1;
        let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468;
        let seconds = days * 86_400 + (hour * 60 + minute - offset) * 60 + second;
        Some(UnixMillis(seconds * 1000 + millis))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_005, "2023-11-14T22:13:20.005Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(UnixMillis(millis).iso8601(), text);
            assert_eq!(UnixMillis::parse_iso8601(text), Some(UnixMillis(millis)));
        }
        for (text, millis) in [
            ("2023-11-14T22:13:20Z", 1_700_000_000_000),
            ("2023-11-14T23:13:20.005123+01:00", 1_700_000_000_005),
            ("2023-11-14T17:13:20.1-0500", 1_700_000_000_100),
            ("2023-11-14T22:13", 1_699_999_980_000),
        ] {
            assert_eq!(UnixMillis::parse_iso8601(text), Some(UnixMillis(millis)), "{text}");
        }
        for bad in ["", "2023-11-14", "2023-13-14T00:00:00Z", "T::", "2023-11-14T25:00:00Z", "2023-11-14T10:00:00+ü"] {
            assert_eq!(UnixMillis::parse_iso8601(bad), None, "{bad}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let t = Instant(10);
        assert_eq!(t + Duration::from_micros(5), Instant(15));
        assert_eq!(t - Duration::from_secs(1), Instant(0));
        assert_eq!(t + Duration::MAX, Instant(u64::MAX));
        assert_eq!(Instant(3).since(t), Duration::ZERO);
    }
}
