//! Producers.

use std::time::Duration;

use bytes::Bytes;
use geminga_model::{Position, UnixMillis};
use geminga_wire::{BatchMessage, Command, CompressionType, Entry, SendCommand, ServerError, decompress, read_batch};

use super::broker::{Broker, play};
use crate::*;

fn plain() -> ProducerOptions {
    ProducerOptions { batching: None, ..ProducerOptions::default() }
}

fn payload(entry: Bytes) -> Bytes {
    let entry = Entry::parse(entry).unwrap();
    entry.verify_checksum().unwrap();
    entry.payload()
}

#[tokio::test]
async fn receipts_come_back_with_ids() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let command = peer.producer().await;
        assert_eq!(
            (command.topic.as_str(), command.user_provided_producer_name()),
            ("persistent://public/default/t", false)
        );
        let (send, entry) = peer.send().await;
        assert_eq!(send, SendCommand::new(command.producer_id, 0));
        let parsed = Entry::parse(entry).unwrap();
        let metadata = parsed.metadata().unwrap();
        assert_eq!((metadata.producer_name.as_str(), metadata.sequence_id), ("made-up", 0));
        assert_eq!((metadata.partition_key(), metadata.event_time(), parsed.payload()), ("k", 9, "hello".into()));
        assert_eq!(metadata.properties[0].key, "a");
        peer.receipt(&send, 7).await;
        let (send, _) = peer.send().await;
        assert_eq!(send.sequence_id, 1);
        peer.receipt(&send, 8).await;
        peer.close_producer().await;
    };
    let client = async {
        let producer = broker.client().await.producer("t", plain()).await.unwrap();
        assert_eq!((producer.name(), producer.last_sequence_id()), ("made-up", -1));
        let message = Message {
            key: Some("k".into()),
            event_time: Some(UnixMillis(9)),
            properties: vec![("a".into(), "b".into())],
            ..Message::new("hello")
        };
        let id = producer.send(message).await.unwrap().wait().await.unwrap();
        assert_eq!(id, MessageId::of_entry(Position::new(1, 7), -1));
        producer.send(Message::new("more")).await.unwrap();
        producer.close().await.unwrap();
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn batches_are_compressed_as_a_whole() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        peer.producer().await;
        let (send, entry) = peer.send().await;
        assert_eq!((send.sequence_id, send.highest_sequence_id, send.num_messages), (0, 2, 3));
        let entry = Entry::parse(entry).unwrap();
        let metadata = entry.metadata().unwrap();
        assert_eq!((metadata.num_messages_in_batch, metadata.highest_sequence_id), (Some(3), Some(2)));
        let body = decompress(CompressionType::Zstd, entry.payload(), metadata.uncompressed_size(), 1000).unwrap();
        let messages: Vec<BatchMessage> = read_batch(body, 3).map(Result::unwrap).collect();
        assert_eq!(messages.iter().map(|message| message.payload.as_ref()).collect::<Vec<_>>(), [b"0", b"1", b"2"]);
        assert_eq!(messages[2].metadata.sequence_id, Some(2));
        peer.receipt(&send, 4).await;
        // A batch of one is a plain message.
        let (send, entry) = peer.send().await;
        assert_eq!(
            (send.sequence_id, Entry::parse(entry).unwrap().metadata().unwrap().num_messages_in_batch),
            (3, None)
        );
        peer.receipt(&send, 5).await;
        peer
    };
    let client = async {
        let batching = Batching { max_messages: 3, delay: Duration::from_secs(3600), ..Batching::default() };
        let options = ProducerOptions {
            batching: Some(batching),
            compression: CompressionType::Zstd,
            ..ProducerOptions::default()
        };
        let producer = broker.client().await.producer("t", options).await.unwrap();
        let mut receipts = Vec::new();
        for text in ["0", "1", "2"] {
            receipts.push(producer.send(Message::new(text)).await.unwrap());
        }
        for (index, receipt) in (0..).zip(&mut receipts) {
            let id = receipt.wait().await.unwrap();
            assert_eq!((id.position, id.batch_index, id.batch_size), (Position::new(1, 4), index, 3));
        }
        let mut last = producer.send(Message::new("3")).await.unwrap();
        producer.flush().await.unwrap();
        assert_eq!(last.wait().await.unwrap().batch_index, -1);
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn what_is_not_acknowledged_is_sent_again_in_order() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let first = peer.producer().await;
        for sequence_id in 0..4 {
            let (send, _) = peer.send().await;
            assert_eq!(send.sequence_id, sequence_id);
            if sequence_id == 0 {
                peer.receipt(&send, 0).await;
            }
        }
        drop(peer);
        let mut peer = broker.accept().await;
        let again = peer.producer().await;
        assert_eq!((again.producer_name(), again.user_provided_producer_name()), ("made-up", false));
        assert!(again.epoch() > first.epoch());
        for sequence_id in 1..4 {
            let (send, entry) = peer.send().await;
            assert_eq!((send.sequence_id, payload(entry)), (sequence_id, sequence_id.to_string().into()));
            peer.receipt(&send, sequence_id.cast_signed()).await;
        }
        // A receipt that was lost has the rest sent again as well.
        let (send, _) = peer.send().await;
        peer.receipt(&SendCommand { sequence_id: 9, ..send }, 9).await;
        peer.producer().await;
        let (again, _) = peer.send().await;
        assert_eq!(again, send);
        peer.receipt(&again, 4).await;
        peer
    };
    let client = async {
        let producer = broker.client().await.producer("t", plain()).await.unwrap();
        let mut receipts = Vec::new();
        for number in 0..4 {
            receipts.push(producer.send(Message::new(number.to_string())).await.unwrap());
        }
        for (entry, receipt) in (0..).zip(&mut receipts) {
            assert_eq!(receipt.wait().await.unwrap().position, Position::new(1, entry));
        }
        let mut last = producer.send(Message::new("4")).await.unwrap();
        assert_eq!(last.wait().await.unwrap().position, Position::new(1, 4));
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn a_closed_producer_goes_where_it_is_told() {
    let (first, second) = (Broker::start(), Broker::start());
    let script = async {
        let mut peer = first.accept().await;
        let command = peer.producer().await;
        let (send, _) = peer.send().await;
        peer.say(Command::close_producer(command.producer_id, Some(second.url()), None)).await;
        let mut other = second.accept().await;
        // There without a look-up.
        let Command::Producer(again) = other.any().await.0 else { panic!() };
        other.say(Command::producer_success(again.request_id, "made-up", -1, Bytes::new(), None, true)).await;
        let (again, _) = other.send().await;
        assert_eq!(again, send);
        other.receipt(&again, 3).await;
        (peer, other)
    };
    let client = async {
        let producer = first.client().await.producer("t", plain()).await.unwrap();
        producer.send(Message::new("a")).await.unwrap().wait().await.unwrap();
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn errors_of_single_messages_and_of_the_topic() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        let producer_id = peer.producer().await.producer_id;
        let (first, _) = peer.send().await;
        peer.say(Command::send_error(producer_id, first.sequence_id, ServerError::NotAllowedError, "too late")).await;
        let (second, _) = peer.send().await;
        peer.receipt(&second, 1).await;
        // Of what a broker calls an error of its own, the producer makes another attempt on the same connection.
        let (third, _) = peer.send().await;
        peer.say(Command::send_error(producer_id, third.sequence_id, ServerError::PersistenceError, "disk")).await;
        peer.producer().await;
        assert_eq!(peer.send().await.0, third);
        let ended = ServerError::TopicTerminatedError;
        peer.say(Command::send_error(producer_id, third.sequence_id, ended, "terminated")).await;
        peer
    };
    let client = async {
        let producer = broker.client().await.producer("t", plain()).await.unwrap();
        let error = producer.send(Message::new("a")).await.unwrap().wait().await.unwrap_err();
        assert!(error.to_string().contains("NotAllowedError: too late"), "{error}");
        producer.send(Message::new("b")).await.unwrap().wait().await.unwrap();
        let large = producer.send(Message::new(vec![0; 1000])).await.unwrap().wait().await.unwrap_err();
        assert!(matches!(large, ClientError::TooLarge { limit: 1000, .. }), "{large}");
        for _ in 0..2 {
            let error = producer.send(Message::new("c")).await.unwrap().wait().await.unwrap_err();
            assert!(error.to_string().contains("use another"), "{error}");
        }
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn a_message_times_out_and_its_late_receipt_is_ignored() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        peer.producer().await;
        let (first, _) = peer.send().await;
        let (second, _) = peer.send().await;
        peer.receipt(&first, 0).await;
        peer.receipt(&second, 1).await;
        peer
    };
    let client = async {
        let options = ProducerOptions { send_timeout: Some(Duration::from_millis(200)), ..plain() };
        let producer = broker.client().await.producer("t", options).await.unwrap();
        let error = producer.send(Message::new("a")).await.unwrap().wait().await.unwrap_err();
        assert!(error.to_string().contains("sent no receipt"), "{error}");
        let mut second = producer.send(Message::new("b")).await.unwrap();
        assert_eq!(second.wait().await.unwrap().position, Position::new(1, 1));
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn send_waits_when_too_much_is_under_way() {
    let broker = Broker::start();
    let script = async {
        let mut peer = broker.accept().await;
        peer.producer().await;
        let (first, _) = peer.send().await;
        // The second is not handed over before the first is settled.
        peer.say(Command::PING).await;
        assert!(matches!(peer.any().await.0, Command::Pong(_)));
        peer.receipt(&first, 0).await;
        let (second, _) = peer.send().await;
        peer.receipt(&second, 1).await;
        peer
    };
    let client = async {
        let producer =
            broker.client().await.producer("t", ProducerOptions { max_pending: 1, ..plain() }).await.unwrap();
        producer.send(Message::new("a")).await.unwrap();
        producer.send(Message::new("b")).await.unwrap().wait().await.unwrap();
    };
    play(Box::pin(script), Box::pin(client)).await;
}

#[tokio::test]
async fn keys_choose_partitions() {
    let broker = Broker { partitions: 4, ..Broker::start() };
    let script = async {
        let mut peer = broker.accept().await;
        let mut ids = Vec::new();
        for index in 0..4 {
            let command = peer.producer().await;
            assert_eq!(command.topic, format!("persistent://public/default/t-partition-{index}"));
            ids.push(command.producer_id);
        }
        for partition in [3, 0, 1, 2, 3, 0] {
            let (send, _) = peer.send().await;
            assert_eq!(send.producer_id, ids[partition]);
            peer.receipt(&send, 0).await;
        }
        peer
    };
    let client = async {
        let producer = broker.client().await.producer("t", plain()).await.unwrap();
        let keyed = Message { key: Some("key-1".into()), ..Message::new("a") };
        assert_eq!(producer.send(keyed).await.unwrap().wait().await.unwrap().partition, 3);
        for partition in [0, 1, 2, 3, 0] {
            let id = producer.send(Message::new("a")).await.unwrap().wait().await.unwrap();
            assert_eq!(id.partition, partition);
        }
    };
    play(Box::pin(script), Box::pin(client)).await;
}
