//! Messages and their ids, as applications see them.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use geminga_model::{Position, TopicName, UnixMillis};
use geminga_wire::proto::MessageIdData;

/// A message's id. Ids of one partition order as its messages do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// The entry; of a message in chunks the last one.
    pub position: Position,
    /// The index within the entry's batch, or −1.
    pub batch_index: i32,
    /// How many messages the batch has; 0 if it is none, or not known.
    pub batch_size: i32,
    /// The partition's index, or −1.
    pub partition: i32,
    /// The entry of the first chunk.
    pub first_chunk: Option<Position>,
}

impl MessageId {
    /// Before every message.
    pub const EARLIEST: MessageId = MessageId::of_entry(Position::EARLIEST, -1);
    /// After every message.
    pub const LATEST: MessageId = MessageId::of_entry(Position::LATEST, -1);

    /// The id of a whole entry.
    #[must_use]
    pub const fn of_entry(position: Position, partition: i32) -> MessageId {
        MessageId { position, batch_index: -1, batch_size: 0, partition, first_chunk: None }
    }

    /// Whether it is one of the two that mean an end of the topic.
    #[must_use]
    pub fn is_end(&self) -> bool {
        self.position == Position::EARLIEST || self.position == Position::LATEST
    }

    /// What orders the messages of a partition.
    pub(crate) fn order(&self) -> (Position, i32) {
        (self.position, self.batch_index)
    }

    /// As commands carry it. Of a message in chunks, where it begins.
    pub(crate) fn to_wire(self) -> MessageIdData {
        let start = self.first_chunk.unwrap_or(self.position);
        let mut id = MessageIdData::from(start);
        id.partition = (self.partition >= 0).then_some(self.partition);
        id.batch_index = (self.batch_index >= 0).then_some(self.batch_index);
        id.batch_size = (self.batch_size > 0).then_some(self.batch_size);
        id
    }

    pub(crate) fn from_wire(id: &MessageIdData) -> MessageId {
        let position = |id: &MessageIdData| Position::new(id.ledger_id.cast_signed(), id.entry_id.cast_signed());
        MessageId {
            position: position(id),
            batch_index: id.batch_index(),
            batch_size: id.batch_size(),
            partition: id.partition(),
            first_chunk: id.first_chunk_message_id.as_deref().map(position),
        }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.position, self.partition)?;
        if self.batch_index >= 0 { write!(f, ":{}", self.batch_index) } else { Ok(()) }
    }
}

/// Why a text is not a message id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a message id: expected earliest, latest or <ledger>:<entry>[:<partition>[:<batch index>]]")]
pub struct InvalidMessageId(pub String);

impl FromStr for MessageId {
    type Err = InvalidMessageId;

    fn from_str(text: &str) -> Result<MessageId, InvalidMessageId> {
        let invalid = || InvalidMessageId(text.to_owned());
        match text {
            "earliest" => return Ok(MessageId::EARLIEST),
            "latest" => return Ok(MessageId::LATEST),
            _ => {}
        }
        let parts: Result<Vec<i64>, _> = text.split(':').map(str::parse).collect();
        let parts = parts.map_err(|_| invalid())?;
        let index = |at: usize| parts.get(at).map_or(Ok(-1), |part| i32::try_from(*part));
        let (Some(ledger), Some(entry), 2..=4) = (parts.first(), parts.get(1), parts.len()) else {
            return Err(invalid());
        };
        let (partition, batch_index) = (index(2).map_err(|_| invalid())?, index(3).map_err(|_| invalid())?);
        Ok(MessageId { batch_index, ..MessageId::of_entry(Position::new(*ledger, *entry), partition) })
    }
}

/// A message to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub payload: Bytes,
    /// What it is about: messages with the same key go to the same partition.
    pub key: Option<String>,
    /// Goes before the key where a Key_Shared subscription divides messages.
    pub ordering_key: Option<Bytes>,
    /// Whatever the application likes.
    pub properties: Vec<(String, String)>,
    /// When what it tells of happened.
    pub event_time: Option<UnixMillis>,
    /// When it is to be delivered to Shared subscriptions. Such a message is not batched.
    pub deliver_at: Option<UnixMillis>,
    /// The sequence id; counted by the producer if not given. Must grow.
    pub sequence_id: Option<u64>,
}

impl Message {
    /// A message of nothing but its payload.
    #[must_use]
    pub fn new(payload: impl Into<Bytes>) -> Message {
        Message { payload: payload.into(), ..Message::default() }
    }

    /// What it takes of the client's memory, about.
    pub(crate) fn weight(&self) -> usize {
        let properties: usize = self.properties.iter().map(|(key, value)| key.len() + value.len()).sum();
        let keys = self.key.as_ref().map_or(0, String::len) + self.ordering_key.as_ref().map_or(0, Bytes::len);
        self.payload.len() + properties + keys + 64
    }
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Which one.
    pub id: MessageId,
    /// The topic; of a partitioned one the partition.
    pub topic: TopicName,
    /// What it says.
    pub payload: Bytes,
    /// What it is about; base64 if `key_is_base64`.
    pub key: Option<String>,
    /// Whether the key proper is bytes that `key` is the base64 of.
    pub key_is_base64: bool,
    /// Goes before the key.
    pub ordering_key: Option<Bytes>,
    /// Whatever the application liked.
    pub properties: Vec<(String, String)>,
    /// Who sent it.
    pub producer_name: String,
    /// The producer's number of it.
    pub sequence_id: u64,
    /// When it was sent, by the producer's clock.
    pub publish_time: UnixMillis,
    /// When what it tells of happened.
    pub event_time: Option<UnixMillis>,
    /// The version of the schema that it follows.
    pub schema_version: Option<Bytes>,
    /// The cluster that it was replicated from.
    pub replicated_from: Option<String>,
    /// How often it was delivered before.
    pub redelivery_count: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_as_text() {
        for (text, printed) in
            [("3:4", "3:4:-1"), ("3:4:2", "3:4:2"), ("3:4:-1:7", "3:4:-1:7"), ("earliest", "-1:-1:-1")]
        {
            assert_eq!(text.parse::<MessageId>().unwrap().to_string(), printed);
        }
        for bad in ["", "3", "a:b", "1:2:3:4:5", "1:2:99999999999"] {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_on_the_wire() {
        let id = MessageId { batch_index: 2, batch_size: 5, ..MessageId::of_entry(Position::new(3, 4), 1) };
        assert_eq!(MessageId::from_wire(&id.to_wire()), id);
        let chunked = MessageId { first_chunk: Some(Position::new(3, 1)), ..id };
        assert_eq!(chunked.to_wire().entry_id, 1);
        assert!(MessageId::from_wire(&MessageId::EARLIEST.to_wire()).is_end());
    }
}
