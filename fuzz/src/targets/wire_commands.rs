//! A stream of frames as a connection reads it: cut the same however it arrives, and every command that is understood
//! is written and read again as the same.

use bytes::{Bytes, BytesMut};
use geminga_wire::{Frame, FrameError, FrameSplitter, decode_command, encode_command};

use crate::memory::within;

/// What a decoded command may take, in times its bytes: a list of small messages, grown by doubling.
const FACTOR: usize = 160;

/// The target.
pub fn run(data: &[u8]) {
    let at_once = frames(&[data]);
    let (first, second) = data.split_at(data.len() / 2);
    // What is wrong may be told with less to go by.
    let in_parts = frames(&[first, second]);
    assert_eq!((&at_once.0, at_once.1.is_some()), (&in_parts.0, in_parts.1.is_some()));
    for frame in at_once.0 {
        check(&frame.command);
    }
    // Without the frame, so that what looks for commands need not get sizes right.
    check(data);
}

fn frames(parts: &[&[u8]]) -> (Vec<Frame>, Option<FrameError>) {
    let splitter = FrameSplitter::new(1 << 20);
    let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
    for part in parts {
        buffer.extend_from_slice(part);
        loop {
            match splitter.split(&mut buffer) {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn check(bytes: &[u8]) {
    let Ok(command) = within(1024 + FACTOR * bytes.len(), || decode_command(bytes)) else { return };
    let mut written = BytesMut::new();
    encode_command(&mut written, &command);
    let written = written.freeze();
    let frame = FrameSplitter::new(64 << 20).split(&mut BytesMut::from(written.clone())).unwrap().unwrap();
    assert_eq!(frame.payload, Bytes::new());
    let again = decode_command(&frame.command).unwrap();
    assert_eq!(again.command_type(), command.command_type());
    // Compared as bytes: a number that is not equal to itself may be in it.
    let mut rewritten = BytesMut::new();
    encode_command(&mut rewritten, &again);
    assert_eq!(rewritten, written);
}
