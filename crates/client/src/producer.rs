//! The producer as an application holds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use geminga_env::{Budget, Mailbox, OnPanic, Pending, mailbox, reply};
use geminga_model::TopicName;

use crate::client::Client;
use crate::error::ClientError;
use crate::message::{Message, MessageId};
use crate::producer_options::ProducerOptions;
use crate::producer_task::{Item, Opened, ProducerTask, Seat, Submitted, open_once};

/// Sends messages to a topic. Dropped, it sends what it has and closes.
#[derive(Debug)]
pub struct Producer {
    client: Client,
    topic: TopicName,
    options: Arc<ProducerOptions>,
    partitions: Vec<Partition>,
    /// Which partition messages without a key go to next.
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Partition {
    mailbox: Mailbox<Item>,
    name: String,
    last_sequence_id: i64,
    /// Messages under way.
    room: Budget,
}

/// A message under way.
#[derive(Debug)]
pub struct Receipt(Pending<Result<MessageId, ClientError>>);

impl Receipt {
    /// Waits until the message is stored, and tells its id; [`MessageId::EARLIEST`]'s position if the broker had it
    /// already. Dropping the receipt changes nothing for the message. Cancel-safe.
    ///
    /// # Errors
    /// Why the message is not stored; after a timeout, not known to be stored.
    pub async fn wait(&mut self) -> Result<MessageId, ClientError> {
        self.0.wait().await.unwrap_or(Err(ClientError::Closed("producer")))
    }
}

impl Producer {
    pub(crate) async fn open(
        client: &Client,
        topic: TopicName,
        options: ProducerOptions,
    ) -> Result<Producer, ClientError> {
        let options = Arc::new(options);
        let count = if topic.partition().is_some() { 0 } else { client.partitions(&topic).await? };
        let topics: Vec<TopicName> = if count == 0 {
            vec![topic.clone()]
        } else {
            (0..count).map(|index| topic.with_partition(index)).collect()
        };
        // Dropped on an error, it closes the partitions that are open by then.
        let turn = AtomicUsize::new(0);
        let mut producer = Producer { client: client.clone(), topic, options, partitions: Vec::new(), turn };
        for topic in topics {
            let partition = open_partition(client, topic, &producer.options).await?;
            producer.partitions.push(partition);
        }
        Ok(producer)
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The producer's name; of a partitioned topic that on its first partition.
    #[must_use]
    pub fn name(&self) -> &str {
        self.partitions.first().map_or("", |partition| &partition.name)
    }

    /// The last sequence id that the topic knew of this name when the producer was opened, or −1; of a partitioned
    /// topic the highest.
    #[must_use]
    pub fn last_sequence_id(&self) -> i64 {
        self.partitions.iter().map(|partition| partition.last_sequence_id).max().unwrap_or(-1)
    }

    /// Hands a message over to be sent, and waits for that only if too many are under way. Messages of one partition
    /// are stored in the order of these calls. If it is cancelled, the message is not sent.
    ///
    /// # Errors
    /// The producer is closed.
    pub async fn send(&self, message: Message) -> Result<Receipt, ClientError> {
        let partition = self.route(&message).ok_or(ClientError::Closed("producer"))?;
        let permits = [partition.room.acquire(1).await, self.client.0.memory.acquire(message.weight()).await];
        let (to, from) = reply();
        let submitted = Submitted { message, reply: to, permits };
        partition.mailbox.push(Item::Send(Box::new(submitted))).map_err(|_| ClientError::Closed("producer"))?;
        Ok(Receipt(from))
    }

    fn route(&self, message: &Message) -> Option<&Partition> {
        let count = self.partitions.len();
        if count <= 1 {
            return self.partitions.first();
        }
        let index = match &message.key {
            Some(key) => self.options.key_hash.partition(key, count),
            None => {
                // A partition gets as many in a row as may make a batch; else each gets a batch of one.
                let row = self.options.batching.map_or(1, |batching| batching.max_messages.max(1));
                self.turn.fetch_add(1, Ordering::Relaxed) / row % count
            }
        };
        self.partitions.get(index)
    }

    /// Sends what waits to be put together with others, and waits until all that was handed over is stored.
    ///
    /// # Errors
    /// The first failure of those that were under way.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let mut waiting = Vec::new();
        for partition in &self.partitions {
            let (to, from) = reply();
            partition.mailbox.push(Item::Flush(to)).map_err(|_| ClientError::Closed("producer"))?;
            waiting.push(from);
        }
        let mut outcome = Ok(());
        for mut from in waiting {
            let flushed = from.wait().await.unwrap_or(Err(ClientError::Closed("producer")));
            outcome = outcome.and(flushed);
        }
        outcome
    }

    /// Flushes, and closes the producer at the broker.
    ///
    /// # Errors
    /// As [`Producer::flush`]; the producer is closed all the same.
    pub async fn close(self) -> Result<(), ClientError> {
        let flushed = self.flush().await;
        let mut waiting = Vec::new();
        for partition in &self.partitions {
            let (to, from) = reply();
            // One that is gone is closed.
            if partition.mailbox.push(Item::Close(Some(to))).is_ok() {
                waiting.push(from);
            }
        }
        for mut from in waiting {
            let _ = from.wait().await;
        }
        flushed
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        for partition in &self.partitions {
            let _ = partition.mailbox.push(Item::Close(None));
        }
    }
}

async fn open_partition(
    client: &Client,
    topic: TopicName,
    options: &Arc<ProducerOptions>,
) -> Result<Partition, ClientError> {
    let (mailbox, inbox) = mailbox();
    let mut seat = Seat {
        client: client.clone(),
        id: client.next_id(),
        topic,
        options: Arc::clone(options),
        mailbox: mailbox.clone(),
        generation: 0,
        name: options.name.clone(),
        topic_epoch: None,
        at: None,
    };
    let mut retry = client.retry(format!("opening a producer on {}", seat.topic));
    let opened: Opened = loop {
        seat.generation += 1;
        match open_once(seat.clone(), retry.deadline).await {
            Ok(opened) => break opened,
            Err(error) => retry.after(error).await?,
        }
    };
    let (name, last_sequence_id) = (opened.name.clone(), opened.last_sequence_id);
    let task = ProducerTask::new(seat, inbox, opened);
    client.0.scope.spawn("producer", OnPanic::Log, task.run());
    let room = Budget::new("pending messages", options.max_pending.max(1));
    Ok(Partition { mailbox, name, last_sequence_id, room })
}
