//! Arbitrary commands, arbitrary answers, also late and repeated ones: what must hold all the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_model::{Instant, Position};
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::{self, ServerError};
use geminga_wire::{AckCommand, Command, FlowCommand, MessageId, SendCommand};
use proptest::prelude::*;

use crate::*;

#[derive(Clone, Debug)]
enum Step {
    /// A command of this kind about this id.
    Command { kind: u8, id: u64 },
    /// The answer to one of all effects so far that want one, of this kind.
    Answer { which: prop::sample::Index, how: u8 },
    /// The broker closes (or fences) one of all that ever were.
    End { which: prop::sample::Index, fence: bool },
    /// Time passes.
    Pass { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0u8..30, 0u64..3).prop_map(|(kind, id)| Step::Command { kind, id }),
        6 => (index(), 0u8..6).prop_map(|(which, how)| Step::Answer { which, how }),
        1 => (index(), any::<bool>()).prop_map(|(which, fence)| Step::End { which, fence }),
        1 => (0u64..31).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// What an effect asks of the broker.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Open(ProducerKey),
    CloseProducer(ProducerKey),
    Subscribe(ConsumerKey),
    CloseConsumer(ConsumerKey),
    Watch(WatcherKey),
    Request(RequestKey, Kind),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Done,
    Unsubscribe(ConsumerKey),
    Other(u8),
}

/// The life of a producer or consumer as the broker sees it.
#[derive(Debug, Default)]
struct Life {
    open: bool,
    /// The broker said that it ended.
    reported: bool,
    /// The session asked to close it.
    closes: u32,
}

/// The world around a session: it counts replies and closes.
struct World {
    session: Session,
    now: Instant,
    next_request: u64,
    /// Requests by id, and how many final replies they had.
    replies: BTreeMap<u64, u32>,
    asks: Vec<Ask>,
    producers: BTreeMap<ProducerKey, Life>,
    consumers: BTreeMap<ConsumerKey, Life>,
}

impl World {
    fn new() -> World {
        let config = SessionConfig {
            max_producers: 2,
            max_consumers: 2,
            max_watchers: 2,
            max_requests: 6,
            ..Default::default()
        };
        let mut session = Session::new(Arc::new(config), Instant(0));
        let connect = proto::CommandConnect { protocol_version: Some(21), ..Default::default() };
        session.handle_command(Instant(0), connect.into(), Bytes::new());
        World {
            session,
            now: Instant(0),
            next_request: 0,
            replies: BTreeMap::new(),
            asks: Vec::new(),
            producers: BTreeMap::new(),
            consumers: BTreeMap::new(),
        }
    }

    fn request(&mut self) -> u64 {
        self.next_request += 1;
        self.replies.insert(self.next_request, 0);
        self.next_request
    }

    fn command(&mut self, kind: u8, id: u64) -> Command {
        let topic = || String::from("t");
        match kind {
            // To an id that is not open it ends the connection, which is not to happen too soon.
            0 if self.session.producers.contains_key(&id) => SendCommand::new(id, 1).into(),
            1 => FlowCommand { consumer_id: id, message_permits: 1 }.into(),
            2 => proto::CommandRedeliverUnacknowledgedMessages { consumer_id: id, ..Default::default() }.into(),
            3 | 4 => {
                let request_id = self.request();
                proto::CommandProducer { topic: topic(), producer_id: id, request_id, ..Default::default() }.into()
            }
            5 => {
                let request_id = self.request();
                proto::CommandCloseProducer { producer_id: id, request_id, ..Default::default() }.into()
            }
            6 | 7 => {
                let (request_id, subscription) = (self.request(), String::from("s"));
                let consumer_id = id;
                proto::CommandSubscribe { topic: topic(), subscription, consumer_id, request_id, ..Default::default() }
                    .into()
            }
            8 => {
                let request_id = self.request();
                proto::CommandCloseConsumer { consumer_id: id, request_id, ..Default::default() }.into()
            }
            9 => {
                let ack = AckCommand::new(id, AckType::Individual, MessageId::of_entry(Position::new(1, 1)));
                AckCommand { request_id: Some(self.request()), ..ack }.into()
            }
            10 => {
                let (request_id, message_publish_time) = (self.request(), Some(1));
                proto::CommandSeek { consumer_id: id, request_id, message_publish_time, ..Default::default() }.into()
            }
            11 => proto::CommandUnsubscribe { consumer_id: id, request_id: self.request(), force: None }.into(),
            12 => proto::CommandGetLastMessageId { consumer_id: id, request_id: self.request() }.into(),
            13 => proto::CommandConsumerStats { consumer_id: id, request_id: self.request() }.into(),
            14 => proto::CommandLookupTopic { topic: topic(), request_id: self.request(), ..Default::default() }.into(),
            15 => {
                let request_id = self.request();
                proto::CommandPartitionedTopicMetadata { topic: topic(), request_id, ..Default::default() }.into()
            }
            16 => {
                let (request_id, namespace) = (self.request(), String::from("a/b"));
                let watcher_id = id;
                proto::CommandWatchTopicList { namespace, request_id, watcher_id, ..Default::default() }.into()
            }
            17 => proto::CommandWatchTopicListClose { request_id: self.request(), watcher_id: id }.into(),
            18 => proto::CommandGetSchema { topic: topic(), request_id: self.request(), ..Default::default() }.into(),
            0 | 19 => Command::PONG,
            // What opens things is the most frequent.
            kind => {
                let kind = if kind % 2 == 0 { 3 } else { 6 };
                self.command(kind, id)
            }
        }
    }

