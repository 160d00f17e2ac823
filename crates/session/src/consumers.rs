//! Consumers: subscribing, permits, acknowledgements, seeking, closing.

use geminga_model::{Position, TopicName, UnixMillis};
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::{
    CommandCloseConsumer, CommandConsumerStats, CommandGetLastMessageId, CommandRedeliverUnacknowledgedMessages,
    CommandSeek, CommandSubscribe, CommandUnsubscribe,
};
use geminga_wire::{AckCommand, Command, FlowCommand, MessageId, ServerError};
use smallvec::SmallVec;

use crate::answer::{NewOwner, Refusal};
use crate::effect::{CloseReason, ConsumerKey, Effect, RequestKey, SeekTarget};
use crate::producers::Waiters;
use crate::requests::Pending;
use crate::session::Session;
use crate::specs::{epoch, subscribe_spec};

/// A consumer of the connection.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) key: ConsumerKey,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The broker was asked to add it.
    Subscribing { request_id: u64 },
    /// It consumes.
    Open,
    /// The broker was asked to take it out.
    Closing(Waiters),
}

impl Consumer {
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing(_))
    }
}

const NO_CONSUMER: &str = "Consumer not found";

impl Session {
    /// The consumer with this id, if it is open.
    fn consumer(&self, id: u64) -> Option<ConsumerKey> {
        self.consumers.get(&id).filter(|found| matches!(found.stage, Stage::Open)).map(|found| found.key)
    }

    pub(crate) fn on_subscribe(&mut self, command: CommandSubscribe) {
        let request_id = command.request_id;
        match self.subscribe(command) {
            Ok(Some(reply)) => self.send(reply),
            Ok(None) => self.in_flight += 1,
            Err(refusal) => self.send(Command::error(request_id, refusal.error, refusal.message)),
        }
    }

    fn subscribe(&mut self, command: CommandSubscribe) -> Result<Option<Command>, Refusal> {
        let (id, request_id) = (command.consumer_id, command.request_id);
        let topic: TopicName =
            command.topic.parse().map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
        match self.consumers.get(&id).map(|consumer| &consumer.stage) {
            None => {}
            Some(Stage::Open) => return Ok(Some(Command::success(request_id))),
            Some(Stage::Subscribing { .. } | Stage::Closing(_)) => {
                let message = format!("consumer {id} is already present on the connection, and not ready");
                return Err(Refusal::new(ServerError::ServiceNotReady, message));
            }
        }
        let spec = Box::new(subscribe_spec(command, &topic, self.config.max_consumer_metadata)?);
        if self.consumers.len() >= self.config.max_consumers {
            let message = format!("the connection has {} consumers, as many as allowed", self.consumers.len());
            return Err(Refusal::new(ServerError::ConsumerBusy, message));
        }
        self.check_room()?;
        let consumer = ConsumerKey { id, serial: self.serial() };
        self.consumers.insert(id, Consumer { key: consumer, stage: Stage::Subscribing { request_id } });
        self.push(Effect::Subscribe { consumer, topic, spec });
        Ok(None)
    }

    pub(crate) fn on_flow(&mut self, flow: FlowCommand) {
        if flow.message_permits == 0 {
            return self.fail(CloseReason::NoPermits { consumer_id: flow.consumer_id });
        }
        if let Some(consumer) = self.consumer(flow.consumer_id) {
            self.push(Effect::Flow { consumer, permits: flow.message_permits });
        }
    }

    pub(crate) fn on_ack(&mut self, ack: AckCommand) {
        let (consumer, request) = match self.accept_ack(&ack) {
            Ok(accepted) => accepted,
            Err(refusal) => {
                if let Some(request_id) = ack.request_id {
                    let failure = Some((refusal.0, refusal.1.to_owned()));
                    self.send(Command::ack_response(ack.consumer_id, request_id, failure));
                }
                return;
            }
        };
        self.push(Effect::Ack {
            consumer,
            request,
            ack_type: ack.ack_type,
            message_ids: ack.message_ids,
            validation_error: ack.validation_error,
            properties: ack.properties,
        });
    }

