//! Producers and consumers at full speed, and how far each has come.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use geminga_client::{Batching, Client, ClientError, Consumer, ConsumerOptions, Message, Producer, ProducerOptions};
use geminga_env::{OnPanic, Scope, Stop};
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use parking_lot::Mutex;

/// Bytes that a producer has under way at most.
const MAX_UNDER_WAY: usize = 4 << 20;
/// Messages that it has under way at most.
const MAX_MESSAGES: usize = 1000;
/// Messages that wait for a consumer at most. They may be large.
const QUEUE: u32 = 100;

/// Someone who must get on.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) topic: String,
    done: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<ClientError>>>,
}

impl Worker {
    fn new(name: String, topic: &str) -> Worker {
        Worker { name, topic: topic.to_owned(), done: Arc::default(), failed: Arc::default() }
    }

    /// Messages with receipts, or received.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Why it does not go on at all.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failed.lock().as_ref().map(ToString::to_string)
    }

    fn ended(&self, result: Result<(), ClientError>) {
        if let Err(error) = result {
            *self.failed.lock() = Some(error);
        }
    }
}

/// A producer that sends as fast as it may until the scope is stopped, and then waits for its receipts.
pub(crate) async fn produce(
    scope: &Scope,
    client: &Client,
    topic: &str,
    name: String,
    size: usize,
    batched: bool,
) -> Result<Worker, ClientError> {
    let window = (MAX_UNDER_WAY / size).clamp(1, MAX_MESSAGES);
    let options = ProducerOptions {
        batching: batched.then(Batching::default),
        max_pending: window,
        send_timeout: None,
        ..ProducerOptions::default()
    };
    let producer = client.producer(topic, options).await?;
    let worker = Worker::new(name, topic);
    let (at_work, stop) = (worker.clone(), scope.stop_signal().clone());
    scope.spawn("producer", OnPanic::ExitProcess, async move {
        let result = send(&producer, &at_work, &stop, Bytes::from(vec![b'x'; size]), window).await;
        at_work.ended(result);
    });
    Ok(worker)
}

async fn send(
    producer: &Producer,
    worker: &Worker,
    stop: &Stop,
    payload: Bytes,
    window: usize,
) -> Result<(), ClientError> {
    let mut under_way = VecDeque::new();
    while !stop.is_stopped() {
        let receipt = tokio::select! {
            biased;
            () = stop.stopped() => break,
            receipt = producer.send(Message::new(payload.clone())) => receipt?,
        };
        under_way.push_back(receipt);
        while under_way.len() >= window {
            let Some(mut oldest) = under_way.pop_front() else { break };
            oldest.wait().await?;
            worker.done.fetch_add(1, Ordering::Relaxed);
        }
    }
    while let Some(mut receipt) = under_way.pop_front() {
        receipt.wait().await?;
        worker.done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A consumer that takes and acknowledges all it is given until the scope is stopped.
pub(crate) async fn consume(scope: &Scope, client: &Client, topic: &str, name: String) -> Result<Worker, ClientError> {
    let options = ConsumerOptions {
        sub_type: SubType::Shared,
        initial_position: InitialPosition::Earliest,
        queue_size: QUEUE,
        ..ConsumerOptions::new("healthy")
    };
    let consumer = client.subscribe(topic, options).await?;
    let worker = Worker::new(name, topic);
    let (at_work, stop) = (worker.clone(), scope.stop_signal().clone());
    scope.spawn("consumer", OnPanic::ExitProcess, async move {
        let result = receive(consumer, &at_work, &stop).await;
        at_work.ended(result);
    });
    Ok(worker)
}

async fn receive(mut consumer: Consumer, worker: &Worker, stop: &Stop) -> Result<(), ClientError> {
    loop {
        let received = tokio::select! {
            biased;
            () = stop.stopped() => return consumer.close().await,
            received = consumer.receive() => received?,
        };
        consumer.ack(&received.id)?;
        worker.done.fetch_add(1, Ordering::Relaxed);
    }
}
