//! What clients say of a producer or consumer that they open, checked and in our own words.

use std::time::Duration;

use geminga_model::{Domain, HashRange, TopicName};
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_wire::proto::{
    CommandProducer, CommandSubscribe, KeySharedMeta, KeySharedMode, KeyValue, ProducerAccessMode, Schema,
};
use geminga_wire::{MessageId, ServerError};

use crate::answer::Refusal;

/// How a producer is to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct ProducerSpec {
    /// The name; the broker makes one up if there is none.
    pub name: Option<String>,
    /// Whether the name is the client's own choice, not one that a broker gave it before.
    pub user_provided_name: bool,
    /// How often the client has connected this producer before.
    pub epoch: u64,
    /// Whether it lets others produce.
    pub access_mode: ProducerAccessMode,
    /// The topic's epoch when the producer was last opened, of producers that exclude others.
    pub topic_epoch: Option<u64>,
    /// Whether it encrypts what it sends.
    pub encrypted: bool,
    /// What statistics show of it.
    pub metadata: Vec<(String, String)>,
    /// The schema of its messages.
    pub schema: Option<Schema>,
    /// A subscription to create, from the earliest message, before the producer is opened. Fact: producers of
    /// dead-letter topics ask for it.
    pub initial_subscription: Option<String>,
}

/// How a consumer is to be added to its subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscribeSpec {
    /// The subscription, neither empty nor reserved.
    pub subscription: String,
    /// How the subscription divides messages.
    pub sub_type: SubType,
    /// What statistics show; empty if the client gave none.
    pub consumer_name: String,
    /// Smaller goes first.
    pub priority_level: i32,
    /// Whether the subscription outlives its consumers. Readers have ones that do not.
    pub durable: bool,
    /// Where a subscription that is not durable starts; without it at its initial position. Of a message within a
    /// batch its whole entry is delivered.
    pub start: Option<MessageId>,
    /// Start as long ago as this; zero for not.
    pub start_rollback: Duration,
    /// Where a subscription starts that does not exist yet and has no `start`.
    pub initial_position: InitialPosition,
    /// Deliver what compaction left.
    pub read_compacted: bool,
    /// Replicate the subscription's position to other clusters.
    pub replicate_state: bool,
    /// Create the topic if it is missing and policies allow.
    pub force_topic_creation: bool,
    /// Of Key_Shared subscriptions: how keys are divided.
    pub key_shared: Option<KeyShared>,
    /// What statistics show of the consumer.
    pub metadata: Vec<(String, String)>,
    /// What is stored with a subscription that this creates.
    pub subscription_properties: Vec<(String, String)>,
    /// The schema that the consumer reads with.
    pub schema: Option<Schema>,
    /// The consumer's epoch, which deliveries are to carry.
    pub epoch: Option<u64>,
}

/// How a Key_Shared subscription divides keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyShared {
    /// The slots that this consumer wants and keeps: at least one range, none overlapping. `None`: the broker divides.
    pub sticky: Option<Vec<HashRange>>,
    /// Give up order for speed.
    pub allow_out_of_order: bool,
}

pub(crate) fn pairs(list: Vec<KeyValue>) -> Vec<(String, String)> {
    list.into_iter().map(|pair| (pair.key, pair.value)).collect()
}

/// Epochs are signed to Java, and −1 is none.
pub(crate) fn epoch(epoch: Option<u64>) -> Option<u64> {
    epoch.filter(|epoch| epoch.cast_signed() >= 0)
}

pub(crate) fn producer_spec(command: CommandProducer) -> Result<ProducerSpec, Refusal> {
    let mode = command.producer_access_mode.unwrap_or_default();
    let access_mode = ProducerAccessMode::try_from(mode)
        .map_err(|_| Refusal::new(ServerError::NotAllowedError, format!("unknown producer access mode {mode}")))?;
    Ok(ProducerSpec {
        user_provided_name: command.user_provided_producer_name(),
        epoch: command.epoch(),
        encrypted: command.encrypted(),
        name: command.producer_name.filter(|name| !name.is_empty()),
        access_mode,
        topic_epoch: command.topic_epoch,
        metadata: pairs(command.metadata),
        schema: command.schema,
        initial_subscription: command.initial_subscription_name.filter(|name| !name.is_empty()),
    })
}