    fn answer(&mut self, ask: Ask, how: u8) {
        let refusal = || Refusal::new(ServerError::UnknownError, "no");
        match ask {
            Ask::Open(key) => {
                let life = self.producers.get_mut(&key).unwrap();
                let ready = how != 1;
                if how == 0 && !life.open && life.closes == 0 {
                    life.reported = true;
                }
                life.open |= how > 1;
                let opened = ProducerOpened {
                    name: "p".into(),
                    last_sequence_id: -1,
                    schema_version: Bytes::new(),
                    topic_epoch: None,
                    ready,
                };
                self.session.handle_producer_opened(key, if how == 0 { Err(refusal()) } else { Ok(opened) });
            }
            Ask::Subscribe(key) => {
                let life = self.consumers.get_mut(&key).unwrap();
                if how == 0 && !life.open && life.closes == 0 {
                    life.reported = true;
                }
                life.open |= how > 0;
                self.session.handle_consumer_subscribed(key, if how == 0 { Err(refusal()) } else { Ok(()) });
            }
            Ask::CloseProducer(key) => self.session.handle_producer_closed(self.now, key, NewOwner::default()),
            Ask::CloseConsumer(key) => self.session.handle_consumer_closed(key, NewOwner::default()),
            Ask::Watch(key) => {
                let started = if how == 0 { Err(refusal()) } else { Ok((vec![], String::new())) };
                self.session.handle_watch_started(key, started);
                self.session.handle_topics_changed(key, vec![], vec![], String::new());
            }
            Ask::Request(key, kind) => {
                let answer = match kind {
                    _ if how == 0 => Err(refusal()),
                    Kind::Unsubscribe(consumer) => {
                        let pending = self.session.requests.contains_key(&key.serial);
                        let life = self.consumers.get_mut(&consumer).unwrap();
                        if pending && life.closes == 0 {
                            life.reported = true;
                        }
                        Ok(Answer::Done)
                    }
                    Kind::Done => Ok(Answer::Done),
                    Kind::Other(_) if how == 1 => Ok(Answer::Done),
                    Kind::Other(0) => Ok(Answer::Partitions(3)),
                    Kind::Other(_) => Ok(Answer::SchemaVersion(Bytes::new())),
                };
                self.session.handle_answer(key, answer);
            }
        }
    }

    fn end(&mut self, which: &prop::sample::Index, fence: bool) {
        let count = self.producers.len() + self.consumers.len();
        if count == 0 {
            return;
        }
        let at = which.index(count);
        if let Some((key, life)) = self.producers.iter_mut().nth(at) {
            life.reported |= life.closes == 0;
            if fence {
                self.session.handle_producer_fenced(*key);
            } else {
                self.session.handle_producer_closed(self.now, *key, NewOwner::default());
            }
        } else if let Some((key, life)) = self.consumers.iter_mut().nth(at - self.producers.len()) {
            life.reported |= life.closes == 0;
            self.session.handle_consumer_closed(*key, NewOwner::default());
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Command { kind, id } => {
                let command = self.command(*kind, *id);
                self.session.handle_command(self.now, command, Bytes::new());
            }
            Step::Answer { which, how } if !self.asks.is_empty() => {
                let ask = self.asks[which.index(self.asks.len())];
                // Closes are answered only when they were asked for, so that is what an answer says.
                self.answer(ask, *how);
            }
            Step::Answer { .. } => {}
            Step::End { which, fence } => self.end(which, *fence),
            Step::Pass { seconds } => {
                self.now = self.now + Duration::from_secs(*seconds);
                self.session.handle_timeout(self.now);
            }
        }
        self.take();
    }

