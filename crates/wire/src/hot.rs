//! The commands that travel per message, decoded and encoded by hand: no generated code, no allocation.
//!
//! They accept what protobuf accepts: fields in any order, unknown ones skipped, of a repeated scalar the last one,
//! repeated parts of a message merged. Beyond the generated types they insist on the required fields.

mod ack;
mod flow;
mod message;
mod message_id;
mod receipt;
mod send;
#[cfg(test)]
mod tests;

pub use ack::{AckCommand, encode_ack};
pub use flow::{FlowCommand, encode_flow};
pub use message::{MessageCommand, MessageHeader, encode_message_header};
pub use message_id::{AckSet, MessageId};
pub use receipt::{SendReceipt, encode_send_receipt};
pub use send::{SendCommand, encode_send_header};

use crate::error::DecodeError;
use crate::varint::MAX_DEPTH;

/// The depth that is left within the body of a command, which itself lies within the command.
const BODY_DEPTH: u32 = MAX_DEPTH - 1;

/// The value of a required field.
fn required<T>(value: Option<T>, message: &'static str, field: &'static str) -> Result<T, DecodeError> {
    value.ok_or(DecodeError::MissingField { message, field })
}