pub(crate) fn subscribe_spec(
    command: CommandSubscribe,
    topic: &TopicName,
    max_metadata: usize,
) -> Result<SubscribeSpec, Refusal> {
    check_subscription_name(&command.subscription)?;
    let sub_type = SubType::try_from(command.sub_type).map_err(|_| {
        Refusal::new(ServerError::NotAllowedError, format!("unknown subscription type {}", command.sub_type))
    })?;
    let single = matches!(sub_type, SubType::Exclusive | SubType::Failover);
    if command.read_compacted() && !(single && topic.domain() == Domain::Persistent) {
        let message = "readCompacted is for Exclusive and Failover subscriptions of persistent topics only";
        return Err(Refusal::new(ServerError::NotAllowedError, message));
    }
    let described: usize = command.metadata.iter().map(|pair| pair.key.len() + pair.value.len()).sum();
    if described > max_metadata {
        let message = format!("the consumer's metadata have {described} bytes, more than the {max_metadata} allowed");
        return Err(Refusal::new(ServerError::MetadataError, message));
    }
    let key_shared = match sub_type {
        SubType::KeyShared => Some(key_shared(command.key_shared_meta.as_ref())?),
        _ => None,
    };
    Ok(SubscribeSpec {
        durable: command.durable(),
        initial_position: command.initial_position(),
        read_compacted: command.read_compacted(),
        replicate_state: command.replicate_subscription_state(),
        force_topic_creation: command.force_topic_creation(),
        start_rollback: Duration::from_secs(command.start_message_rollback_duration_sec()),
        priority_level: command.priority_level(),
        start: command.start_message_id.as_ref().map(MessageId::from),
        subscription: command.subscription,
        sub_type,
        consumer_name: command.consumer_name.unwrap_or_default(),
        key_shared,
        metadata: pairs(command.metadata),
        subscription_properties: pairs(command.subscription_properties),
        schema: command.schema,
        epoch: epoch(command.consumer_epoch),
    })
}

/// Fact: all of these are naming errors to Java, whose code is that of a busy producer; C++ looks for exactly that.
fn check_subscription_name(name: &str) -> Result<(), Refusal> {
    if name.trim().is_empty() {
        return Err(Refusal::new(ServerError::ProducerBusy, "Empty subscription name"));
    }
    if name.starts_with("pulsar.repl") || name == "pulsar.dedup" {
        let message = format!("Subscription name '{name}' is reserved: choose another");
        return Err(Refusal::new(ServerError::ProducerBusy, message));
    }
    Ok(())
}

fn key_shared(meta: Option<&KeySharedMeta>) -> Result<KeyShared, Refusal> {
    let Some(meta) = meta else { return Ok(KeyShared::default()) };
    let allow_out_of_order = meta.allow_out_of_order_delivery();
    if meta.key_shared_mode() == KeySharedMode::AutoSplit {
        return Ok(KeyShared { sticky: None, allow_out_of_order });
    }
    let refuse = |message: String| Refusal::new(ServerError::ConsumerAssignError, message);
    let mut ranges = Vec::with_capacity(meta.hash_ranges.len());
    for range in &meta.hash_ranges {
        let ends = u32::try_from(range.start).ok().zip(u32::try_from(range.end).ok());
        let whole = ends.and_then(|(start, end)| HashRange::new(start, end));
        ranges.push(whole.ok_or_else(|| {
            refuse(format!("[{}, {}] is not a range of hash slots within 0 to 65535", range.start, range.end))
        })?);
    }
    if ranges.is_empty() {
        return Err(refuse("a sticky Key_Shared consumer must name at least one range of hash slots".to_owned()));
    }
    ranges.sort_unstable();
    if let Some(pair) = ranges.windows(2).find(|pair| pair[0].overlaps(pair[1])) {
        return Err(refuse(format!("the ranges {} and {} of the consumer overlap", pair[0], pair[1])));
    }
    Ok(KeyShared { sticky: Some(ranges), allow_out_of_order })
}
