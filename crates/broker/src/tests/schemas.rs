//! Schemas of topics, and who may use them.

use std::time::Duration;

use geminga_env::{Mailbox, mailbox};
use geminga_model::EntryId;
use geminga_records::{SchemaInfo, SchemaLocator};
use geminga_schema::{Bearer, Incompatible, Schema, SchemaType, version_bytes};
use geminga_session::{ProducerSpec, Refusal, SubscribeSpec};
use geminga_topic::{ConnectionHandle, ConnectionItem, OutboxGauge, Outboxes, PeerInfo};
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_wire::proto::{ProducerAccessMode, schema::Type};
use geminga_wire::{ServerError, proto};

use super::*;

fn avro(name: &str) -> Schema {
    let data = format!(r#"{{"type":"record","name":"{name}","fields":[]}}"#);
    Schema::new(SchemaType::Avro, data.into_bytes(), vec![]).unwrap()
}

pub(super) async fn register(broker: &Broker, topic: &TopicName, name: &str) -> Result<i64, AdminError> {
    broker.register_schema(topic, avro(name), Bearer::Writer).await
}

async fn ledgers(broker: &Broker) -> usize {
    let paths = paths_below(broker, &["/ledgers"]).await;
    paths.iter().filter(|path| path.contains("/L") && !path.contains("idgen")).count()
}

#[tokio::test(start_paused = true)]
async fn racing_producers_get_one_version() {
    let env = Env::simulated(1);
    let bookies = MemoryBookies::new(1);
    let broker = broker_on(env.clone(), memory(env.clock), bookies.clone(), Limits::default()).await;
    let (a, partition) = (topic("a"), topic("a-partition-3"));
    bookies.hold_adds(true);
    let release = async {
        // All have found that there is none, and are writing.
        while ledgers(&broker).await < 3 {
            tokio::task::yield_now().await;
        }
        bookies.hold_adds(false);
    };
    let racing = (register(&broker, &a, "R"), register(&broker, &a, "R"), register(&broker, &partition, "R"));
    let (one, two, three, ()) = tokio::join!(racing.0, racing.1, racing.2, release);
    assert_eq!((one, two, three), (Ok(0), Ok(0), Ok(0)));
    assert_eq!(broker.schemas(&partition).await.unwrap().len(), 1);
    // What lost the race is deleted again.
    assert_eq!(ledgers(&broker).await, 1);
    let b = topic("b");
    let different = tokio::join!(register(&broker, &b, "R"), register(&broker, &b, "S"));
    let refused = Err(AdminError::IncompatibleSchema(Incompatible::NotCompared(SchemaType::Avro)));
    assert!(different == (Ok(0), refused.clone()) || different == (refused, Ok(0)), "{different:?}");
}

#[tokio::test(start_paused = true)]
async fn stored_as_pulsar_does() {
    let broker = broker().await;
    register(&broker, &topic("a b"), "R").await.unwrap();
    let node = broker.metadata().get("/schemas/t/n/a+b").await.unwrap().unwrap();
    let locator = SchemaLocator::decode(&node.value).unwrap();
    assert_eq!((&locator.index[..], locator.info.version), (&[locator.info.clone()][..], 0));
    assert_eq!((&locator.info.hash, locator.info.position.entry), (&avro("R").hash(), EntryId(0)));
    let (metadata, _) = broker.ledgers().ledgers.get(locator.info.position.ledger).await.unwrap();
    let custom: Vec<(&str, &[u8])> = metadata.custom.iter().map(|(key, value)| (key.as_str(), &value[..])).collect();
    assert!(custom.contains(&("component", b"schema")) && custom.contains(&("pulsar/schemaId", b"t/n/a+b")));
    let reader = broker.ledgers().ledgers.reader(locator.info.position.ledger, metadata);
    let entry = &reader.read(EntryId(0), EntryId(0), 0).await.unwrap()[0];
    let entry = geminga_records::SchemaEntry::decode(&entry.payload).unwrap();
    assert_eq!((entry.index[0].version, entry.index[0].position), (0, Position::new(-1, -1)));
    let info = SchemaInfo::decode(&entry.schema_data).unwrap();
    assert_eq!((info.schema_id.as_str(), info.kind, info.deleted), ("t/n/a+b", 5, false));
}

#[tokio::test(start_paused = true)]
async fn versions_go_on_after_a_deletion_and_anew_after_a_forced_one() {
    let broker = broker().await;
    let a = topic("a");
    assert_eq!(broker.delete_schema(&a, false).await, Err(AdminError::SchemaNotFound));
    assert_eq!(broker.delete_schema(&a, true).await, Err(AdminError::SchemaNotFound));
    register(&broker, &a, "R").await.unwrap();
    assert_eq!(broker.delete_schema(&a, false).await, Ok(1));
    assert_eq!(broker.delete_schema(&a, false).await, Err(AdminError::SchemaDeleted));
    assert_eq!(broker.schema(&a, Some(0)).await, Err(AdminError::SchemaNotFound));
    assert_eq!(register(&broker, &a, "R").await, Ok(2));
    assert_eq!(broker.schema(&a, None).await.unwrap().version, 2);
    assert_eq!(ledgers(&broker).await, 3);
    assert_eq!(broker.delete_schema(&a, true).await, Ok(2));
    assert_eq!(ledgers(&broker).await, 0);
    assert_eq!(register(&broker, &a, "S").await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_topic_takes_its_schema_along() {
    let broker = broker().await;
    broker.create_topic(&topic("a"), vec![]).await.unwrap();
    broker.create_partitioned_topic(&topic("p"), 2, Map::new()).await.unwrap();
    for local in ["a", "p", "no topic"] {
        register(&broker, &topic(local), "R").await.unwrap();
    }
    broker.delete_topic(&topic("p-partition-1"), false).await.unwrap();
    assert!(broker.schema(&topic("p"), None).await.is_ok());
    broker.delete_topic(&topic("a"), false).await.unwrap();
    broker.delete_partitioned_topic(&topic("p"), false).await.unwrap();
    assert_eq!(broker.delete_topic(&topic("no topic"), true).await, Err(AdminError::TopicNotFound(topic("no topic"))));
    assert_eq!(broker.schema(&topic("a"), None).await, Err(AdminError::SchemaNotFound));
    assert_eq!(broker.schema(&topic("p"), None).await, Err(AdminError::SchemaNotFound));
    assert!(broker.schema(&topic("no topic"), None).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_schema_that_no_bookie_takes_is_refused_in_time() {
    let env = Env::simulated(1);
    let bookies = MemoryBookies::new(1);
    let broker = broker_on(env.clone(), memory(env.clock), bookies.clone(), Limits::default()).await;
    bookies.hold_adds(true);
    let started = env.clock.now();
    let error = register(&broker, &topic("a"), "R").await.unwrap_err();
    assert!(matches!(error, AdminError::Metadata(_) | AdminError::ManagedLedger(_)), "{error}");
    assert_eq!(env.clock.now().since(started), Duration::from_secs(30));
    bookies.hold_adds(false);
    assert_eq!(register(&broker, &topic("a"), "R").await, Ok(0));
}

fn wire(kind: Type, name: &str) -> Option<proto::Schema> {
    let schema_data = match kind {
        Type::Avro | Type::Json => avro(name).data().to_vec().into(),
        _ => Default::default(),
    };
    Some(proto::Schema { name: "n".into(), schema_data, r#type: kind as i32, properties: vec![] })
}

fn writer(schema: Option<proto::Schema>) -> ProducerSpec {
    ProducerSpec {
        name: None,
        user_provided_name: false,
        epoch: 0,
        access_mode: ProducerAccessMode::Shared,
        topic_epoch: None,
        encrypted: false,
        metadata: vec![],
        schema,
        initial_subscription: None,
    }
}

fn reader(schema: Option<proto::Schema>) -> SubscribeSpec {
    SubscribeSpec {
        subscription: "s".into(),
        sub_type: SubType::Shared,
        consumer_name: String::new(),
        priority_level: 0,
        durable: true,
        start: None,
        start_rollback: Duration::ZERO,
        initial_position: InitialPosition::Latest,
        read_compacted: false,
        replicate_state: false,
        force_topic_creation: true,
        key_shared: None,
        metadata: vec![],
        subscription_properties: vec![],
        schema,
        epoch: None,
    }
}

fn connection() -> (ConnectionHandle, geminga_env::Inbox<ConnectionItem>) {
    let (items, inbox): (Mailbox<ConnectionItem>, _) = mailbox();
    (ConnectionHandle::new(1, PeerInfo::default(), items, OutboxGauge::new(1 << 20, Outboxes::new(8 << 20))), inbox)
}

/// Keys of producers and consumers are made by sessions only.
fn keys() -> (geminga_session::ProducerKey, geminga_session::ConsumerKey) {
    use geminga_session::{Effect, Session};
    use geminga_wire::Command;
    let mut session = Session::new(Arc::new(SessionConfig::default()), Default::default());
    let connect =
        proto::CommandConnect { client_version: "test".into(), protocol_version: Some(21), ..Default::default() };
    let subscribe =
        proto::CommandSubscribe { topic: "t".into(), subscription: "s".into(), request_id: 2, ..Default::default() };
    let produce = proto::CommandProducer { topic: "t".into(), request_id: 1, ..Default::default() };
    for command in [Command::from(connect), produce.into(), subscribe.into()] {
        session.handle_command(Default::default(), command, Default::default());
    }
    let mut effects = Vec::new();
    session.take_effects(&mut effects);
    let (mut producer_key, mut consumer_key) = (None, None);
    for effect in effects {
        match effect {
            Effect::OpenProducer { producer, .. } => producer_key = Some(producer),
            Effect::Subscribe { consumer, .. } => consumer_key = Some(consumer),
            _ => {}
        }
    }
    (producer_key.unwrap(), consumer_key.unwrap())
}

fn incompatible<T: std::fmt::Debug>(result: Result<T, Refusal>, words: &str) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.error, ServerError::IncompatibleSchema, "{refusal:?}");
    assert!(refusal.message.contains(words), "{refusal:?}");
}

#[tokio::test(start_paused = true)]
async fn producers() {
    let broker = broker().await;
    let a = topic("a");
    let version = async |schema| broker.admit_producer(&a, &writer(schema)).await.map(|(_, version)| version);
    assert_eq!(version(None).await, Ok(Default::default()));
    assert_eq!(version(wire(Type::None, "")).await, Ok(Default::default()));
    assert_eq!(broker.schema(&a, None).await, Err(AdminError::SchemaNotFound));
    assert_eq!(version(wire(Type::Avro, "R")).await, Ok(version_bytes(0)));
    assert_eq!(version(wire(Type::Avro, "R")).await, Ok(version_bytes(0)));
    // One that says nothing may still write.
    assert_eq!(version(None).await, Ok(Default::default()));
    incompatible(version(wire(Type::Avro, "S")).await, "does not compare");
    incompatible(version(wire(Type::String, "")).await, "exists schema type AVRO, new schema type STRING");
    incompatible(version(Some(proto::Schema { r#type: 99, ..Default::default() })).await, "Unknown schema type");
}

#[tokio::test(start_paused = true)]
async fn consumers() {
    let broker = broker().await;
    let admit = async |local: &str, schema| broker.admit_consumer(&topic(local), &reader(schema)).await;
    // The first to use a topic gives it its schema.
    admit("a", wire(Type::Json, "R")).await.unwrap();
    assert_eq!(broker.schema(&topic("a"), None).await.unwrap().version, 0);
    admit("a", wire(Type::Json, "R")).await.unwrap();
    admit("a", None).await.unwrap();
    admit("a", wire(Type::AutoConsume, "")).await.unwrap();
    incompatible(admit("a", wire(Type::Json, "S")).await, "does not compare");
    incompatible(admit("a", wire(Type::Avro, "R")).await, "exists schema type JSON");

    // Whoever takes any schema does not stand in its way; others do, as do producers.
    let (producer, consumer) = keys();
    for (local, held, admitted) in
        [("any", wire(Type::AutoConsume, ""), true), ("bytes", None, false), ("text", wire(Type::None, ""), false)]
    {
        let (to, mut inbox) = connection();
        admit(local, held.clone()).await.unwrap().subscribe(consumer, to, Box::new(reader(held)));
        inbox.wait().await;
        let result = admit(local, wire(Type::Json, "R")).await;
        if admitted { drop(result.unwrap()) } else { incompatible(result, "active topic with empty(BYTES) schema") }
    }
    let (to, mut inbox) = connection();
    let (open, version) = broker.admit_producer(&topic("written"), &writer(None)).await.unwrap();
    open.open_producer(producer, to.clone(), Box::new(writer(None)), version);
    inbox.wait().await;
    incompatible(admit("written", wire(Type::Json, "R")).await, "active topic");
    // After it left, and wrote nothing, the topic is as new.
    open.close_producer(producer, to);
    inbox.wait().await;
    admit("written", wire(Type::Json, "R")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests() {
    let broker = broker().await;
    let a = topic("a");
    let avro = wire(Type::Avro, "R").unwrap();
    let refused = broker.create_schema(&a, &avro).await.unwrap_err();
    assert_eq!(refused.error, ServerError::TopicNotFound);
    let none = broker.find_schema(&a, None).await.unwrap_err();
    assert_eq!((none.error, none.message.as_str()), (ServerError::TopicNotFound, "Topic not found or no-schema"));
    broker.create_topic(&a, vec![]).await.unwrap();
    let nothing = wire(Type::None, "").unwrap();
    assert_eq!(broker.create_schema(&a, &nothing).await, Ok(Answer::SchemaVersion(Default::default())));
    assert_eq!(broker.create_schema(&a, &avro).await, Ok(Answer::SchemaVersion(version_bytes(0))));
    incompatible(broker.create_schema(&a, &wire(Type::Avro, "S").unwrap()).await, "does not compare");

    let schema = Box::new(proto::Schema { name: "t/n/a".into(), ..avro });
    let found = Ok(Answer::Schema { schema, version: version_bytes(0) });
    assert_eq!(broker.find_schema(&a, None).await, found);
    assert_eq!(broker.find_schema(&topic("a-partition-1"), Some(&version_bytes(0))).await, found);
    assert_eq!(broker.find_schema(&a, Some(&version_bytes(1))).await.unwrap_err().error, ServerError::TopicNotFound);
    incompatible(broker.find_schema(&a, Some(&[0])).await, "8 bytes");
}