    fn accept_ack(
        &mut self,
        ack: &AckCommand,
    ) -> Result<(ConsumerKey, Option<RequestKey>), (ServerError, &'static str)> {
        let consumer = self.consumer(ack.consumer_id).ok_or((ServerError::ConsumerNotFound, NO_CONSUMER))?;
        if ack.txn_id().is_some() {
            return Err((ServerError::NotAllowedError, "transactions are not enabled on this broker"));
        }
        if ack.ack_type == AckType::Cumulative && ack.message_ids.len() != 1 {
            return Err((ServerError::NotAllowedError, "a cumulative acknowledgement names exactly one message"));
        }
        let Some(request_id) = ack.request_id else { return Ok((consumer, None)) };
        if !self.has_room() {
            return Err((ServerError::TooManyRequests, "too many requests of the connection wait for an answer"));
        }
        let request = self.begin(request_id, Pending::Ack { consumer_id: ack.consumer_id });
        Ok((consumer, Some(request)))
    }

    pub(crate) fn on_redeliver(&mut self, command: CommandRedeliverUnacknowledgedMessages) {
        let Some(consumer) = self.consumer(command.consumer_id) else { return };
        let position = |id: &geminga_wire::proto::MessageIdData| {
            Position::new(id.ledger_id.cast_signed(), id.entry_id.cast_signed())
        };
        let positions = command.message_ids.iter().map(position).collect();
        self.push(Effect::Redeliver { consumer, positions, epoch: epoch(command.consumer_epoch) });
    }

    /// A request about an open consumer, which is answered by ERROR if there is none.
    fn begin_for_consumer(
        &mut self,
        request_id: u64,
        consumer_id: u64,
        pending: impl FnOnce(ConsumerKey) -> Pending,
    ) -> Option<(RequestKey, ConsumerKey)> {
        let accepted = self
            .consumer(consumer_id)
            .ok_or_else(|| Refusal::new(ServerError::MetadataError, NO_CONSUMER))
            .and_then(|consumer| self.check_room().map(|()| consumer));
        match accepted {
            Ok(consumer) => Some((self.begin(request_id, pending(consumer)), consumer)),
            Err(refusal) => {
                self.send(Command::error(request_id, refusal.error, refusal.message));
                None
            }
        }
    }

    pub(crate) fn on_seek(&mut self, command: &CommandSeek) {
        let target = match (&command.message_id, command.message_publish_time) {
            (Some(id), _) => SeekTarget::Message(MessageId::from(id)),
            (None, Some(time)) => SeekTarget::Time(UnixMillis(i64::try_from(time).unwrap_or(i64::MAX))),
            (None, None) => {
                let message = "Message id and message publish time were not present";
                return self.send(Command::error(command.request_id, ServerError::MetadataError, message));
            }
        };
        let begun = self.begin_for_consumer(command.request_id, command.consumer_id, Pending::Seek);
        if let Some((request, consumer)) = begun {
            self.push(Effect::Seek { request, consumer, target });
        }
    }

    pub(crate) fn on_unsubscribe(&mut self, command: CommandUnsubscribe) {
        let begun = self.begin_for_consumer(command.request_id, command.consumer_id, Pending::Unsubscribe);
        if let Some((request, consumer)) = begun {
            self.push(Effect::Unsubscribe { request, consumer, force: command.force() });
        }
    }

    pub(crate) fn on_get_last_message_id(&mut self, command: CommandGetLastMessageId) {
        let begun = self.begin_for_consumer(command.request_id, command.consumer_id, |_| Pending::LastMessageId);
        if let Some((request, consumer)) = begun {
            self.push(Effect::LastMessageId { request, consumer });
        }
    }

    pub(crate) fn on_consumer_stats(&mut self, command: CommandConsumerStats) {
        let Some(consumer) = self.consumer(command.consumer_id) else {
            let refusal = Refusal::new(ServerError::ConsumerNotFound, NO_CONSUMER);
            return self.send(Pending::ConsumerStats.refused(command.request_id, refusal));
        };
        if let Some(request) = self.begin_if_room(command.request_id, Pending::ConsumerStats) {
            self.push(Effect::ConsumerStats { request, consumer });
        }
    }

