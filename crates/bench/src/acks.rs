//! Acknowledgements of many durable subscriptions at a steady rate, half of them with receipts, and what a kill costs.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use geminga_model::Position;
use geminga_wire::proto::MessageMetadata;
use geminga_wire::proto::command_ack::AckType;
use geminga_wire::proto::command_subscribe::SubType;
use geminga_wire::{
    AckCommand, Command, FlowCommand, MessageId, SendCommand, decode_command, encode_ack, encode_entry, encode_flow,
    encode_send_header,
};
use hdrhistogram::Histogram;

use crate::connection::Connection;
use crate::server::Server;

const TOPICS: usize = 1000;
const SUBSCRIPTIONS: usize = 10;
const ACKS_A_SECOND: usize = 20_000;
/// Connections, each with its share of the topics and two threads.
const CONNECTIONS: usize = 2;
/// Acks are sent in bundles, one a tick.
const TICK: Duration = Duration::from_millis(1);
/// Messages that every subscription acks before anything is measured, so that its cursor ledger is there.
const WARM_UP: usize = 4;
const TOPICS_A_CONNECTION: usize = TOPICS / CONNECTIONS;
const CONSUMERS_A_CONNECTION: usize = TOPICS_A_CONNECTION * SUBSCRIPTIONS;
const ACKS_A_TICK: usize = ACKS_A_SECOND / 1000 / CONNECTIONS;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// From handing the ack over to the socket to its receipt, in microseconds.
    pub(crate) latency: Histogram<u64>,
    pub(crate) acks_a_second: f64,
    /// Processor seconds of the server for a million acks.
    pub(crate) cpu_a_million: f64,
    /// Bytes that the server wrote to files for an ack.
    pub(crate) written_an_ack: f64,
    /// Nodes of metadata that were written; `None` if the server does not tell.
    pub(crate) metadata_writes: Option<u64>,
}

/// Consumers of some topics that have received everything and acked the beginning.
struct Share {
    connection: Connection,
    consumers: Vec<u64>,
    /// The messages of each topic.
    messages: Vec<Vec<Position>>,
}

/// Acks for so long.
pub(crate) fn run(server: &Server, duration: Duration) -> Result<Outcome, String> {
    let seconds = usize::try_from(duration.as_secs()).unwrap_or(1).max(1);
    let rounds = (ACKS_A_SECOND * seconds).div_ceil(TOPICS * SUBSCRIPTIONS);
    let mut shares = together(|share| Share::open(server.broker, share, WARM_UP + rounds.next_multiple_of(2)))?;
    // The last round's replaced ledgers are deleted, and what waited for others is saved.
    thread::sleep(Duration::from_secs(2));
    let ticks = seconds * 1000;
    let before = (server.cpu()?, server.written()?, server.metadata_writes());
    let started = Instant::now();
    let measured: Vec<Histogram<u64>> = thread::scope(|scope| {
        let acking: Vec<_> = shares.iter_mut().map(|share| scope.spawn(move || share.acks(ticks))).collect();
        acking.into_iter().map(|share| share.join().map_err(|_| "a client panicked")?).collect::<Result<_, String>>()
    })?;
    let acks = ticks * ACKS_A_TICK * CONNECTIONS;
    let took = started.elapsed();
    // What was acked without receipt is saved within 100 ms.
    thread::sleep(Duration::from_millis(200));
    let (cpu, written) = (server.cpu()? - before.0, server.written()?.saturating_sub(before.1));
    let metadata_writes = server.metadata_writes().zip(before.2).map(|(after, before)| after - before);
    let mut latency = histogram()?;
    for share in measured {
        latency.add(share).map_err(|error| error.to_string())?;
    }
    Ok(Outcome {
        latency,
        acks_a_second: acks as f64 / took.as_secs_f64(),
        cpu_a_million: cpu.as_secs_f64() * 1e6 / acks as f64,
        written_an_ack: written as f64 / acks as f64,
        metadata_writes,
    })
}

