//! Frames: how a stream of bytes divides into commands with their payloads.
//!
//! Fact: a frame is `u32 total size` (of what follows it), `u32 command size`, the command, and, for SEND and MESSAGE
//! only, a payload that takes the rest. Numbers are big-endian. A frame counts against the limit with its first four
//! bytes, and a peer that exceeds the limit is disconnected.

use bytes::{Buf, Bytes, BytesMut};

/// What a message may measure unless configured otherwise: 5 MiB.
pub const DEFAULT_MAX_MESSAGE_SIZE: usize = 5 * 1024 * 1024;

/// What a frame may measure beyond the largest message.
pub const FRAME_PADDING: usize = 10_240;

/// How much a connection reads at a time.
pub const READ_CHUNK: usize = 64 * 1024;

/// A frame larger than this is read into a buffer of its own size.
pub const LARGE_FRAME: usize = 32 * 1024;

/// The total size and the command size.
const HEADER: usize = 8;

/// One whole frame. Both parts are slices of the buffer that it was read into and keep all of it alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The serialized command, for [`decode_command`](crate::decode_command).
    pub command: Bytes,
    /// What follows the command: the entry in SEND and MESSAGE, else nothing of meaning.
    pub payload: Bytes,
}

/// A whole frame, looked at where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameView<'a> {
    /// The serialized command, for [`decode_command`](crate::decode_command).
    pub command: &'a [u8],
    /// Where in the buffer the payload begins.
    pub payload_at: usize,
    /// Where the frame ends, and with it the payload.
    pub end: usize,
}

/// Why bytes are not a frame. The stream cannot be resynchronized: close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Larger than the limit, or than this machine addresses.
    #[error("a frame of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Of the frame with its first four bytes.
        size: u64,
        /// What was allowed.
        limit: usize,
    },
    /// The command does not fit into its frame, or there is none.
    #[error("a command of {command} bytes in a frame whose size says {total}")]
    Inconsistent {
        /// What the frame claims as the total size.
        total: u32,
        /// What it claims as the command size; 0 if there is no room for one.
        command: u32,
    },
}

/// Cuts frames from what was read so far.
#[derive(Clone, Copy, Debug)]
pub struct FrameSplitter {
    limit: usize,
}

impl Default for FrameSplitter {
    fn default() -> FrameSplitter {
        FrameSplitter::new(DEFAULT_MAX_MESSAGE_SIZE)
    }
}

impl FrameSplitter {
    /// For messages of up to `max_message_size` bytes. A client makes a new one when CONNECTED tells it the size.
    #[must_use]
    pub fn new(max_message_size: usize) -> FrameSplitter {
        FrameSplitter { limit: max_message_size.saturating_add(FRAME_PADDING) }
    }

    /// What the frame at the start of `buffer` measures as a whole; `None` if too little is there to tell.
    ///
    /// # Errors
    /// [`FrameError`] as soon as the sizes that are there are impossible, before anything is allocated for the frame.
    pub fn frame_len(&self, buffer: &[u8]) -> Result<Option<usize>, FrameError> {
        let Some((total, rest)) = buffer.split_first_chunk::<4>() else { return Ok(None) };
        let total = u32::from_be_bytes(*total);
        let size = u64::from(total) + 4;
        let too_large = FrameError::TooLarge { size, limit: self.limit };
        let size = usize::try_from(size).map_err(|_| too_large)?;
        if size > self.limit {
            return Err(too_large);
        }
        let command = rest.first_chunk::<4>().map(|command| u32::from_be_bytes(*command));
        if size <= HEADER || command.is_some_and(|command| command == 0 || u64::from(command) > u64::from(total) - 4) {
            return Err(FrameError::Inconsistent { total, command: command.unwrap_or(0) });
        }
        Ok(Some(size))
    }

    /// How large a buffer must be that is to take the frame at the start of `buffer` whole: [`READ_CHUNK`], or the
    /// frame's size if that is above [`LARGE_FRAME`]. A connection that needs a new buffer, or has a smaller one,
    /// gets one of this capacity and moves the bytes of the unfinished frame into it.
    ///
    /// # Errors
    /// As [`frame_len`](FrameSplitter::frame_len).
    pub fn buffer_capacity(&self, buffer: &[u8]) -> Result<usize, FrameError> {
        Ok(self.frame_len(buffer)?.filter(|size| *size > LARGE_FRAME).unwrap_or(READ_CHUNK))
    }

