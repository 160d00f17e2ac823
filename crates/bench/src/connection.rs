//! A connection to a broker on a blocking socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use geminga_wire::proto::command_lookup_topic_response::LookupType;
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use geminga_wire::{Command, Frame, FrameSplitter, decode_command, encode_command, proto};

/// How long the server may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    splitter: FrameSplitter,
    buffer: BytesMut,
    chunk: Vec<u8>,
    next_id: u64,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Connection, String> {
        let fail = |error: std::io::Error| format!("{address}: {error}");
        let socket = TcpStream::connect(address).map_err(fail)?;
        socket.set_nodelay(true).map_err(fail)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
        let mut connection = Connection {
            socket,
            splitter: FrameSplitter::default(),
            buffer: BytesMut::new(),
            chunk: vec![0; 256 << 10],
            next_id: 0,
        };
        let connect = proto::CommandConnect {
            client_version: "geminga-bench".into(),
            protocol_version: Some(21),
            ..Default::default()
        };
        connection.send(&connect.into())?;
        match connection.next()?.0 {
            Command::Connected(_) => Ok(connection),
            other => Err(format!("connecting was answered by {other:?}")),
        }
    }

    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.socket.write_all(bytes).map_err(|error| error.to_string())
    }

    /// For a thread that only writes, while another only reads.
    pub(crate) fn writing_half(&self) -> Result<TcpStream, String> {
        self.socket.try_clone().map_err(|error| error.to_string())
    }

    pub(crate) fn send(&mut self, command: &Command) -> Result<(), String> {
        let mut out = BytesMut::new();
        encode_command(&mut out, command);
        self.write(&out)
    }

    /// What came already, or with one read; waits for something.
    pub(crate) fn frame(&mut self) -> Result<Frame, String> {
        loop {
            if let Some(frame) = self.splitter.split(&mut self.buffer).map_err(|error| error.to_string())? {
                return Ok(frame);
            }
            let got = self.socket.read(&mut self.chunk).map_err(|error| format!("the server is silent: {error}"))?;
            if got == 0 {
                return Err("the server closed the connection".into());
            }
            self.buffer.extend_from_slice(self.chunk.get(..got).unwrap_or_default());
        }
    }

    /// Whether a whole frame is here already.
    pub(crate) fn has_frame(&self) -> bool {
        matches!(self.splitter.frame_len(&self.buffer), Ok(Some(len)) if self.buffer.len() >= len)
    }

    /// The next command that is not a PING.
    pub(crate) fn next(&mut self) -> Result<(Command, Bytes), String> {
        loop {
            let frame = self.frame()?;
            match decode_command(&frame.command).map_err(|error| error.to_string())? {
                Command::Ping(_) => self.send(&Command::PONG)?,
                Command::Error(error) => return Err(format!("the server refuses: {}", error.message)),
                Command::SendError(error) => return Err(format!("the server refuses: {}", error.message)),
                command => return Ok((command, frame.payload)),
            }
        }
    }

    /// Asks who serves a topic, as every client does before it opens anything there; a broker may take the topic's
    /// bundle only then.
    pub(crate) fn look_up(&mut self, topic: &str) -> Result<(), String> {
        let request_id = self.id();
        let command = proto::CommandLookupTopic { topic: topic.to_owned(), request_id, ..Default::default() };
        self.send(&command.into())?;
        match self.next()?.0 {
            Command::LookupResponse(answer) if answer.response == Some(LookupType::Connect as i32) => Ok(()),
            other => Err(format!("looking {topic} up was answered by {other:?}")),
        }
    }

    pub(crate) fn open_producer(&mut self, topic: &str) -> Result<u64, String> {
        let producer = self.ask_producer(topic)?;
        self.await_producers(1)?;
        Ok(producer)
    }

    pub(crate) fn ask_producer(&mut self, topic: &str) -> Result<u64, String> {
        let (producer_id, request_id) = (self.id(), self.id());
        let command = proto::CommandProducer { topic: topic.to_owned(), producer_id, request_id, ..Default::default() };
        self.send(&command.into())?;
        Ok(producer_id)
    }

    pub(crate) fn await_producers(&mut self, count: usize) -> Result<(), String> {
        let mut opened = 0;
        while opened < count {
            opened += usize::from(matches!(self.next()?.0, Command::ProducerSuccess(_)));
        }
        Ok(())
    }

    pub(crate) fn ask_subscription(&mut self, topic: &str, name: &str, sub_type: SubType) -> Result<u64, String> {
        let (consumer_id, request_id) = (self.id(), self.id());
        let command = proto::CommandSubscribe {
            topic: topic.to_owned(),
            subscription: name.to_owned(),
            sub_type: sub_type as i32,
            consumer_id,
            request_id,
            initial_position: Some(InitialPosition::Earliest as i32),
            ..Default::default()
        };
        self.send(&command.into())?;
        Ok(consumer_id)
    }

    /// Waits for so many plain confirmations.
    pub(crate) fn await_successes(&mut self, count: usize) -> Result<(), String> {
        let mut done = 0;
        while done < count {
            done += usize::from(matches!(self.next()?.0, Command::Success(_)));
        }
        Ok(())
    }
}
