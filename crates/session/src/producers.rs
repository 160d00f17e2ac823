//! Producers: opening, sending, closing.

use bytes::Bytes;
use geminga_model::{Instant, TopicName};
use geminga_wire::proto::{CommandCloseProducer, CommandProducer};
use geminga_wire::{Command, SendCommand, ServerError};
use smallvec::SmallVec;

use crate::answer::{NewOwner, ProducerOpened, Refusal};
use crate::effect::{CloseReason, Effect, ProducerKey};
use crate::session::Session;
use crate::specs::producer_spec;

/// The requests that are answered when something has closed.
pub(crate) type Waiters = SmallVec<[u64; 1]>;

/// A producer of the connection.
#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) key: ProducerKey,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The broker was asked to open it.
    Opening { request_id: u64 },
    /// It has its name, and waits to be the only one.
    Waiting { request_id: u64 },
    /// It may send.
    Open(ProducerOpened),
    /// The broker was asked to close it.
    Closing(Waiters),
}

impl Producer {
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing(_))
    }
}

impl ProducerOpened {
    fn success(&self, request_id: u64) -> Command {
        let (name, version) = (self.name.clone(), self.schema_version.clone());
        Command::producer_success(request_id, name, self.last_sequence_id, version, self.topic_epoch, self.ready)
    }
}

impl Session {
    pub(crate) fn on_producer(&mut self, command: CommandProducer) {
        let request_id = command.request_id;
        match self.open_producer(command) {
            Ok(Some(reply)) => self.send(reply),
            Ok(None) => self.in_flight += 1,
            Err(refusal) => self.send(Command::error(request_id, refusal.error, refusal.message)),
        }
    }

    /// Opens a producer, or gives the reply that is known already.
    fn open_producer(&mut self, command: CommandProducer) -> Result<Option<Command>, Refusal> {
        let (id, request_id) = (command.producer_id, command.request_id);
        let topic: TopicName =
            command.topic.parse().map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
        match self.producers.get(&id).map(|producer| &producer.stage) {
            None => {}
            Some(Stage::Open(opened)) => return Ok(Some(opened.success(request_id))),
            Some(Stage::Opening { .. } | Stage::Waiting { .. } | Stage::Closing(_)) => {
                let message = format!("producer {id} is already present on the connection, and not ready");
                return Err(Refusal::new(ServerError::ServiceNotReady, message));
            }
        }
        let spec = Box::new(producer_spec(command)?);
        if self.producers.len() >= self.config.max_producers {
            let message = format!("the connection has {} producers, as many as allowed", self.producers.len());
            return Err(Refusal::new(ServerError::ProducerBusy, message));
        }
        self.check_room()?;
        let producer = ProducerKey { id, serial: self.serial() };
        self.producers.insert(id, Producer { key: producer, stage: Stage::Opening { request_id } });
        self.push(Effect::OpenProducer { producer, topic, spec });
        Ok(None)
    }

    pub(crate) fn check_room(&self) -> Result<(), Refusal> {
        if self.has_room() {
            return Ok(());
        }
        let message = format!("{} requests of the connection wait for an answer, as many as allowed", self.in_flight);
        Err(Refusal::new(ServerError::TooManyRequests, message))
    }

    pub(crate) fn on_send(&mut self, now: Instant, send: &SendCommand, payload: Bytes) {
        let producer_id = send.producer_id;
        let Some(found) = self.producers.get(&producer_id) else { return self.send_astray(now, producer_id) };
        let producer = found.key;
        match found.stage {
            Stage::Open(_) => {}
            Stage::Closing(_) => {
                let error = (ServerError::PersistenceError, "the producer is being closed");
                return self.fail_publish(producer, send, error);
            }
            Stage::Opening { .. } | Stage::Waiting { .. } => return self.send_astray(now, producer_id),
        }
        // Fact: a highest id below the first counts as not said. Ids are signed to Java.
        let highest = send.highest_sequence_id;
        let said = highest != 0 && highest.cast_signed() >= send.sequence_id.cast_signed();
        let refused = if send.txn_id().is_some() {
            Some("transactions are not enabled on this broker")
        } else if send.message_id.is_some() {
            Some("only the replicator of a shadow topic sends message ids, and this topic is none")
        } else {
            // The size is bounded by the frame. Fact: a C++ client fills a chunk so that the entry exceeds the message
            // size by the ten bytes of magic, checksum and length.
            None
        };
        if let Some(message) = refused {
            return self.fail_publish(producer, send, (ServerError::NotAllowedError, message));
        }
        self.push(Effect::Publish {
            producer,
            sequence_id: send.sequence_id,
            highest_sequence_id: said.then_some(highest),
            messages: u32::try_from(send.num_messages).unwrap_or(1).max(1),
            is_chunk: send.is_chunk,
            payload,
        });
    }

