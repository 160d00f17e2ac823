//! How much is on its way to clients: of one connection, and of all.
//!
//! A connection is full at its own bound, and, unless nothing is on its way to it, while those of all are. So one that
//! drains always goes on, entry by entry if it must, however many do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// A connection draws on what all share in credits of this, so that what is shared is not written per message.
const CREDIT: usize = 64 * 1024;

/// Bytes on their way to all clients. Clones are the same.
#[derive(Clone, Debug)]
pub struct Outboxes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit: usize,
    credits: AtomicUsize,
}

impl Outboxes {
    /// Nobody is given more, beside who has nothing, while `limit` bytes are on their way.
    #[must_use]
    pub fn new(limit: usize) -> Outboxes {
        Outboxes(Arc::new(Shared { limit, credits: AtomicUsize::new(0) }))
    }

    /// The bound.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Bytes on their way, but for less than 64 KiB of each connection.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.credits.load(Ordering::Relaxed).saturating_mul(CREDIT)
    }

    fn is_full(&self) -> bool {
        self.used() >= self.0.limit
    }

    fn grew(&self, before: usize, after: usize) {
        if before / CREDIT != after / CREDIT {
            self.0.credits.fetch_add(after / CREDIT - before / CREDIT, Ordering::Relaxed);
        }
    }

    fn shrank(&self, before: usize, after: usize) {
        if before / CREDIT != after / CREDIT {
            self.0.credits.fetch_sub(before / CREDIT - after / CREDIT, Ordering::Relaxed);
        }
    }
}

/// Bytes delivered to a connection that its socket has not taken.
pub struct OutboxGauge {
    limit: usize,
    all: Outboxes,
    bytes: AtomicUsize,
    anyone_waits: AtomicBool,
    waiting: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl OutboxGauge {
    /// A gauge that is full at `limit` bytes, or when `all` are.
    #[must_use]
    pub fn new(limit: usize, all: Outboxes) -> Arc<OutboxGauge> {
        Arc::new(OutboxGauge {
            limit,
            all,
            bytes: AtomicUsize::new(0),
            anyone_waits: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    pub(crate) fn add(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.all.grew(before, before + bytes);
    }

    /// The socket took `bytes`. Those who wait are told, once: below half of the limit, or when nothing is left if all
    /// connections together are full.
    pub fn sent(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        self.all.shrank(before, before - bytes);
        self.tell_if(self.has_room(self.limit / 2));
    }

    fn tell_if(&self, room: bool) {
        if room && self.anyone_waits.swap(false, Ordering::AcqRel) {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            waiting.into_iter().for_each(|drained| drained());
        }
    }

    fn has_room(&self, limit: usize) -> bool {
        let bytes = self.bytes.load(Ordering::Acquire);
        bytes == 0 || (bytes < limit && !self.all.is_full())
    }

    /// Whether another entry may be delivered.
    pub(crate) fn is_full(&self) -> bool {
        !self.has_room(self.limit)
    }

    pub(crate) fn room_or(&self, drained: impl FnOnce() -> Box<dyn FnOnce() + Send>) -> bool {
        if self.has_room(self.limit) {
            return true;
        }
        self.waiting.lock().push(drained());
        self.anyone_waits.store(true, Ordering::Release);
        // The socket may have drained between the look and the registration; then nobody else would tell.
        self.tell_if(self.has_room(self.limit / 2));
        false
    }
}

impl Drop for OutboxGauge {
    fn drop(&mut self) {
        self.all.shrank(*self.bytes.get_mut(), 0);
    }
}

impl std::fmt::Debug for OutboxGauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboxGauge").field("bytes", &self.bytes).field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn teller() -> (Arc<AtomicUsize>, impl Fn() -> Box<dyn FnOnce() + Send>) {
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let tell = move || {
            let told = Arc::clone(&count);
            Box::new(move || {
                told.fetch_add(1, Ordering::Relaxed);
            }) as Box<dyn FnOnce() + Send>
        };
        (told, tell)
    }

    #[test]
    fn whoever_waits_is_told_once_below_half() {
        let gauge = OutboxGauge::new(100, Outboxes::new(1 << 20));
        let (told, tell) = teller();
        assert!(gauge.room_or(&tell));
        gauge.add(120);
        assert!(!gauge.room_or(&tell));
        gauge.sent(40);
        assert_eq!(told.load(Ordering::Relaxed), 0);
        gauge.sent(40);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        gauge.sent(40);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert!(gauge.room_or(&tell));
    }

    #[test]
    fn while_all_are_full_who_has_nothing_goes_on() {
        let all = Outboxes::new(4 * CREDIT);
        let stalled: Vec<_> = (0..4).map(|_| OutboxGauge::new(1 << 20, all.clone())).collect();
        for gauge in &stalled {
            assert!(!gauge.is_full());
            gauge.add(CREDIT);
        }
        assert_eq!(all.used(), all.limit());
        assert!(stalled.iter().all(|gauge| gauge.is_full()));

        let (told, tell) = teller();
        let draining = OutboxGauge::new(1 << 20, all.clone());
        assert!(draining.room_or(&tell));
        draining.add(1000);
        assert!(!draining.room_or(&tell));
        draining.sent(999);
        assert_eq!(told.load(Ordering::Relaxed), 0);
        draining.sent(1);
        assert_eq!(told.load(Ordering::Relaxed), 1);
        assert!(draining.room_or(&tell));
        drop((stalled, draining));
        assert_eq!(all.used(), 0);
    }
}
