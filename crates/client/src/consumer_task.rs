//! The task of a consumer on one topic or partition: permits, acknowledgements, and subscribing again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use geminga_env::{Inbox, Mailbox, Reply};
use geminga_model::Instant;
use geminga_wire::proto;
use geminga_wire::proto::command_ack::{AckType, ValidationError};
use geminga_wire::{AckCommand, Command, FlowCommand, MessageCommand, MessageId as WireId, ServerError};
use smallvec::{SmallVec, smallvec};

use crate::acks::Acks;
use crate::consumer::Delivery;
use crate::consumer_options::SeekTo;
use crate::error::ClientError;
use crate::link::{Answer, Kind, Link, LinkEvent};
use crate::message::{MessageId, Received};
use crate::producer_task::attempt;
use crate::retry::Backoff;
use crate::subscribe::{Seat, StartAt, open_once};
use crate::unpack::{Unpacked, Unpacker};

/// Fact: how many acknowledgements the Java client puts into one command.
const MAX_ACKS: usize = 1000;

/// What the task is told.
pub(crate) enum Item {
    /// Messages of this epoch were taken.
    Taken {
        count: u32,
        epoch: u64,
    },
    Ack {
        id: MessageId,
        cumulative: bool,
        reply: Option<Reply<Result<(), ClientError>>>,
    },
    NegativeAck(MessageId),
    RedeliverAll,
    Seek {
        to: SeekTo,
        reply: Reply<Result<(), ClientError>>,
    },
    /// The broker has answered a seek.
    Sought {
        to: SeekTo,
        answer: Answer,
        reply: Reply<Result<(), ClientError>>,
    },
    /// A request about the consumer, made of its id and a request id.
    Ask {
        build: fn(u64, u64) -> Command,
        reply: Reply<Answer>,
    },
    Unsubscribe {
        force: bool,
        reply: Reply<Result<(), ClientError>>,
    },
    Close(Option<Reply<Result<(), ClientError>>>),
    /// The broker said something on the connection of this generation.
    Event(u64, LinkEvent),
}

type Opening = std::pin::Pin<Box<dyn Future<Output = Result<Link, ClientError>> + Send>>;

/// An acknowledgement that is to be sent.
struct Said {
    ids: SmallVec<[WireId; 1]>,
    ack_type: AckType,
    reply: Reply<Result<(), ClientError>>,
}

pub(crate) struct ConsumerTask {
    seat: Seat,
    inbox: Inbox<Item>,
    link: Option<Link>,
    opening: Option<Opening>,
    retry_at: Option<Instant>,
    backoff: Backoff,
    partition: usize,
    deliveries: Mailbox<Delivery>,
    epoch: Arc<AtomicU64>,
    /// Messages handed over that were not reported as taken.
    queued: u32,
    /// Messages that the broker may send beyond those it was told of.
    credit: u32,
    unpacker: Unpacker,
    acks: Acks,
    /// To be sent at the end of the turn.
    individual: SmallVec<[WireId; 1]>,
    cumulative: Option<WireId>,
    with_receipt: Vec<Said>,
    /// In the order of their time, as the delay is the same for all.
    negative: VecDeque<(Instant, MessageId)>,
    seeking: bool,
    ended: bool,
}

impl ConsumerTask {
    pub(crate) fn new(
        seat: Seat,
        inbox: Inbox<Item>,
        link: Link,
        partition: usize,
        deliveries: Mailbox<Delivery>,
        epoch: Arc<AtomicU64>,
    ) -> ConsumerTask {
        let shared = &seat.client.0;
        let mut task = ConsumerTask {
            backoff: Backoff::new(&shared.env, &shared.options),
            unpacker: Unpacker::new(seat.topic.clone()),
            acks: Acks::new(seat.options.batch_index_ack),
            seat,
            inbox,
            link: None,
            opening: None,
            retry_at: None,
            partition,
            deliveries,
            epoch,
            queued: 0,
            credit: 0,
            individual: SmallVec::new(),
            cumulative: None,
            with_receipt: Vec::new(),
            negative: VecDeque::new(),
            seeking: false,
            ended: false,
        };
        task.start(link);
        task
    }

