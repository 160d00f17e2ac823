//! The task of a producer on one topic or partition: batches, what is under way, and opening again.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_env::{Inbox, Mailbox, Permit, Reply};
use geminga_model::{Instant, Position, TopicName};
use geminga_wire::proto::{self, KeyValue};
use geminga_wire::{Command, SendReceipt, ServerError};
use smallvec::SmallVec;

use crate::batch::{Sealed, seal};
use crate::client::Client;
use crate::error::ClientError;
use crate::link::{Kind, Link, LinkEvent};
use crate::message::{Message, MessageId};
use crate::producer_options::ProducerOptions;
use crate::retry::Backoff;

/// What the task is told.
pub(crate) enum Item {
    /// Send a message.
    Send(Box<Submitted>),
    /// Send what waits, and answer when all before is settled.
    Flush(Reply<Result<(), ClientError>>),
    /// Send what waits, and close.
    Close(Option<Reply<()>>),
    /// The broker said something on the connection of this generation.
    Event(u64, LinkEvent),
}

/// A message under way, with what is to be told of it.
pub(crate) struct Submitted {
    pub(crate) message: Message,
    pub(crate) reply: Reply<Result<MessageId, ClientError>>,
    /// Of the producer's messages and of the client's memory; given back when the message is settled.
    pub(crate) permits: [Permit; 2],
}

/// All that opening a producer needs, also again.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) client: Client,
    pub(crate) id: u64,
    pub(crate) topic: TopicName,
    pub(crate) options: Arc<ProducerOptions>,
    pub(crate) mailbox: Mailbox<Item>,
    /// Grows with each attempt; what is heard of an earlier one is ignored.
    pub(crate) generation: u64,
    pub(crate) name: Option<String>,
    pub(crate) topic_epoch: Option<u64>,
    /// The broker to try without a look-up.
    pub(crate) at: Option<String>,
}

/// A producer that is open at a broker.
pub(crate) struct Opened {
    pub(crate) link: Link,
    pub(crate) name: String,
    pub(crate) last_sequence_id: i64,
    pub(crate) schema_version: Bytes,
    pub(crate) topic_epoch: Option<u64>,
    pub(crate) max_message_size: usize,
}

/// One attempt to open a producer.
pub(crate) async fn open_once(seat: Seat, deadline: Instant) -> Result<Opened, ClientError> {
    const OPERATION: &str = "opening a producer";
    let assigned = seat.at.as_ref().and_then(|url| url.parse().ok());
    let link = match assigned {
        Some(url) => seat.client.link(&url, None),
        None => seat.client.find_broker(&seat.topic, deadline).await?.1,
    };
    let hello = link.ready().await?;
    let (mailbox, generation) = (seat.mailbox.clone(), seat.generation);
    let sink = Box::new(move |event| drop(mailbox.push(Item::Event(generation, event))));
    link.attach(Kind::Producer, seat.id, sink)?;
    let answer = link.request(OPERATION, deadline, |request_id| producer_command(&seat, request_id)).await;
    let success = match answer {
        Ok(Command::ProducerSuccess(success)) => success,
        other => {
            link.detach(Kind::Producer, seat.id);
            // It may be open by now, and would stand in the way of the next attempt.
            if matches!(other, Err(ClientError::Timeout { .. })) {
                let producer_id = seat.id;
                let build =
                    |request_id| proto::CommandCloseProducer { producer_id, request_id, ..Default::default() }.into();
                link.start_request("closing a producer", deadline, build, Reply::to(drop));
            }
            return Err(other.map_or_else(|error| error, |command| link.unexpected(OPERATION, &command)));
        }
    };
    Ok(Opened {
        link,
        name: success.producer_name,
        last_sequence_id: success.last_sequence_id.unwrap_or(-1),
        schema_version: success.schema_version.unwrap_or_default(),
        topic_epoch: success.topic_epoch,
        max_message_size: hello.max_message_size,
    })
}

