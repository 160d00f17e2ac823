//! The consumer as an application holds it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use geminga_env::{Inbox, Mailbox, OnPanic, Pending, Reply, mailbox, reply};
use geminga_model::{Instant, TopicName};
use geminga_wire::{Command, proto};

use crate::client::Client;
use crate::consumer_options::{ConsumerOptions, SeekTo};
use crate::consumer_task::{ConsumerTask, Item};
use crate::error::ClientError;
use crate::message::{MessageId, Received};
use crate::subscribe::{Seat, StartAt, open_once};

/// Something for the application.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) partition: usize,
    /// When the partition's consumer has a higher one, it will be delivered again, or is not wanted any more.
    pub(crate) epoch: u64,
    pub(crate) body: Result<Box<Received>, ClientError>,
    /// Whether the error is the end of the partition's consumer.
    pub(crate) is_end: bool,
}

#[derive(Debug)]
struct Partition {
    topic: TopicName,
    mailbox: Mailbox<Item>,
    epoch: Arc<AtomicU64>,
    /// Messages of `taken_epoch` that were taken and are not reported.
    taken: u32,
    taken_epoch: u64,
    /// The last message that was taken, or the id that it started behind.
    last: Option<MessageId>,
}

/// What the broker knows of where a partition ends and where its subscription stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastMessage {
    pub(crate) id: MessageId,
    pub(crate) mark_delete: Option<MessageId>,
}

/// Receives messages of a topic by a subscription. Dropped, it closes.
#[derive(Debug)]
pub struct Consumer {
    client: Client,
    topic: TopicName,
    options: Arc<ConsumerOptions>,
    partitions: Vec<Partition>,
    inbox: Inbox<Delivery>,
    batch: Vec<Delivery>,
    ready: VecDeque<Delivery>,
    /// Whether a message that was taken is never given again, whatever happens to the connection: for readers.
    once: bool,
}

impl Consumer {
    pub(crate) async fn open(
        client: &Client,
        topic: TopicName,
        options: ConsumerOptions,
    ) -> Result<Consumer, ClientError> {
        Consumer::open_at(client, topic, options, None).await
    }

    /// With a start, the subscription does not outlive the consumer.
    pub(crate) async fn open_at(
        client: &Client,
        topic: TopicName,
        options: ConsumerOptions,
        start: Option<StartAt>,
    ) -> Result<Consumer, ClientError> {
        let options = Arc::new(options);
        let count = if topic.partition().is_some() { 0 } else { client.partitions(&topic).await? };
        let topics: Vec<TopicName> = if count == 0 {
            vec![topic.clone()]
        } else {
            (0..count).map(|index| topic.with_partition(index)).collect()
        };
        let (deliveries, inbox) = mailbox();
        // Dropped on an error, it closes the partitions that are open by then.
        let mut consumer = Consumer {
            client: client.clone(),
            topic,
            options,
            partitions: Vec::new(),
            inbox,
            batch: Vec::new(),
            ready: VecDeque::new(),
            once: start.is_some(),
        };
        for topic in topics {
            consumer.open_partition(topic, start, &deliveries).await?;
        }
        Ok(consumer)
    }

    async fn open_partition(
        &mut self,
        topic: TopicName,
        start: Option<StartAt>,
        deliveries: &Mailbox<Delivery>,
    ) -> Result<(), ClientError> {
        let (mailbox, inbox) = mailbox();
        let epoch = Arc::new(AtomicU64::new(0));
        let mut seat = Seat {
            client: self.client.clone(),
            id: self.client.next_id(),
            topic: topic.clone(),
            options: Arc::clone(&self.options),
            mailbox: mailbox.clone(),
            generation: 0,
            start,
            epoch: 0,
            at: None,
        };
        let mut retry = self.client.retry(format!("subscribing to {topic}"));
        let link = loop {
            seat.generation += 1;
            match open_once(seat.clone(), retry.deadline).await {
                Ok(link) => break link,
                Err(error) => retry.after(error).await?,
            }
        };
        let task = ConsumerTask::new(seat, inbox, link, self.partitions.len(), deliveries.clone(), Arc::clone(&epoch));
        self.client.0.scope.spawn("consumer", OnPanic::Log, task.run());
        self.partitions.push(Partition { topic, mailbox, epoch, taken: 0, taken_epoch: 0, last: None });
        Ok(())
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The next message. Cancel-safe.
    ///
    /// # Errors
    /// `Unreadable` for a message that is encrypted; go on with the next one. Any other error is the end: of the
    /// subscription, the topic or the client.
    pub async fn receive(&mut self) -> Result<Received, ClientError> {
        loop {
            if let Some(received) = self.try_receive() {
                return received;
            }
            self.inbox.wait().await;
        }
    }

    /// The next message, or `None` if there is none by `deadline`. Cancel-safe.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    pub async fn receive_before(&mut self, deadline: Instant) -> Result<Option<Received>, ClientError> {
        let clock = self.client.0.env.clock;
        tokio::select! {
            biased;
            received = self.receive() => received.map(Some),
            () = clock.sleep_until(deadline) => Ok(None),
        }
    }