/// Subscribes to everything again. Returns when every subscription has answered.
pub(crate) fn attach(address: SocketAddr) -> Result<Duration, String> {
    let started = Instant::now();
    together(|share| {
        let mut connection = Connection::open(address)?;
        subscribe(&mut connection, share).map(|_| connection)
    })?;
    Ok(started.elapsed())
}

fn together<T: Send>(open: impl Fn(usize) -> Result<T, String> + Sync) -> Result<Vec<T>, String> {
    thread::scope(|scope| {
        let open = &open;
        let shares: Vec<_> = (0..CONNECTIONS).map(|share| scope.spawn(move || open(share))).collect();
        shares.into_iter().map(|share| share.join().map_err(|_| "a client panicked")?).collect()
    })
}

fn topic(share: usize, index: usize) -> String {
    format!("persistent://public/default/acks-{share}-{index}")
}

/// The consumers, topic by topic.
fn subscribe(connection: &mut Connection, share: usize) -> Result<Vec<u64>, String> {
    let mut consumers = Vec::with_capacity(CONSUMERS_A_CONNECTION);
    for index in 0..TOPICS_A_CONNECTION {
        for subscription in 0..SUBSCRIPTIONS {
            let name = format!("s-{subscription}");
            consumers.push(connection.ask_subscription(&topic(share, index), &name, SubType::Shared)?);
        }
    }
    connection.await_successes(consumers.len())?;
    Ok(consumers)
}

fn histogram() -> Result<Histogram<u64>, String> {
    Histogram::new_with_bounds(1, 60_000_000, 3).map_err(|error| error.to_string())
}

impl Share {
    fn open(address: SocketAddr, share: usize, messages: usize) -> Result<Share, String> {
        let mut connection = Connection::open(address)?;
        let consumers = subscribe(&mut connection, share)?;
        let messages = publish(&mut connection, share, messages)?;
        let mut opened = Share { connection, consumers, messages };
        opened.receive()?;
        for round in 0..WARM_UP {
            let mut out = BytesMut::new();
            for consumer in 0..CONSUMERS_A_CONNECTION {
                encode_ack(&mut out, &opened.ack(consumer, round, Some(1)));
            }
            opened.connection.write(&out)?;
            let mut receipts = 0;
            while receipts < CONSUMERS_A_CONNECTION {
                receipts += usize::from(matches!(opened.connection.next()?.0, Command::AckResponse(_)));
            }
        }
        Ok(opened)
    }

    fn receive(&mut self) -> Result<(), String> {
        let most = self.messages.first().map_or(0, Vec::len);
        let permits = u32::try_from(most).unwrap_or(u32::MAX);
        let mut out = BytesMut::new();
        for consumer_id in &self.consumers {
            encode_flow(&mut out, &FlowCommand { consumer_id: *consumer_id, message_permits: permits });
        }
        self.connection.write(&out)?;
        let mut received = 0;
        while received < most * CONSUMERS_A_CONNECTION {
            received += usize::from(matches!(self.connection.next()?.0, Command::Message(_)));
        }
        Ok(())
    }

    /// Messages are acked in swapped pairs, so that there are holes.
    fn ack(&self, consumer: usize, round: usize, request_id: Option<u64>) -> AckCommand {
        let message = self.messages.get(consumer / SUBSCRIPTIONS).and_then(|messages| messages.get(round ^ 1));
        let id = MessageId::of_entry(message.copied().unwrap_or(Position::EARLIEST));
        let consumer = self.consumers.get(consumer).copied().unwrap_or(0);
        AckCommand { request_id, ..AckCommand::new(consumer, AckType::Individual, id) }
    }

