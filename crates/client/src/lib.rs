//! A small Pulsar client: for the command line, for load tests, and for clusters that replicate to each other.
//!
//! It finds the broker of a topic, keeps one connection to each broker, and gives producers, consumers and readers that
//! survive the loss of their connection: what was not acknowledged is sent again in order, what was not consumed is
//! delivered again.
//!
//! Deliberately not here: TLS, authentication, encryption and transactions (not in this version), schemas beyond
//! handing them on, dead-letter and retry topics, patterns of topics, chunks on the sending side (on the receiving side
//! they are put together). The number of partitions is read once, when a producer or consumer is made.
//!
//! How data enters and leaves: [`Producer::send`] and [`Consumer::receive`]. Every operation has a deadline, and its
//! [`ClientError`] says what to try.
//!
//! Each connection, each partition's producer and each partition's consumer is one task that owns its state; they and
//! the handles talk by mailboxes. Start reading at [`Client`], then `link.rs`.

mod acks;
mod batch;
mod client;
mod consumer;
mod consumer_options;
mod consumer_task;
mod error;
mod link;
mod link_task;
mod message;
mod options;
mod producer;
mod producer_options;
mod producer_task;
mod reader;
mod retry;
mod subscribe;
mod unpack;
mod url;

#[cfg(test)]
mod tests;

pub use client::Client;
pub use consumer::Consumer;
pub use consumer_options::{ConsumerOptions, SeekTo};
pub use error::ClientError;
pub use message::{InvalidMessageId, Message, MessageId, Received};
pub use options::ClientOptions;
pub use producer::{Producer, Receipt};
pub use producer_options::{Batching, KeyHash, ProducerOptions};
pub use reader::{Reader, ReaderOptions, Start};
pub use url::ServiceUrl;
