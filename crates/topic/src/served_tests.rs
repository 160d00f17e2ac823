//! What a topic does for clients and operators at once: counts, terminating, moving subscriptions. A session makes the keys
//! of producers and consumers, as for a connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_env::{Budget, Env, Inbox, mailbox, reply};
use geminga_metastore::memory;
use geminga_model::Position;
use geminga_session::{Effect, Refusal, SeekTarget, Session, SessionConfig};
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_wire::proto::{self, MessageMetadata};
use geminga_wire::{Command, MessageId, ServerError, encode_entry};

use super::tests::{name, options};
use super::*;

struct Client {
    session: Session,
    handle: ConnectionHandle,
    inbox: Inbox<ConnectionItem>,
    seen: Vec<ConnectionItem>,
    env: Env,
}

impl Client {
    fn new(env: &Env) -> Client {
        let (outbox, inbox) = mailbox();
        let now = env.clock.now();
        let handle =
            ConnectionHandle::new(1, PeerInfo::default(), outbox, OutboxGauge::new(1 << 20, Outboxes::new(8 << 20)));
        let mut session = Session::new(Arc::new(SessionConfig::default()), now);
        let connect = proto::CommandConnect { protocol_version: Some(19), ..Default::default() };
        session.handle_command(now, connect.into(), Bytes::new());
        Client { session, handle, inbox, seen: Vec::new(), env: env.clone() }
    }

    fn effect(&mut self, command: Command) -> Effect {
        self.session.handle_command(self.env.clock.now(), command, Bytes::new());
        let mut effects = Vec::new();
        self.session.take_effects(&mut effects);
        effects.pop().unwrap()
    }

    fn open_producer(&mut self, topic: &TopicHandle, id: u64) {
        let topic_name = topic.name().to_string();
        let command =
            proto::CommandProducer { topic: topic_name, producer_id: id, request_id: id, ..Default::default() };
        let Effect::OpenProducer { producer, spec, .. } = self.effect(command.into()) else { panic!() };
        topic.open_producer(producer, self.handle.clone(), spec, Bytes::new());
    }

    fn subscribe(&mut self, topic: &TopicHandle, id: u64) {
        let command = proto::CommandSubscribe {
            topic: topic.name().to_string(),
            subscription: "s".into(),
            sub_type: SubType::Exclusive as i32,
            initial_position: Some(InitialPosition::Earliest as i32),
            consumer_id: id,
            request_id: 10 + id,
            ..Default::default()
        };
        let Effect::Subscribe { consumer, spec, .. } = self.effect(command.into()) else { panic!() };
        topic.subscribe(consumer, self.handle.clone(), spec);
    }

    /// The next item for which `is`; others wait for their turn.
    async fn wait(&mut self, is: impl Fn(&ConnectionItem) -> bool) -> ConnectionItem {
        loop {
            if let Some(at) = self.seen.iter().position(&is) {
                return self.seen.remove(at);
            }
            let late = self.env.clock.now() + Duration::from_secs(30);
            tokio::select! {
                biased;
                () = self.inbox.wait() => {}
                () = self.env.clock.sleep_until(late) => panic!("it does not come; there is {:?}", self.seen),
            }
            let mut more = Vec::new();
            self.inbox.take(&mut more);
            self.seen.append(&mut more);
        }
    }

    async fn producer(&mut self) -> Result<ProducerId, Refusal> {
        let item = self.wait(|item| matches!(item, ConnectionItem::ProducerOpened { .. })).await;
        let ConnectionItem::ProducerOpened { result, .. } = item else { panic!() };
        result.map(|(_, _, id)| id)
    }

    async fn consumer(&mut self) -> ConsumerHandle {
        let item = self.wait(|item| matches!(item, ConnectionItem::ConsumerSubscribed { .. })).await;
        let ConnectionItem::ConsumerSubscribed { result, .. } = item else { panic!() };
        result.unwrap()
    }

    async fn receipt(&mut self) -> Result<Position, (ServerError, String)> {
        let item = self.wait(|item| matches!(item, ConnectionItem::Receipts(_))).await;
        let ConnectionItem::Receipts(mut receipts) = item else { panic!() };
        receipts.remove(0).result
    }

