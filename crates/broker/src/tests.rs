//! A broker on metadata and bookies in memory.

use std::sync::Arc;

use geminga_env::{Budget, Env, mailbox};
use geminga_ledger::LedgerClient;
use geminga_ledger::memory::MemoryBookies;
use geminga_managed_ledger::{ManagedLedgers, ManagedLedgersConfig, Rollover, TailCache, create_cursor, list_cursors};
use geminga_metastore::{Expected, MetadataStore, memory};
use geminga_model::{NamespaceName, Position, TopicName};
use geminga_records::{ClusterData, Policies, Quorum, TenantInfo, paths};
use geminga_session::{Answer, SessionConfig, WatcherKey};
use geminga_topic::{ConnectionHandle, ConnectionItem, OutboxGauge, Outboxes, PeerInfo, ProducerNames, TopicOptions};
use geminga_wire::proto::command_get_topics_of_namespace::Mode;
use serde_json::Map;

use super::*;
use crate::topic_watcher::TopicWatcher;

mod memory;
mod schemas;

async fn broker() -> Broker {
    let env = Env::simulated(1);
    let metadata = memory(env.clock);
    broker_on(env, metadata, MemoryBookies::new(1), Limits::default()).await
}

async fn broker_with(limits: Limits) -> Broker {
    let env = Env::simulated(1);
    let metadata = memory(env.clock);
    broker_on(env, metadata, MemoryBookies::new(1), limits).await
}

async fn broker_on(env: Env, metadata: MetadataStore, bookies: MemoryBookies, limits: Limits) -> Broker {
    metadata.put(&paths::cluster("standalone"), ClusterData::default().encode(), Expected::Absent).await.unwrap();
    let ledgers = ManagedLedgers::from(ManagedLedgersConfig {
        ledgers: LedgerClient::new(env.clone(), metadata.clone(), Arc::new(bookies)),
        metadata: metadata.clone(),
        env: env.clone(),
        quorum: Quorum::new(1, 1, 1).unwrap(),
        rollover: Rollover::default(),
        cache: TailCache::new(1 << 20),
    });
    let topics = TopicOptions {
        ledgers,
        producer_names: Arc::new(ProducerNames::new("standalone-0".into())),
        max_unacked_per_consumer: 50_000,
        read_ahead: Budget::new("read-ahead", 8 << 20),
    };
    let options = BrokerOptions {
        session: SessionConfig::default(),
        topics,
        cluster: "standalone".into(),
        service_url: "pulsar://localhost:6650".into(),
        web_service_url: "http://localhost:8080".into(),
        through_service_url: true,
        limits,
        memory: Memory::new(4 << 20, 4 << 20),
    };
    let broker = Broker::new(env, metadata, options);
    let info = TenantInfo { allowed_clusters: vec!["standalone".into()], ..TenantInfo::default() };
    broker.create_tenant("t", &info).await.unwrap();
    broker.create_namespace(&namespace(), Policies::default()).await.unwrap();
    broker
}

fn namespace() -> NamespaceName {
    "t/n".parse().unwrap()
}

fn topic(local: &str) -> TopicName {
    format!("persistent://t/n/{local}").parse().unwrap()
}

async fn paths_below(broker: &Broker, roots: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut left: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
    while let Some(path) = left.pop() {
        let children = broker.metadata().children(&path).await.unwrap();
        left.extend(children.iter().map(|child| format!("{path}/{child}")));
        found.push(path);
    }
    found
}

#[tokio::test(start_paused = true)]
async fn topic_lists_of_patterns() {
    let broker = broker().await;
    broker.create_topic(&topic("plain"), vec![]).await.unwrap();
    broker.create_partitioned_topic(&topic("parts"), 2, Map::new()).await.unwrap();
    broker.metadata().put(&paths::managed_ledger(&topic("__change_events")), "", Expected::Absent).await.unwrap();
    let list = async |mode, pattern, hash| broker.topic_list(&namespace(), mode, pattern, hash).await.unwrap();
    let Answer::Topics { topics, hash, filtered, changed } = list(Mode::All, None, None).await else { panic!() };
    let all = ["parts-partition-0", "parts-partition-1", "plain"].map(|local| topic(local).to_string());
    assert_eq!((&topics[..], filtered, changed), (&all[..], false, true));
    let same = list(Mode::Persistent, None, Some(&hash)).await;
    assert_eq!(same, Answer::Topics { topics: vec![], hash: hash.clone(), filtered: false, changed: false });
    let Answer::Topics { topics, filtered, .. } = list(Mode::All, Some("t/n/parts"), None).await else { panic!() };
    assert_eq!((topics.len(), filtered), (2, true));
    let none = list(Mode::NonPersistent, None, None).await;
    let empty = Answer::Topics { topics: vec![], hash: "00000000".into(), filtered: false, changed: true };
    assert_eq!(none, empty);
    let nowhere = broker.topic_list(&"t/other".parse().unwrap(), Mode::All, None, None).await.unwrap();
    assert_eq!(nowhere, empty);
}

