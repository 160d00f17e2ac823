//! Publishing as fast as a window of entries under way allows.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::command_subscribe::SubType;
use geminga_wire::proto::{MessageMetadata, SingleMessageMetadata};
use geminga_wire::{
    AckCommand, BatchBuilder, Command, FlowCommand, MessageId, SendCommand, encode_ack, encode_entry, encode_flow,
    encode_send_header,
};
use hdrhistogram::Histogram;

use crate::connection::Connection;
use crate::server::Server;

/// Runs before anything is measured.
const WARM_UP: Duration = Duration::from_millis(600);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Entries under way.
    pub(crate) window: usize,
    /// Messages in an entry; 0 for an entry that is no batch.
    pub(crate) batch: u32,
    /// Bytes of a message.
    pub(crate) bytes: usize,
    /// Subscriptions that keep up.
    pub(crate) subscriptions: usize,
    /// How long to rest before an entry; zero for as fast as it goes.
    pub(crate) rest: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) messages_a_second: f64,
    pub(crate) bytes_a_second: f64,
    /// From handing the entry over to the socket to its receipt, in microseconds.
    pub(crate) latency: Histogram<u64>,
    /// Processor seconds of the server for a million messages.
    pub(crate) cpu_a_million: f64,
    /// Messages a second that all subscriptions together received.
    pub(crate) received_a_second: f64,
}

impl Load {
    fn messages(&self) -> u32 {
        self.batch.max(1)
    }

    fn entry(&self) -> Bytes {
        let payload = vec![b'x'; self.bytes];
        let metadata = MessageMetadata {
            producer_name: "bench".into(),
            sequence_id: 0,
            publish_time: 1_700_000_000_000,
            num_messages_in_batch: (self.batch > 0).then_some(i32::try_from(self.batch).unwrap_or(1)),
            ..Default::default()
        };
        if self.batch == 0 {
            return encode_entry(&metadata, &payload);
        }
        let mut batch = BatchBuilder::new();
        for _ in 0..self.batch {
            batch.push(SingleMessageMetadata::default(), &payload);
        }
        encode_entry(&metadata, &batch.finish())
    }
}

/// Publishes to `topic` for so long.
pub(crate) fn run(server: &Server, topic: &str, load: Load, duration: Duration) -> Result<Outcome, String> {
    run_after(server, topic, load, WARM_UP, duration)
}

/// The same after `warm_up` of the same load.
pub(crate) fn run_after(
    server: &Server,
    topic: &str,
    load: Load,
    warm_up: Duration,
    duration: Duration,
) -> Result<Outcome, String> {
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut connection = Connection::open(server.broker)?;
    let producer = connection.open_producer(topic)?;
    thread::scope(|scope| {
        let consumers: Vec<_> = consumer_shares(load.subscriptions)
            .map(|share| {
                let consumer = Consuming::open(server.broker, topic, share)?;
                Ok(scope.spawn(|| consumer.run(&stop, &received)))
            })
            .collect::<Result<_, String>>()?;
        let spans = Spans { warm_up, duration };
        let outcome = publish(server, &mut connection, producer, load, spans, &received);
        stop.store(true, Ordering::Relaxed);
        // One more message wakes those that wait for one.
        let farewell = publish_one(&mut connection, producer, load);
        for consumer in consumers {
            consumer.join().map_err(|_| "a consumer panicked".to_owned())??;
        }
        farewell.and(outcome)
    })
}

/// Subscriptions share connections, and so threads: two at most.
fn consumer_shares(subscriptions: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let half = subscriptions.div_ceil(2).max(1);
    (0..subscriptions).step_by(half).map(move |first| first..(first + half).min(subscriptions))
}

/// How long a load runs before it is measured, and while.
#[derive(Clone, Copy, Debug)]
struct Spans {
    warm_up: Duration,
    duration: Duration,
}