    async fn delivered(&mut self, count: usize) -> Vec<Position> {
        let mut positions = Vec::new();
        while positions.len() < count {
            let item = self.wait(|item| matches!(item, ConnectionItem::Deliver(..))).await;
            let ConnectionItem::Deliver(_, entries) = item else { panic!() };
            positions.extend(entries.into_iter().map(|entry| entry.position));
        }
        positions
    }
}

fn publish(topic: &TopicHandle, producer: ProducerId, sequence_id: u64) {
    let metadata = MessageMetadata { producer_name: "p".into(), sequence_id, publish_time: 1, ..Default::default() };
    let payload = Ok(encode_entry(&metadata, b"hello"));
    topic.publish(vec![Publish { producer, sequence_id, highest_sequence_id: None, payload }]);
}

async fn ordered<T: Send + 'static>(
    topic: &TopicHandle,
    order: impl FnOnce(geminga_env::Reply<Result<T, Refusal>>) -> TopicOrder,
) -> Result<T, Refusal> {
    let (to, mut from) = reply();
    topic.order(order(to));
    from.wait().await.unwrap()
}

async fn stats(topic: &TopicHandle) -> geminga_admin_model::TopicStats {
    let (to, mut from) = reply();
    topic.stats(to);
    from.wait().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_is_counted() {
    let env = Env::simulated(1);
    let topic = open_topic(options(&env, memory(env.clock)), name(), true, drop);
    let mut client = Client::new(&env);
    client.subscribe(&topic, 1);
    let consumer = client.consumer().await;
    client.open_producer(&topic, 1);
    let producer = client.producer().await.unwrap();
    consumer.push(ConsumerItem::Flow(100));
    for i in 0..6 {
        publish(&topic, producer, i);
        client.receipt().await.unwrap();
    }
    let positions = client.delivered(6).await;
    let message_ids = vec![MessageId::of_entry(positions[1])];
    consumer.push(ConsumerItem::Ack { ack_type: AckType::Cumulative, message_ids, request: None });
    let told = stats(&topic).await;
    assert_eq!((told.msg_in_counter, told.msg_out_counter, told.msg_rate_in), (6, 6, 0.0));
    assert_eq!(told.storage_size, told.bytes_in_counter);
    let subscription = &told.subscriptions["s"];
    assert_eq!((subscription.msg_backlog, subscription.kind.as_deref()), (Some(4), Some("Exclusive")));
    assert_eq!((subscription.consumers[0].available_permits, subscription.consumers[0].msg_out_counter), (94, 6));
    assert_eq!(told.publishers[0].producer_id, 1);

    // A minute later the rates are known; another one later nothing is left of them. No task was woken meanwhile.
    env.clock.sleep_until(env.clock.now() + Duration::from_secs(60)).await;
    let told = topic.measure(env.clock.now());
    assert_eq!((told.rate_in, told.subscriptions[0].rate_out, told.subscriptions[0].backlog), (0.1, 0.1, 4));
    assert_eq!(told.latencies.ranges.iter().sum::<u32>(), 6);
    env.clock.sleep_until(env.clock.now() + Duration::from_secs(60)).await;
    assert_eq!((topic.measure(env.clock.now()).rate_in, topic.measure(env.clock.now()).in_messages), (0.0, 6));
}

#[tokio::test(start_paused = true)]
async fn a_terminated_topic_refuses_producers_and_tells_consumers_when_they_have_everything() {
    let env = Env::simulated(1);
    let options = options(&env, memory(env.clock));
    let topic = open_topic(options.clone(), name(), true, drop);
    let mut client = Client::new(&env);
    client.open_producer(&topic, 1);
    let producer = client.producer().await.unwrap();
    publish(&topic, producer, 0);
    let end = client.receipt().await.unwrap();
    let (to, mut terminated) = reply();
    topic.order(TopicOrder::Terminate(to));
    publish(&topic, producer, 1);
    assert_eq!(client.receipt().await.unwrap_err().0, ServerError::TopicTerminatedError);
    assert_eq!(terminated.wait().await, Ok(Ok(end)));
    client.wait(|item| matches!(item, ConnectionItem::ProducerClosed(_))).await;
    assert_eq!(ordered(&topic, TopicOrder::Terminate).await, Ok(end));
    let (ask, mut report) = reply();
    topic.explain(ask);
    assert!(report.wait().await.unwrap().state.contains("terminated"));

    // It stays so when it is opened anew.
    let (done, mut closed) = reply();
    topic.close(done);
    closed.wait().await.unwrap();
    let topic = open_topic(options, name(), false, drop);
    client.open_producer(&topic, 2);
    assert_eq!(client.producer().await.unwrap_err().error, ServerError::TopicTerminatedError);
    client.subscribe(&topic, 1);
    let consumer = client.consumer().await;
    consumer.push(ConsumerItem::Flow(10));
    assert_eq!(client.delivered(1).await, [end]);
    let message_ids = vec![MessageId::of_entry(end)];
    consumer.push(ConsumerItem::Ack { ack_type: AckType::Individual, message_ids, request: None });
    client.wait(|item| matches!(item, ConnectionItem::EndOfTopic(_))).await;
}

#[tokio::test(start_paused = true)]
async fn operators_cut_consumers_off_only_where_they_must() {
    let env = Env::simulated(1);
    let topic = open_topic(options(&env, memory(env.clock)), name(), true, drop);
    let mut client = Client::new(&env);
    client.open_producer(&topic, 1);
    let producer = client.producer().await.unwrap();
    for i in 0..4 {
        publish(&topic, producer, i);
        client.receipt().await.unwrap();
    }
    let of = |order| TopicOrder::Subscription("s".to_owned(), order);
    let refused = ordered(&topic, |done| of(SubscriptionOrder::SkipAll(done))).await.unwrap_err();
    assert_eq!(refused.error, ServerError::SubscriptionNotFound);
    client.subscribe(&topic, 1);
    let consumer = client.consumer().await;
    // What is skipped is not read: the consumer gets what comes behind it.
    ordered(&topic, |done| of(SubscriptionOrder::Skip(3, done))).await.unwrap();
    consumer.push(ConsumerItem::Flow(10));
    let last = client.delivered(1).await[0];
    let nth = ordered(&topic, |to| of(SubscriptionOrder::Nth(1, to))).await;
    assert_eq!(nth, Ok(Some(last)));
    let refused = ordered(&topic, |done| of(SubscriptionOrder::Delete(false, done))).await.unwrap_err();
    assert_eq!(refused.error, ServerError::ConsumerBusy);
    let start = SeekTarget::Message(MessageId::of_entry(Position::EARLIEST));
    ordered(&topic, |done| of(SubscriptionOrder::Reset(start, done))).await.unwrap();
    client.wait(|item| matches!(item, ConnectionItem::ConsumerClosed(_))).await;
    assert_eq!(stats(&topic).await.subscriptions["s"].msg_backlog, Some(4));
    ordered(&topic, |done| of(SubscriptionOrder::Delete(false, done))).await.unwrap();
    assert_eq!(ordered(&topic, TopicOrder::Subscriptions).await, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_for_which_something_is_read_is_not_said_to_have_everything() {
    let env = Env::simulated(1);
    let mut options = options(&env, memory(env.clock));
    let topic = open_topic(options.clone(), name(), true, drop);
    let mut client = Client::new(&env);
    client.open_producer(&topic, 1);
    let producer = client.producer().await.unwrap();
    publish(&topic, producer, 0);
    let stored = client.receipt().await.unwrap();
    let (done, mut closed) = reply();
    topic.close(done);
    closed.wait().await.unwrap();

    // Opened anew it has nothing in memory, and others hold all that may be read ahead.
    options.read_ahead = Budget::new("read-ahead", 1 << 20);
    let others = options.read_ahead.try_acquire(1 << 20).unwrap();
    let topic = open_topic(options, name(), false, drop);
    client.subscribe(&topic, 1);
    let consumer = client.consumer().await;
    let why = async || {
        let (ask, mut report) = reply();
        topic.explain(ask);
        let report = report.wait().await.unwrap();
        report.subscriptions[0].consumers[0].why.clone()
    };
    assert!(why().await.contains("has no permits"), "{}", why().await);
    consumer.push(ConsumerItem::Flow(10));
    let reading = format!("reading from {stored} on, for ");
    assert!(why().await.starts_with(&reading), "{}", why().await);
    drop(others);
    assert_eq!(client.delivered(1).await, [stored]);
    assert_eq!(why().await, format!("nothing new since {stored}"));
}