fn producer_command(seat: &Seat, request_id: u64) -> Command {
    let options = &seat.options;
    let pair = |(key, value): &(String, String)| KeyValue { key: key.clone(), value: value.clone() };
    proto::CommandProducer {
        topic: seat.topic.to_string(),
        producer_id: seat.id,
        request_id,
        producer_name: seat.name.clone(),
        metadata: options.metadata.iter().map(pair).collect(),
        schema: options.schema.clone(),
        epoch: Some(seat.generation),
        // Fact: a name that a broker gave is not the user's, also when the producer is opened again.
        user_provided_producer_name: Some(options.name.is_some()),
        producer_access_mode: Some(options.access_mode.into()),
        topic_epoch: seat.topic_epoch,
        initial_subscription_name: options.initial_subscription.clone(),
        ..Default::default()
    }
    .into()
}

/// An entry that is not settled.
struct Entry {
    sealed: Sealed,
    deadline: Option<Instant>,
    waiting: Vec<Submitted>,
}

/// How many of the oldest entries must be settled, what became of them so far, and who asked.
type Flush = (usize, Result<(), ClientError>, Reply<Result<(), ClientError>>);

type Opening = Pin<Box<dyn Future<Output = Result<Opened, ClientError>> + Send>>;

pub(crate) struct ProducerTask {
    seat: Seat,
    inbox: Inbox<Item>,
    link: Option<Link>,
    opening: Option<Opening>,
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// Why it will not be open again.
    failed: Option<ClientError>,
    name: String,
    schema_version: Bytes,
    max_message_size: usize,
    next_sequence_id: u64,
    batch: Vec<Submitted>,
    batch_bytes: usize,
    batch_deadline: Option<Instant>,
    /// In the order of their sequence ids, which is that of receipts.
    pending: VecDeque<Entry>,
    /// Answered when `pending` has settled what was there, counted from its front.
    flushes: Vec<Flush>,
    closing: Option<Option<Reply<()>>>,
}

/// Polls an attempt to open, if there is one.
pub(crate) async fn attempt<T>(opening: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match opening {
        Some(opening) => opening.as_mut().await,
        None => std::future::pending().await,
    }
}

impl ProducerTask {
    pub(crate) fn new(mut seat: Seat, inbox: Inbox<Item>, opened: Opened) -> ProducerTask {
        let shared = &seat.client.0;
        let backoff = Backoff::new(&shared.env, &shared.options);
        seat.name = Some(opened.name.clone());
        seat.topic_epoch = opened.topic_epoch;
        ProducerTask {
            seat,
            inbox,
            link: Some(opened.link),
            opening: None,
            retry_at: None,
            backoff,
            failed: None,
            name: opened.name,
            schema_version: opened.schema_version,
            max_message_size: opened.max_message_size,
            next_sequence_id: opened.last_sequence_id.saturating_add(1).cast_unsigned(),
            batch: Vec::new(),
            batch_bytes: 0,
            batch_deadline: None,
            pending: VecDeque::new(),
            flushes: Vec::new(),
            closing: None,
        }
    }

    fn now(&self) -> Instant {
        self.seat.client.0.env.clock.now()
    }

