//! Many topics, each with a durable subscription and an entry.

use std::net::SocketAddr;

use bytes::BytesMut;
use geminga_wire::proto::command_subscribe::SubType;
use geminga_wire::proto::{CommandCloseConsumer, CommandCloseProducer, MessageMetadata};
use geminga_wire::{Command, SendCommand, encode_command, encode_entry, encode_send_header};

use crate::connection::Connection;

/// Topics that are worked on together.
const TOGETHER: usize = 500;

/// Whether producers and consumers stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    Leave,
    Stay,
}

/// Makes topics, publishes an entry to each and subscribes to it. The connections hold whoever stays.
pub(crate) fn topics(
    address: SocketAddr,
    prefix: &str,
    count: usize,
    clients: Clients,
) -> Result<Vec<Connection>, String> {
    let entry = encode_entry(
        &MessageMetadata { producer_name: "bench".into(), publish_time: 1_700_000_000_000, ..Default::default() },
        &[b'x'; 100],
    );
    let mut connections = Vec::new();
    let mut connection = Connection::open(address)?;
    for first in (0..count).step_by(TOGETHER) {
        let names: Vec<String> = (first..(first + TOGETHER).min(count))
            .map(|index| format!("persistent://public/default/{prefix}-{index}"))
            .collect();
        let (mut consumers, mut producers) = (Vec::new(), Vec::new());
        for name in &names {
            consumers.push(connection.ask_subscription(name, "s", SubType::Exclusive)?);
        }
        connection.await_successes(names.len())?;
        for name in &names {
            producers.push(connection.ask_producer(name)?);
        }
        connection.await_producers(names.len())?;
        let mut out = BytesMut::new();
        for producer in &producers {
            encode_send_header(&mut out, &SendCommand::new(*producer, 0), entry.len());
            out.extend_from_slice(&entry);
        }
        connection.write(&out)?;
        let mut stored = 0;
        while stored < names.len() {
            stored += usize::from(matches!(connection.next()?.0, Command::SendReceipt(_)));
        }
        if clients == Clients::Leave {
            let mut out = BytesMut::new();
            for producer_id in &producers {
                let request_id = connection.id();
                let close = CommandCloseProducer { producer_id: *producer_id, request_id, ..Default::default() };
                encode_command(&mut out, &close.into());
            }
            for consumer_id in &consumers {
                let request_id = connection.id();
                let close = CommandCloseConsumer { consumer_id: *consumer_id, request_id, ..Default::default() };
                encode_command(&mut out, &close.into());
            }
            connection.write(&out)?;
            connection.await_successes(2 * names.len())?;
        } else if first + TOGETHER < count {
            // A connection holds a bounded number of producers.
            connections.push(std::mem::replace(&mut connection, Connection::open(address)?));
        }
    }
    connections.push(connection);
    Ok(connections)
}
