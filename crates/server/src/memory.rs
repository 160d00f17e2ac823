//! One number for memory, and what it is shared out to.
//!
//! Each class has a fixed share and its own bound. Six sixteenths are nobody's: the program itself, metadata, the table of
//! the segment that is written, connections, copies on their way to the log, and what the allocator keeps, which is about
//! a third of what is in use.

use std::path::Path;

use geminga_disk::{Disk, OpenMode, RealDisk};

/// Less than this serves nobody well.
const LEAST: u64 = 64 << 20;
/// What a start takes on its own at most.
const DEFAULT_MOST: u64 = 1 << 30;

/// Bytes of each class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Publishes without a receipt, with the frames that are being received.
    pub(crate) ingress: usize,
    /// Deliveries that sockets have not taken.
    pub(crate) outbox: usize,
    /// The newest entries of all topics.
    pub(crate) cache: usize,
    /// What subscriptions read from the log.
    pub(crate) read_ahead: usize,
    /// Pages of the indexes of the log.
    pub(crate) index: usize,
}

impl Shares {
    /// Of so many bytes; `cache` if it is configured on its own.
    pub(crate) fn of(memory: u64, cache: Option<usize>) -> Shares {
        let part = |sixteenths: u64| usize::try_from(memory / 16 * sixteenths).unwrap_or(usize::MAX);
        Shares {
            ingress: part(2),
            outbox: part(2),
            cache: cache.unwrap_or(part(3)),
            read_ahead: part(2),
            index: part(1),
        }
    }
}

/// A size as the command line has it: bytes, or with K, M or G for powers of 1024.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (number, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let bytes = bytes.ok_or("expected a number of bytes, or one with K, M or G, such as 256M")?;
    if bytes < LEAST { Err(format!("expected at least {}M", LEAST >> 20)) } else { Ok(bytes) }
}

/// A quarter of what this process may use, within bounds.
pub(crate) fn default_memory() -> u64 {
    let host = read("/proc/meminfo").and_then(|text| total_of(&text)).unwrap_or(LEAST * 4);
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok()).unwrap_or(host);
    (host.min(group) / 4).clamp(LEAST, DEFAULT_MOST)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The start of a file of the system, which tells no size.
fn read(path: &str) -> Option<String> {
    let mut bytes = [0; 512];
    let file = RealDisk.open(Path::new(path), OpenMode::Read).ok()?;
    let read = file.read_at(0, &mut bytes).ok()?;
    Some(String::from_utf8_lossy(bytes.get(..read)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("67108864"), Ok(64 << 20));
        assert_eq!((parse_size("256M"), parse_size("256m")), (Ok(256 << 20), Ok(256 << 20)));
        assert_eq!((parse_size("1G"), parse_size("70000K")), (Ok(1 << 30), Ok(70_000 << 10)));
        for bad in ["", "M", "1", "63M", "-1M", "1T", "99999999999G", "256 M", "256MB", "ä"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_leave_six_sixteenths() {
        let shares = Shares::of(256 << 20, None);
        let sum = shares.ingress + shares.outbox + shares.cache + shares.read_ahead + shares.index;
        assert_eq!(sum, 160 << 20);
        assert_eq!(Shares::of(256 << 20, Some(0)).cache, 0);
    }

    #[test]
    fn the_default_is_within_bounds() {
        assert_eq!(total_of("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert!((LEAST..=DEFAULT_MOST).contains(&default_memory()));
    }
}
