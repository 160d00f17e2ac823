//! Every command in every state, and the rules that are worth a table of their own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_model::{Instant, Position};
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::command_subscribe::SubType;
use geminga_wire::proto::{self, ServerError};
use geminga_wire::{AckCommand, Command, MessageId, SendCommand};

use crate::*;

mod table;
use table::{out_of_place, table};

const T: Instant = Instant(1_000_000);

/// What the effects are, in a word each.
fn words(session: &mut Session) -> String {
    let mut effects = Vec::new();
    session.take_effects(&mut effects);
    let words: Vec<String> = effects.iter().map(word).collect();
    words.join(" ")
}

fn word(effect: &Effect) -> String {
    let failed = |name: &str, error: Option<ServerError>| match error {
        Some(error) => format!("{name}:{}", error.as_str_name()),
        None => name.to_owned(),
    };
    match effect {
        Effect::Send(Command::Error(error)) => failed("ERROR", Some(error.error())),
        Effect::Send(Command::LookupResponse(reply)) => failed("LOOKUP_RESPONSE", reply.error.map(|_| reply.error())),
        Effect::Send(Command::PartitionedMetadataResponse(reply)) => {
            failed("PARTITIONED_METADATA_RESPONSE", reply.error.map(|_| reply.error()))
        }
        Effect::Send(Command::ConsumerStatsResponse(reply)) => {
            failed("CONSUMER_STATS_RESPONSE", reply.error_code.map(|_| reply.error_code()))
        }
        Effect::Send(Command::GetSchemaResponse(reply)) => {
            failed("GET_SCHEMA_RESPONSE", reply.error_code.map(|_| reply.error_code()))
        }
        Effect::Send(Command::AckResponse(reply)) => failed("ACK_RESPONSE", reply.error.map(|_| reply.error())),
        Effect::Send(command) => command.command_type().as_str_name().to_owned(),
        other => format!("{other:?}").split([' ', '(']).next().unwrap().to_owned(),
    }
}

fn config() -> SessionConfig {
    SessionConfig { server_version: "Pulsar Server4.1.0".to_owned(), ..SessionConfig::default() }
}

fn connect(protocol_version: i32) -> Command {
    proto::CommandConnect {
        client_version: "test".into(),
        protocol_version: Some(protocol_version),
        auth_method_name: Some("nonsense".into()),
        ..Default::default()
    }
    .into()
}

fn producer(producer_id: u64, request_id: u64) -> Command {
    proto::CommandProducer { topic: "t".into(), producer_id, request_id, ..Default::default() }.into()
}

fn subscription(consumer_id: u64, request_id: u64) -> proto::CommandSubscribe {
    proto::CommandSubscribe {
        topic: "t".into(),
        subscription: "s".into(),
        sub_type: SubType::Shared.into(),
        consumer_id,
        request_id,
        ..Default::default()
    }
}

fn give(session: &mut Session, command: impl Into<Command>) -> String {
    session.handle_command(T, command.into(), Bytes::new());
    words(session)
}

fn connected_with(config: SessionConfig, version: i32) -> Session {
    let mut session = Session::new(Arc::new(config), T);
    assert_eq!(give(&mut session, connect(version)), "CONNECTED");
    session
}

fn connected() -> Session {
    connected_with(config(), 21)
}

fn effects(session: &mut Session) -> Vec<Effect> {
    let mut effects = Vec::new();
    session.take_effects(&mut effects);
    effects
}

/// Keys of what the last commands opened.
fn keys(effects: &[Effect]) -> (Option<ProducerKey>, Option<ConsumerKey>) {
    let mut found = (None, None);
    for effect in effects {
        match effect {
            Effect::OpenProducer { producer, .. } => found.0 = Some(*producer),
            Effect::Subscribe { consumer, .. } => found.1 = Some(*consumer),
            _ => {}
        }
    }
    found
}

fn opened(ready: bool) -> ProducerOpened {
    ProducerOpened { name: "p".into(), last_sequence_id: -1, schema_version: Bytes::new(), topic_epoch: None, ready }
}

/// Producer 1 and consumer 1 asked for.
fn pending() -> (Session, ProducerKey, ConsumerKey) {
    let mut session = connected();
    session.handle_command(T, producer(1, 101), Bytes::new());
    session.handle_command(T, subscription(1, 102).into(), Bytes::new());
    let (producer, consumer) = keys(&effects(&mut session));
    (session, producer.unwrap(), consumer.unwrap())
}