#[tokio::test(start_paused = true)]
async fn new_partitions_have_the_subscriptions_of_the_old_ones() {
    let broker = broker().await;
    broker.create_partitioned_topic(&topic("p"), 1, Map::new()).await.unwrap();
    create_cursor(broker.ledgers(), &topic("p-partition-0"), "s", Position::EARLIEST, &[]).await.unwrap();
    create_cursor(broker.ledgers(), &topic("p-partition-0"), "pulsar.dedup", Position::EARLIEST, &[]).await.unwrap();
    broker.update_partitions(&topic("p"), 3).await.unwrap();
    assert_eq!(broker.partitions(&topic("p"), false).await.unwrap().partitions, 3);
    assert_eq!(list_cursors(broker.ledgers(), &topic("p-partition-2")).await.unwrap(), ["s"]);
    // Asking again changes nothing.
    broker.update_partitions(&topic("p"), 3).await.unwrap();
    let fewer = broker.update_partitions(&topic("p"), 2).await;
    assert_eq!(fewer, Err(AdminError::FewerPartitions { topic: topic("p"), has: 3, wants: 2 }));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_closed_and_nothing_is_opened_meanwhile() {
    let broker = broker().await;
    let open = broker.topic(&topic("a"), true).unwrap();
    // It is being opened, so somebody wants it.
    let opening = broker.delete_topic(&topic("a"), false).await;
    assert_eq!(opening, Err(AdminError::TopicOpening(topic("a"))));
    while broker.explain_topic(&topic("a")).await.unwrap().state.starts_with("opening") {
        tokio::task::yield_now().await;
    }
    broker.delete_topic(&topic("a"), false).await.unwrap();
    assert!(open.is_gone() && broker.topics().is_empty());
    assert_eq!(broker.delete_topic(&topic("a"), false).await, Err(AdminError::TopicNotFound(topic("a"))));

    let deletion = broker.topics().begin_topic_deletion(&topic("p")).unwrap();
    assert!(broker.topic(&topic("p"), true).is_err() && broker.topic(&topic("p-partition-0"), true).is_err());
    assert!(matches!(broker.delete_topic(&topic("p"), true).await, Err(AdminError::BeingDeleted(_))));
    drop(deletion);
    let deletion = broker.topics().begin_namespace_deletion(&namespace()).unwrap();
    assert!(broker.topic(&topic("p"), true).is_err());
    drop(deletion);
    broker.topic(&topic("p"), true).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_namespace_and_its_tenant_leave_nothing_behind() {
    let broker = broker().await;
    broker.create_topic(&topic("a"), vec![("k".into(), "v".into())]).await.unwrap();
    broker.create_partitioned_topic(&topic("p"), 2, Map::new()).await.unwrap();
    create_cursor(broker.ledgers(), &topic("a"), "s", Position::EARLIEST, &[]).await.unwrap();
    for local in ["a", "p", "no topic"] {
        schemas::register(&broker, &topic(local), "R").await.unwrap();
    }
    assert_eq!(broker.delete_namespace(&namespace(), false).await, Err(AdminError::NamespaceNotEmpty));
    assert_eq!(broker.delete_tenant("t", false).await, Err(AdminError::TenantHasNamespaces));
    broker.delete_namespace(&namespace(), true).await.unwrap();
    let gone = Err(AdminError::NamespaceNotFound(namespace()));
    assert_eq!(broker.delete_namespace(&namespace(), true).await, gone);
    broker.delete_tenant("t", false).await.unwrap();
    let roots =
        ["/managed-ledgers", "/admin/policies", "/admin/local-policies", "/admin/partitioned-topics", "/schemas"];
    assert_eq!(paths_below(&broker, &roots).await.len(), roots.len());
}

#[tokio::test(start_paused = true)]
async fn a_watcher_tells_of_topics_that_match_once_it_is_read() {
    let broker = broker().await;
    broker.create_topic(&topic("a-1"), vec![]).await.unwrap();
    broker.create_topic(&topic("b"), vec![]).await.unwrap();
    let (items, mut inbox) = mailbox();
    let to = ConnectionHandle::new(1, PeerInfo::default(), items, OutboxGauge::new(1 << 20, Outboxes::new(8 << 20)));
    let watch =
        |pattern, hash| TopicWatcher::start(&broker, WatcherKey::new(1, 1), namespace(), pattern, hash, to.clone());
    let mut next = async || {
        let mut came = Vec::new();
        inbox.wait().await;
        inbox.take(&mut came);
        let local = |topics: Vec<String>| topics.iter().map(|t| t.rsplit('/').next().unwrap().to_owned()).collect();
        match (came.pop().unwrap(), came.len()) {
            (ConnectionItem::WatchStarted { result: Ok((topics, hash)), .. }, 0) => (local(topics), vec![], hash),
            (ConnectionItem::TopicsChanged { new, deleted, hash, .. }, 0) => (local(new), local(deleted), hash),
            (ConnectionItem::WatchStarted { result: Err(refusal), .. }, 0) => (vec![], vec![], refusal.message),
            other => panic!("{other:?}"),
        }
    };
    let watcher = watch("t/n/a.*", None);
    let (there, _, first_hash): (Vec<String>, Vec<String>, String) = next().await;
    assert_eq!(there, ["a-1"]);
    broker.create_topic(&topic("a-2"), vec![]).await.unwrap();
    assert_eq!(next().await.0, ["a-2"]);
    // Until that is written, what happens is summed up.
    broker.create_topic(&topic("a-3"), vec![]).await.unwrap();
    broker.create_topic(&topic("c"), vec![]).await.unwrap();
    create_cursor(broker.ledgers(), &topic("a-3"), "a-s", Position::EARLIEST, &[]).await.unwrap();
    for local in ["a-2", "a-3"] {
        broker.delete_topic(&topic(local), false).await.unwrap();
    }
    watcher.written();
    let (new, deleted, hash) = next().await;
    assert_eq!((new, deleted, &hash), (vec![], vec!["a-2".to_owned()], &first_hash));
    drop(watcher);
    // One that knows the topics already is told none.
    let again = watch("t/n/a.*", Some(hash.clone()));
    assert_eq!(next().await, (vec![], vec![], hash));
    drop(again);
    let unreadable = watch("t/n/(?!b)", None);
    assert!(next().await.2.contains("filter in the client"));
    unreadable.written();
}

#[tokio::test(start_paused = true)]
async fn topics_appear_as_the_configuration_says() {
    let plain = broker().await;
    assert_eq!(plain.partitions(&topic("new"), true).await.unwrap().partitions, 0);
    assert_eq!(plain.partitions(&topic("new"), false).await, Err(AdminError::TopicNotFound(topic("new"))));

    let off = broker_with(Limits { auto_creation: AutoCreation::Off, ..Limits::default() }).await;
    assert_eq!(off.partitions(&topic("new"), true).await, Err(AdminError::TopicNotFound(topic("new"))));
    off.create_topic(&topic("made"), Vec::new()).await.unwrap();
    assert_eq!(off.partitions(&topic("made"), true).await.unwrap().partitions, 0);
    assert_eq!(off.partitions(&topic("__change_events"), true).await.unwrap().partitions, 0);

    let partitioned = broker_with(Limits { auto_creation: AutoCreation::Partitioned(3), ..Limits::default() }).await;
    assert_eq!(partitioned.partitions(&topic("new"), true).await.unwrap().partitions, 3);
    assert_eq!(partitioned.partitions(&topic("new"), false).await.unwrap().partitions, 3);
    assert_eq!(partitioned.partitions(&topic("new-s-DLQ"), true).await.unwrap().partitions, 0);
    assert_eq!(partitioned.topics_of(&namespace(), false).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_numbers_of_tenants_namespaces_and_partitions_are_limited() {
    // The tenant and the namespace of these tests are there already.
    let limits = Limits { max_tenants: 2, max_namespaces_per_tenant: 2, max_partitions: 4, ..Limits::default() };
    let broker = broker_with(limits).await;
    let info = TenantInfo { allowed_clusters: vec!["standalone".into()], ..TenantInfo::default() };
    broker.create_tenant("u", &info).await.unwrap();
    assert_eq!(broker.create_tenant("v", &info).await, Err(AdminError::TooManyTenants));
    broker.create_namespace(&NamespaceName::new("t", "second").unwrap(), Policies::default()).await.unwrap();
    let third = broker.create_namespace(&NamespaceName::new("t", "third").unwrap(), Policies::default()).await;
    assert_eq!(third, Err(AdminError::TooManyNamespaces("t".into())));
    broker.create_partitioned_topic(&topic("four"), 4, Map::new()).await.unwrap();
    let five = broker.create_partitioned_topic(&topic("five"), 5, Map::new()).await;
    assert_eq!(five, Err(AdminError::PartitionCount(4)));
}