    fn now(&self) -> Instant {
        self.seat.client.0.env.clock.now()
    }

    fn deadline_of_request(&self) -> Instant {
        self.now() + self.seat.client.0.options.operation_timeout
    }

    pub(crate) async fn run(mut self) {
        let clock = self.seat.client.0.env.clock;
        let stop = self.seat.client.0.scope.stop_signal().clone();
        let mut items = Vec::new();
        while !self.ended {
            let redeliver = self.negative.front().map(|(at, _)| *at);
            let deadline = [self.retry_at, redeliver].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = stop.stopped() => return self.end(ClientError::Closed("client")),
                () = self.inbox.wait() => {
                    self.inbox.take(&mut items);
                    for item in items.drain(..) {
                        match item {
                            Item::Close(reply) => return self.close(reply).await,
                            Item::Unsubscribe { force, reply } => return self.unsubscribe(force, reply).await,
                            other => self.take(other),
                        }
                    }
                }
                opened = attempt(&mut self.opening) => self.opened(opened),
                () = clock.sleep_until_some(deadline) => {}
            }
            self.turn();
        }
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Taken { count, epoch } if epoch == self.seat.epoch => {
                self.queued = self.queued.saturating_sub(count);
                self.credit += count;
            }
            Item::Taken { .. } => {}
            Item::Ack { id, cumulative, reply } => self.ack(&id, cumulative, reply),
            Item::NegativeAck(id) => {
                self.negative.push_back((self.now() + self.seat.options.negative_ack_delay, id));
            }
            Item::RedeliverAll => self.redeliver_all(),
            Item::Seek { to, reply } => self.seek(to, reply),
            Item::Sought { to, answer, reply } => self.sought(to, answer, reply),
            Item::Ask { build, reply } => {
                self.flush_acks();
                let (id, deadline) = (self.seat.id, self.deadline_of_request());
                match &self.link {
                    Some(link) => {
                        link.start_request("asking about a consumer", deadline, |request| build(id, request), reply)
                    }
                    None => reply.send(Err(self.no_connection())),
                }
            }
            Item::Event(generation, event) if generation == self.seat.generation => self.event(event),
            Item::Event(..) | Item::Close(_) | Item::Unsubscribe { .. } => {}
        }
    }

    fn no_connection(&self) -> ClientError {
        let reason = "the consumer has none at the moment".to_owned();
        ClientError::Disconnected { address: format!("the broker of {}", self.seat.topic), reason }
    }

    /// What is due.
    fn turn(&mut self) {
        let now = self.now();
        if self.retry_at.is_some_and(|at| at <= now) && !self.seeking {
            self.retry_at = None;
            self.seat.generation += 1;
            let deadline = self.deadline_of_request();
            self.opening = Some(Box::pin(open_once(self.seat.clone(), deadline)));
            self.seat.at = None;
        }
        let mut due = Vec::new();
        while let Some((_, id)) = self.negative.pop_front_if(|(at, _)| *at <= now) {
            due.push(id);
        }
        self.flush_acks();
        self.redeliver(due);
        let threshold = (self.seat.options.queue_size / 2).max(1);
        if self.credit >= threshold {
            self.flow(self.credit);
        }
    }

    fn flow(&mut self, message_permits: u32) {
        self.credit = 0;
        if let Some(link) = self.link.as_ref().filter(|_| message_permits > 0) {
            link.tell(FlowCommand { consumer_id: self.seat.id, message_permits });
        }
    }

    /// The subscription is there: everything that is not acknowledged comes (again).
    fn start(&mut self, link: Link) {
        self.link = Some(link);
        self.flow(self.seat.options.queue_size.max(1));
        self.flush_acks();
    }

    /// What was handed over and is not taken is not wanted any more.
    fn next_epoch(&mut self) {
        self.seat.epoch += 1;
        self.epoch.store(self.seat.epoch, Ordering::Release);
        self.unpacker.clear();
        self.acks.clear();
    }

    fn event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Message { command, entry } => self.message(&command, entry),
            LinkEvent::Closed { url } => {
                // Told where to go, or cut off by its own seek, it has no reason to wait.
                let at_once = url.is_some() || self.seeking;
                let wait = if at_once { Duration::ZERO } else { self.backoff.wait() };
                self.seat.at = url;
                self.reopen(wait);
            }
            LinkEvent::Lost => {
                let wait = self.backoff.wait();
                self.reopen(wait);
            }
            // A reader at the end waits like any other: a terminated topic may be sought back.
            LinkEvent::EndOfTopic => tracing::debug!(topic = %self.seat.topic, "the end of a terminated topic"),
            LinkEvent::Receipt(_) | LinkEvent::SendError { .. } => {}
        }
    }

    fn message(&mut self, command: &MessageCommand, entry: Bytes) {
        let position = command.message_id.position;
        let unpacked = self.unpacker.unpack(command, entry);
        // Fact: an ordered consumer may still be sent what it asked to have again from the beginning.
        let stale = command.consumer_epoch.is_some_and(|epoch| epoch < self.seat.epoch);
        match unpacked {
            Unpacked::Messages { counted, .. } | Unpacked::Unusable { counted, .. } if stale => self.credit += counted,
            Unpacked::Part => self.credit += 1,
            Unpacked::Whole { .. } | Unpacked::Encrypted { .. } if stale => self.credit += 1,
            Unpacked::Messages { messages, counted, batch_size } => {
                if let Some(size) = batch_size {
                    self.acks.batch(position, size, &command.ack_set);
                }
                self.deliver(messages, counted);
            }
            Unpacked::Whole { message, entries } => {
                self.acks.chunks(entries);
                self.deliver(vec![*message], 1);
            }
            Unpacked::Encrypted { id, counted } => {
                let reason = "it is encrypted, and this version does not decrypt".to_owned();
                self.hand_over(Err(ClientError::Unreadable { id, reason }), false);
                self.credit += counted.saturating_sub(1);
            }
            Unpacked::Unusable { reason, error, counted } => {
                tracing::warn!(topic = %self.seat.topic, %position, reason, "an unusable entry is acknowledged");
                self.credit += counted;
                self.discard(WireId::of_entry(position), error);
            }
        }
    }

    fn discard(&mut self, id: WireId, error: ValidationError) {
        if let Some(link) = &self.link {
            let ack = AckCommand::new(self.seat.id, AckType::Individual, id);
            link.tell(AckCommand { validation_error: Some(error), ..ack });
        }
    }

    fn deliver(&mut self, messages: Vec<Received>, counted: u32) {
        let mut given = 0;
        for message in messages {
            if self.seat.start.is_none_or(|start| !start.skips(&message.id)) {
                given += 1;
                self.hand_over(Ok(Box::new(message)), false);
            }
        }
        self.credit += counted.saturating_sub(given);
    }

    fn hand_over(&mut self, body: Result<Box<Received>, ClientError>, is_end: bool) {
        self.queued += 1;
        let delivery = Delivery { partition: self.partition, epoch: self.seat.epoch, body, is_end };
        // A consumer that is gone has said so, or will.
        let _ = self.deliveries.push(delivery);
    }

    fn ack(&mut self, id: &MessageId, cumulative: bool, reply: Option<Reply<Result<(), ClientError>>>) {
        if cumulative && let Some(start) = &mut self.seat.start {
            // Opened again, a reader goes on behind what it has read.
            *start = StartAt { id: *id, inclusive: false, rollback: Duration::ZERO };
        }
        let (ids, ack_type) = if cumulative {
            (smallvec![self.acks.cumulative(id)], AckType::Cumulative)
        } else {
            (self.acks.individual(id), AckType::Individual)
        };
        match (reply, ack_type) {
            (Some(reply), _) if ids.is_empty() => reply.send(Ok(())),
            (Some(reply), _) => self.with_receipt.push(Said { ids, ack_type, reply }),
            (None, AckType::Cumulative) => self.cumulative = ids.into_iter().next(),
            (None, AckType::Individual) => {
                self.individual.extend(ids);
                if self.individual.len() >= MAX_ACKS && self.link.is_some() {
                    self.flush_acks();
                }
            }
        }
    }

    /// Sends what is acknowledged, or keeps it until there is a connection.
    fn flush_acks(&mut self) {
        let Some(link) = &self.link else { return };
        let id = self.seat.id;
        if let Some(position) = self.cumulative.take() {
            link.tell(AckCommand::new(id, AckType::Cumulative, position));
        }
        let mut individual = std::mem::take(&mut self.individual).into_iter();
        while let Some(first) = individual.next() {
            let mut ack = AckCommand::new(id, AckType::Individual, first);
            ack.message_ids.extend(individual.by_ref().take(MAX_ACKS - 1));
            link.tell(ack);
        }
        let deadline = self.deadline_of_request();
        for Said { ids, ack_type, reply } in self.with_receipt.drain(..) {
            let build = |request_id| {
                let ack = AckCommand::new(id, ack_type, WireId::of_entry(geminga_model::Position::EARLIEST));
                AckCommand { message_ids: ids, request_id: Some(request_id), ..ack }.into()
            };
            let answered = Reply::to(move |answer: Result<Answer, geminga_env::Unanswered>| {
                reply.send(match answer {
                    Ok(Ok(Command::AckResponse(response))) if response.error.is_some() => Err(ClientError::Refused {
                        operation: "acknowledging".to_owned(),
                        error: response.error(),
                        message: response.message.unwrap_or_default(),
                    }),
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(ClientError::Closed("client")),
                });
            });
            link.start_request("acknowledging", deadline, build, answered);
        }
    }

    fn redeliver(&mut self, due: Vec<MessageId>) {
        if due.is_empty() {
            return;
        }
        if self.seat.options.is_ordered() {
            return self.redeliver_all();
        }
        // Without a connection all is delivered again anyway.
        let Some(link) = &self.link else { return };
        let mut message_ids: Vec<proto::MessageIdData> = due.iter().map(|id| id.position.into()).collect();
        // Messages of one batch are one entry.
        message_ids.dedup();
        link.tell(proto::CommandRedeliverUnacknowledgedMessages {
            consumer_id: self.seat.id,
            message_ids,
            consumer_epoch: None,
        });
    }

    fn redeliver_all(&mut self) {
        self.flush_acks();
        self.negative.clear();
        let Some(link) = &self.link else { return };
        let ordered = self.seat.options.is_ordered();
        link.tell(proto::CommandRedeliverUnacknowledgedMessages {
            consumer_id: self.seat.id,
            message_ids: Vec::new(),
            consumer_epoch: ordered.then_some(self.seat.epoch + 1),
        });
        self.next_epoch();
        self.credit += std::mem::take(&mut self.queued);
    }

    fn seek(&mut self, to: SeekTo, reply: Reply<Result<(), ClientError>>) {
        self.flush_acks();
        let Some(link) = &self.link else { return reply.send(Err(self.no_connection())) };
        self.seeking = true;
        let (consumer_id, mailbox) = (self.seat.id, self.seat.mailbox.clone());
        let (message_id, message_publish_time) = match to {
            SeekTo::Message(id) => (Some(id.to_wire()), None),
            SeekTo::Time(time) => (None, Some(time.0.cast_unsigned())),
        };
        let build =
            |request_id| proto::CommandSeek { consumer_id, request_id, message_id, message_publish_time }.into();
        let answered = Reply::to(move |answer: Result<Answer, geminga_env::Unanswered>| {
            let answer = answer.unwrap_or(Err(ClientError::Closed("client")));
            if let Err(geminga_env::Closed(Item::Sought { reply, .. })) =
                mailbox.push(Item::Sought { to, answer, reply })
            {
                reply.send(Err(ClientError::Closed("consumer")));
            }
        });
        let deadline = self.now() + self.seat.client.0.options.operation_timeout;
        link.start_request("seeking", deadline, build, answered);
    }

    /// Fact: the broker cuts the consumer off before it answers, so that it subscribes again from here on.
    fn sought(&mut self, to: SeekTo, answer: Answer, reply: Reply<Result<(), ClientError>>) {
        self.seeking = false;
        if answer.is_ok() {
            if let Some(start) = &mut self.seat.start {
                let id = match to {
                    SeekTo::Message(id) => id,
                    // The subscription is still there, and knows where it stands.
                    SeekTo::Time(_) => MessageId::EARLIEST,
                };
                *start = StartAt { id, inclusive: true, rollback: Duration::ZERO };
            }
            self.negative.clear();
            self.individual.clear();
            self.cumulative = None;
            self.next_epoch();
            if self.link.is_some() {
                self.credit += std::mem::take(&mut self.queued);
            }
        }
        reply.send(answer.map(drop));
    }

    /// Leaves the connection, and subscribes again after a while.
    fn reopen(&mut self, wait: Duration) {
        if let Some(link) = self.link.take() {
            link.detach(Kind::Consumer, self.seat.id);
        }
        self.opening = None;
        self.negative.clear();
        self.next_epoch();
        (self.queued, self.credit) = (0, 0);
        self.retry_at = Some(self.now() + wait);
    }

    fn opened(&mut self, opened: Result<Link, ClientError>) {
        self.opening = None;
        match opened {
            Ok(link) => {
                self.backoff.reset();
                self.start(link);
            }
            Err(error) if error.may_reopen() => {
                tracing::debug!(topic = %self.seat.topic, %error, "a consumer could not subscribe again");
                let wait = self.backoff.wait();
                self.reopen(wait);
            }
            Err(error) => self.end(error),
        }
    }

    /// Nothing will be received any more.
    fn end(&mut self, error: ClientError) {
        for said in self.with_receipt.drain(..) {
            said.reply.send(Err(error.clone()));
        }
        self.ended = true;
        self.hand_over(Err(error), true);
    }

    async fn unsubscribe(mut self, force: bool, reply: Reply<Result<(), ClientError>>) {
        self.flush_acks();
        let (consumer_id, deadline) = (self.seat.id, self.deadline_of_request());
        let build = |request_id| proto::CommandUnsubscribe { consumer_id, request_id, force: Some(force) }.into();
        let answer = match &self.link {
            Some(link) => link.request("unsubscribing", deadline, build).await,
            None => Err(self.no_connection()),
        };
        if answer.is_err() {
            self.close(None).await;
        }
        reply.send(answer.map(drop));
    }

    async fn close(mut self, reply: Option<Reply<Result<(), ClientError>>>) {
        self.flush_acks();
        let (consumer_id, deadline) = (self.seat.id, self.deadline_of_request());
        let build = |request_id| proto::CommandCloseConsumer { consumer_id, request_id, ..Default::default() }.into();
        let mut outcome = Ok(());
        if let Some(link) = self.link.take() {
            outcome = link.request("closing a consumer", deadline, build).await.map(drop);
            link.detach(Kind::Consumer, consumer_id);
        }
        // One whose connection is gone is closed.
        let gone = matches!(outcome, Err(ClientError::Disconnected { .. }));
        let refused =
            |error: &ClientError| matches!(error, ClientError::Refused { error: ServerError::ConsumerNotFound, .. });
        if gone || outcome.as_ref().is_err_and(refused) {
            outcome = Ok(());
        }
        if let Some(reply) = reply {
            reply.send(outcome);
        }
    }
}
