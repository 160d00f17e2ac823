//! Consumers and readers.

use std::time::Duration;

use bytes::Bytes;
use geminga_model::Position;
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_wire::proto::{MessageMetadata, SingleMessageMetadata};
use geminga_wire::{BatchBuilder, Command, encode_entry};

use super::broker::{Broker, Peer, play};
use crate::*;

fn metadata() -> MessageMetadata {
    MessageMetadata { producer_name: "p".into(), publish_time: 1, ..Default::default() }
}

fn plain(text: &str) -> Bytes {
    encode_entry(&metadata(), text.as_bytes())
}

fn batch(texts: &[&str]) -> Bytes {
    let mut batch = BatchBuilder::new();
    for text in texts {
        batch.push(SingleMessageMetadata::default(), text.as_bytes());
    }
    let count = i32::try_from(texts.len()).unwrap();
    encode_entry(&MessageMetadata { num_messages_in_batch: Some(count), ..metadata() }, &batch.finish())
}

fn shared(queue_size: u32) -> ConsumerOptions {
    ConsumerOptions {
        sub_type: SubType::Shared,
        queue_size,
        negative_ack_delay: Duration::ZERO,
        ..ConsumerOptions::new("s")
    }
}

fn id(entry: i64) -> MessageId {
    MessageId::of_entry(Position::new(1, entry), -1)
}

async fn take(consumer: &mut Consumer, expected: &[&str]) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for text in expected {
        let message = consumer.receive().await.unwrap();
        assert_eq!(message.payload, *text);
        ids.push(message.id);
    }
    ids
}

async fn close_consumer(peer: &mut Peer) {
    let Command::CloseConsumer(close) = peer.next().await.0 else { panic!("not CLOSE_CONSUMER") };
    peer.say(Command::success(close.request_id)).await;
}

