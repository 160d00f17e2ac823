//! Consumers of several topics: lists, patterns, partitions.

use std::collections::BTreeSet;

use pulsar::routing_policy::RoutingPolicy;
use pulsar::{Consumer, ConsumerOptions, ProducerOptions, SubType, TokioExecutor};
use regex::Regex;

use crate::server::{client, create_partitioned, from_earliest, next, numbered, send, shared, sorted, take, topic};

#[tokio::test]
async fn one_consumer_of_two_named_topics() {
    let client = client().await;
    let topics = [topic("list-a"), topic("list-b")];
    let mut consumer: Consumer<String, TokioExecutor> = client
        .consumer()
        .with_topics(&topics)
        .with_subscription("s")
        .with_subscription_type(SubType::Shared)
        .build()
        .await
        .expect("consumer");
    send(&client, &topics[0], numbered("a", 5)).await;
    send(&client, &topics[1], numbered("b", 5)).await;
    assert_eq!(sorted(take(&mut consumer, 10).await), [numbered("a", 5), numbered("b", 5)].concat());
}

#[tokio::test]
async fn one_consumer_of_the_topics_that_match_a_pattern() {
    let client = client().await;
    let (red, green, other) = (topic("pattern-red"), topic("pattern-green"), topic("patternless"));
    for (topic, prefix) in [(&red, "r"), (&green, "g"), (&other, "o")] {
        send(&client, topic, numbered(prefix, 5)).await;
    }
    // Only this run's topics end as these do.
    let run = red.rsplit('-').next().expect("a run");
    let pattern = Regex::new(&format!("^persistent://public/default/rust-pattern-.*-{run}$")).expect("a pattern");
    let mut consumer: Consumer<String, TokioExecutor> = client
        .consumer()
        .with_topic_regex(pattern)
        .with_lookup_namespace("public/default")
        .with_subscription("s")
        .with_subscription_type(SubType::Shared)
        .with_options(from_earliest())
        .build()
        .await
        .expect("consumer");
    assert_eq!(sorted(take(&mut consumer, 10).await), [numbered("g", 5), numbered("r", 5)].concat());
    assert_eq!(consumer.topics().into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([red, green]));
}

#[tokio::test]
async fn a_partitioned_topic_spreads_messages_and_keeps_keys_together() {
    let (client, topic) = (client().await, topic("partitioned"));
    create_partitioned(&topic, 3);
    let mut consumer = shared::<String>(&client, &topic, ConsumerOptions::default()).await;
    send(&client, &topic, numbered("m", 9)).await;
    let mut partitions = BTreeSet::new();
    let mut texts = Vec::new();
    for _ in 0..9 {
        let message = next(&mut consumer).await;
        consumer.ack(&message).await.expect("acknowledges");
        texts.push(message.deserialize().expect("a text"));
        partitions.insert(message.topic);
    }
    assert_eq!(sorted(texts), numbered("m", 9));
    let expected: BTreeSet<_> = (0..3).map(|partition| format!("{topic}-partition-{partition}")).collect();
    assert_eq!(partitions, expected);

    // Without a policy named, the client spreads messages with keys too.
    let options = ProducerOptions { routing_policy: Some(RoutingPolicy::RoundRobin), ..ProducerOptions::default() };
    let mut producer = client.producer().with_topic(&topic).with_options(options).build().await.expect("producer");
    for text in numbered("k", 6) {
        let sent = producer.create_message().with_content(text).with_key("one").send_non_blocking();
        sent.await.expect("send").await.expect("receipt");
    }
    let mut partitions = BTreeSet::new();
    for expected in numbered("k", 6) {
        let message = next(&mut consumer).await;
        consumer.ack(&message).await.expect("acknowledges");
        assert_eq!(message.deserialize().expect("a text"), expected);
        partitions.insert(message.topic);
    }
    assert_eq!(partitions.len(), 1, "messages of one key are in one partition");
}
