//! Reading: memory before bytes, and whole frames to the session.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use geminga_model::Instant;
use geminga_wire::{Command, FrameView, READ_CHUNK, decode_command};

use super::{Connection, Ending};

/// How long a client may send nothing in the middle of a frame that others wait for the memory of.
const FRAME_STALL: Duration = Duration::from_secs(15);

impl Connection {
    /// Memory is not kept for who stopped in the middle of a large frame, unless it is us who do not read on.
    pub(super) fn check_frame(&mut self, now: Instant) {
        if self.frame_until.is_some_and(|until| until <= now) {
            if self.reading {
                tracing::debug!(address = %self.address, "it stopped in the middle of a frame: closing the connection");
                self.ending = Some(Ending::Now);
            }
            self.frame_until = Some(now + FRAME_STALL);
        }
    }

    /// Reads what the socket has, once, and handles all whole frames of it.
    pub(super) fn read(&mut self, now: Instant) -> io::Result<()> {
        if !self.handle_frames(now)? || !self.make_room()? {
            return Ok(());
        }
        match self.socket.try_read_buf(&mut self.buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        self.handle_frames(now)?;
        self.frame_until = self.ingress.holds_frame().then(|| now + FRAME_STALL);
        if self.buffer.is_empty() {
            // An idle connection keeps no buffer.
            self.buffer = BytesMut::new();
        }
        Ok(())
    }

    /// Handles the whole frames that were read; false if memory for the next one must be waited for.
    fn handle_frames(&mut self, now: Instant) -> io::Result<bool> {
        self.backlog = false;
        while self.ending.is_none() && !self.buffer.is_empty() {
            if !self.ingress.room_for_message() {
                self.backlog = true;
                return Ok(false);
            }
            if !self.frame(now)? {
                break;
            }
            self.ingress.frame_done();
        }
        Ok(true)
    }

    /// A buffer for what is read next, and memory for it; false if that must be waited for.
    fn make_room(&mut self) -> io::Result<bool> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let capacity = self.splitter.buffer_capacity(&self.buffer).map_err(invalid)?;
        if capacity > READ_CHUNK {
            if !self.ingress.room_for_frame(capacity) {
                return Ok(false);
            }
            if self.buffer.capacity() < capacity {
                // Of exactly this size: no more is read into it than was accounted for.
                let begun = std::mem::replace(&mut self.buffer, BytesMut::with_capacity(capacity));
                self.buffer.extend_from_slice(&begun);
            }
            return Ok(true);
        }
        if !self.ingress.room_for_chunk() {
            return Ok(false);
        }
        if self.buffer.capacity() - self.buffer.len() < READ_CHUNK / 4 {
            self.buffer.reserve(capacity.saturating_sub(self.buffer.len()).max(READ_CHUNK / 4));
        }
        Ok(true)
    }

    /// Handles the next frame; false if it is not whole.
    fn frame(&mut self, now: Instant) -> io::Result<bool> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let limit = self.session.max_command_len();
        let peeked = self.splitter.peek(&self.buffer).map_err(|error| invalid(error.to_string()))?;
        let Some(FrameView { command, payload_at, end }) = peeked else { return Ok(false) };
        if command.len() > limit {
            return Err(invalid(format!("a command of {} bytes, the limit is {limit}", command.len())));
        }
        let command = decode_command(command).map_err(|error| invalid(error.to_string()))?;
        let payload = if payload_at < end {
            let mut frame = self.buffer.split_to(end).freeze();
            frame.advance(payload_at);
            frame
        } else {
            self.buffer.advance(end);
            Bytes::new()
        };
        let connects = matches!(command, Command::Connect(_));
        self.session.handle_command(now, command, payload);
        self.apply_effects();
        if connects {
            self.connected();
        }
        Ok(true)
    }
}