    fn fail_publish(&mut self, producer: ProducerKey, send: &SendCommand, error: (ServerError, &'static str)) {
        let highest = send.highest_sequence_id.cast_signed().max(send.sequence_id.cast_signed());
        let (error, message) = error;
        self.push(Effect::FailPublish { producer, sequence_id: highest.cast_unsigned(), error, message });
    }

    /// A SEND without an open producer. Fact: what crosses the broker's CLOSE_PRODUCER is dropped; it is sent again.
    fn send_astray(&mut self, now: Instant, producer_id: u64) {
        let keep_alive = self.config.keep_alive;
        let crossed = self.closed_producers.get(&producer_id).is_some_and(|closed| *closed + keep_alive > now);
        if !crossed {
            self.fail(CloseReason::NoProducer { producer_id });
        }
    }

    pub(crate) fn on_close_producer(&mut self, command: &CommandCloseProducer) {
        let (id, request_id) = (command.producer_id, command.request_id);
        let Some(found) = self.producers.get(&id) else { return self.send(Command::success(request_id)) };
        let key = found.key;
        if let Err(refusal) = self.check_room() {
            return self.send(Command::error(request_id, refusal.error, refusal.message));
        }
        self.in_flight += 1;
        let Some(found) = self.producers.get_mut(&id) else { return };
        if let Stage::Closing(waiters) = &mut found.stage {
            return waiters.push(request_id);
        }
        let before = std::mem::replace(&mut found.stage, Stage::Closing(SmallVec::from_buf([request_id])));
        if let Stage::Opening { request_id } | Stage::Waiting { request_id } = before {
            self.in_flight -= 1;
            let message = "the producer was closed before it was created";
            self.send(Command::error(request_id, ServerError::ServiceNotReady, message));
        }
        self.push(Effect::CloseProducer { producer: key });
    }

    /// A producer was opened, or was not. To one that waited, and was told so before, this says that it is its turn,
    /// or that it will never be.
    pub fn handle_producer_opened(&mut self, key: ProducerKey, opened: Result<ProducerOpened, Refusal>) {
        let Some(found) = self.producers.get_mut(&key.id).filter(|found| found.key == key) else { return };
        let (request_id, waited) = match found.stage {
            Stage::Opening { request_id } => (request_id, false),
            Stage::Waiting { request_id } => (request_id, true),
            Stage::Open(_) | Stage::Closing(_) => return,
        };
        match opened {
            Ok(opened) if opened.ready => {
                self.in_flight -= 1;
                let reply = opened.success(request_id);
                found.stage = Stage::Open(opened);
                self.send(reply);
            }
            Ok(opened) if !waited => {
                found.stage = Stage::Waiting { request_id };
                self.send(opened.success(request_id));
            }
            Ok(_) => {}
            Err(refusal) => {
                self.in_flight -= 1;
                self.producers.remove(&key.id);
                self.send(Command::error(request_id, refusal.error, refusal.message));
            }
        }
    }

    /// A producer is closed: because that was asked, or because the broker wants it so, as when its topic moves to
    /// `owner`. The client is told accordingly.
    pub fn handle_producer_closed(&mut self, now: Instant, key: ProducerKey, owner: NewOwner) {
        let Some(producer) = self.forget_producer(key) else { return };
        match producer.stage {
            Stage::Closing(waiters) => self.answer_closed(&waiters),
            Stage::Opening { request_id } => {
                self.in_flight -= 1;
                let message = "the topic was closed while the producer was being created";
                self.send(Command::error(request_id, ServerError::ServiceNotReady, message));
            }
            Stage::Waiting { request_id } => {
                self.in_flight -= 1;
                let message = "the topic was closed while the producer waited for its turn";
                self.send(Command::error(request_id, ServerError::ServiceNotReady, message));
            }
            Stage::Open(_) if self.protocol_version() < 5 => {
                self.fail(CloseReason::OldClient(self.protocol_version()));
            }
            Stage::Open(_) => {
                self.closed_producers.insert(key.id, now);
                self.send(Command::close_producer(key.id, owner.url, owner.url_tls));
            }
        }
    }

    /// A producer lost its right to another that excludes it. Fact: the client is not told; its next SEND closes its
    /// connection, and opening the producer again fails.
    pub fn handle_producer_fenced(&mut self, key: ProducerKey) {
        let Some(producer) = self.forget_producer(key) else { return };
        match producer.stage {
            Stage::Open(_) => {}
            Stage::Closing(waiters) => self.answer_closed(&waiters),
            Stage::Opening { request_id } | Stage::Waiting { request_id } => {
                self.in_flight -= 1;
                self.send(Command::error(request_id, ServerError::ProducerFenced, "Fenced by another producer"));
            }
        }
    }

    fn forget_producer(&mut self, key: ProducerKey) -> Option<Producer> {
        self.producers.get(&key.id).filter(|found| found.key == key)?;
        self.producers.remove(&key.id)
    }

    pub(crate) fn answer_closed(&mut self, waiters: &[u64]) {
        self.in_flight -= waiters.len();
        for request_id in waiters {
            self.send(Command::success(*request_id));
        }
    }
}
