//! What a consumer can be told.

use std::time::Duration;

use geminga_model::{HashRange, UnixMillis};
use geminga_wire::proto::Schema;
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};

use crate::message::MessageId;

/// Settings of a consumer; the defaults are those of Java's.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerOptions {
    /// The subscription.
    pub subscription: String,
    /// How the subscription divides messages.
    pub sub_type: SubType,
    /// Where the subscription starts if this creates it.
    pub initial_position: InitialPosition,
    /// What statistics of the broker show.
    pub consumer_name: Option<String>,
    /// Messages that may wait here on each partition, at least 1. The broker is asked for more when half are taken.
    pub queue_size: u32,
    /// How long after [`negative_ack`](crate::Consumer::negative_ack) a message is delivered again.
    pub negative_ack_delay: Duration,
    /// Whether single messages of a batch are acknowledged to the broker. Else an entry is when all its messages are.
    /// Fact: brokers before 4.2 ignore it unless configured.
    pub batch_index_ack: bool,
    /// Smaller goes first, in Shared and Failover subscriptions.
    pub priority_level: i32,
    /// Deliver what compaction left.
    pub read_compacted: bool,
    /// Create the topic if it is missing and the broker allows.
    pub force_topic_creation: bool,
    /// Of Key_Shared subscriptions: the slots that this consumer wants, if the broker is not to divide.
    pub sticky_ranges: Option<Vec<HashRange>>,
    /// Of Key_Shared subscriptions: give up order for speed.
    pub allow_out_of_order: bool,
    /// The schema that messages are read with.
    pub schema: Option<Schema>,
    /// What statistics of the broker show.
    pub metadata: Vec<(String, String)>,
    /// What is stored with a subscription that this creates.
    pub subscription_properties: Vec<(String, String)>,
}

impl ConsumerOptions {
    /// Of a subscription: Exclusive, from the latest message on if it does not exist.
    #[must_use]
    pub fn new(subscription: impl Into<String>) -> ConsumerOptions {
        ConsumerOptions {
            subscription: subscription.into(),
            sub_type: SubType::Exclusive,
            initial_position: InitialPosition::Latest,
            consumer_name: None,
            queue_size: 1000,
            negative_ack_delay: Duration::from_secs(60),
            batch_index_ack: false,
            priority_level: 0,
            read_compacted: false,
            force_topic_creation: true,
            sticky_ranges: None,
            allow_out_of_order: false,
            schema: None,
            metadata: Vec::new(),
            subscription_properties: Vec::new(),
        }
    }

    /// Whether one consumer at a time gets all messages in order.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self.sub_type, SubType::Exclusive | SubType::Failover)
    }
}

/// Where a consumer or reader is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// At this message: it is the next one. On a partitioned topic, of its partition only, unless it is
    /// [`MessageId::EARLIEST`] or [`MessageId::LATEST`].
    Message(MessageId),
    /// At the first message published at this time or later.
    Time(UnixMillis),
}
