//! What happens to messages that an application could not handle.

use pulsar::consumer::DeadLetterPolicy;
use pulsar::{Consumer, ConsumerOptions, SubType, TokioExecutor};

use crate::server::{client, from_earliest, next, numbered, send, shared, sorted, take, topic};

#[tokio::test]
async fn a_message_refused_comes_again_and_the_others_do_not() {
    let (client, topic) = (client().await, topic("nack"));
    let mut consumer = shared::<String>(&client, &topic, ConsumerOptions::default()).await;
    send(&client, &topic, numbered("m", 6)).await;
    let mut refused = Vec::new();
    for _ in 0..6 {
        let message = next(&mut consumer).await;
        let text = message.deserialize().expect("a text");
        if ["m01", "m04"].contains(&text.as_str()) {
            consumer.nack(&message).await.expect("refuses");
            refused.push(text);
        } else {
            consumer.ack(&message).await.expect("acknowledges");
        }
    }
    assert_eq!(refused.len(), 2, "a message came twice before it was refused");
    // What comes next is what was refused, and after it only what is sent then.
    assert_eq!(sorted(take(&mut consumer, 2).await), ["m01", "m04"]);
    send(&client, &topic, ["end".to_owned()]).await;
    assert_eq!(take(&mut consumer, 1).await, ["end"]);
}

/// The client counts with the redelivery counts of the server: a wrong one changes how often a message comes.
#[tokio::test]
async fn a_message_refused_three_times_goes_to_the_dead_letter_topic() {
    let (client, topic) = (client().await, topic("dlq"));
    let dead_letter_topic = format!("{topic}-DLQ");
    let mut consumer: Consumer<String, TokioExecutor> = client
        .consumer()
        .with_topic(&topic)
        .with_subscription("s")
        .with_subscription_type(SubType::Shared)
        .with_dead_letter_policy(DeadLetterPolicy {
            max_redeliver_count: 3,
            dead_letter_topic: dead_letter_topic.clone(),
        })
        .build()
        .await
        .expect("consumer");
    let mut dead: Consumer<String, TokioExecutor> = client
        .consumer()
        .with_topic(&dead_letter_topic)
        .with_subscription("s")
        .with_options(from_earliest())
        .build()
        .await
        .expect("consumer of the dead letters");
    send(&client, &topic, ["poison".to_owned()]).await;
    for delivery in 0..3 {
        let message = next(&mut consumer).await;
        assert_eq!(message.deserialize().expect("a text"), "poison", "delivery {delivery}");
        consumer.nack(&message).await.expect("refuses");
    }
    // The client sends the letter when the fourth delivery comes, for which the consumer has to be polled.
    let more = next(&mut consumer);
    let letter = tokio::select! {
        letter = next(&mut dead) => letter,
        message = more => panic!("a fourth delivery reached the application: {message:?}"),
    };
    assert_eq!(letter.deserialize().expect("a text"), "poison");
    let origin = letter.metadata().properties.iter().find(|pair| pair.key == "REAL_TOPIC");
    assert_eq!(origin.map(|pair| pair.value.as_str()), Some(topic.as_str()));
    dead.ack(&letter).await.expect("acknowledges");
    send(&client, &topic, ["after".to_owned()]).await;
    assert_eq!(take(&mut consumer, 1).await, ["after"]);
}