    pub(crate) fn on_close_consumer(&mut self, command: &CommandCloseConsumer) {
        let (id, request_id) = (command.consumer_id, command.request_id);
        let Some(found) = self.consumers.get(&id) else { return self.send(Command::success(request_id)) };
        let key = found.key;
        if let Err(refusal) = self.check_room() {
            return self.send(Command::error(request_id, refusal.error, refusal.message));
        }
        self.in_flight += 1;
        let Some(found) = self.consumers.get_mut(&id) else { return };
        if let Stage::Closing(waiters) = &mut found.stage {
            return waiters.push(request_id);
        }
        let before = std::mem::replace(&mut found.stage, Stage::Closing(SmallVec::from_buf([request_id])));
        if let Stage::Subscribing { request_id } = before {
            self.in_flight -= 1;
            let message = "the consumer was closed before it was subscribed";
            self.send(Command::error(request_id, ServerError::ServiceNotReady, message));
        }
        self.push(Effect::CloseConsumer { consumer: key });
    }

    /// A consumer was added to its subscription, or was not. Tell this before anything else about the consumer.
    pub fn handle_consumer_subscribed(&mut self, key: ConsumerKey, subscribed: Result<(), Refusal>) {
        let Some(found) = self.consumers.get_mut(&key.id).filter(|found| found.key == key) else { return };
        let Stage::Subscribing { request_id } = found.stage else { return };
        self.in_flight -= 1;
        match subscribed {
            Ok(()) => {
                found.stage = Stage::Open;
                self.send(Command::success(request_id));
            }
            Err(refusal) => {
                self.consumers.remove(&key.id);
                self.send(Command::error(request_id, refusal.error, refusal.message));
            }
        }
    }

    /// A consumer is closed: because that was asked, or because the broker wants it so, as when its subscription seeks
    /// or its topic moves to `owner`. The client is told accordingly.
    pub fn handle_consumer_closed(&mut self, key: ConsumerKey, owner: NewOwner) {
        if self.consumers.get(&key.id).is_none_or(|found| found.key != key) {
            return;
        }
        match self.consumers.remove(&key.id).map(|consumer| consumer.stage) {
            None => {}
            Some(Stage::Closing(waiters)) => self.answer_closed(&waiters),
            Some(Stage::Subscribing { request_id }) => {
                self.in_flight -= 1;
                let message = "the topic was closed while the consumer was being subscribed";
                self.send(Command::error(request_id, ServerError::ServiceNotReady, message));
            }
            Some(Stage::Open) if self.protocol_version() < 5 => {
                self.fail(CloseReason::OldClient(self.protocol_version()));
            }
            Some(Stage::Open) => self.send(Command::close_consumer(key.id, owner.url, owner.url_tls)),
        }
    }

    /// A consumer of a Failover subscription became the active one, or ceased to be.
    pub fn handle_active_consumer(&mut self, key: ConsumerKey, active: bool) {
        // Fact: a lower version does not know the command.
        if self.consumer(key.id) == Some(key) && self.protocol_version() >= 12 {
            self.send(Command::active_consumer_change(key.id, active));
        }
    }

    /// The topic is terminated, and the consumer's subscription has nothing left.
    pub fn handle_end_of_topic(&mut self, key: ConsumerKey) {
        if self.consumer(key.id) == Some(key) && self.protocol_version() >= 9 {
            self.send(Command::reached_end_of_topic(key.id));
        }
    }

    /// Before the SUCCESS of a SEEK. Fact: a client that hears of the success first, and of its consumer's end second,
    /// goes back to its old position. So a consumer that the broker has not reported yet is cut off here.
    pub(crate) fn cut_off(&mut self, key: ConsumerKey) {
        if self.consumer(key.id) == Some(key) {
            self.push(Effect::CloseConsumer { consumer: key });
            self.handle_consumer_closed(key, NewOwner::default());
        }
    }

    /// The subscription is gone, and its consumer with it.
    pub(crate) fn unsubscribed(&mut self, key: ConsumerKey) {
        if self.consumer(key.id) == Some(key) {
            self.consumers.remove(&key.id);
        }
    }
}
