//! Bytes as permits: what bounds every queue.
//!
//! A class of memory (ingress, outbox, cache, …) is one [`Budget`]. Whoever brings bytes in at an edge draws a
//! [`Permit`] and sends it along with them; it is given back when the bytes are dropped.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A fixed number of bytes, shared by clones. Waiters are served in their order.
#[derive(Clone, Debug)]
pub struct Budget {
    name: &'static str,
    limit: usize,
    free: Arc<Semaphore>,
}

impl Budget {
    /// A budget of `limit` bytes; at most 2^31 − 1 of them can be held by one permit.
    #[must_use]
    pub fn new(name: &'static str, limit: usize) -> Budget {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Budget { name, limit, free: Arc::new(Semaphore::new(limit)) }
    }

    /// What the bytes are for.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All bytes of this class.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes held by permits now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.limit.saturating_sub(self.free.available_permits())
    }

    /// A request for more than there is at all is granted all there is, alone: it must not wait for ever.
    fn cap(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.limit)).unwrap_or(u32::MAX)
    }

    /// Bytes now, or not.
    #[must_use]
    pub fn try_acquire(&self, bytes: usize) -> Option<Permit> {
        let held = Arc::clone(&self.free).try_acquire_many_owned(self.cap(bytes)).ok()?;
        Some(Permit { held })
    }

    /// Waits for bytes. Only edges do this, and only while they hold nothing of this class. Cancel-safe, but a
    /// cancelled waiter loses its place.
    pub async fn acquire(&self, bytes: usize) -> Permit {
        match Arc::clone(&self.free).acquire_many_owned(self.cap(bytes)).await {
            Ok(held) => Permit { held },
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Bytes of a budget, given back on drop.
#[derive(Debug)]
pub struct Permit {
    held: OwnedSemaphorePermit,
}

impl Permit {
    /// The bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.held.num_permits()
    }

    /// Gives back what is above `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        drop(self.split(self.bytes().saturating_sub(bytes)));
    }

    /// Takes over what `other`, of the same budget, holds.
    pub fn join(&mut self, other: Permit) {
        self.held.merge(other.held);
    }

    /// Takes `bytes` of this permit into one of their own; `None` if it holds fewer.
    pub fn split(&mut self, bytes: usize) -> Option<Permit> {
        self.held.split(bytes).map(|held| Permit { held })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn permits_come_and_go() {
        let budget = Budget::new("ingress", 100);
        let mut first = budget.acquire(60).await;
        assert!(budget.try_acquire(50).is_none());
        let part = first.split(20).unwrap();
        assert_eq!((first.bytes(), part.bytes(), budget.used()), (40, 20, 60));
        first.join(part);
        first.shrink(50);
        assert_eq!((first.bytes(), budget.used()), (50, 50));
        first.shrink(60);
        assert_eq!(first.bytes(), 50);
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_request_above_the_limit_gets_it_all() {
        let budget = Budget::new("outbox", 10);
        let all = budget.acquire(1 << 40).await;
        assert_eq!(all.bytes(), 10);
        assert!(budget.try_acquire(1).is_none());
    }
}
