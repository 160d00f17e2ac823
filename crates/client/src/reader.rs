//! The reader: a consumer that chooses its place itself, and leaves nothing behind.

use std::time::Duration;

use geminga_model::{Instant, Position, TopicName};

use crate::client::Client;
use crate::consumer::{Consumer, LastMessage};
use crate::consumer_options::{ConsumerOptions, SeekTo};
use crate::error::ClientError;
use crate::message::{MessageId, Received};
use crate::subscribe::StartAt;

/// Where a reader starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first message.
    Earliest,
    /// At what is sent from now on.
    Latest,
    /// Behind this message.
    After(MessageId),
    /// At this message.
    At(MessageId),
    /// At what was published at most this long ago.
    Ago(Duration),
}

/// Settings of a reader.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderOptions {
    /// Where it starts.
    pub start: Start,
    /// What statistics of the broker show.
    pub name: Option<String>,
    /// Messages that may wait here, at least 1.
    pub queue_size: u32,
    /// Read what compaction left.
    pub read_compacted: bool,
}

impl ReaderOptions {
    /// Of a start.
    #[must_use]
    pub fn new(start: Start) -> ReaderOptions {
        ReaderOptions { start, name: None, queue_size: 1000, read_compacted: false }
    }
}

/// Reads a topic from a place of its own. What was read is not read again, also if the connection is lost.
#[derive(Debug)]
pub struct Reader {
    consumer: Consumer,
    /// Where it stands until the first message was read.
    start: Start,
    sought: bool,
}

impl Reader {
    pub(crate) async fn open(client: &Client, topic: TopicName, options: ReaderOptions) -> Result<Reader, ClientError> {
        let subscription = format!("reader-{:010x}", client.0.env.random.u64() & 0xFF_FFFF_FFFF);
        let consumer_options = ConsumerOptions {
            consumer_name: options.name.clone(),
            queue_size: options.queue_size.max(1),
            read_compacted: options.read_compacted,
            ..ConsumerOptions::new(subscription)
        };
        let (id, inclusive, rollback) = match options.start {
            Start::Earliest => (MessageId::EARLIEST, true, Duration::ZERO),
            Start::Latest => (MessageId::LATEST, false, Duration::ZERO),
            Start::After(id) => (id, false, Duration::ZERO),
            Start::At(id) => (id, true, Duration::ZERO),
            Start::Ago(ago) => (MessageId::LATEST, false, ago),
        };
        let start = Some(StartAt { id, inclusive, rollback });
        let consumer = Consumer::open_at(client, topic, consumer_options, start).await?;
        Ok(Reader { consumer, start: options.start, sought: false })
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        self.consumer.topic()
    }

    /// The next message. Cancel-safe.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    pub async fn read(&mut self) -> Result<Received, ClientError> {
        let message = self.consumer.receive().await?;
        self.consumer.ack_cumulative(&message.id)?;
        Ok(message)
    }

    /// The next message, or `None` if there is none by `deadline`. Cancel-safe.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    pub async fn read_before(&mut self, deadline: Instant) -> Result<Option<Received>, ClientError> {
        let Some(message) = self.consumer.receive_before(deadline).await? else { return Ok(None) };
        self.consumer.ack_cumulative(&message.id)?;
        Ok(Some(message))
    }

    /// Whether there is a message behind the last one that was read, here or at the broker.
    ///
    /// # Errors
    /// The broker refuses, or the operation timeout passes.
    pub async fn has_message_available(&mut self) -> Result<bool, ClientError> {
        if self.consumer.has_message() {
            return Ok(true);
        }
        for index in 0..self.consumer.partition_count() {
            let last = self.consumer.last_message(index).await?;
            if is_beyond(&last, self.consumer.last_taken(index), self.start, self.sought) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes elsewhere.
    ///
    /// # Errors
    /// The broker refuses, or the operation timeout passes.
    pub async fn seek(&mut self, to: SeekTo) -> Result<(), ClientError> {
        self.consumer.seek(to).await?;
        self.sought = true;
        Ok(())
    }

    /// As [`Consumer::last_message_ids`].
    ///
    /// # Errors
    /// The broker refuses, or the operation timeout passes.
    pub async fn last_message_ids(&self) -> Result<Vec<MessageId>, ClientError> {
        self.consumer.last_message_ids().await
    }

    /// Closes the reader at the broker.
    ///
    /// # Errors
    /// As [`Consumer::close`].
    pub async fn close(self) -> Result<(), ClientError> {
        self.consumer.close().await
    }
}

/// Whether the last message of a partition is one that is still to be read.
fn is_beyond(last: &LastMessage, read: Option<MessageId>, start: Start, sought: bool) -> bool {
    if last.id.position.entry.0 < 0 || last.id.position == Position::EARLIEST {
        return false;
    }
    // An id without an index stands for its whole entry.
    let whole = |id: &MessageId| if id.batch_index < 0 { (id.position, i32::MAX) } else { id.order() };
    match (read, start) {
        (Some(read), _) => whole(&last.id) > whole(&read),
        (None, Start::After(id)) if !sought => whole(&last.id) > whole(&id),
        (None, Start::At(id)) if !sought && !id.is_end() => whole(&last.id) >= id.order(),
        (None, Start::Earliest) if !sought => true,
        // Where it stands, only the broker knows.
        _ => last.mark_delete.is_none_or(|mark_delete| last.id.position > mark_delete.position),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_still_to_be_read() {
        let id = |entry, batch_index| MessageId { batch_index, ..MessageId::of_entry(Position::new(1, entry), -1) };
        let last = |id, mark| LastMessage { id, mark_delete: Some(MessageId::of_entry(Position::new(1, mark), -1)) };
        let empty = LastMessage { id: MessageId::EARLIEST, mark_delete: None };
        for (last, read, start, sought, beyond) in [
            (empty, None, Start::Earliest, false, false),
            (last(id(5, -1), 5), None, Start::Earliest, false, true),
            (last(id(5, -1), 5), None, Start::Latest, false, false),
            (last(id(5, -1), 4), None, Start::Latest, false, true),
            (last(id(5, 2), 4), Some(id(5, 1)), Start::Latest, false, true),
            (last(id(5, 2), 4), Some(id(5, 2)), Start::Latest, false, false),
            (last(id(5, -1), 4), Some(id(5, -1)), Start::Latest, false, false),
            (last(id(5, 2), 4), None, Start::After(id(5, -1)), false, false),
            (last(id(5, 2), 4), None, Start::After(id(5, 0)), false, true),
            (last(id(5, 2), 4), None, Start::At(id(5, 2)), false, true),
            (last(id(5, 2), 4), None, Start::At(id(6, 0)), false, false),
            (last(id(5, 2), 5), None, Start::Earliest, true, false),
            (last(id(5, 2), 3), None, Start::After(id(9, 0)), true, true),
        ] {
            assert_eq!(is_beyond(&last, read, start, sought), beyond, "{last:?} {read:?} {start:?} {sought}");
        }
    }
}
