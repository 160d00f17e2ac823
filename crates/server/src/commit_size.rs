//! How many bytes a commit of the log may take.

use std::time::Duration;

/// What a commit may always take. Where a sync is quick, more would only let receipts wait for bytes that are not theirs.
const LEAST: usize = 1 << 20;
/// What it may take at most.
const MOST: usize = 4 << 20;

/// Finds out whether commits take their time for bytes or for the sync. Where it is the sync that takes long, few large
/// commits store far more than many small ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitSize {
    bytes: usize,
    /// The quickest of the latest commits: about what a sync costs.
    quickest: Duration,
}

impl Default for CommitSize {
    fn default() -> CommitSize {
        CommitSize { bytes: LEAST, quickest: Duration::MAX }
    }
}

impl CommitSize {
    /// What the next commit may take.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// A commit of `bytes` took so long. One of nothing does not sync, and tells nothing.
    pub(crate) fn observe(&mut self, bytes: usize, took: Duration) {
        if bytes == 0 {
            return;
        }
        // It rises slowly, for devices that become slow.
        self.quickest = self.quickest.saturating_add(self.quickest / 64).min(took);
        let is_full = bytes >= self.bytes;
        if is_full && took < self.quickest.saturating_mul(2) {
            self.bytes = (self.bytes * 2).min(MOST);
        } else if is_full && took > self.quickest.saturating_mul(3) {
            self.bytes = (self.bytes / 2).max(LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After many full commits, and a small one now and then, on a device of such syncs and so many bytes a millisecond.
    fn settled(sync: Duration, bytes_a_milli: usize, mut size: CommitSize) -> CommitSize {
        for round in 0..1000 {
            let bytes = if round % 8 == 0 { 4096 } else { size.bytes() };
            size.observe(0, Duration::from_nanos(100));
            size.observe(bytes, sync + Duration::from_micros((bytes * 1000 / bytes_a_milli) as u64));
        }
        size
    }

    #[test]
    fn a_commit_grows_where_syncs_take_long_and_shrinks_where_they_do_not() {
        let start = CommitSize::default();
        let nvme = settled(Duration::from_micros(200), 1 << 20, start);
        assert_eq!(nvme.bytes(), LEAST);
        let slow = settled(Duration::from_millis(50), 1 << 20, start);
        assert_eq!(slow.bytes(), MOST);
        assert_eq!(settled(Duration::from_micros(200), 1 << 20, slow).bytes(), LEAST);
        assert_eq!(settled(Duration::from_millis(50), 1 << 20, nvme).bytes(), MOST);
        let spinning = settled(Duration::from_millis(10), 100 << 10, start);
        assert!(spinning.bytes() <= 2 * LEAST, "{}", spinning.bytes());
    }
}
