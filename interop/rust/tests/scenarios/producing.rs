//! How messages are sent: payloads of the application's types, batches, compression.

use futures::future::try_join_all;
use pulsar::compression::{Compression, CompressionLz4};
use pulsar::{
    Consumer, ConsumerOptions, DeserializeMessage, Error, Payload, ProducerOptions, SerializeMessage, TokioExecutor,
    producer,
};
use serde::{Deserialize, Serialize};

use crate::server::{client, from_earliest, next, numbered, shared, topic};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u32,
    item: String,
}

impl SerializeMessage for Order {
    fn serialize_message(order: Self) -> Result<producer::Message, Error> {
        let payload = serde_json::to_vec(&order).map_err(|error| Error::Custom(error.to_string()))?;
        Ok(producer::Message { payload, ..producer::Message::default() })
    }
}

impl DeserializeMessage for Order {
    type Output = Result<Order, serde_json::Error>;

    fn deserialize_message(payload: &Payload) -> Self::Output {
        serde_json::from_slice(&payload.data)
    }
}

#[tokio::test]
async fn json_payload_with_key_and_properties_on_a_shared_subscription() {
    let (client, topic) = (client().await, topic("json"));
    let mut consumer = shared::<Order>(&client, &topic, ConsumerOptions::default()).await;
    let mut producer = client.producer().with_topic(&topic).build().await.expect("producer");
    let order = Order { id: 7, item: "screws".to_owned() };
    let receipt = producer
        .create_message()
        .with_content(order.clone())
        .with_key("customer")
        .with_property("shop", "north")
        .event_time(42)
        .send_non_blocking()
        .await
        .expect("send")
        .await
        .expect("receipt");

    let message = next(&mut consumer).await;
    assert_eq!(message.deserialize().expect("an order"), order);
    assert_eq!(message.key().as_deref(), Some("customer"));
    assert_eq!(message.metadata().event_time, Some(42));
    let properties: Vec<_> =
        message.metadata().properties.iter().map(|pair| (pair.key.as_str(), pair.value.as_str())).collect();
    assert_eq!(properties, [("shop", "north")]);
    let (sent, got) = (receipt.message_id.expect("an id"), message.message_id());
    assert_eq!((sent.ledger_id, sent.entry_id), (got.ledger_id, got.entry_id));
    consumer.ack(&message).await.expect("acknowledges");
}

#[tokio::test]
async fn batches_compressed_with_lz4_arrive_message_by_message() {
    let (client, topic) = (client().await, topic("batches"));
    let options = ProducerOptions {
        batch_size: Some(10),
        compression: Some(Compression::Lz4(CompressionLz4::default())),
        ..ProducerOptions::default()
    };
    let mut producer = client.producer().with_topic(&topic).with_options(options).build().await.expect("producer");
    let texts = numbered("a text that compresses, a text that compresses: ", 30);
    let mut receipts = Vec::new();
    for text in &texts {
        receipts.push(producer.send_non_blocking(text.clone()).await.expect("send"));
    }
    let receipts = try_join_all(receipts).await.expect("receipts");
    let mut entries: Vec<_> = receipts.iter().filter_map(|receipt| receipt.message_id.as_ref()).collect();
    entries.dedup_by_key(|id| (id.ledger_id, id.entry_id));
    assert_eq!(entries.len(), 3, "three batches are three entries");

    let mut consumer: Consumer<String, TokioExecutor> = client
        .consumer()
        .with_topic(&topic)
        .with_subscription("s")
        .with_options(from_earliest())
        .build()
        .await
        .expect("consumer");
    for (number, text) in texts.iter().enumerate() {
        let message = next(&mut consumer).await;
        assert_eq!(&message.deserialize().expect("a text"), text);
        assert_eq!(message.message_id().batch_index, Some((number % 10) as i32));
        consumer.ack(&message).await.expect("acknowledges");
    }
}
