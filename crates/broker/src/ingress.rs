//! What a connection holds of the broker's memory for what it reads.
//!
//! Before it reads, it has room for a chunk: credits, of which a part covers what it published and has no receipt for.
//! Small messages take more memory on their way to the log than they have bytes, and a chunk may be full of them: before
//! it hands on the next one, it has room for that too.
//! Before it makes a buffer for a frame that is larger, it has room for that frame, and holds nothing else of that
//! budget but what waits for receipts. While it waits for room it does not read. What it holds is given back when
//! receipts come, which wait for no memory.

use std::pin::Pin;

use geminga_env::Permit;
use geminga_wire::READ_CHUNK;

use crate::memory::Memory;

/// What a message without a receipt takes beside its bytes: its places in the queues of topic, ledger and log, the head of
/// its entry, and the slack of all these. Measured with messages of 100 bytes.
const MESSAGE_OVERHEAD: usize = 1024;

/// Room that is waited for. Kept over turns, so that a connection keeps its place in the queue.
type Wait = Pin<Box<dyn Future<Output = Permit> + Send>>;

/// See the module.
pub(crate) struct Ingress {
    memory: Memory,
    credit: Option<Permit>,
    /// Of the frame that is being received, if it is a large one.
    frame: Option<Permit>,
    wait: Option<(Wanted, Wait)>,
    /// What credits cover: messages without a receipt, with what they take beside their bytes.
    covered: usize,
    /// What all messages without a receipt take.
    unanswered: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Chunk,
    Frame,
}

/// What a publish holds until its receipt.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: usize,
    frame: Option<Permit>,
}

impl Ingress {
    pub(crate) fn new(memory: Memory) -> Ingress {
        Ingress { memory, credit: None, frame: None, wait: None, covered: 0, unanswered: 0 }
    }

    /// Whether it has room for a large frame that is not whole.
    pub(crate) fn holds_frame(&self) -> bool {
        self.frame.is_some()
    }

    /// Whether it waits for room.
    pub(crate) fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Whether too much has no receipt for more to be read.
    pub(crate) fn is_full(&self) -> bool {
        self.unanswered >= self.memory.ingress_each
    }

    /// Resolves when the room that it waits for is there. Cancel-safe.
    pub(crate) async fn room(&mut self) {
        let Some((wanted, wait)) = &mut self.wait else { return std::future::pending().await };
        let (wanted, permit) = (*wanted, wait.await);
        self.wait = None;
        self.take(wanted, permit);
    }

    fn take(&mut self, wanted: Wanted, permit: Permit) {
        match (wanted, &mut self.credit) {
            (Wanted::Frame, _) => self.frame = Some(permit),
            (Wanted::Chunk, Some(credit)) => credit.join(permit),
            (Wanted::Chunk, credit) => *credit = Some(permit),
        }
    }

    fn draw(&mut self, wanted: Wanted, bytes: usize) -> bool {
        let budget = if wanted == Wanted::Frame { &self.memory.frames } else { &self.memory.ingress };
        match budget.try_acquire(bytes) {
            Some(permit) => {
                self.take(wanted, permit);
                true
            }
            None => {
                let budget = budget.clone();
                self.wait = Some((wanted, Box::pin(async move { budget.acquire(bytes).await })));
                false
            }
        }
    }

    /// Room for a frame of this size; false if it must be waited for.
    pub(crate) fn room_for_frame(&mut self, bytes: usize) -> bool {
        self.frame.is_some() || self.draw(Wanted::Frame, bytes)
    }

    /// Room for a chunk; false if it must be waited for.
    pub(crate) fn room_for_chunk(&mut self) -> bool {
        self.spare() >= READ_CHUNK || self.draw(Wanted::Chunk, READ_CHUNK)
    }

    /// Room for a message of what was read; false if it must be waited for.
    pub(crate) fn room_for_message(&mut self) -> bool {
        self.frame.is_some() || self.spare() >= MESSAGE_OVERHEAD || self.draw(Wanted::Chunk, READ_CHUNK)
    }

    fn spare(&self) -> usize {
        self.credit.as_ref().map_or(0, Permit::bytes).saturating_sub(self.covered)
    }

    /// A message of so many bytes was published.
    pub(crate) fn published(&mut self, bytes: usize) -> Held {
        let bytes = bytes + MESSAGE_OVERHEAD;
        self.unanswered += bytes;
        let frame = self.frame.take();
        if frame.is_none() {
            self.covered += bytes;
        }
        Held { bytes, frame }
    }

    /// The receipt came, or never will.
    pub(crate) fn answered(&mut self, held: &Held) {
        self.unanswered -= held.bytes;
        if held.frame.is_none() {
            self.covered -= held.bytes;
        }
    }

    /// A frame was handled; whatever it was, its buffer is the publish's now, or nobody's.
    pub(crate) fn frame_done(&mut self) {
        self.frame = None;
    }

    /// The end of a turn: what is not needed is given back.
    pub(crate) fn settle(&mut self) {
        if matches!(&self.wait, Some((Wanted::Chunk, _))) && self.spare() >= READ_CHUNK {
            self.wait = None;
        }
        if self.covered == 0 && self.wait.is_none() {
            self.credit = None;
        } else if let Some(credit) = &mut self.credit {
            let spare = if self.wait.is_some() { 0 } else { READ_CHUNK };
            credit.shrink(self.covered + spare);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many messages of 100 bytes as there is room for, out of one chunk after the other.
    fn publish_all(ingress: &mut Ingress) -> Vec<Held> {
        let mut held = Vec::new();
        while ingress.room_for_message() {
            held.push(ingress.published(100));
            ingress.settle();
        }
        held
    }

    #[test]
    fn small_messages_are_charged_for_what_they_take() {
        let memory = Memory::new(4 << 20, 1 << 20);
        let mut ingress = Ingress::new(memory.clone());
        assert!(ingress.room_for_chunk());
        let held = publish_all(&mut ingress);
        let (used, limit) = (memory.ingress.used(), memory.ingress.limit());
        assert!(ingress.waits());
        assert!(held.len() * (100 + MESSAGE_OVERHEAD) <= limit, "{} messages in {limit} bytes", held.len());
        assert!(used <= limit && used + READ_CHUNK > limit, "{used} of {limit}");
        // Room that receipts make ends the wait, and what is not needed is given back.
        held.iter().for_each(|held| ingress.answered(held));
        ingress.settle();
        assert!(!ingress.waits());
        ingress.settle();
        assert_eq!(memory.ingress.used(), 0);
    }
}
