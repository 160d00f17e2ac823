//! The server under test, and what every scenario does with it.

use std::env;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use futures::TryStreamExt;
use pulsar::consumer::{InitialPosition, Message};
use pulsar::{Consumer, ConsumerOptions, DeserializeMessage, Pulsar, SubType, TokioExecutor};

/// How long a message may take before a scenario fails.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub async fn client() -> Pulsar<TokioExecutor> {
    let url = env::var("SERVICE_URL").unwrap_or_else(|_| "pulsar://127.0.0.1:6650".to_owned());
    Pulsar::builder(url, TokioExecutor).build().await.expect("connects")
}

/// A topic that no other scenario and no earlier run used.
pub fn topic(name: &str) -> String {
    static RUN: OnceLock<u128> = OnceLock::new();
    let run = RUN.get_or_init(|| SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()));
    format!("persistent://public/default/rust-{name}-{run}")
}

pub fn create_partitioned(topic: &str, partitions: u32) {
    let url = env::var("ADMIN_URL").unwrap_or_else(|_| "http://127.0.0.1:8080".to_owned());
    let path = topic.replace("://", "/");
    ureq::put(format!("{url}/admin/v2/{path}/partitions"))
        .content_type("application/json")
        .send(partitions.to_string())
        .expect("creates the partitioned topic");
}

/// The options of a consumer that starts at the first message.
pub fn from_earliest() -> ConsumerOptions {
    ConsumerOptions { initial_position: InitialPosition::Earliest, ..ConsumerOptions::default() }
}

/// A consumer of one topic on its Shared subscription `s`.
pub async fn shared<T: DeserializeMessage + 'static>(
    client: &Pulsar<TokioExecutor>,
    topic: &str,
    options: ConsumerOptions,
) -> Consumer<T, TokioExecutor> {
    let consumer = client.consumer().with_topic(topic).with_subscription("s").with_subscription_type(SubType::Shared);
    consumer.with_options(options).build().await.expect("consumer")
}

pub async fn send(client: &Pulsar<TokioExecutor>, topic: &str, payloads: impl IntoIterator<Item = String>) {
    let mut producer = client.producer().with_topic(topic).build().await.expect("producer");
    let sent = producer.send_all(payloads).await.expect("send");
    futures::future::try_join_all(sent).await.expect("receipts");
}

/// The next message, which has to come.
pub async fn next<T: DeserializeMessage + 'static>(consumer: &mut Consumer<T, TokioExecutor>) -> Message<T> {
    let message = tokio::time::timeout(DEADLINE, consumer.try_next()).await.expect("a message in time");
    message.expect("no error").expect("the consumer goes on")
}

/// The texts of the next `count` messages, which are acknowledged.
pub async fn take(consumer: &mut Consumer<String, TokioExecutor>, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    while taken.len() < count {
        let message = next(consumer).await;
        consumer.ack(&message).await.expect("acknowledges");
        taken.push(message.deserialize().expect("a text"));
    }
    taken
}

pub fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

/// `a00`, `a01` and so on.
pub fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:02}")).collect()
}
