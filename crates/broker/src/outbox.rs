//! What is on its way to a client: encoded, in order, and written as the socket takes it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use geminga_session::ConsumerKey;
use geminga_topic::{Delivery, OutboxGauge};
use geminga_wire::{Command, MessageHeader, encode_command, encode_message_header};
use smallvec::SmallVec;
use tokio::net::TcpStream;

/// Slices and bytes of one write.
const WRITE_SLICES: usize = 64;
const WRITE_BYTES: usize = 256 * 1024;
/// Payloads up to this size are copied behind their header, which is cheaper than a slice of their own.
const COPY_BELOW: usize = 512;
/// What may be left of a buffer for it to be kept when everything was written.
const KEPT_TAIL: usize = 4 * 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    gauge: Arc<OutboxGauge>,
    /// Encoded and not yet a slice of `queue`.
    tail: BytesMut,
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// Payload bytes counted by the gauge, given back as the socket takes them.
    delivered: VecDeque<Delivered>,
    written: u64,
    pushed: u64,
}

#[derive(Debug)]
struct Delivered {
    /// Where the entry ends in the stream.
    end: u64,
    payload: usize,
}

impl Outbox {
    pub(crate) fn new(gauge: Arc<OutboxGauge>) -> Outbox {
        Outbox {
            gauge,
            tail: BytesMut::new(),
            queue: VecDeque::new(),
            bytes: 0,
            delivered: VecDeque::new(),
            written: 0,
            pushed: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes that the socket has not taken.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn command(&mut self, command: &Command) {
        let before = self.tail.len();
        encode_command(&mut self.tail, command);
        self.grown(self.tail.len() - before);
    }

    /// Encodes with one of the hand-written encoders.
    pub(crate) fn encode(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        encode(&mut self.tail);
        self.grown(self.tail.len() - before);
    }

    pub(crate) fn deliver(&mut self, consumer: ConsumerKey, partition: i32, entry: Delivery) {
        let Delivery { position, payload, redelivery_count, ack_set, consumer_epoch } = entry;
        let header = MessageHeader {
            consumer_id: consumer.id(),
            position,
            partition,
            redelivery_count,
            ack_set: &ack_set,
            consumer_epoch,
        };
        self.encode(|out| encode_message_header(out, &header, payload.len()));
        let len = payload.len();
        if len <= COPY_BELOW {
            self.tail.extend_from_slice(&payload);
        } else {
            self.cut();
            self.queue.push_back(payload);
        }
        self.grown(len);
        self.delivered.push_back(Delivered { end: self.pushed, payload: len });
    }

    fn grown(&mut self, by: usize) {
        self.bytes += by;
        self.pushed += by as u64;
    }

    fn cut(&mut self) {
        if !self.tail.is_empty() {
            self.queue.push_back(self.tail.split().freeze());
        }
    }

    /// Writes until the socket takes no more or nothing is left.
    pub(crate) fn write(&mut self, socket: &TcpStream) -> io::Result<()> {
        self.cut();
        while !self.is_empty() {
            match self.write_once(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.took(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // An idle connection keeps no buffers, nor the rest of one that it shared with what was written.
        self.queue.shrink_to(8);
        if self.tail.capacity() > KEPT_TAIL {
            self.tail = BytesMut::new();
        }
        Ok(())
    }

    fn write_once(&self, socket: &TcpStream) -> io::Result<usize> {
        let mut slices: SmallVec<[IoSlice<'_>; WRITE_SLICES]> = SmallVec::new();
        let mut bytes = 0;
        for slice in self.queue.iter().take(WRITE_SLICES) {
            slices.push(IoSlice::new(slice));
            bytes += slice.len();
            if bytes >= WRITE_BYTES {
                break;
            }
        }
        socket.try_write_vectored(&slices)
    }

    fn took(&mut self, mut written: usize) {
        self.bytes -= written;
        self.written += written as u64;
        while written > 0 {
            let Some(first) = self.queue.front_mut() else { break };
            if first.len() > written {
                first.advance(written);
                break;
            }
            written -= first.len();
            self.queue.pop_front();
        }
        let mut payload = 0;
        while let Some(first) = self.delivered.front().filter(|first| first.end <= self.written) {
            payload += first.payload;
            self.delivered.pop_front();
        }
        if payload > 0 {
            self.gauge.sent(payload);
        }
    }
}
