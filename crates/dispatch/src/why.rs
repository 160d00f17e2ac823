//! Why something is not delivered.

use geminga_model::Position;

use crate::consumer::ConsumerId;

/// A fact that keeps messages from a consumer, and with it what will end it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Nobody consumes; ends when a consumer subscribes.
    #[error("no consumer is connected")]
    NoConsumers,
    /// The consumer has room for no more messages; ends when its application takes some and the client asks for more.
    #[error("consumer {0:?} has no permits: its receiver queue is full, or its application does not receive")]
    NoPermits(ConsumerId),
    /// The consumer holds as many unacked messages as it may; ends when it acknowledges.
    #[error("consumer {0:?} holds {1} unacknowledged messages, as many as it may")]
    Unacked(ConsumerId, u64),
    /// The connection of the consumer does not take more bytes; ends when the client reads.
    #[error("the connection of consumer {0:?} is full: the client does not read")]
    OutboxFull(ConsumerId),
    /// Another consumer is the active one; ends when that one leaves.
    #[error("consumer {0:?} is the active one")]
    NotActive(ConsumerId),
    /// Its keys wait for another consumer, which was given earlier entries of them; ends when that one acks or leaves.
    #[error("a key of entry {entry} is held by consumer {holder:?}, which did not acknowledge earlier entries of it")]
    KeyHeldBy {
        /// The first entry that waits.
        entry: Position,
        /// Who holds its key.
        holder: ConsumerId,
    },
    /// So many entries wait for consumers that cannot take them that nothing is read ahead; ends when one of them can.
    #[error("{0} entries wait for consumers that cannot take them; nothing is read ahead of them")]
    LookAhead(usize),
    /// Entries are to be delivered again first.
    #[error("{0} entries wait to be delivered again, the first is {1}")]
    Replaying(usize, Position),
    /// Everything there is was delivered.
    #[error("nothing new since {0}")]
    NothingNew(Position),
}
