//! Very little memory, and many clients of which most have stopped.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use geminga_client::{Client, ConsumerOptions, Message, ProducerOptions};
use geminga_env::net;
use geminga_wire::{Command, FlowCommand, FrameSplitter, decode_command, encode_command, proto};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

const DEADLINE: Duration = Duration::from_secs(30);
/// Classes of 128 KiB: two credits, or two frames at most.
const LITTLE: usize = 256 << 10;

/// A broker on real sockets.
async fn little_broker() -> (Broker, String, Env) {
    let handle = tokio::runtime::Handle::current();
    let env = Env::real(handle.clone(), handle);
    let broker = broker_on(env.clone(), memory(env.clock), MemoryBookies::new(1), Limits::default()).await;
    let listener = net::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("pulsar://{address}");
    // Lookups answer with where it listens.
    let mut options = broker.options().clone();
    options.memory = Memory::new(LITTLE, LITTLE);
    options.service_url = url.clone();
    let broker = Broker::new(env.clone(), broker.metadata().clone(), options);
    broker.serve(listener);
    (broker, url, env)
}

/// A connection that said these commands, and then these bytes, and does nothing more.
async fn stalled(url: &str, commands: Vec<Command>, rest: &[u8]) -> TcpStream {
    let mut out = BytesMut::new();
    let hello = proto::CommandConnect {
        client_version: "stalled".into(),
        protocol_version: Some(21),
        ..proto::CommandConnect::default()
    };
    for command in std::iter::once(hello.into()).chain(commands) {
        encode_command(&mut out, &command);
    }
    out.extend_from_slice(rest);
    let address = url.strip_prefix("pulsar://").unwrap().parse().unwrap();
    let mut socket = net::dial(address).await.unwrap();
    socket.write_all(&out).await.unwrap();
    socket
}

/// Reads until a request has succeeded.
async fn success(socket: &mut TcpStream) {
    let (mut read, splitter) = (BytesMut::new(), FrameSplitter::default());
    loop {
        socket.read_buf(&mut read).await.unwrap();
        while let Some(frame) = splitter.split(&mut read).unwrap() {
            if matches!(decode_command(&frame.command), Ok(Command::Success(_))) {
                return;
            }
        }
    }
}

/// Waits until it holds; a test that waits for ever fails.
async fn until(env: &Env, what: &str, holds: impl Fn() -> bool) {
    let deadline = env.clock.now() + DEADLINE;
    while !holds() {
        assert!(env.clock.now() < deadline, "{what}");
        env.clock.sleep_until(env.clock.now() + Duration::from_millis(2)).await;
    }
}

async fn in_time<T>(env: &Env, what: impl Future<Output = T>) -> T {
    let deadline = env.clock.now() + DEADLINE;
    tokio::select! {
        biased;
        done = what => done,
        () = env.clock.sleep_until(deadline) => panic!("no progress"),
    }
}

fn is_unused(broker: &Broker) -> bool {
    broker.options().memory.used().iter().all(|(_, used, _)| *used == 0)
        && broker.options().topics.read_ahead.used() == 0
}

#[tokio::test]
async fn who_stops_in_the_middle_of_a_frame_holds_up_no_messages() {
    let (broker, url, env) = little_broker().await;
    // Far more than there is memory for: each announces a command of 100 KiB, and sends a part of it.
    let mut begun = BytesMut::new();
    begun.put_u32(100 << 10);
    begun.put_u32(90 << 10);
    begun.put_bytes(1, 1000);
    let mut sockets = Vec::new();
    for _ in 0..40 {
        sockets.push(stalled(&url, Vec::new(), &begun).await);
    }
    let memory = &broker.options().memory;
    until(&env, "frames are counted", || memory.frames.used() > 0).await;
    in_time(&env, publish_and_consume(&url, &env, 8, 100, 1000)).await;
    assert!(memory.frames.used() <= memory.frames.limit());
    drop(sockets);
    until(&env, "all is given back", || is_unused(&broker)).await;
    // Large messages too, each of which takes most of what there is.
    in_time(&env, publish_and_consume(&url, &env, 4, 5, 100_000)).await;
    until(&env, "all is given back", || is_unused(&broker)).await;
}

#[tokio::test]
async fn who_takes_nothing_from_its_socket_holds_up_no_consumer() {
    let (broker, url, env) = little_broker().await;
    // More than sockets take by themselves.
    in_time(&env, publish(&url, &env, "stalled", 100, 200_000)).await;
    let subscribe = |number: u64| {
        let subscribe = proto::CommandSubscribe {
            topic: "persistent://t/n/stalled".into(),
            subscription: format!("s{number}"),
            sub_type: proto::command_subscribe::SubType::Shared as i32,
            consumer_id: 1,
            request_id: 1,
            initial_position: Some(proto::command_subscribe::InitialPosition::Earliest as i32),
            ..proto::CommandSubscribe::default()
        };
        vec![subscribe.into()]
    };
    let mut flow = BytesMut::new();
    encode_command(&mut flow, &FlowCommand { consumer_id: 1, message_permits: 1000 }.into());
    let mut sockets = Vec::new();
    for number in 0..20 {
        let mut socket = stalled(&url, subscribe(number), &[]).await;
        in_time(&env, success(&mut socket)).await;
        socket.write_all(&flow).await.unwrap();
        sockets.push(socket);
    }
    let memory = &broker.options().memory;
    until(&env, "the outboxes fill", || memory.outboxes.used() >= memory.outboxes.limit()).await;
    in_time(&env, publish_and_consume(&url, &env, 4, 50, 20_000)).await;
    // Each may have one entry beyond what they share.
    assert!(memory.outboxes.used() <= memory.outboxes.limit() + 20 * 200_000, "{}", memory.outboxes.used());
    drop(sockets);
    until(&env, "all is given back", || is_unused(&broker)).await;
}

async fn publish(url: &str, env: &Env, topic: &str, messages: usize, size: usize) {
    let client = Client::connect(env, url).await.unwrap();
    let options = ProducerOptions { batching: None, ..ProducerOptions::default() };
    let producer = client.producer(&format!("t/n/{topic}"), options).await.unwrap();
    let mut receipts = Vec::new();
    for _ in 0..messages {
        receipts.push(producer.send(Message { payload: vec![7; size].into(), ..Message::default() }).await.unwrap());
    }
    for mut receipt in receipts {
        receipt.wait().await.unwrap();
    }
    client.close().await;
}

/// Clients, each with connections of its own, and a topic that nobody else uses.
async fn publish_and_consume(url: &str, env: &Env, clients: usize, messages: usize, size: usize) {
    let one = async |number: usize| {
        let topic = format!("live-{size}-{number}");
        let client = Client::connect(env, url).await.unwrap();
        let mut consumer = client.subscribe(&format!("t/n/{topic}"), ConsumerOptions::new("s")).await.unwrap();
        let receive = async {
            for _ in 0..messages {
                let message = consumer.receive().await.unwrap();
                assert_eq!(message.payload.len(), size);
                consumer.ack(&message.id).unwrap();
            }
        };
        tokio::join!(publish(url, env, &topic, messages, size), receive);
        client.close().await;
    };
    let mut all: Vec<_> = (0..clients).map(|number| Box::pin(one(number))).collect();
    // Together: each is polled until all are done.
    std::future::poll_fn(|context| {
        all.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
