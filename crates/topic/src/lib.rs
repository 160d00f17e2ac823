//! One topic: a task that admits what is published, and a task for each subscription that delivers it.
//!
//! Others talk to a topic through its [`TopicHandle`], and to a subscription through the [`ConsumerHandle`] that a
//! consumer was given. What topics and subscriptions have to say goes into the outbox of a connection, a
//! [`ConnectionHandle`]. Nothing here ever waits for a connection, nor a connection for a topic.
//!
//! Deliberately not here: which topics there are and who owns them (`broker`), sockets, the rules of a connection
//! (`session`).
//!
//! Start reading at [`TopicHandle`]; then `topic.rs` for the life of a topic, `publish.rs` and `subscription_task.rs`.

mod access;
mod connection;
mod consumers;
mod counts;
mod delivery;
mod inquiry;
mod last_message;
mod meter;
mod operations;
mod orders;
mod outbox_gauge;
mod publish;
mod refusal;
mod report;
mod saving;
mod seek;
mod subscription;
mod subscription_task;
mod topic;
mod topic_handle;
mod wake_round;

#[cfg(test)]
mod served_tests;
#[cfg(test)]
mod tests;

pub use connection::{ConnectionHandle, ConnectionItem, Delivery, PeerInfo, Receipt};
pub use counts::{SubscriptionMeasures, TopicMeasures};
pub use last_message::last_message;
pub use meter::Counts;
pub use operations::{Done, StillUsed, SubscriptionOrder, TopicOrder};
pub use outbox_gauge::{OutboxGauge, Outboxes};
pub use publish::{ProducerId, ProducerNames, Publish};
pub use seek::find as find_position;
pub use subscription::{ConsumerHandle, ConsumerItem};
pub use topic::{TopicEnd, TopicOptions, open_topic};
pub use topic_handle::TopicHandle;
