//! A connection: frames of arbitrary commands after CONNECT, and a broker that answers as the payloads behind them say.
//! Every request gets one final reply once the broker has answered, unless the connection is closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use geminga_model::{Instant, Position};
use geminga_session::{
    Answer, ConsumerKey, Effect, LookupAnswer, NewOwner, ProducerKey, ProducerOpened, Refusal, RequestKey, Session,
    SessionConfig, WatcherKey,
};
use geminga_wire::{Command, FrameSplitter, MessageId, ServerError, decode_command, proto};

/// The target.
pub fn run(data: &[u8]) {
    let mut world = World::connected();
    let mut stream = BytesMut::from(data);
    while let Ok(Some(frame)) = FrameSplitter::default().split(&mut stream) {
        let Ok(command) = decode_command(&frame.command) else { break };
        world.command(command, frame.payload);
        if world.session.is_closed() {
            break;
        }
    }
    world.end();
}

/// What the broker is asked.
#[derive(Clone, Copy)]
enum Ask {
    Open(ProducerKey),
    CloseProducer(ProducerKey),
    Subscribe(ConsumerKey),
    CloseConsumer(ConsumerKey),
    Watch(WatcherKey),
    Request(RequestKey),
}

struct World {
    session: Session,
    now: Instant,
    asks: Vec<Ask>,
    /// By id, which a client may use again: how many requests less how many final replies.
    open: BTreeMap<u64, i64>,
}

impl World {
    fn connected() -> World {
        let config = SessionConfig {
            max_producers: 3,
            max_consumers: 3,
            max_watchers: 2,
            max_requests: 8,
            ..Default::default()
        };
        let session = Session::new(Arc::new(config), Instant(0));
        let mut world = World { session, now: Instant(0), asks: Vec::new(), open: BTreeMap::new() };
        let connect = proto::CommandConnect { protocol_version: Some(21), ..Default::default() };
        world.command(connect.into(), Bytes::new());
        world
    }

    fn command(&mut self, command: Command, payload: Bytes) {
        if let Some(request) = request_of(&command) {
            *self.open.entry(request).or_default() += 1;
        }
        self.session.handle_command(self.now, command, payload.clone());
        self.take();
        // What the broker does meanwhile, a byte each.
        for byte in payload.iter().take(32) {
            if *byte == u8::MAX {
                self.now = self.now + Duration::from_secs(15);
                self.session.handle_timeout(self.now);
            } else if let Some(ask) = self.asks.get(usize::from(byte >> 3)).copied() {
                self.answer(ask, byte & 7);
            }
            self.take();
        }
    }

    fn take(&mut self) {
        let mut effects = Vec::new();
        self.session.take_effects(&mut effects);
        for effect in effects {
            let ask = match effect {
                Effect::Send(reply) => {
                    if let Some(request) = reply_of(&reply) {
                        let open = self.open.entry(request).or_default();
                        *open -= 1;
                        assert!(*open >= 0, "request {request} has one reply too many: {reply:?}");
                    }
                    continue;
                }
                Effect::OpenProducer { producer, .. } => Ask::Open(producer),
                Effect::CloseProducer { producer } => Ask::CloseProducer(producer),
                Effect::Subscribe { consumer, .. } => Ask::Subscribe(consumer),
                Effect::CloseConsumer { consumer } => Ask::CloseConsumer(consumer),
                Effect::WatchTopicList { watcher, .. } => Ask::Watch(watcher),
                Effect::Ack { request: Some(request), .. }
                | Effect::Seek { request, .. }
                | Effect::Unsubscribe { request, .. }
                | Effect::LastMessageId { request, .. }
                | Effect::ConsumerStats { request, .. }
                | Effect::Lookup { request, .. }
                | Effect::PartitionMetadata { request, .. }
                | Effect::TopicsOfNamespace { request, .. }
                | Effect::GetSchema { request, .. }
                | Effect::GetOrCreateSchema { request, .. } => Ask::Request(request),
                Effect::Ack { request: None, .. }
                | Effect::Close(_)
                | Effect::Publish { .. }
                | Effect::FailPublish { .. }
                | Effect::Flow { .. }
                | Effect::Redeliver { .. }
                | Effect::CloseWatcher { .. } => continue,
            };
            self.asks.push(ask);
        }
    }

