//! A data directory with much in it: many topics, written in turn, so that every segment has entries of most of them.

use std::net::SocketAddr;
use std::process::Command as Process;
use std::thread;

use bytes::BytesMut;
use geminga_wire::proto::MessageMetadata;
use geminga_wire::proto::command_subscribe::SubType;
use geminga_wire::{Command, SendCommand, encode_entry, encode_send_header};

use crate::connection::Connection;

/// Bytes of an entry's payload: that of a full batch.
const PAYLOAD: usize = 128 << 10;
/// Producers of a connection; the server bounds them.
const PRODUCERS: usize = 500;
/// Entries under way on a connection.
const WINDOW: usize = 32;
/// Connections that are written to at the same time.
const WRITERS: usize = 2;

/// Publishes `bytes` to `topics` topics in turn, each with a durable subscription that has not consumed anything.
pub(crate) fn fill(address: SocketAddr, topics: usize, bytes: u64) -> Result<(), String> {
    let share = topics.div_ceil(WRITERS);
    let rounds = usize::try_from(bytes / (topics.max(1) * PAYLOAD) as u64).unwrap_or(1).max(1);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (first, end) = (writer * share, topics.min((writer + 1) * share));
                scope.spawn(move || write(address, first, end, rounds))
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().map_err(|_| "a writer panicked")?)
    })
}

fn write(address: SocketAddr, first: usize, end: usize, rounds: usize) -> Result<(), String> {
    let mut connections = Vec::new();
    for first in (first..end).step_by(PRODUCERS) {
        let mut connection = Connection::open(address)?;
        let mut producers = Vec::new();
        for topic in first..end.min(first + PRODUCERS) {
            let topic = format!("persistent://public/default/grown-{topic}");
            connection.ask_subscription(&topic, "s", SubType::Exclusive)?;
            connection.await_successes(1)?;
            producers.push(connection.open_producer(&topic)?);
        }
        connections.push((connection, producers));
    }
    let metadata = MessageMetadata { producer_name: "grown".into(), publish_time: 1, ..Default::default() };
    for round in 0..rounds {
        let entry = encode_entry(&metadata, &vec![b'x'; PAYLOAD]);
        for (connection, producers) in &mut connections {
            for some in producers.chunks(WINDOW) {
                let mut out = BytesMut::new();
                for producer in some {
                    encode_send_header(&mut out, &SendCommand::new(*producer, round as u64), entry.len());
                    out.extend_from_slice(&entry);
                }
                connection.write(&out)?;
                let mut stored = 0;
                while stored < some.len() {
                    stored += usize::from(matches!(connection.next()?.0, Command::SendReceipt(_)));
                }
            }
        }
    }
    Ok(())
}

/// Makes the next reads come from the disk. Tells whether the system let it.
pub(crate) fn drop_page_cache() -> bool {
    let synced = Process::new("sync").status().is_ok_and(|status| status.success());
    synced && std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