    /// Looks at the first frame of `buffer` if all of it is there, so that whoever needs only its command need not take
    /// it apart.
    ///
    /// # Errors
    /// As [`frame_len`](FrameSplitter::frame_len).
    pub fn peek<'a>(&self, buffer: &'a [u8]) -> Result<Option<FrameView<'a>>, FrameError> {
        let Some(end) = self.frame_len(buffer)?.filter(|size| *size <= buffer.len()) else { return Ok(None) };
        // `frame_len` saw all eight bytes and found that the command fits.
        let len = buffer.get(4..HEADER).and_then(|len| len.first_chunk()).map_or(0, |len| u32::from_be_bytes(*len));
        let payload_at = HEADER + len as usize;
        Ok(Some(FrameView { command: buffer.get(HEADER..payload_at).unwrap_or_default(), payload_at, end }))
    }

    /// Takes the first frame off `buffer` if all of it is there. Copies nothing.
    ///
    /// # Errors
    /// [`FrameError`] if the stream is no stream of frames; `buffer` is then unchanged.
    pub fn split(&self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(FrameView { payload_at, end, .. }) = self.peek(buffer)? else { return Ok(None) };
        let mut command = buffer.split_to(end).freeze();
        let payload = command.split_off(payload_at);
        command.advance(HEADER);
        Ok(Some(Frame { command, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;
    use bytes::BufMut;
    use proptest::prelude::*;

    fn frame(command: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(u32::try_from(4 + command.len() + payload.len()).unwrap());
        out.put_u32(u32::try_from(command.len()).unwrap());
        out.extend_from_slice(command);
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn refuses_impossible_sizes_before_the_frame_is_there() {
        let splitter = FrameSplitter::new(100);
        let limit = 100 + FRAME_PADDING;
        let total = u32::try_from(limit - 4).unwrap();
        assert_eq!(splitter.frame_len(&total.to_be_bytes()), Ok(Some(limit)));
        assert_eq!(
            splitter.frame_len(&(total + 1).to_be_bytes()),
            Err(FrameError::TooLarge { size: limit as u64 + 1, limit })
        );
        for (bytes, total, command) in [
            ("00000000", 0, 0),
            ("00000003", 3, 0),
            ("00000004", 4, 0),
            ("00000006 00000003", 6, 3),
            ("00000006 00000000", 6, 0),
            ("00000006 ffffffff", 6, u32::MAX),
        ] {
            let mut buffer = BytesMut::from(hex(bytes).as_slice());
            assert_eq!(splitter.split(&mut buffer), Err(FrameError::Inconsistent { total, command }), "{bytes}");
            assert_eq!(buffer, hex(bytes));
        }
        assert!(matches!(splitter.frame_len(&[0xFF; 4]), Err(FrameError::TooLarge { .. })));
        assert_eq!(FrameSplitter::new(usize::MAX).frame_len(&[0xFF; 4]), Ok(Some(0x1_0000_0003)));
    }

    #[test]
    fn tells_which_buffer_a_frame_needs() {
        let splitter = FrameSplitter::default();
        assert_eq!(splitter.buffer_capacity(&[]), Ok(READ_CHUNK));
        assert_eq!(splitter.buffer_capacity(&hex("00000009")), Ok(READ_CHUNK));
        assert_eq!(splitter.buffer_capacity(&hex("00007ffc")), Ok(READ_CHUNK));
        assert_eq!(splitter.buffer_capacity(&hex("00007ffd")), Ok(LARGE_FRAME + 1));
        assert_eq!(splitter.buffer_capacity(&hex("00500000 00000008")), Ok(DEFAULT_MAX_MESSAGE_SIZE + 4));
    }

    #[test]
    fn parts_are_slices_of_the_buffer() {
        let mut buffer = BytesMut::from(frame(b"cmd", b"payload").as_slice());
        let start = buffer.as_ptr() as usize;
        let frame = FrameSplitter::default().split(&mut buffer).unwrap().unwrap();
        assert_eq!(frame.command.as_ptr() as usize, start + 8);
        assert_eq!(frame.payload.as_ptr() as usize, start + 11);
    }

    proptest! {
        #[test]
        fn frames_survive_any_division_of_the_stream(
            frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..20), prop::collection::vec(any::<u8>(), 0..20)), 1..4),
        ) {
            let splitter = FrameSplitter::default();
            let stream: Vec<u8> = frames.iter().flat_map(|(command, payload)| frame(command, payload)).collect();
            for cut in 0..=stream.len() {
                let mut buffer = BytesMut::new();
                let mut found = Vec::new();
                for part in [&stream[..cut], &stream[cut..]] {
                    buffer.extend_from_slice(part);
                    while let Some(frame) = splitter.split(&mut buffer).unwrap() {
                        found.push((frame.command.to_vec(), frame.payload.to_vec()));
                    }
                }
                prop_assert!(buffer.is_empty());
                prop_assert_eq!(&found, &frames);
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..40)) {
            let mut buffer = BytesMut::from(bytes.as_slice());
            let before = buffer.len();
            if let Ok(Some(frame)) = FrameSplitter::new(64).split(&mut buffer) {
                prop_assert_eq!(frame.command.len() + frame.payload.len() + HEADER + buffer.len(), before);
            }
        }
    }
}
