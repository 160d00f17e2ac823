//! Subscribing: what it takes, and where a reader starts.

use std::sync::Arc;
use std::time::Duration;

use geminga_env::{Mailbox, Reply};
use geminga_model::{Instant, TopicName};
use geminga_wire::Command;
use geminga_wire::proto::{self, KeyValue};

use crate::client::Client;
use crate::consumer_options::ConsumerOptions;
use crate::consumer_task::Item;
use crate::error::ClientError;
use crate::link::{Kind, Link};
use crate::message::MessageId;

/// Where a subscription starts that does not outlive its consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartAt {
    pub(crate) id: MessageId,
    /// Whether that message is the first, or the one before it.
    pub(crate) inclusive: bool,
    /// Begin as long ago as this.
    pub(crate) rollback: Duration,
}

impl StartAt {
    /// Whether a message lies before the start. Brokers deliver whole entries.
    pub(crate) fn skips(&self, id: &MessageId) -> bool {
        if self.id.is_end() || id.position > self.id.position {
            return false;
        }
        if id.position < self.id.position {
            return true;
        }
        if self.inclusive {
            id.batch_index < self.id.batch_index
        } else {
            self.id.batch_index < 0 || id.batch_index <= self.id.batch_index
        }
    }
}

/// All that subscribing needs, also again.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) client: Client,
    pub(crate) id: u64,
    pub(crate) topic: TopicName,
    pub(crate) options: Arc<ConsumerOptions>,
    pub(crate) mailbox: Mailbox<Item>,
    /// Grows with each attempt; what is heard of an earlier one is ignored.
    pub(crate) generation: u64,
    pub(crate) start: Option<StartAt>,
    /// Grows when all that was delivered and not acknowledged will be delivered again.
    pub(crate) epoch: u64,
    /// The broker to try without a look-up.
    pub(crate) at: Option<String>,
}

/// One attempt to subscribe.
pub(crate) async fn open_once(seat: Seat, deadline: Instant) -> Result<Link, ClientError> {
    const OPERATION: &str = "subscribing";
    let assigned = seat.at.as_ref().and_then(|url| url.parse().ok());
    let link = match assigned {
        Some(url) => seat.client.link(&url, None),
        None => seat.client.find_broker(&seat.topic, deadline).await?.1,
    };
    link.ready().await?;
    let (mailbox, generation) = (seat.mailbox.clone(), seat.generation);
    let sink = Box::new(move |event| drop(mailbox.push(Item::Event(generation, event))));
    link.attach(Kind::Consumer, seat.id, sink)?;
    match link.request(OPERATION, deadline, |request_id| subscribe_command(&seat, request_id)).await {
        Ok(Command::Success(_)) => Ok(link),
        other => {
            link.detach(Kind::Consumer, seat.id);
            // It may be subscribed by now, and would stand in the way of the next attempt.
            if matches!(other, Err(ClientError::Timeout { .. })) {
                let consumer_id = seat.id;
                let build =
                    |request_id| proto::CommandCloseConsumer { consumer_id, request_id, ..Default::default() }.into();
                link.start_request("closing a consumer", deadline, build, Reply::to(drop));
            }
            Err(other.map_or_else(|error| error, |command| link.unexpected(OPERATION, &command)))
        }
    }
}

fn subscribe_command(seat: &Seat, request_id: u64) -> Command {
    let options = &seat.options;
    let pairs = |list: &[(String, String)]| -> Vec<KeyValue> {
        list.iter().map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() }).collect()
    };
    let range = |range: &geminga_model::HashRange| proto::IntRange {
        start: range.start.cast_signed(),
        end: range.end.cast_signed(),
    };
    let key_shared = proto::KeySharedMeta {
        key_shared_mode: match options.sticky_ranges {
            Some(_) => proto::KeySharedMode::Sticky.into(),
            None => proto::KeySharedMode::AutoSplit.into(),
        },
        hash_ranges: options.sticky_ranges.iter().flatten().map(range).collect(),
        allow_out_of_order_delivery: Some(options.allow_out_of_order),
    };
    let start = seat.start.map(|start| {
        // Fact: brokers start behind an entry, but at it if a message of its batch is named.
        let batch_index = if start.inclusive { start.id.batch_index.max(0) } else { start.id.batch_index };
        if start.id.is_end() { start.id.to_wire() } else { MessageId { batch_index, ..start.id }.to_wire() }
    });
    proto::CommandSubscribe {
        topic: seat.topic.to_string(),
        subscription: options.subscription.clone(),
        sub_type: options.sub_type.into(),
        consumer_id: seat.id,
        request_id,
        consumer_name: options.consumer_name.clone(),
        priority_level: Some(options.priority_level),
        durable: Some(seat.start.is_none()),
        start_message_id: start,
        start_message_rollback_duration_sec: seat.start.map(|start| start.rollback.as_secs()).filter(|back| *back > 0),
        metadata: pairs(&options.metadata),
        read_compacted: Some(options.read_compacted),
        schema: options.schema.clone(),
        initial_position: Some(options.initial_position.into()),
        force_topic_creation: Some(options.force_topic_creation),
        key_shared_meta: (options.sub_type == proto::command_subscribe::SubType::KeyShared).then_some(key_shared),
        subscription_properties: pairs(&options.subscription_properties),
        consumer_epoch: options.is_ordered().then_some(seat.epoch),
        ..Default::default()
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_model::Position;

    #[test]
    fn what_a_start_skips() {
        let id = |entry, batch_index| MessageId { batch_index, ..MessageId::of_entry(Position::new(1, entry), -1) };
        let start = |id, inclusive| StartAt { id, inclusive, rollback: Duration::ZERO };
        for (start, skipped) in [
            (start(MessageId::EARLIEST, true), [false, false, false, false]),
            (start(MessageId::LATEST, false), [false, false, false, false]),
            (start(id(5, -1), true), [true, false, false, false]),
            (start(id(5, -1), false), [true, true, true, false]),
            (start(id(5, 1), true), [true, true, false, false]),
            (start(id(5, 1), false), [true, true, true, false]),
            (start(id(5, 0), false), [true, true, false, false]),
        ] {
            let ids = [id(4, -1), id(5, 0), id(5, 1), id(6, -1)];
            assert_eq!(ids.map(|id| start.skips(&id)), skipped, "{start:?}");
        }
    }
}