#[tokio::test]
async fn permits_follow_what_is_taken() {
    let broker = Broker::start();
    let (told, mut asked_for_more) = geminga_env::reply();
    let script = async {
        let mut peer = broker.accept().await;
        let (subscribe, permits) = peer.subscribe().await;
        assert_eq!((subscribe.subscription.as_str(), subscribe.durable(), permits), ("s", true, 4));
        assert_eq!(subscribe.initial_position(), InitialPosition::Earliest);
        let consumer_id = subscribe.consumer_id;
        peer.message(consumer_id, 0, None, &plain("a")).await;
        peer.message(consumer_id, 1, None, &batch(&["b", "c"])).await;
        // How these are grouped is a matter of time.
        let (mut permits, mut acked) = (0, Vec::new());
        while (permits, acked.len()) != (2, 2) {
            match peer.next().await.0 {
                Command::Flow(flow) => permits += flow.message_permits,
                Command::Ack(ack) => acked.extend(ack.message_ids.iter().map(|id| id.position.entry.0)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(acked, [0, 1]);
        peer.message(consumer_id, 2, None, &plain("d")).await;
        assert_eq!(peer.flow().await, 2);
        told.send(());
        close_consumer(&mut peer).await;
    };
    let client = async {
        let options = ConsumerOptions { initial_position: InitialPosition::Earliest, ..shared(4) };
        let client = broker.client().await;
        let mut consumer = client.subscribe("t", options).await.unwrap();
        let ids = take(&mut consumer, &["a", "b"]).await;
        consumer.ack(&ids[0]).unwrap();
        consumer.ack(&ids[1]).unwrap();
        let last = take(&mut consumer, &["c"]).await;
        assert_eq!((last[0].batch_index, last[0].batch_size), (1, 2));
        consumer.ack(&last[0]).unwrap();
        take(&mut consumer, &["d"]).await;
        asked_for_more.wait().await.unwrap();
        let clock = client.env().clock;
        // Nothing more is there, and a deadline ends the wait.
        assert_eq!(consumer.receive_before(clock.now() + Duration::from_millis(5)).await, Ok(None));
        consumer.close().await.unwrap();
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn acknowledgements_with_receipts() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let consumer_id = peer.subscribe().await.0.consumer_id;
        peer.message(consumer_id, 0, None, &plain("a")).await;
        let (entries, kind, request) = peer.ack().await;
        assert_eq!((entries, kind), (vec![0], AckType::Cumulative));
        peer.say(Command::ack_response(consumer_id, request.unwrap(), None)).await;
        let (.., request) = peer.ack().await;
        let failure = Some((geminga_wire::ServerError::ConsumerNotFound, "gone".to_owned()));
        peer.say(Command::ack_response(consumer_id, request.unwrap(), failure)).await;
        peer
    };
    let client = async {
        let options = ConsumerOptions::new("s");
        let mut consumer = broker.client().await.subscribe("t", options).await.unwrap();
        let ids = take(&mut consumer, &["a"]).await;
        consumer.ack_with_receipt(&ids[0], true).await.unwrap();
        let error = consumer.ack_with_receipt(&ids[0], false).await.unwrap_err();
        assert!(error.to_string().contains("ConsumerNotFound: gone"), "{error}");
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn what_is_refused_is_delivered_again() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let consumer_id = peer.subscribe().await.0.consumer_id;
        peer.message(consumer_id, 3, None, &plain("a")).await;
        let Command::RedeliverUnacknowledgedMessages(redeliver) = peer.next().await.0 else { panic!() };
        assert_eq!(redeliver.message_ids.iter().map(|id| id.entry_id).collect::<Vec<_>>(), [3]);
        assert_eq!(redeliver.consumer_epoch, None);
        peer.message(consumer_id, 3, None, &plain("a")).await;
        assert_eq!(peer.flow().await, 2);
        // An ordered one starts over, and what was on its way does not count.
        let (subscribe, _) = peer.subscribe().await;
        assert_eq!(subscribe.consumer_epoch, Some(0));
        let consumer_id = subscribe.consumer_id;
        for (entry, text) in [(0, "x"), (1, "y")] {
            peer.message(consumer_id, entry, Some(0), &plain(text)).await;
        }
        let Command::RedeliverUnacknowledgedMessages(redeliver) = peer.next().await.0 else { panic!() };
        assert_eq!((redeliver.message_ids.len(), redeliver.consumer_epoch), (0, Some(1)));
        peer.message(consumer_id, 2, Some(0), &plain("z")).await;
        for (entry, text) in [(0, "x"), (1, "y"), (2, "z")] {
            peer.message(consumer_id, entry, Some(1), &plain(text)).await;
        }
        peer
    };
    let client = async {
        let client = broker.client().await;
        let mut consumer = client.subscribe("t", shared(4)).await.unwrap();
        let ids = take(&mut consumer, &["a"]).await;
        consumer.negative_ack(&ids[0]).unwrap();
        take(&mut consumer, &["a"]).await;
        let ordered = ConsumerOptions { sub_type: SubType::Failover, ..shared(100) };
        let mut other = client.subscribe("u", ordered).await.unwrap();
        let ids = take(&mut other, &["x"]).await;
        other.negative_ack(&ids[0]).unwrap();
        // Whether "y" comes once more before the epoch changes is a matter of time.
        let mut next = other.receive().await.unwrap();
        if next.payload == "y" {
            next = other.receive().await.unwrap();
        }
        assert_eq!(next.payload, "x");
        take(&mut other, &["y", "z"]).await;
        (consumer, other)
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn a_lost_connection_starts_over() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let consumer_id = peer.subscribe().await.0.consumer_id;
        peer.message(consumer_id, 0, None, &plain("a")).await;
        peer.message(consumer_id, 1, None, &plain("b")).await;
        assert_eq!(peer.ack().await.0, [0]);
        drop(peer);
        let mut peer = broker.accept().await;
        let (subscribe, permits) = peer.subscribe().await;
        assert_eq!(permits, 100);
        peer.message(subscribe.consumer_id, 1, None, &plain("b again")).await;
        // The broker closes it, and it comes back.
        peer.say(Command::close_consumer(subscribe.consumer_id, None, None)).await;
        let (subscribe, _) = peer.subscribe().await;
        peer.message(subscribe.consumer_id, 2, None, &plain("c")).await;
        let Command::Unsubscribe(unsubscribe) = peer.next().await.0 else { panic!() };
        peer.say(Command::success(unsubscribe.request_id)).await;
        peer
    };
    let client = async {
        let mut consumer = broker.client().await.subscribe("t", shared(100)).await.unwrap();
        let ids = take(&mut consumer, &["a"]).await;
        consumer.ack(&ids[0]).unwrap();
        let mut texts = Vec::new();
        while texts.last().is_none_or(|last| last != "c") {
            texts.push(consumer.receive().await.unwrap().payload);
        }
        assert!(texts.ends_with(&["c".into()]) && texts.len() <= 3, "{texts:?}");
        consumer.unsubscribe(false).await.unwrap();
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn a_seek_subscribes_again_after_its_answer() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let consumer_id = peer.subscribe().await.0.consumer_id;
        peer.message(consumer_id, 8, None, &plain("old")).await;
        peer.message(consumer_id, 9, None, &plain("stale")).await;
        let Command::Seek(seek) = peer.next().await.0 else { panic!() };
        assert_eq!(seek.message_id.unwrap().entry_id, 3);
        peer.say(Command::close_consumer(consumer_id, None, None)).await;
        // Nothing may be asked before the answer.
        peer.say(Command::PING).await;
        assert!(matches!(peer.any().await.0, Command::Pong(_)));
        peer.say(Command::success(seek.request_id)).await;
        let (subscribe, _) = peer.subscribe().await;
        peer.message(subscribe.consumer_id, 3, None, &plain("new")).await;
        let Command::Seek(seek) = peer.next().await.0 else { panic!() };
        peer.say(Command::error(seek.request_id, geminga_wire::ServerError::NotAllowedError, "not here")).await;
        peer
    };
    let client = async {
        let mut consumer = broker.client().await.subscribe("t", ConsumerOptions::new("s")).await.unwrap();
        take(&mut consumer, &["old"]).await;
        consumer.seek(SeekTo::Message(id(3))).await.unwrap();
        take(&mut consumer, &["new"]).await;
        let error = consumer.seek(SeekTo::Time(geminga_model::UnixMillis(5))).await.unwrap_err();
        assert!(error.to_string().contains("not here"), "{error}");
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn a_reader_starts_within_a_batch_and_goes_on_where_it_was() {
    let broker = Broker::start();
    let (again, mut connected_again) = geminga_env::reply();
    let script = async {
        let mut peer = broker.accept().await;
        let (subscribe, _) = peer.subscribe().await;
        assert!(!subscribe.durable());
        let start = subscribe.start_message_id.unwrap();
        assert_eq!((start.entry_id, start.batch_index()), (5, 1));
        peer.message(subscribe.consumer_id, 5, None, &batch(&["a", "b", "c"])).await;
        // "b" was read: what came before is done with.
        assert_eq!(peer.ack().await, (vec![4], AckType::Cumulative, None));
        drop(peer);
        let mut peer = broker.accept().await;
        let (subscribe, _) = peer.subscribe().await;
        let start = subscribe.start_message_id.unwrap();
        assert_eq!((start.entry_id, start.batch_index()), (5, 1));
        peer.message(subscribe.consumer_id, 5, None, &batch(&["a", "b", "c"])).await;
        peer.message(subscribe.consumer_id, 6, None, &plain("d")).await;
        again.send(());
        for entry in [6, 7] {
            let (Command::GetLastMessageId(get), _) = next_but_acks(&mut peer).await else { panic!() };
            peer.say(Command::last_message_id(get.request_id, Position::new(1, entry).into(), None)).await;
        }
        close_after_acks(&mut peer).await;
    };
    let client = async {
        let start = MessageId { batch_index: 1, batch_size: 3, ..id(5) };
        let mut reader = broker.client().await.reader("t", ReaderOptions::new(Start::At(start))).await.unwrap();
        assert_eq!(reader.read().await.unwrap().payload, "b");
        connected_again.wait().await.unwrap();
        for text in ["c", "d"] {
            assert_eq!(reader.read().await.unwrap().payload, text);
        }
        assert_eq!(reader.has_message_available().await, Ok(false));
        assert_eq!(reader.has_message_available().await, Ok(true));
        reader.close().await.unwrap();
    };
    play(Box::pin(script), Box::pin(client)).await;
}

async fn next_but_acks(peer: &mut Peer) -> (Command, Bytes) {
    loop {
        let (command, payload) = peer.next().await;
        if !matches!(command, Command::Ack(_)) {
            return (command, payload);
        }
    }
}

async fn close_after_acks(peer: &mut Peer) {
    let (Command::CloseConsumer(close), _) = next_but_acks(peer).await else { panic!() };
    peer.say(Command::success(close.request_id)).await;
}