    /// Sends a bundle each tick; a thread of its own takes the receipts.
    fn acks(&mut self, ticks: usize) -> Result<Histogram<u64>, String> {
        let mut socket = self.connection.writing_half()?;
        let sent: Vec<AtomicU64> = (0..ticks).map(|_| AtomicU64::new(0)).collect();
        let (started, mut bundles) = (Instant::now() + Duration::from_millis(20), Vec::with_capacity(ticks));
        let mut receipts = 0;
        for tick in 0..ticks {
            let mut out = BytesMut::new();
            for index in tick * ACKS_A_TICK..(tick + 1) * ACKS_A_TICK {
                let (consumer, round) = (index % CONSUMERS_A_CONNECTION, index / CONSUMERS_A_CONNECTION);
                let with_receipt = (index + round).is_multiple_of(2);
                receipts += usize::from(with_receipt);
                let request_id = with_receipt.then_some(tick as u64);
                encode_ack(&mut out, &self.ack(consumer, WARM_UP + round, request_id));
            }
            bundles.push(out);
        }
        thread::scope(|scope| {
            let reading = scope.spawn(|| take_receipts(&mut self.connection, receipts, started, &sent));
            for (tick, (bundle, sent)) in bundles.iter().zip(&sent).enumerate() {
                let due = started + TICK * u32::try_from(tick).unwrap_or(u32::MAX);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                sent.store(micros(started.elapsed()), Ordering::Relaxed);
                std::io::Write::write_all(&mut socket, bundle).map_err(|error| error.to_string())?;
            }
            reading.join().map_err(|_| "a client panicked")?
        })
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn take_receipts(
    connection: &mut Connection,
    count: usize,
    started: Instant,
    sent: &[AtomicU64],
) -> Result<Histogram<u64>, String> {
    let mut latency = histogram()?;
    for _ in 0..count {
        let response = loop {
            // The other half is the other thread's, so a PING is not answered; the acks show that we live.
            match decode_command(&connection.frame()?.command).map_err(|error| error.to_string())? {
                Command::AckResponse(response) => break response,
                Command::Ping(_) => {}
                other => return Err(format!("an ack was answered by {other:?}")),
            }
        };
        if let Some(message) = response.message {
            return Err(format!("an ack is refused: {message}"));
        }
        let tick = usize::try_from(response.request_id.unwrap_or(0)).unwrap_or(0);
        let sent = sent.get(tick).map_or(0, |sent| sent.load(Ordering::Relaxed));
        latency.saturating_record(micros(started.elapsed()).saturating_sub(sent).max(1));
    }
    Ok(latency)
}

/// Publishes so many messages to each topic and tells where they are.
fn publish(connection: &mut Connection, share: usize, messages: usize) -> Result<Vec<Vec<Position>>, String> {
    let entry = encode_entry(
        &MessageMetadata { producer_name: "bench".into(), publish_time: 1_700_000_000_000, ..Default::default() },
        &[b'x'; 100],
    );
    let mut producers = HashMap::new();
    for index in 0..TOPICS_A_CONNECTION {
        producers.insert(connection.ask_producer(&topic(share, index))?, index);
    }
    connection.await_producers(TOPICS_A_CONNECTION)?;
    let mut positions = vec![Vec::new(); TOPICS_A_CONNECTION];
    for sequence in 0..messages {
        let mut out = BytesMut::new();
        for producer in producers.keys() {
            encode_send_header(&mut out, &SendCommand::new(*producer, sequence as u64), entry.len());
            out.extend_from_slice(&entry);
        }
        connection.write(&out)?;
        let mut stored = 0;
        while stored < TOPICS_A_CONNECTION {
            if let (Command::SendReceipt(receipt), _) = connection.next()? {
                let index = producers.get(&receipt.producer_id).copied().ok_or("a receipt for nothing")?;
                let of_topic = positions.get_mut(index).ok_or("a receipt for nothing")?;
                of_topic.push(receipt.position.ok_or("a receipt without a position")?);
                stored += 1;
            }
        }
    }
    Ok(positions)
}
