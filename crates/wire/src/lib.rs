//! The Pulsar binary protocol as bytes: frames, commands, the metadata stored with messages, batches, compression.
//!
//! For brokers, proxies and clients alike. Deliberately not here: what a command means, in which order commands may
//! come, and sockets; see `session` for the rules. Nothing here keeps state beyond the value being parsed, and nothing
//! that a peer sends makes this crate panic, or allocate for bytes that are not present. (A decoded list may take some
//! tens of times the bytes it came in: bound the commands of peers that are not trusted.)
//!
//! How data enters: a connection reads into a buffer, [`FrameSplitter`] cuts whole frames from it without copying, and
//! [`decode_command`] turns a frame's command into a [`Command`]. The payload of SEND and MESSAGE, which is also what is
//! stored, is opened by [`Entry::parse`]; [`Entry::summary`] scans only what a broker needs of its metadata.
//! How data leaves: [`encode_command`] for every command, and the `encode_…` functions for the ones that are sent per
//! message; payloads follow a header as slices of their own.
//!
//! The commands that travel per message (SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW) have types of their own, decoded by
//! hand; all others are the generated types of [`proto`]. Both are variants of [`Command`]: start reading there.

mod batch;
mod checksum;
mod command;
mod compression;
mod entry;
mod error;
mod frame;
mod hot;
mod metadata;
pub mod proto;
mod replies;
mod topics_hash;
mod varint;

#[cfg(test)]
mod testing;

pub use batch::{BatchBuilder, BatchError, BatchMessage, BatchReader, read_batch};
pub use checksum::{BROKER_ENTRY_MAGIC, CHECKSUM_MAGIC};
pub use command::{Command, decode_command, encode_command};
pub use compression::{CompressionError, compress, decompress};
pub use entry::{
    BrokerEntry, Entry, EntryError, encode_broker_entry, encode_entry, encode_entry_header, encode_send,
    with_broker_entry,
};
pub use error::{DecodeError, Malformed};
pub use frame::{
    DEFAULT_MAX_MESSAGE_SIZE, FRAME_PADDING, Frame, FrameError, FrameSplitter, FrameView, LARGE_FRAME, READ_CHUNK,
};
pub use hot::{
    AckCommand, AckSet, FlowCommand, MessageCommand, MessageHeader, MessageId, SendCommand, SendReceipt, encode_ack,
    encode_flow, encode_message_header, encode_send_header, encode_send_receipt,
};
pub use metadata::{Chunk, MetadataSummary, NONE_KEY, TxnId};
pub use proto::{CompressionType, ServerError};
pub use topics_hash::topics_hash;
