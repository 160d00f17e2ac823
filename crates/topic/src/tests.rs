//! The life of a topic. What it does for clients is tested with clients, in `server` and in `interop`.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use geminga_env::{Budget, Env, Inbox, mailbox, reply};
use geminga_ledger::LedgerClient;
use geminga_ledger::memory::MemoryBookies;
use geminga_managed_ledger::{ManagedLedgerError, ManagedLedgers, ManagedLedgersConfig, Rollover, TailCache};
use geminga_metastore::{Backend, MetadataStore, Request, memory};
use geminga_model::TopicName;
use geminga_records::{ManagedLedgerInfo, Quorum};
use geminga_session::{ConsumerKey, ProducerKey, ProducerSpec, SubscribeSpec};
use geminga_wire::proto::ProducerAccessMode;
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use parking_lot::Mutex;

use crate::{
    ConnectionHandle, ConnectionItem, OutboxGauge, Outboxes, PeerInfo, ProducerId, ProducerNames, Publish, TopicEnd,
    TopicHandle, TopicOptions, open_topic,
};

pub(crate) fn options(env: &Env, metadata: MetadataStore) -> TopicOptions {
    TopicOptions {
        ledgers: ManagedLedgers::from(ManagedLedgersConfig {
            env: env.clone(),
            ledgers: LedgerClient::new(env.clone(), metadata.clone(), Arc::new(MemoryBookies::new(1))),
            metadata,
            quorum: Quorum::new(1, 1, 1).unwrap(),
            rollover: Rollover::default(),
            cache: TailCache::new(1 << 20),
        }),
        producer_names: Arc::new(ProducerNames::new("test-0".into())),
        max_unacked_per_consumer: 100,
        read_ahead: Budget::new("read-ahead", 8 << 20),
    }
}

pub(crate) fn name() -> TopicName {
    "persistent://public/default/t".parse().unwrap()
}

/// Takes every request and answers none.
#[derive(Debug, Default)]
struct Silent(Mutex<Vec<Request>>);

impl Backend for Silent {
    fn submit(&self, request: Request) {
        self.0.lock().push(request);
    }