/// Producer 1 and consumer 1 open.
fn open() -> (Session, ProducerKey, ConsumerKey) {
    let (mut session, producer, consumer) = pending();
    session.handle_producer_opened(producer, Ok(opened(true)));
    session.handle_consumer_subscribed(consumer, Ok(()));
    assert_eq!(words(&mut session), "PRODUCER_SUCCESS SUCCESS");
    (session, producer, consumer)
}

fn closing() -> Session {
    let (mut session, ..) = open();
    assert_eq!(give(&mut session, close_producer(1)), "CloseProducer");
    assert_eq!(give(&mut session, close_consumer(1)), "CloseConsumer");
    session
}

fn close_producer(producer_id: u64) -> Command {
    proto::CommandCloseProducer { producer_id, request_id: 103, ..Default::default() }.into()
}

fn close_consumer(consumer_id: u64) -> Command {
    proto::CommandCloseConsumer { consumer_id, request_id: 104, ..Default::default() }.into()
}

fn ack(request_id: Option<u64>) -> AckCommand {
    let id = MessageId::of_entry(Position::new(3, 4));
    AckCommand { request_id, ..AckCommand::new(1, AckType::Individual, id) }
}

#[test]
fn every_command_in_every_state() {
    for (command, expected) in table() {
        let states = [connected(), pending().0, open().0, closing()];
        for (state, (mut session, expected)) in states.into_iter().zip(expected).enumerate() {
            // What is open at the end depends on the state alone.
            let expected = match (expected, state) {
                ("Close CloseProducer CloseConsumer", 0 | 3) => "Close",
                (expected, _) => expected,
            };
            assert_eq!(give(&mut session, command.clone()), expected, "{command:?} in state {state}");
            assert_eq!(session.is_closed(), expected.split(' ').next() == Some("Close"), "{command:?}");
        }
    }
}

#[test]
fn what_only_brokers_send_closes() {
    for command in out_of_place() {
        assert_eq!(give(&mut connected(), command.clone()), "Close", "{command:?}");
    }
}

#[test]
fn before_connect_and_after_the_end() {
    let commands = table().into_iter().map(|(command, _)| command).chain(out_of_place());
    for command in commands {
        let mut session = Session::new(Arc::new(config()), T);
        let expected = match command {
            Command::Connect(_) => "CONNECTED",
            Command::Ping(_) => "PONG",
            Command::Pong(_) => "",
            _ => "Close",
        };
        assert_eq!(give(&mut session, command.clone()), expected, "{command:?}");
        session.close();
        assert_eq!((give(&mut session, command), session.deadline()), (String::new(), None));
    }
}

#[test]
fn connected_says_what_the_broker_can() {
    for (version, spoken) in [(21, 21), (40, 21), (6, 6), (-3, 0)] {
        let mut session = Session::new(Arc::new(config()), T);
        assert_eq!(session.max_message_size(), 128 * 1024 - 10_240);
        session.handle_command(T, connect(version), Bytes::new());
        let Some(Effect::Send(Command::Connected(connected))) = effects(&mut session).pop() else {
            panic!("not CONNECTED")
        };
        assert_eq!(connected.server_version, "Pulsar Server4.1.0");
        assert_eq!((connected.protocol_version(), connected.max_message_size()), (spoken, 5 * 1024 * 1024));
        let flags = connected.feature_flags.unwrap();
        assert!(flags.supports_topic_watchers() && flags.supports_repl_dedup_by_lid_and_eid());
        assert!(!flags.supports_auth_refresh());
        let peer = session.peer().unwrap();
        assert_eq!((peer.protocol_version, peer.reads_checksums()), (spoken, spoken >= 11));
        assert_eq!(session.max_message_size(), 5 * 1024 * 1024);
    }
}

#[test]
fn keep_alive() {
    let config = config();
    let mut silent = Session::new(Arc::new(config.clone()), T);
    silent.handle_timeout(T);
    assert_eq!(words(&mut silent), "");
    silent.handle_timeout(silent.deadline().unwrap());
    assert_eq!(words(&mut silent), "Close");

    let tick = |session: &mut Session| {
        session.handle_timeout(session.deadline().unwrap());
        words(session)
    };
    let mut session = connected();
    assert_eq!(session.deadline(), Some(T + config.keep_alive));
    assert_eq!(tick(&mut session), "PING");
    // Any command is a sign of life.
    assert_eq!(give(&mut session, Command::PONG), "");
    assert_eq!(tick(&mut session), "PING");
    // While nothing is read, nothing can be heard.
    session.set_reading(T, false);
    assert_eq!(tick(&mut session), "PING");
    let resumed = T + Duration::from_secs(1000);
    session.set_reading(resumed, true);
    assert_eq!(session.deadline(), Some(resumed + config.keep_alive));
    assert_eq!((tick(&mut session), tick(&mut session)), ("PING".to_owned(), "Close".to_owned()));

    // Fact: version 0 has no PING.
    assert_eq!(tick(&mut connected_with(config, 0)), "");
}