    fn answer(&mut self, ask: Ask, how: u8) {
        let refusal = || Refusal::new(ServerError::UnknownError, "no");
        match ask {
            Ask::Open(key) if how == 7 => self.session.handle_producer_fenced(key),
            Ask::Open(key) if how == 6 => self.session.handle_producer_closed(self.now, key, NewOwner::default()),
            Ask::Open(key) => {
                let opened = ProducerOpened {
                    name: "p".into(),
                    last_sequence_id: -1,
                    schema_version: Bytes::new(),
                    topic_epoch: None,
                    ready: how != 1,
                };
                self.session.handle_producer_opened(key, if how == 0 { Err(refusal()) } else { Ok(opened) });
            }
            Ask::CloseProducer(key) => self.session.handle_producer_closed(self.now, key, NewOwner::default()),
            Ask::Subscribe(key) if how == 7 => self.session.handle_consumer_closed(key, NewOwner::default()),
            Ask::Subscribe(key) if how == 6 => self.session.handle_end_of_topic(key),
            Ask::Subscribe(key) if how == 5 => self.session.handle_active_consumer(key, true),
            Ask::Subscribe(key) => {
                self.session.handle_consumer_subscribed(key, if how == 0 { Err(refusal()) } else { Ok(()) });
            }
            Ask::CloseConsumer(key) => self.session.handle_consumer_closed(key, NewOwner::default()),
            Ask::Watch(key) if how == 7 => self.session.handle_topics_changed(key, vec![], vec![], String::new()),
            Ask::Watch(key) => {
                let started = if how == 0 { Err(refusal()) } else { Ok((vec![], String::new())) };
                self.session.handle_watch_started(key, started);
            }
            Ask::Request(key) => self.session.handle_answer(key, reply(how)),
        }
    }

    /// The broker answers what is left, and the socket goes.
    fn end(&mut self) {
        for at in 0.. {
            let Some(ask) = self.asks.get(at).copied() else { break };
            self.answer(ask, 2);
            self.take();
        }
        if !self.session.is_closed() {
            let waiting: Vec<_> = self.open.iter().filter(|(_, open)| **open != 0).collect();
            assert!(waiting.is_empty(), "requests without a reply: {waiting:?}");
        }
        self.session.close();
        self.take();
        assert!(self.session.is_closed() && self.session.deadline().is_none());
    }
}

fn reply(how: u8) -> Result<Answer, Refusal> {
    Ok(match how {
        0 => return Err(Refusal::new(ServerError::UnknownError, "no")),
        1 => Answer::Partitions(3),
        2 => Answer::Done,
        3 => Answer::SchemaVersion(Bytes::new()),
        4 => Answer::Topics { topics: vec![], hash: String::new(), filtered: true, changed: true },
        5 => Answer::LastMessageId { last: MessageId::of_entry(Position::new(1, 1)), mark_delete: None },
        6 => Answer::Lookup(LookupAnswer::Connect { url: None, url_tls: None, through_service_url: false }),
        _ => Answer::Schema { schema: Box::default(), version: Bytes::new() },
    })
}

/// The id of a request that wants a reply.
fn request_of(command: &Command) -> Option<u64> {
    Some(match command {
        Command::Producer(c) => c.request_id,
        Command::CloseProducer(c) => c.request_id,
        Command::Subscribe(c) => c.request_id,
        Command::CloseConsumer(c) => c.request_id,
        Command::Unsubscribe(c) => c.request_id,
        Command::Seek(c) => c.request_id,
        Command::GetLastMessageId(c) => c.request_id,
        Command::ConsumerStats(c) => c.request_id,
        Command::Lookup(c) => c.request_id,
        Command::PartitionedMetadata(c) => c.request_id,
        Command::GetTopicsOfNamespace(c) => c.request_id,
        Command::WatchTopicList(c) => c.request_id,
        Command::WatchTopicListClose(c) => c.request_id,
        Command::GetSchema(c) => c.request_id,
        Command::GetOrCreateSchema(c) => c.request_id,
        Command::NewTxn(c) => c.request_id,
        Command::AddPartitionToTxn(c) => c.request_id,
        Command::AddSubscriptionToTxn(c) => c.request_id,
        Command::EndTxn(c) => c.request_id,
        Command::EndTxnOnPartition(c) => c.request_id,
        Command::EndTxnOnSubscription(c) => c.request_id,
        Command::TcClientConnectRequest(c) => c.request_id,
        Command::Ack(c) => c.request_id?,
        _ => return None,
    })
}

/// The id of the request whose final reply this is.
fn reply_of(command: &Command) -> Option<u64> {
    Some(match command {
        Command::Success(c) => c.request_id,
        Command::Error(c) => c.request_id,
        Command::ProducerSuccess(c) if c.producer_ready() => c.request_id,
        Command::LookupResponse(c) => c.request_id,
        Command::PartitionedMetadataResponse(c) => c.request_id,
        Command::ConsumerStatsResponse(c) => c.request_id,
        Command::GetLastMessageIdResponse(c) => c.request_id,
        Command::GetTopicsOfNamespaceResponse(c) => c.request_id,
        Command::WatchTopicListSuccess(c) => c.request_id,
        Command::GetSchemaResponse(c) => c.request_id,
        Command::GetOrCreateSchemaResponse(c) => c.request_id,
        Command::NewTxnResponse(c) => c.request_id,
        Command::AddPartitionToTxnResponse(c) => c.request_id,
        Command::AddSubscriptionToTxnResponse(c) => c.request_id,
        Command::EndTxnResponse(c) => c.request_id,
        Command::EndTxnOnPartitionResponse(c) => c.request_id,
        Command::EndTxnOnSubscriptionResponse(c) => c.request_id,
        Command::TcClientConnectResponse(c) => c.request_id,
        Command::AckResponse(c) => c.request_id?,
        _ => return None,
    })
}
