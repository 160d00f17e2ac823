//! What all connections of a broker may hold in memory together.

use geminga_env::Budget;
use geminga_topic::Outboxes;
use geminga_wire::READ_CHUNK;

/// The most that may wait for one connection's socket.
const OUTBOX_EACH: usize = 1 << 20;
/// The most that one connection may have published without a receipt.
const INGRESS_EACH: usize = 16 << 20;

/// See the module. Beside it, a connection has a read buffer of 64 KiB while a frame of its is incomplete.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Bytes of publishes without a receipt, from before they are read.
    pub ingress: Budget,
    /// As [`Memory::ingress`], for frames above 64 KiB, from before their buffers are made. It is a budget of its own,
    /// so that those who stop in the middle of a large frame hold up nobody but others with large frames.
    pub frames: Budget,
    /// Bytes delivered that sockets have not taken.
    pub outboxes: Outboxes,
    pub(crate) ingress_each: usize,
    pub(crate) outbox_each: usize,
}

impl Memory {
    /// So many bytes for what comes in, and for what goes out.
    #[must_use]
    pub fn new(ingress: usize, outbox: usize) -> Memory {
        let half = (ingress / 2).max(2 * READ_CHUNK);
        Memory {
            ingress: Budget::new("ingress", half),
            frames: Budget::new("frames", half),
            outboxes: Outboxes::new(outbox),
            // One connection that stalls must not be what the others lack.
            ingress_each: INGRESS_EACH.min(ingress / 2),
            outbox_each: OUTBOX_EACH.min(outbox / 4),
        }
    }

    /// Each class with its bytes in use and its limit.
    #[must_use]
    pub fn used(&self) -> [(&'static str, usize, usize); 3] {
        [
            ("ingress", self.ingress.used(), self.ingress.limit()),
            ("frames", self.frames.used(), self.frames.limit()),
            ("outbox", self.outboxes.used(), self.outboxes.limit()),
        ]
    }
}