    /// The next message, if it is here already.
    pub fn try_receive(&mut self) -> Option<Result<Received, ClientError>> {
        loop {
            let Some(delivery) = self.ready.pop_front() else {
                self.inbox.take(&mut self.batch);
                self.ready.extend(self.batch.drain(..));
                if self.ready.is_empty() {
                    return None;
                }
                continue;
            };
            let queue_size = self.options.queue_size;
            let Some(partition) = self.partitions.get_mut(delivery.partition) else { continue };
            if delivery.is_end {
                // It stays the answer from now on.
                let error = delivery.body.as_ref().err().cloned().unwrap_or(ClientError::Closed("consumer"));
                self.ready.push_front(delivery);
                return Some(Err(error));
            }
            if delivery.epoch != partition.epoch.load(Ordering::Acquire) {
                continue;
            }
            let id = delivery.body.as_ref().ok().map(|message| message.id);
            let taken_before = partition.last.zip(id).is_some_and(|(last, id)| id.order() <= last.order());
            partition.count(delivery.epoch, queue_size, id);
            if self.once && taken_before {
                continue;
            }
            return Some(delivery.body.map(|message| *message));
        }
    }

    /// Whether a message is here already.
    pub(crate) fn has_message(&mut self) -> bool {
        self.inbox.take(&mut self.batch);
        self.ready.extend(self.batch.drain(..));
        let fresh = |delivery: &Delivery| {
            let partition = self.partitions.get(delivery.partition);
            partition.is_some_and(|partition| partition.epoch.load(Ordering::Acquire) == delivery.epoch)
        };
        self.ready.iter().any(|delivery| fresh(delivery) && delivery.body.is_ok())
    }

    fn partition(&self, id: &MessageId) -> Result<&Partition, ClientError> {
        let index = usize::try_from(id.partition).unwrap_or(0);
        // The consumer of one partition has but that.
        let found = if self.partitions.len() == 1 { self.partitions.first() } else { self.partitions.get(index) };
        found.ok_or(ClientError::Closed("consumer"))
    }

    fn push(partition: &Partition, item: Item) -> Result<(), ClientError> {
        partition.mailbox.push(item).map_err(|_| ClientError::Closed("consumer"))
    }

    /// Says that a message was consumed. It is sent at once, and not waited for: a message may be delivered again if
    /// the connection is lost.
    ///
    /// # Errors
    /// The consumer is closed.
    pub fn ack(&self, id: &MessageId) -> Result<(), ClientError> {
        Consumer::push(self.partition(id)?, Item::Ack { id: *id, cumulative: false, reply: None })
    }

    /// Says that all messages of the partition up to this one were consumed. Not for Shared and Key_Shared.
    ///
    /// # Errors
    /// The consumer is closed.
    pub fn ack_cumulative(&self, id: &MessageId) -> Result<(), ClientError> {
        Consumer::push(self.partition(id)?, Item::Ack { id: *id, cumulative: true, reply: None })
    }

    /// As [`ack`](Consumer::ack) or [`ack_cumulative`](Consumer::ack_cumulative), and waits until the broker has stored
    /// it. A message of a batch whose others are not acknowledged is done at once, unless parts of batches are.
    ///
    /// # Errors
    /// The broker refuses, or the connection is lost, or the operation timeout passes.
    pub async fn ack_with_receipt(&self, id: &MessageId, cumulative: bool) -> Result<(), ClientError> {
        let (to, mut from) = reply();
        let partition = self.partition(id)?;
        let retry = self.client.retry(format!("acknowledging on {}", partition.topic));
        Consumer::push(partition, Item::Ack { id: *id, cumulative, reply: Some(to) })?;
        retry.bound(from.wait()).await?.unwrap_or(Err(ClientError::Closed("consumer")))
    }

    /// Says that a message could not be consumed: it is delivered again after the delay of the options. In an
    /// Exclusive or Failover subscription so is all that is not acknowledged.
    ///
    /// # Errors
    /// The consumer is closed.
    pub fn negative_ack(&self, id: &MessageId) -> Result<(), ClientError> {
        Consumer::push(self.partition(id)?, Item::NegativeAck(*id))
    }

    /// Has all that is not acknowledged delivered again, now.
    ///
    /// # Errors
    /// The consumer is closed.
    pub fn redeliver(&self) -> Result<(), ClientError> {
        self.partitions.iter().try_for_each(|partition| Consumer::push(partition, Item::RedeliverAll))
    }