    fn url(&self) -> &'static str {
        "silent:"
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_cannot_open_in_time_answers_whoever_waits_and_is_gone() {
    let env = Env::simulated(1);
    let (ended, mut end) = reply();
    let store = MetadataStore::new(Arc::new(Silent::default()));
    let topic = open_topic(options(&env, store), name(), true, move |how| ended.send(how));
    let (done, mut closed) = reply();
    topic.close(done);
    let started = env.clock.now();
    assert_eq!(closed.wait().await, Ok(()));
    assert_eq!(env.clock.now().since(started).as_secs(), 60);
    assert!(matches!(end.wait().await, Ok(TopicEnd::Failed(ManagedLedgerError::Metadata(_)))));
    assert!(topic.is_gone());
}

#[tokio::test(start_paused = true)]
async fn a_topic_opens_explains_itself_and_closes() {
    let env = Env::simulated(1);
    let (ended, mut end) = reply();
    let topic = open_topic(options(&env, memory(env.clock)), name(), true, move |how| ended.send(how));
    let report = loop {
        let (ask, mut answer) = reply();
        topic.explain(ask);
        let report = answer.wait().await.unwrap();
        if report.state.starts_with("serving") {
            break report;
        }
    };
    assert_eq!((report.topic.as_str(), report.last_confirmed.as_str()), ("persistent://public/default/t", "-1:-1"));
    let (done, mut closed) = reply();
    topic.close(done);
    assert_eq!((closed.wait().await, end.wait().await), (Ok(()), Ok(TopicEnd::Closed)));
    // What comes too late is answered as well.
    let (done, mut again) = reply();
    topic.close(done);
    assert_eq!(again.wait().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_must_exist_and_does_not_is_not_made() {
    let env = Env::simulated(1);
    let (ended, mut end) = reply();
    let store = memory(env.clock);
    drop(open_topic(options(&env, store.clone()), name(), false, move |how| ended.send(how)));
    assert_eq!(end.wait().await, Ok(TopicEnd::Failed(ManagedLedgerError::NotFound)));
    assert_eq!(store.get("/managed-ledgers/public/default/persistent/t").await.unwrap(), None);
}

/// A connection of which the test is the owner.
struct Peer {
    handle: ConnectionHandle,
    inbox: Inbox<ConnectionItem>,
    seen: VecDeque<ConnectionItem>,
}

impl Peer {
    fn new(id: u64) -> Peer {
        let (items, inbox) = mailbox();
        let handle =
            ConnectionHandle::new(id, PeerInfo::default(), items, OutboxGauge::new(1 << 20, Outboxes::new(8 << 20)));
        Peer { handle, inbox, seen: VecDeque::new() }
    }

    /// The next item, in words.
    async fn next(&mut self) -> String {
        if self.seen.is_empty() {
            let mut came = Vec::new();
            self.inbox.wait().await;
            self.inbox.take(&mut came);
            self.seen.extend(came);
        }
        match self.seen.pop_front().unwrap() {
            ConnectionItem::ProducerOpened { producer, result: Ok((opened, _, id)) } => {
                let (ready, epoch) = (opened.ready, opened.topic_epoch);
                format!("opened {} ready {ready} epoch {epoch:?} as {}", producer.id(), id.0)
            }
            ConnectionItem::ProducerOpened { producer, result: Err(refusal) } => {
                format!("refused {} {:?}", producer.id(), refusal.error)
            }
            ConnectionItem::ProducerClosed(key) => format!("closed {}", key.id()),
            ConnectionItem::ProducerFenced(key) => format!("fenced {}", key.id()),
            ConnectionItem::Receipts(receipts) => {
                format!("receipts {:?}", receipts.iter().map(|r| (r.sequence_id, r.result.is_ok())).collect::<Vec<_>>())
            }
            ConnectionItem::ConsumerSubscribed { result: Ok(_), .. } => "subscribed".to_owned(),
            ConnectionItem::ConsumerSubscribed { result: Err(refusal), .. } => format!("busy {:?}", refusal.error),
            other => format!("{other:?}"),
        }
    }

    fn open(&self, topic: &TopicHandle, id: u64, access_mode: ProducerAccessMode, topic_epoch: Option<u64>) {
        let spec = ProducerSpec { access_mode, topic_epoch, ..producer() };
        topic.open_producer(ProducerKey::new(id, id), self.handle.clone(), Box::new(spec), Bytes::new());
    }
}

fn producer() -> ProducerSpec {
    ProducerSpec {
        name: None,
        user_provided_name: false,
        epoch: 0,
        access_mode: ProducerAccessMode::Shared,
        topic_epoch: None,
        encrypted: false,
        metadata: vec![],
        schema: None,
        initial_subscription: None,
    }
}

fn subscribe(sub_type: SubType) -> Box<SubscribeSpec> {
    Box::new(SubscribeSpec {
        subscription: "s".to_owned(),
        sub_type,
        consumer_name: String::new(),
        priority_level: 0,
        durable: true,
        start: None,
        start_rollback: std::time::Duration::ZERO,
        initial_position: InitialPosition::Earliest,
        read_compacted: false,
        replicate_state: false,
        force_topic_creation: true,
        key_shared: None,
        metadata: vec![],
        subscription_properties: vec![],
        schema: None,
        epoch: None,
    })
}

#[tokio::test(start_paused = true)]
async fn an_epoch_is_stored_before_a_producer_has_the_topic_for_itself() {
    use ProducerAccessMode::{Exclusive, ExclusiveWithFencing, Shared, WaitForExclusive};
    let env = Env::simulated(1);
    let store = memory(env.clock);
    let topic = open_topic(options(&env, store.clone()), name(), true, |_| {});
    let stored = async || {
        let node = store.get("/managed-ledgers/public/default/persistent/t").await.unwrap().unwrap();
        ManagedLedgerInfo::decode(&node.value).unwrap().property("pulsar.topic.epoch").map(str::to_owned)
    };
    let mut peer = Peer::new(1);
    peer.open(&topic, 1, Shared, None);
    assert_eq!(peer.next().await, "opened 1 ready true epoch None as 1");
    assert_eq!(stored().await, None);
    peer.open(&topic, 2, WaitForExclusive, None);
    assert_eq!(peer.next().await, "opened 2 ready false epoch None as 2");
    let entry = Bytes::from_static(b"not an entry");
    let publish = |id| {
        vec![Publish {
            producer: ProducerId(id),
            sequence_id: 7,
            highest_sequence_id: None,
            payload: Ok(entry.clone()),
        }]
    };
    // One that waits publishes nothing, and is not answered.
    topic.publish(publish(2));
    topic.close_producer(ProducerKey::new(1, 1), peer.handle.clone());
    assert_eq!(peer.next().await, "closed 1");
    assert_eq!(peer.next().await, "opened 2 ready true epoch Some(0) as 2");
    assert_eq!(stored().await.as_deref(), Some("0"));
    peer.open(&topic, 3, ExclusiveWithFencing, None);
    assert_eq!(peer.next().await, "fenced 2");
    // What the fenced one had on its way is dropped.
    topic.publish(publish(2));
    assert_eq!(peer.next().await, "opened 3 ready true epoch Some(1) as 3");
    peer.open(&topic, 4, Exclusive, Some(0));
    assert_eq!(peer.next().await, "refused 4 ProducerFenced");
    topic.publish(publish(3));
    assert_eq!(peer.next().await, "receipts [(7, false)]");

    let (done, mut closed) = reply();
    topic.close(done);
    closed.wait().await.unwrap();
    assert_eq!(peer.next().await, "closed 3");
    let topic = open_topic(options(&env, store.clone()), name(), true, |_| {});
    peer.open(&topic, 5, Exclusive, Some(0));
    assert_eq!(peer.next().await, "refused 5 ProducerFenced");
    peer.open(&topic, 6, Exclusive, Some(1));
    assert_eq!(peer.next().await, "opened 6 ready true epoch Some(1) as 2");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ended_meanwhile_holds_nothing() {
    let env = Env::simulated(1);
    let topic = open_topic(options(&env, memory(env.clock)), name(), true, |_| {});
    let gone = Peer::new(1);
    gone.open(&topic, 1, ProducerAccessMode::Exclusive, None);
    topic.subscribe(ConsumerKey::new(1, 1), gone.handle.clone(), subscribe(SubType::Exclusive));
    drop(gone);
    let mut peer = Peer::new(2);
    peer.open(&topic, 2, ProducerAccessMode::WaitForExclusive, None);
    assert_eq!(peer.next().await, "opened 2 ready false epoch None as 2");
    assert_eq!(peer.next().await, "opened 2 ready true epoch Some(1) as 2");
    topic.subscribe(ConsumerKey::new(2, 2), peer.handle.clone(), subscribe(SubType::Exclusive));
    assert_eq!(peer.next().await, "subscribed");
}

#[tokio::test(start_paused = true)]
async fn a_producer_finds_its_initial_subscription_stored() {
    let env = Env::simulated(1);
    let store = memory(env.clock);
    let topic = open_topic(options(&env, store.clone()), name(), true, |_| {});
    let mut peer = Peer::new(1);
    for id in 1..3 {
        let spec = ProducerSpec { initial_subscription: Some("s".to_owned()), ..producer() };
        topic.open_producer(ProducerKey::new(id, id), peer.handle.clone(), Box::new(spec), Bytes::new());
        assert_eq!(peer.next().await, format!("opened {id} ready true epoch None as {id}"));
        assert!(store.get("/managed-ledgers/public/default/persistent/t/s").await.unwrap().is_some());
    }
    topic.subscribe(ConsumerKey::new(1, 1), peer.handle.clone(), subscribe(SubType::Shared));
    assert_eq!(peer.next().await, "subscribed");
}