    pub(crate) async fn run(mut self) {
        let clock = self.seat.client.0.env.clock;
        let stop = self.seat.client.0.scope.stop_signal().clone();
        let mut items = Vec::new();
        loop {
            let oldest = self.pending.front().and_then(|entry| entry.deadline);
            let deadline = [self.batch_deadline, self.retry_at, oldest].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = stop.stopped() => return,
                () = self.inbox.wait() => {
                    self.inbox.take(&mut items);
                    for item in items.drain(..) {
                        self.take(item);
                    }
                }
                opened = attempt(&mut self.opening) => self.opened(opened),
                () = clock.sleep_until_some(deadline) => {}
            }
            self.turn();
            if self.pending.is_empty() && self.batch.is_empty() && self.closing.is_some() {
                return self.close().await;
            }
        }
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Send(submitted) => self.send(*submitted),
            Item::Flush(reply) => {
                self.seal();
                self.flushes.push((self.pending.len(), Ok(()), reply));
                self.answer_flushes();
            }
            Item::Close(reply) => {
                self.seal();
                self.closing.get_or_insert(reply);
            }
            Item::Event(generation, event) if generation == self.seat.generation => self.event(event),
            Item::Event(..) => {}
        }
    }

    /// What is due.
    fn turn(&mut self) {
        let now = self.now();
        let at_once = self.seat.options.batching.is_some_and(|batching| batching.delay.is_zero());
        if at_once || self.batch_deadline.is_some_and(|deadline| deadline <= now) {
            self.seal();
        }
        while self.pending.front().and_then(|entry| entry.deadline).is_some_and(|deadline| deadline <= now) {
            let after = self.seat.options.send_timeout.unwrap_or_default();
            let last = match (&self.link, &self.failed) {
                (Some(link), _) => format!("the broker at {} sent no receipt", link.address),
                (None, _) => "the producer has no connection to a broker".to_owned(),
            };
            let operation = format!("sending to {}", self.seat.topic);
            self.settle(&Err(ClientError::Timeout { operation, after, last }));
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.open();
        }
    }

    fn send(&mut self, submitted: Submitted) {
        if let Some(error) = &self.failed {
            return submitted.reply.send(Err(error.clone()));
        }
        let weight = submitted.message.weight();
        let batching = self.seat.options.batching;
        // Fact: when an entry is due is said of it as a whole.
        let Some(batching) = batching.filter(|_| submitted.message.deliver_at.is_none()) else {
            self.seal();
            self.batch.push(submitted);
            return self.seal();
        };
        if self.batch_bytes + weight > batching.max_bytes {
            self.seal();
        }
        if self.batch.is_empty() {
            self.batch_deadline = Some(self.now() + batching.delay);
        }
        self.batch_bytes += weight;
        self.batch.push(submitted);
        if self.batch.len() >= batching.max_messages || self.batch_bytes >= batching.max_bytes {
            self.seal();
        }
    }

    /// Makes the batch an entry, and sends it.
    fn seal(&mut self) {
        self.batch_deadline = None;
        self.batch_bytes = 0;
        if self.batch.is_empty() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.batch);
        let publish_time = self.seat.client.0.env.clock.wall();
        let messages = waiting.iter_mut().map(|submitted| {
            let sequence_id = submitted.message.sequence_id.unwrap_or(self.next_sequence_id);
            self.next_sequence_id = self.next_sequence_id.max(sequence_id.saturating_add(1));
            // The payload is in the entry from here on.
            (sequence_id, std::mem::take(&mut submitted.message))
        });
        let messages: Vec<(u64, Message)> = messages.collect();
        let compression = self.seat.options.compression;
        let sealed = seal(self.seat.id, &self.name, &self.schema_version, compression, publish_time, messages);
        if sealed.size > self.max_message_size {
            let error = ClientError::TooLarge { size: sealed.size, limit: self.max_message_size };
            for submitted in waiting {
                submitted.reply.send(Err(error.clone()));
            }
            return;
        }
        if let Some(link) = &self.link {
            link.write(sealed.frame.clone());
        }
        let deadline = self.seat.options.send_timeout.map(|timeout| self.now() + timeout);
        self.pending.push_back(Entry { sealed, deadline, waiting });
    }

    /// Settles the oldest entry.
    fn settle(&mut self, outcome: &Result<Position, ClientError>) {
        let Some(entry) = self.pending.pop_front() else { return };
        let partition = self.seat.topic.partition().and_then(|index| i32::try_from(index).ok()).unwrap_or(-1);
        let batch = if entry.sealed.is_batch { i32::try_from(entry.waiting.len()).unwrap_or(i32::MAX) } else { 0 };
        for (index, submitted) in (0..).zip(entry.waiting) {
            let batch_index = if batch > 0 { index } else { -1 };
            let id = |position: &Position| MessageId {
                batch_index,
                batch_size: batch,
                ..MessageId::of_entry(*position, partition)
            };
            drop(submitted.permits);
            submitted.reply.send(outcome.as_ref().map(id).map_err(Clone::clone));
        }
        for (left, flushed, _) in &mut self.flushes {
            *left -= 1;
            if let (Ok(()), Err(error)) = (&flushed, outcome) {
                *flushed = Err(error.clone());
            }
        }
        self.answer_flushes();
    }

    fn answer_flushes(&mut self) {
        let (done, left) = std::mem::take(&mut self.flushes).into_iter().partition(|(left, ..)| *left == 0);
        self.flushes = left;
        for (_, flushed, reply) in done {
            reply.send(flushed);
        }
    }

    fn event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Receipt(receipt) => self.receipt(receipt),
            LinkEvent::SendError { sequence_id, error, message } => self.send_error(sequence_id, error, message),
            LinkEvent::Closed { url } => {
                // Told where to go, there is no reason to wait.
                let wait = if url.is_some() { Duration::ZERO } else { self.backoff.wait() };
                self.seat.at = url;
                self.reopen(wait);
            }
            LinkEvent::Lost => {
                let wait = self.backoff.wait();
                self.reopen(wait);
            }
            LinkEvent::Message { .. } | LinkEvent::EndOfTopic => {}
        }
    }

    fn receipt(&mut self, receipt: SendReceipt) {
        let Some(oldest) = self.pending.front() else { return };
        let expected = oldest.sealed.sequence_id;
        if receipt.sequence_id == expected {
            self.backoff.reset();
            self.settle(&Ok(receipt.position.unwrap_or(Position::EARLIEST)));
        } else if receipt.sequence_id.cast_signed() > expected.cast_signed() {
            // A receipt is missing. What is under way is sent again, as Java does.
            tracing::warn!(topic = %self.seat.topic, expected, got = receipt.sequence_id, "a receipt is missing");
            let wait = self.backoff.wait();
            self.reopen(wait);
        }
        // An older one is of an entry that timed out, or that was sent twice.
    }

    fn send_error(&mut self, sequence_id: u64, error: ServerError, message: String) {
        let operation = format!("sending to {}", self.seat.topic);
        let refused = ClientError::Refused { operation, error, message };
        match error {
            ServerError::TopicTerminatedError | ServerError::ProducerFenced => self.fail(refused),
            // Fact: only the one message is refused, and its number is the highest of its entry.
            ServerError::NotAllowedError => {
                let oldest = self.pending.front().map(|entry| entry.sealed.highest_sequence_id);
                if oldest == Some(sequence_id) {
                    self.settle(&Err(refused));
                }
            }
            _ => {
                tracing::debug!(error = %refused, "a producer is opened again");
                let wait = self.backoff.wait();
                self.reopen(wait);
            }
        }
    }

    /// Leaves the connection, and opens the producer again after a while.
    fn reopen(&mut self, wait: Duration) {
        if let Some(link) = self.link.take() {
            link.detach(Kind::Producer, self.seat.id);
        }
        self.opening = None;
        if self.failed.is_none() {
            self.retry_at = Some(self.now() + wait);
        }
    }

    fn open(&mut self) {
        self.seat.generation += 1;
        let deadline = self.now() + self.seat.client.0.options.operation_timeout;
        self.opening = Some(Box::pin(open_once(self.seat.clone(), deadline)));
        self.seat.at = None;
    }

    fn opened(&mut self, opened: Result<Opened, ClientError>) {
        self.opening = None;
        match opened {
            Ok(opened) => {
                self.seat.topic_epoch = opened.topic_epoch.or(self.seat.topic_epoch);
                self.schema_version = opened.schema_version;
                self.max_message_size = opened.max_message_size;
                for entry in &self.pending {
                    opened.link.write(entry.sealed.frame.clone());
                }
                self.link = Some(opened.link);
            }
            Err(error) if error.may_reopen() => {
                tracing::debug!(topic = %self.seat.topic, %error, "a producer could not be opened again");
                let wait = self.backoff.wait();
                self.reopen(wait);
            }
            Err(error) => self.fail(error),
        }
    }

    /// Nothing will be sent any more.
    fn fail(&mut self, error: ClientError) {
        for submitted in std::mem::take(&mut self.batch) {
            submitted.reply.send(Err(error.clone()));
        }
        self.failed = Some(error.clone());
        self.reopen(Duration::ZERO);
        while !self.pending.is_empty() {
            self.settle(&Err(error.clone()));
        }
    }

    async fn close(mut self) {
        if let Some(link) = self.link.take() {
            let producer_id = self.seat.id;
            let deadline = self.now() + self.seat.client.0.options.operation_timeout;
            let build =
                |request_id| proto::CommandCloseProducer { producer_id, request_id, ..Default::default() }.into();
            // Whatever the answer: the broker forgets the producer with the connection at the latest.
            let _ = link.request("closing a producer", deadline, build).await;
            link.detach(Kind::Producer, producer_id);
        }
        if let Some(Some(reply)) = self.closing.take() {
            reply.send(());
        }
    }
}

/// The parts of a frame, as a connection writes them.
pub(crate) type FrameParts = SmallVec<[Bytes; 2]>;
