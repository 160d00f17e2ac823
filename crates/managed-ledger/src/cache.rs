//! The tail cache: the newest entries of all topics, bounded by bytes.
//!
//! Entries are kept by their topic's [`Log`]; this is the one order in which they leave, oldest first over all topics.
//! It is locked once per commit of a topic, not per entry.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use geminga_model::Position;
use parking_lot::Mutex;

use crate::log::Log;

/// Bounds what the logs of a broker keep in memory.
#[derive(Debug)]
pub struct TailCache {
    limit: usize,
    order: Mutex<Order>,
}

#[derive(Debug, Default)]
struct Order {
    bytes: usize,
    commits: VecDeque<Commit>,
}

#[derive(Debug)]
struct Commit {
    log: Weak<Log>,
    through: Position,
    bytes: usize,
}

impl TailCache {
    /// A cache of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Arc<TailCache> {
        Arc::new(TailCache { limit, order: Mutex::default() })
    }

    /// Bytes that are kept now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.order.lock().bytes
    }

    /// The bound.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A log keeps `bytes` more, up to `through`; the oldest leave if that is too much.
    pub(crate) fn kept(&self, log: &Arc<Log>, through: Position, bytes: usize) {
        let evicted: Vec<Commit> = {
            let mut order = self.order.lock();
            order.bytes += bytes;
            order.commits.push_back(Commit { log: Arc::downgrade(log), through, bytes });
            let mut evicted = Vec::new();
            while order.bytes > self.limit {
                let Some(oldest) = order.commits.pop_front() else { break };
                order.bytes -= oldest.bytes;
                evicted.push(oldest);
            }
            evicted
        };
        for Commit { log, through, .. } in evicted {
            if let Some(log) = log.upgrade() {
                log.evict(through);
            }
        }
    }
}