    /// Moves the subscription; what is here already is not delivered any more.
    ///
    /// # Errors
    /// The broker refuses, or the operation timeout passes.
    pub async fn seek(&mut self, to: SeekTo) -> Result<(), ClientError> {
        let only = match to {
            SeekTo::Message(id) if !id.is_end() && self.partitions.len() > 1 => usize::try_from(id.partition).ok(),
            _ => None,
        };
        for index in 0..self.partitions.len() {
            if only.is_none_or(|only| only == index) {
                self.ask(index, "seeking", |reply| Item::Seek { to, reply }).await?;
                if let Some(partition) = self.partitions.get_mut(index) {
                    partition.last = None;
                }
            }
        }
        Ok(())
    }

    /// The id of the last message of each partition, in their order; [`MessageId::EARLIEST`]'s position if it has none.
    ///
    /// # Errors
    /// The broker refuses, or the operation timeout passes.
    pub async fn last_message_ids(&self) -> Result<Vec<MessageId>, ClientError> {
        let mut ids = Vec::with_capacity(self.partitions.len());
        for index in 0..self.partitions.len() {
            ids.push(self.last_message(index).await?.id);
        }
        Ok(ids)
    }

    pub(crate) async fn last_message(&self, index: usize) -> Result<LastMessage, ClientError> {
        let build = |consumer_id, request_id| proto::CommandGetLastMessageId { consumer_id, request_id }.into();
        let answer = self.ask(index, "asking for the last message", |reply| Item::Ask { build, reply }).await?;
        let Command::GetLastMessageIdResponse(response) = answer else {
            return Err(ClientError::Closed("consumer"));
        };
        Ok(LastMessage {
            id: MessageId::from_wire(&response.last_message_id),
            mark_delete: response.consumer_mark_delete_position.as_ref().map(MessageId::from_wire),
        })
    }

    /// Has the consumer of a partition do something, and again if its connection is lost meanwhile.
    async fn ask<T: Send + 'static>(
        &self,
        index: usize,
        operation: &str,
        item: impl Fn(Reply<Result<T, ClientError>>) -> Item,
    ) -> Result<T, ClientError> {
        let partition = self.partitions.get(index).ok_or(ClientError::Closed("consumer"))?;
        let mut retry = self.client.retry(format!("{operation} on {}", partition.topic));
        loop {
            let (to, mut from) = reply();
            Consumer::push(partition, item(to))?;
            match retry.bound(from.wait()).await?.unwrap_or(Err(ClientError::Closed("consumer"))) {
                Ok(answer) => return Ok(answer),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    /// Deletes the subscription. `force`: even if it has other consumers.
    ///
    /// # Errors
    /// The broker refuses, or the connection is lost; the consumer is closed all the same.
    pub async fn unsubscribe(self, force: bool) -> Result<(), ClientError> {
        self.end(|reply| Item::Unsubscribe { force, reply }).await
    }

    /// Closes the consumer at the broker; what was not acknowledged goes to others.
    ///
    /// # Errors
    /// The broker refuses, or the connection is lost; the consumer is closed all the same.
    pub async fn close(self) -> Result<(), ClientError> {
        self.end(|reply| Item::Close(Some(reply))).await
    }

    async fn end(self, item: impl Fn(Reply<Result<(), ClientError>>) -> Item) -> Result<(), ClientError> {
        let mut waiting: Vec<Pending<Result<(), ClientError>>> = Vec::new();
        for partition in &self.partitions {
            let (to, from) = reply();
            // One that is gone is closed.
            if partition.mailbox.push(item(to)).is_ok() {
                waiting.push(from);
            }
        }
        let mut outcome = Ok(());
        for mut from in waiting {
            outcome = outcome.and(from.wait().await.unwrap_or(Err(ClientError::Closed("consumer"))));
        }
        outcome
    }

    pub(crate) fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// The last message of a partition that was taken.
    pub(crate) fn last_taken(&self, index: usize) -> Option<MessageId> {
        self.partitions.get(index).and_then(|partition| partition.last)
    }
}

impl Partition {
    /// A message was taken. The broker is asked for more when half of the queue is.
    fn count(&mut self, epoch: u64, queue_size: u32, id: Option<MessageId>) {
        if self.taken_epoch != epoch {
            (self.taken_epoch, self.taken) = (epoch, 0);
        }
        self.taken += 1;
        self.last = id.or(self.last);
        if self.taken >= (queue_size / 2).max(1) {
            let taken = std::mem::take(&mut self.taken);
            let _ = self.mailbox.push(Item::Taken { count: taken, epoch });
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        for partition in &self.partitions {
            let _ = partition.mailbox.push(Item::Close(None));
        }
    }
}