fn publish(
    server: &Server,
    connection: &mut Connection,
    producer: u64,
    load: Load,
    spans: Spans,
    received: &AtomicU64,
) -> Result<Outcome, String> {
    let entry = load.entry();
    let (mut out, mut under_way, mut sequence) = (BytesMut::new(), VecDeque::new(), 0_u64);
    let mut latency = Histogram::new_with_bounds(1, 60_000_000, 3).map_err(|error| error.to_string())?;
    let started = Instant::now();
    let (mut measured_from, mut stored, mut cpu, mut received_before) = (None, 0_u64, Duration::ZERO, 0);
    loop {
        if !load.rest.is_zero() {
            thread::sleep(load.rest);
        }
        while under_way.len() < load.window {
            encode_send_header(&mut out, &send(producer, sequence, load), entry.len());
            out.extend_from_slice(&entry);
            sequence += 1;
            under_way.push_back(None);
        }
        connection.write(&out)?;
        out.clear();
        let now = Instant::now();
        under_way.iter_mut().rev().take_while(|sent| sent.is_none()).for_each(|sent| *sent = Some(now));
        loop {
            if let (Command::SendReceipt(_), _) = connection.next()? {
                let sent = under_way.pop_front().flatten().ok_or("a receipt for nothing")?;
                if measured_from.is_some() {
                    stored += 1;
                    latency.saturating_record(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX).max(1));
                }
            }
            if !connection.has_frame() {
                break;
            }
        }
        match measured_from {
            None if started.elapsed() >= spans.warm_up => {
                (measured_from, cpu) = (Some(Instant::now()), server.cpu()?);
                received_before = received.load(Ordering::Relaxed);
            }
            Some(from) if from.elapsed() >= spans.duration => {
                let (seconds, cpu) = (from.elapsed().as_secs_f64(), server.cpu()? - cpu);
                let messages = stored * u64::from(load.messages());
                let received = received.load(Ordering::Relaxed) - received_before;
                while !under_way.is_empty() {
                    if matches!(connection.next()?.0, Command::SendReceipt(_)) {
                        under_way.pop_front();
                    }
                }
                return Ok(Outcome {
                    messages_a_second: messages as f64 / seconds,
                    bytes_a_second: messages as f64 * load.bytes as f64 / seconds,
                    latency,
                    cpu_a_million: cpu.as_secs_f64() * 1e6 / messages.max(1) as f64,
                    received_a_second: received as f64 / seconds,
                });
            }
            _ => {}
        }
    }
}

fn send(producer: u64, sequence: u64, load: Load) -> SendCommand {
    SendCommand { num_messages: i32::try_from(load.messages()).unwrap_or(1), ..SendCommand::new(producer, sequence) }
}

fn publish_one(connection: &mut Connection, producer: u64, load: Load) -> Result<(), String> {
    let (entry, mut out) = (load.entry(), BytesMut::new());
    encode_send_header(&mut out, &send(producer, u64::from(u32::MAX), load), entry.len());
    out.extend_from_slice(&entry);
    connection.write(&out)?;
    while !matches!(connection.next()?.0, Command::SendReceipt(_)) {}
    Ok(())
}

/// Some subscriptions of a topic on one connection.
struct Consuming {
    connection: Connection,
    consumers: Vec<u64>,
}

/// Permits that a consumer starts with; half are given anew when half are used.
const PERMITS: u32 = 100_000;

impl Consuming {
    fn open(address: SocketAddr, topic: &str, share: std::ops::Range<usize>) -> Result<Consuming, String> {
        let mut connection = Connection::open(address)?;
        let mut consumers = Vec::new();
        for index in share.clone() {
            consumers.push(connection.ask_subscription(topic, &format!("s-{index}"), SubType::Exclusive)?);
        }
        connection.await_successes(share.len())?;
        let mut out = BytesMut::new();
        for consumer_id in &consumers {
            encode_flow(&mut out, &FlowCommand { consumer_id: *consumer_id, message_permits: PERMITS });
        }
        connection.write(&out)?;
        Ok(Consuming { connection, consumers })
    }

    fn run(mut self, stop: &AtomicBool, received: &AtomicU64) -> Result<(), String> {
        let first = self.consumers.first().copied().unwrap_or(0);
        let step = self.consumers.get(1).map_or(1, |second| second - first);
        let mut used = vec![0_u32; self.consumers.len()];
        let mut out = BytesMut::new();
        while !stop.load(Ordering::Relaxed) {
            let mut seen = 0;
            loop {
                let (command, payload) = self.connection.next()?;
                if let Command::Message(message) = command {
                    let count = messages_of(payload)?;
                    seen += u64::from(count);
                    let index = usize::try_from((message.consumer_id - first) / step).unwrap_or(0);
                    let Some(used) = used.get_mut(index) else { return Err("a message for nobody".into()) };
                    *used += count;
                    if *used >= PERMITS / 2 {
                        let flow = FlowCommand { consumer_id: message.consumer_id, message_permits: *used };
                        encode_flow(&mut out, &flow);
                        let id = MessageId::of_entry(message.message_id.position);
                        let ack = AckCommand::new(message.consumer_id, AckType::Cumulative, id);
                        encode_ack(&mut out, &ack);
                        *used = 0;
                    }
                }
                if !self.connection.has_frame() {
                    break;
                }
            }
            received.fetch_add(seen, Ordering::Relaxed);
            if !out.is_empty() {
                self.connection.write(&out)?;
                out.clear();
            }
        }
        Ok(())
    }
}

fn messages_of(payload: Bytes) -> Result<u32, String> {
    let entry = geminga_wire::Entry::parse(payload).map_err(|error| error.to_string())?;
    let summary = entry.summary().map_err(|error| error.to_string())?;
    Ok(summary.messages())
}