    fn take(&mut self) {
        let mut effects = Vec::new();
        self.session.take_effects(&mut effects);
        for effect in effects {
            self.see(effect);
        }
    }

    fn see(&mut self, effect: Effect) {
        let other = |request, kind| Ask::Request(request, Kind::Other(kind));
        let ask = match effect {
            Effect::Send(command) => return self.reply(&command),
            Effect::OpenProducer { producer, .. } => {
                assert!(self.producers.insert(producer, Life::default()).is_none());
                Ask::Open(producer)
            }
            Effect::Subscribe { consumer, .. } => {
                assert!(self.consumers.insert(consumer, Life::default()).is_none());
                Ask::Subscribe(consumer)
            }
            Effect::CloseProducer { producer } => {
                let life = self.producers.get_mut(&producer).unwrap();
                life.closes += 1;
                assert!(!life.reported && life.closes == 1, "{producer:?} {life:?}");
                Ask::CloseProducer(producer)
            }
            Effect::CloseConsumer { consumer } => {
                let life = self.consumers.get_mut(&consumer).unwrap();
                life.closes += 1;
                assert!(!life.reported && life.closes == 1, "{consumer:?} {life:?}");
                Ask::CloseConsumer(consumer)
            }
            Effect::Publish { producer, .. } => {
                assert!(self.producers[&producer].open);
                return;
            }
            Effect::Flow { consumer, .. } | Effect::Redeliver { consumer, .. } => {
                assert!(self.consumers[&consumer].open);
                return;
            }
            Effect::WatchTopicList { watcher, .. } => Ask::Watch(watcher),
            Effect::Unsubscribe { request, consumer, .. } => Ask::Request(request, Kind::Unsubscribe(consumer)),
            Effect::Seek { request, .. } => Ask::Request(request, Kind::Done),
            Effect::Ack { request, .. } => Ask::Request(request.unwrap(), Kind::Done),
            Effect::LastMessageId { request, .. } | Effect::ConsumerStats { request, .. } => other(request, 1),
            Effect::PartitionMetadata { request, .. } => other(request, 0),
            Effect::Lookup { request, .. } | Effect::GetSchema { request, .. } => other(request, 2),
            Effect::GetOrCreateSchema { .. } | Effect::TopicsOfNamespace { .. } => unreachable!(),
            Effect::Close(_) | Effect::FailPublish { .. } | Effect::CloseWatcher { .. } => return,
        };
        self.asks.push(ask);
    }

    fn reply(&mut self, command: &Command) {
        let request_id = match command {
            Command::Success(reply) => reply.request_id,
            Command::Error(reply) => reply.request_id,
            Command::ProducerSuccess(reply) if reply.producer_ready() => reply.request_id,
            Command::LookupResponse(reply) => reply.request_id,
            Command::PartitionedMetadataResponse(reply) => reply.request_id,
            Command::ConsumerStatsResponse(reply) => reply.request_id,
            Command::GetLastMessageIdResponse(reply) => reply.request_id,
            Command::GetSchemaResponse(reply) => reply.request_id,
            Command::AckResponse(reply) => reply.request_id.unwrap(),
            Command::WatchTopicListSuccess(reply) => reply.request_id,
            _ => return,
        };
        let replies = self.replies.entry(request_id).or_default();
        *replies += 1;
        assert!(*replies == 1, "request {request_id} has a second reply: {command:?}");
    }

    /// The broker answers everything that is left.
    fn answer_all(&mut self) {
        for _ in 0..2 {
            for at in 0..self.asks.len() {
                self.answer(self.asks[at], 2);
                self.take();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn replies_and_closes_come_once(steps in prop::collection::vec(step(), 0..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.answer_all();
        if !world.session.is_closed() {
            prop_assert!(world.replies.values().all(|replies| *replies == 1), "{:?}", world.replies);
            prop_assert_eq!((world.session.in_flight, world.session.requests.len()), (0, 0));
        }
        world.session.close();
        world.take();
        for life in world.producers.values().chain(world.consumers.values()) {
            prop_assert_eq!(life.closes, u32::from(!life.reported), "{:?}", life);
        }
        let said: u32 = world.replies.values().sum();
        world.answer_all();
        prop_assert_eq!(world.replies.values().sum::<u32>(), said);
    }
}