#[test]
fn a_producer_that_waits_is_answered_twice() {
    let (mut session, producer, _) = pending();
    session.handle_producer_opened(producer, Ok(opened(false)));
    session.handle_producer_opened(producer, Ok(opened(true)));
    session.handle_producer_opened(producer, Ok(opened(true)));
    let said: Vec<_> = effects(&mut session)
        .into_iter()
        .map(|effect| match effect {
            Effect::Send(Command::ProducerSuccess(success)) => (success.request_id, success.producer_ready()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(said, [(101, false), (101, true)]);

    let (mut session, producer, _) = pending();
    session.handle_producer_opened(producer, Ok(opened(false)));
    session.handle_producer_opened(producer, Err(Refusal::new(ServerError::ProducerFenced, "fenced")));
    assert_eq!(words(&mut session), "PRODUCER_SUCCESS ERROR:ProducerFenced");
}

#[test]
fn sends_that_cross_a_close_are_dropped_for_a_while() {
    let send = |session: &mut Session, now| {
        session.handle_command(now, SendCommand::new(1, 5).into(), Bytes::new());
        words(session)
    };
    let (mut session, key, _) = open();
    session.handle_producer_closed(T, key, NewOwner::default());
    session.handle_producer_closed(T, key, NewOwner::default());
    assert_eq!(words(&mut session), "CLOSE_PRODUCER");
    assert_eq!(send(&mut session, T + Duration::from_secs(29)), "");
    assert_eq!(send(&mut session, T + Duration::from_secs(30)), "Close CloseConsumer");

    let (mut session, key, _) = open();
    session.handle_producer_fenced(key);
    assert_eq!(words(&mut session), "");
    assert_eq!(send(&mut session, T), "Close CloseConsumer");
}

#[test]
fn sends_are_read_as_the_protocol_means_them() {
    let (mut session, key, _) = open();
    let payload = Bytes::from_static(b"entry");
    for (send, highest, messages) in [
        (SendCommand::new(1, 5), None, 1),
        (SendCommand { highest_sequence_id: 9, num_messages: 5, ..SendCommand::new(1, 5) }, Some(9), 5),
        (SendCommand { highest_sequence_id: 4, num_messages: -5, ..SendCommand::new(1, 5) }, None, 1),
        (SendCommand { txnid_least_bits: Some(1), ..SendCommand::new(1, 5) }, None, 1),
    ] {
        session.handle_command(T, send.into(), payload.clone());
        let expected = Effect::Publish {
            producer: key,
            sequence_id: 5,
            highest_sequence_id: highest,
            messages,
            is_chunk: false,
            payload: payload.clone(),
        };
        assert_eq!(effects(&mut session), [expected]);
    }
    let txn = SendCommand { txnid_least_bits: Some(1), txnid_most_bits: Some(0), ..SendCommand::new(1, 5) };
    let shadow = SendCommand { message_id: Some(Position::new(1, 1)), ..SendCommand::new(1, 5) };
    for send in [txn, shadow] {
        session.handle_command(T, send.into(), Bytes::new());
        assert_eq!(words(&mut session), "FailPublish");
    }
    // A chunk of a C++ client is a little larger than the message size.
    session.handle_command(T, SendCommand::new(1, 5).into(), vec![0; 5 * 1024 * 1024 + 10].into());
    assert_eq!(words(&mut session), "Publish");
}

#[test]
fn a_seek_cuts_off_before_it_answers() {
    let seek =
        proto::CommandSeek { consumer_id: 1, request_id: 9, message_publish_time: Some(u64::MAX), message_id: None };
    for reported in [true, false] {
        let (mut session, _, consumer) = open();
        session.handle_command(T, seek.clone().into(), Bytes::new());
        let Some(Effect::Seek { request, target, .. }) = effects(&mut session).pop() else { panic!() };
        assert_eq!(target, SeekTarget::Time(geminga_model::UnixMillis(i64::MAX)));
        if reported {
            session.handle_consumer_closed(consumer, NewOwner::default());
        }
        session.handle_answer(request, Ok(Answer::Done));
        session.handle_consumer_closed(consumer, NewOwner::default());
        let expected = if reported { "CLOSE_CONSUMER SUCCESS" } else { "CloseConsumer CLOSE_CONSUMER SUCCESS" };
        assert_eq!(words(&mut session), expected);
        assert_eq!(give(&mut session, subscription(1, 10)), "Subscribe");
    }
}

#[test]
fn names_and_ranges_are_checked() {
    let base = || subscription(1, 1);
    let sticky = |ranges: &[(i32, i32)]| {
        let hash_ranges = ranges.iter().map(|(start, end)| proto::IntRange { start: *start, end: *end }).collect();
        let mode = proto::KeySharedMode::Sticky.into();
        let meta = proto::KeySharedMeta { key_shared_mode: mode, hash_ranges, allow_out_of_order_delivery: None };
        proto::CommandSubscribe { sub_type: SubType::KeyShared.into(), key_shared_meta: Some(meta), ..base() }
    };
    let wide = proto::KeyValue { key: "k".into(), value: "v".repeat(1024) };
    let compacted = proto::CommandSubscribe { read_compacted: Some(true), ..base() };
    let failover = proto::CommandSubscribe { sub_type: SubType::Failover.into(), ..compacted.clone() };
    for (command, expected) in [
        (proto::CommandSubscribe { subscription: " ".into(), ..base() }, "ERROR:ProducerBusy"),
        (proto::CommandSubscribe { subscription: "pulsar.dedup".into(), ..base() }, "ERROR:ProducerBusy"),
        (proto::CommandSubscribe { topic: "a/b".into(), ..base() }, "ERROR:InvalidTopicName"),
        (proto::CommandSubscribe { sub_type: 9, ..base() }, "ERROR:NotAllowedError"),
        (proto::CommandSubscribe { metadata: vec![wide], ..base() }, "ERROR:MetadataError"),
        (compacted, "ERROR:NotAllowedError"),
        (failover, "Subscribe"),
        (sticky(&[]), "ERROR:ConsumerAssignError"),
        (sticky(&[(5, 4)]), "ERROR:ConsumerAssignError"),
        (sticky(&[(-1, 4)]), "ERROR:ConsumerAssignError"),
        (sticky(&[(0, 65_536)]), "ERROR:ConsumerAssignError"),
        (sticky(&[(10, 20), (0, 10)]), "ERROR:ConsumerAssignError"),
        (sticky(&[(10, 20), (0, 9)]), "Subscribe"),
    ] {
        assert_eq!(give(&mut connected(), command.clone()), expected, "{command:?}");
    }
    let request_id = 1;
    let topic = String::from("x://a/b/c");
    let empty_version = proto::CommandGetSchema { topic: "t".into(), request_id, schema_version: Some(Bytes::new()) };
    for (command, expected) in [
        (
            proto::CommandLookupTopic { topic: topic.clone(), request_id, ..Default::default() }.into(),
            "LOOKUP_RESPONSE:InvalidTopicName",
        ),
        (
            proto::CommandPartitionedTopicMetadata { topic: topic.clone(), request_id, ..Default::default() }.into(),
            "PARTITIONED_METADATA_RESPONSE:InvalidTopicName",
        ),
        (
            Command::from(proto::CommandProducer { topic: topic.clone(), request_id, ..Default::default() }),
            "ERROR:InvalidTopicName",
        ),
        (
            proto::CommandGetSchema { topic, request_id, ..Default::default() }.into(),
            "GET_SCHEMA_RESPONSE:InvalidTopicName",
        ),
        (empty_version.into(), "GET_SCHEMA_RESPONSE:IncompatibleSchema"),
        (
            proto::CommandGetTopicsOfNamespace { namespace: "a".into(), request_id, ..Default::default() }.into(),
            "ERROR:InvalidTopicName",
        ),
    ] {
        assert_eq!(give(&mut connected(), command), expected);
    }
}

#[test]
fn limits_are_kept() {
    let config = SessionConfig { max_producers: 1, max_consumers: 1, max_watchers: 1, max_requests: 3, ..config() };
    let mut session = connected_with(config, 21);
    assert_eq!(give(&mut session, producer(1, 1)), "OpenProducer");
    assert_eq!(give(&mut session, producer(2, 2)), "ERROR:ProducerBusy");
    assert_eq!(give(&mut session, subscription(1, 3)), "Subscribe");
    assert_eq!(give(&mut session, subscription(2, 4)), "ERROR:ConsumerBusy");
    let watch = |watcher_id, pattern: &str| proto::CommandWatchTopicList {
        namespace: "a/b".into(),
        watcher_id,
        topics_pattern: pattern.into(),
        ..Default::default()
    };
    assert_eq!(give(&mut session, watch(1, &"x".repeat(51))), "ERROR:NotAllowedError");
    assert_eq!(give(&mut session, watch(1, "x.*")), "WatchTopicList");
    assert_eq!(give(&mut session, watch(1, "x.*")), "ERROR:ServiceNotReady");
    assert_eq!(give(&mut session, watch(2, "x.*")), "ERROR:NotAllowedError");
    let lookup = proto::CommandLookupTopic { topic: "t".into(), ..Default::default() };
    assert_eq!(give(&mut session, lookup), "LOOKUP_RESPONSE:TooManyRequests");

    let disabled = SessionConfig { topic_watchers: false, ..SessionConfig::default() };
    assert_eq!(give(&mut connected_with(disabled, 21), watch(1, "x")), "ERROR:NotAllowedError");
}

#[test]
fn a_watcher_is_told_of_changes_until_it_is_closed() {
    let watch = |request_id| proto::CommandWatchTopicList {
        namespace: "a/b".into(),
        request_id,
        watcher_id: 4,
        topics_pattern: ".*".into(),
        ..Default::default()
    };
    let mut session = connected();
    let mut started = Vec::new();
    for request_id in [1, 2] {
        session.handle_command(T, watch(request_id).into(), Bytes::new());
        let Some(Effect::WatchTopicList { watcher, .. }) = effects(&mut session).pop() else { panic!() };
        session.handle_topics_changed(watcher, vec!["t".into()], vec![], "early".into());
        session.handle_watch_started(watcher, Ok((vec![], "00000000".into())));
        assert_eq!(words(&mut session), "WATCH_TOPIC_LIST_SUCCESS");
        started.push(watcher);
    }
    for watcher in started {
        session.handle_topics_changed(watcher, vec!["t".into()], vec![], "hash".into());
    }
    assert_eq!(words(&mut session), "WATCH_TOPIC_UPDATE");
    assert_eq!(
        give(&mut session, proto::CommandWatchTopicListClose { request_id: 3, watcher_id: 4 }),
        "CloseWatcher SUCCESS"
    );
}

#[test]
fn versions_decide_what_is_said() {
    for (version, active, end, closed) in [
        (21, "ACTIVE_CONSUMER_CHANGE", "REACHED_END_OF_TOPIC", "CLOSE_CONSUMER"),
        (11, "", "REACHED_END_OF_TOPIC", "CLOSE_CONSUMER"),
        (8, "", "", "CLOSE_CONSUMER"),
        (4, "", "", "Close"),
    ] {
        let mut session = connected_with(config(), version);
        session.handle_command(T, subscription(1, 1).into(), Bytes::new());
        let consumer = keys(&effects(&mut session)).1.unwrap();
        session.handle_consumer_subscribed(consumer, Ok(()));
        assert_eq!(words(&mut session), "SUCCESS");
        session.handle_active_consumer(consumer, true);
        assert_eq!(words(&mut session), active);
        session.handle_end_of_topic(consumer);
        assert_eq!(words(&mut session), end);
        session.handle_consumer_closed(consumer, NewOwner::default());
        assert_eq!(words(&mut session), closed);
    }
}

#[test]
fn a_refused_connection_hears_why() {
    for mut session in [Session::new(Arc::new(config()), T), connected()] {
        session.refuse(ServerError::NotAllowedError, "too many connections");
        session.refuse(ServerError::NotAllowedError, "again");
        assert_eq!(words(&mut session), "ERROR:NotAllowedError Close");
    }
}

#[test]
fn a_cumulative_ack_names_one_message() {
    let (mut session, ..) = open();
    let mut two = AckCommand { ack_type: AckType::Cumulative, ..ack(Some(7)) };
    two.message_ids.push(MessageId::of_entry(Position::new(3, 5)));
    assert_eq!(give(&mut session, two.clone()), "ACK_RESPONSE:NotAllowedError");
    assert_eq!(give(&mut session, AckCommand { request_id: None, ..two }), "");
    let txn = AckCommand { txnid_least_bits: Some(0), txnid_most_bits: Some(0), ..ack(Some(8)) };
    assert_eq!(give(&mut session, txn), "ACK_RESPONSE:NotAllowedError");
}

/// Effects are moved several times on the way of each message.
#[test]
fn an_effect_is_small() {
    assert!(size_of::<Effect>() <= 192, "{} bytes", size_of::<Effect>());
}
