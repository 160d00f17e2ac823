//! Why bytes are not a command.

/// What is wrong with bytes that should be protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A value or message ends after its bytes do.
    #[error("the bytes end within a value")]
    Truncated,
    /// A varint of more than 64 bits.
    #[error("a number has more than 64 bits")]
    Varint,
    /// A field number of 0 or beyond what protobuf allows, or a wire type that does not exist.
    #[error("{0} is not a field key")]
    Key(u64),
    /// A known field in an encoding that its type does not have.
    #[error("field {0} has the wrong wire type")]
    WireType(u32),
    /// The end of a group that was not begun.
    #[error("a group ends that did not begin")]
    GroupEnd,
    /// More than 100 messages or groups within each other.
    #[error("messages are nested too deeply")]
    TooDeep,
}

/// Why bytes are not a command. The connection that they came from cannot go on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The command does not say what it is.
    #[error("a command without a type")]
    NoType,
    /// A command of a later protocol, or of none.
    #[error("unknown command type {0}")]
    UnknownCommand(i32),
    /// The type promises a body that is not there.
    #[error("a {0} command without its body")]
    NoBody(&'static str),
    /// A hand-decoded command lacks a field that the protocol requires.
    #[error("{message} without its required field {field}")]
    MissingField {
        /// The protocol's name of the message.
        message: &'static str,
        /// The protocol's name of the field.
        field: &'static str,
    },
    /// Not protobuf.
    #[error("malformed command: {0}")]
    Malformed(#[from] Malformed),
    /// Not protobuf, or not text where text must be, in a command that is decoded by generated code.
    #[error("malformed command: {0}")]
    Generated(#[from] prost::DecodeError),
}
