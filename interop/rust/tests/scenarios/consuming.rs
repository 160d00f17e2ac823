//! Where reading starts: readers and seeks.

use futures::TryStreamExt;
use pulsar::TokioExecutor;
use pulsar::reader::Reader;

use crate::server::{DEADLINE, client, from_earliest, next, numbered, send, shared, take, topic};

#[tokio::test]
async fn a_reader_starts_at_the_earliest_message_and_knows_the_last() {
    let (client, topic) = (client().await, topic("reader"));
    let texts = numbered("m", 20);
    send(&client, &topic, texts.clone()).await;
    let mut reader: Reader<String, TokioExecutor> =
        client.reader().with_topic(&topic).with_options(from_earliest()).into_reader().await.expect("reader");
    let mut read = Vec::new();
    let mut last = None;
    while read.len() < texts.len() {
        let message = tokio::time::timeout(DEADLINE, reader.try_next()).await.expect("a message in time");
        let message = message.expect("no error").expect("the reader goes on");
        read.push(message.deserialize().expect("a text"));
        last = Some((message.message_id().ledger_id, message.message_id().entry_id));
    }
    assert_eq!(read, texts);
    let newest = reader.get_last_message_id().await.expect("the last id");
    assert_eq!(Some((newest.ledger_id, newest.entry_id)), last);
}

#[tokio::test]
async fn seek_by_message_id_and_by_time_delivers_again() {
    let (client, topic) = (client().await, topic("seek"));
    let texts = numbered("m", 20);
    send(&client, &topic, texts.clone()).await;
    let mut consumer = shared::<String>(&client, &topic, from_earliest()).await;
    let mut messages = Vec::new();
    for _ in &texts {
        let message = next(&mut consumer).await;
        consumer.ack(&message).await.expect("acknowledges");
        messages.push(message);
    }

    let fifth = messages[5].message_id().clone();
    consumer.seek(None, Some(fifth), None, client.clone()).await.expect("seeks");
    assert_eq!(take(&mut consumer, 15).await, texts[5..]);

    let first = messages[0].metadata().publish_time;
    consumer.seek(None, None, Some(first), client.clone()).await.expect("seeks");
    assert_eq!(take(&mut consumer, 20).await, texts);
}
