//! Every command, whoever sends it: decode, encode.

use bytes::{BufMut, BytesMut};
use smallvec::SmallVec;

use crate::error::DecodeError;
use crate::hot::{AckCommand, FlowCommand, MessageCommand, SendCommand, SendReceipt};
use crate::proto;
use crate::proto::base_command::Type;
use crate::varint::{Reader, delimited_len, put_varint, varint_len};

/// The content of a command: what lies in the field that has the command's type as its number.
pub(crate) trait Body: Sized {
    /// Decodes a body. It comes in several parts if the field is there several times, as protobuf allows.
    fn from_parts(parts: &[&[u8]]) -> Result<Self, DecodeError>;

    /// How many bytes [`put`](Body::put) writes.
    fn body_len(&self) -> usize;

    /// Writes the body.
    fn put(&self, out: &mut impl BufMut);
}

impl<M: prost::Message + Default> Body for M {
    fn from_parts(parts: &[&[u8]]) -> Result<M, DecodeError> {
        let mut body = M::default();
        for part in parts {
            body.merge(*part)?;
        }
        Ok(body)
    }

    fn body_len(&self) -> usize {
        self.encoded_len()
    }

    fn put(&self, out: &mut impl BufMut) {
        self.encode_raw(out);
    }
}

macro_rules! commands {
    (@type boxed $body:ty) => { Box<$body> };
    (@type inline $body:ty) => { $body };
    (@wrap boxed $body:expr) => { Box::new($body) };
    (@wrap inline $body:expr) => { $body };
    ($($variant:ident $place:ident $body:ty;)*) => {
        /// One command with its content.
        ///
        /// Bodies of the hand-decoded commands have their required fields; in those of generated types a missing
        /// one reads as empty or 0. The larger bodies are boxed, so that a command stays small enough to move.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Command {
            $(
                #[doc = concat!("The protocol's `", stringify!($variant), "`.")]
                $variant(commands!(@type $place $body)),
            )*
        }

        impl Command {
            /// The protocol's number and name of the command.
            #[must_use]
            pub fn command_type(&self) -> Type {
                match self {
                    $(Command::$variant(_) => Type::$variant,)*
                }
            }

            fn decode_body(kind: Type, parts: &[&[u8]]) -> Result<Command, DecodeError> {
                Ok(match kind {
                    $(Type::$variant => Command::$variant(Body::from_parts(parts)?),)*
                })
            }

            fn body_len(&self) -> usize {
                match self {
                    $(Command::$variant(body) => Body::body_len(body),)*
                }
            }

            fn put_body(&self, out: &mut BytesMut) {
                match self {
                    $(Command::$variant(body) => Body::put(body, out),)*
                }
            }
        }

        $(
            impl From<$body> for Command {
                fn from(body: $body) -> Command {
                    Command::$variant(commands!(@wrap $place body))
                }
            }
        )*
    };
}

commands! {
    Connect boxed proto::CommandConnect;
    Connected inline proto::CommandConnected;
    Subscribe boxed proto::CommandSubscribe;
    Producer boxed proto::CommandProducer;
    Send inline SendCommand;
    SendReceipt inline SendReceipt;
    SendError inline proto::CommandSendError;
    Message inline MessageCommand;
    Ack inline AckCommand;
    Flow inline FlowCommand;
    Unsubscribe inline proto::CommandUnsubscribe;
    Success inline proto::CommandSuccess;
    Error inline proto::CommandError;
    CloseProducer inline proto::CommandCloseProducer;
    CloseConsumer inline proto::CommandCloseConsumer;
    ProducerSuccess inline proto::CommandProducerSuccess;
    Ping inline proto::CommandPing;
    Pong inline proto::CommandPong;
    RedeliverUnacknowledgedMessages inline proto::CommandRedeliverUnacknowledgedMessages;
    PartitionedMetadata inline proto::CommandPartitionedTopicMetadata;
    PartitionedMetadataResponse inline proto::CommandPartitionedTopicMetadataResponse;
    Lookup boxed proto::CommandLookupTopic;
    LookupResponse inline proto::CommandLookupTopicResponse;
    ConsumerStats inline proto::CommandConsumerStats;
    ConsumerStatsResponse boxed proto::CommandConsumerStatsResponse;
    ReachedEndOfTopic inline proto::CommandReachedEndOfTopic;
    Seek inline proto::CommandSeek;
    GetLastMessageId inline proto::CommandGetLastMessageId;
    GetLastMessageIdResponse boxed proto::CommandGetLastMessageIdResponse;
    ActiveConsumerChange inline proto::CommandActiveConsumerChange;
    GetTopicsOfNamespace inline proto::CommandGetTopicsOfNamespace;
    GetTopicsOfNamespaceResponse inline proto::CommandGetTopicsOfNamespaceResponse;
    GetSchema inline proto::CommandGetSchema;
    GetSchemaResponse boxed proto::CommandGetSchemaResponse;
    AuthChallenge inline proto::CommandAuthChallenge;
    AuthResponse inline proto::CommandAuthResponse;
    AckResponse inline proto::CommandAckResponse;
    GetOrCreateSchema boxed proto::CommandGetOrCreateSchema;
    GetOrCreateSchemaResponse inline proto::CommandGetOrCreateSchemaResponse;
    NewTxn inline proto::CommandNewTxn;
    NewTxnResponse inline proto::CommandNewTxnResponse;
    AddPartitionToTxn inline proto::CommandAddPartitionToTxn;
    AddPartitionToTxnResponse inline proto::CommandAddPartitionToTxnResponse;
    AddSubscriptionToTxn inline proto::CommandAddSubscriptionToTxn;
    AddSubscriptionToTxnResponse inline proto::CommandAddSubscriptionToTxnResponse;
    EndTxn inline proto::CommandEndTxn;
    EndTxnResponse inline proto::CommandEndTxnResponse;
    EndTxnOnPartition inline proto::CommandEndTxnOnPartition;
    EndTxnOnPartitionResponse inline proto::CommandEndTxnOnPartitionResponse;
    EndTxnOnSubscription inline proto::CommandEndTxnOnSubscription;
    EndTxnOnSubscriptionResponse inline proto::CommandEndTxnOnSubscriptionResponse;
    TcClientConnectRequest inline proto::CommandTcClientConnectRequest;
    TcClientConnectResponse inline proto::CommandTcClientConnectResponse;
    WatchTopicList inline proto::CommandWatchTopicList;
    WatchTopicListSuccess inline proto::CommandWatchTopicListSuccess;
    WatchTopicUpdate inline proto::CommandWatchTopicUpdate;
    WatchTopicListClose inline proto::CommandWatchTopicListClose;
    TopicMigrated inline proto::CommandTopicMigrated;
}

/// Decodes the command of a [`Frame`](crate::Frame). Text and bytes are copied, so that a command that is kept does
/// not keep the buffer it came in.
///
/// Bodies of other types than the command's own are skipped unread.
///
/// # Errors
/// [`DecodeError`]; the connection is beyond repair, except that after
/// [`DecodeError::UnknownCommand`] one may go on with the next frame.
pub fn decode_command(command: &[u8]) -> Result<Command, DecodeError> {
    match decode_plain(command) {
        Some((kind, body)) => Command::decode_body(kind, &[body]),
        None => decode_any(command),
    }
}

/// The type and body of a command of the form that every client sends: the type, then the one body.
fn decode_plain(command: &[u8]) -> Option<(Type, &[u8])> {
    let mut reader = Reader::new(command);
    let key = reader.next_key().ok()?.filter(|key| key.field == 1)?;
    let kind = Type::try_from(reader.int32(key).ok()?).ok()?;
    let key = reader.next_key().ok()?.filter(|key| key.field == (kind as i32).cast_unsigned())?;
    let body = reader.delimited(key).ok()?;
    reader.next_key().ok()?.is_none().then_some((kind, body))
}

fn decode_any(command: &[u8]) -> Result<Command, DecodeError> {
    let mut number = None;
    let mut bodies: SmallVec<[(u32, &[u8]); 1]> = SmallVec::new();
    let mut reader = Reader::new(command);
    while let Some(key) = reader.next_key()? {
        match key.field {
            1 => number = Some(reader.int32(key)?),
            field if Type::try_from(field.cast_signed()).is_ok() => bodies.push((field, reader.delimited(key)?)),
            _ => reader.skip(key, crate::varint::MAX_DEPTH)?,
        }
    }
    let number = number.ok_or(DecodeError::NoType)?;
    let kind = Type::try_from(number).map_err(|_| DecodeError::UnknownCommand(number))?;
    let parts: SmallVec<[&[u8]; 1]> =
        bodies.iter().filter(|(field, _)| field.cast_signed() == number).map(|(_, body)| *body).collect();
    if parts.is_empty() {
        return Err(DecodeError::NoBody(kind.as_str_name()));
    }
    Command::decode_body(kind, &parts)
}

/// Writes the whole frame of a command. SEND and MESSAGE go without a payload, which no peer wants: use
/// [`encode_send_header`](crate::encode_send_header) and [`encode_message_header`](crate::encode_message_header).
pub fn encode_command(out: &mut BytesMut, command: &Command) {
    put_frame_header(out, command.command_type(), command.body_len(), 0);
    command.put_body(out);
}

/// Writes a frame up to the body of its command, and makes room for the body.
pub(crate) fn put_frame_header(out: &mut BytesMut, kind: Type, body_len: usize, payload_len: usize) {
    let number = (kind as i32).cast_unsigned();
    let field_key = u64::from(number << 3 | 2);
    // The type's own field, then the body's, whose key may take two bytes where `delimited_len` counts one.
    let command_len = 1 + varint_len(u64::from(number)) + varint_len(field_key) - 1 + delimited_len(body_len);
    out.reserve(8 + command_len);
    out.put_u32(frame_size(4 + command_len + payload_len));
    out.put_u32(frame_size(command_len));
    out.put_u8(1 << 3);
    put_varint(out, u64::from(number));
    put_varint(out, field_key);
    put_varint(out, body_len as u64);
}

/// A size as frames carry it. Nobody builds one of 4 GiB; if it were to happen, the receiver refuses the size.
pub(crate) fn frame_size(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameSplitter;
    use crate::testing::{damage, hex};
    use bytes::Bytes;
    use geminga_model::Position;
    use proptest::prelude::*;
    use prost::Message;

    fn encoded(command: &Command) -> Vec<u8> {
        let mut out = BytesMut::new();
        encode_command(&mut out, command);
        out.to_vec()
    }

    /// The examples of the protocol reference, both ways.
    #[test]
    fn golden_commands() {
        let connect = proto::CommandConnect {
            client_version: "rs-1".into(),
            protocol_version: Some(21),
            auth_method_name: Some("none".into()),
            feature_flags: Some(proto::FeatureFlags {
                supports_auth_refresh: Some(true),
                supports_broker_entry_metadata: Some(true),
                ..Default::default()
            }),
            ..Default::default()
        };
        let flags = proto::FeatureFlags {
            supports_topic_watchers: Some(true),
            supports_get_partitioned_metadata_without_auto_creation: Some(true),
            supports_repl_dedup_by_lid_and_eid: Some(true),
            ..Default::default()
        };
        let duplicate =
            SendReceipt { producer_id: 1, sequence_id: 5, position: Some(Position::EARLIEST), highest_sequence_id: 5 };
        for (command, bytes) in [
            (Command::PING, "00000009 00000005 08 12 92 01 00"),
            (Command::PONG, "00000009 00000005 08 13 9a 01 00"),
            (connect.into(), "0000001c 00000018 08 02 12 14 0a 04 72732d31 20 15 2a 04 6e6f6e65 52 04 08 01 10 01"),
            (
                Command::connected("Pulsar Server", 21, 5_242_880, flags),
                "00000026 00000022 08 03 1a 1e 0a 0d 50756c73617220536572766572 10 15 18 80 80 c0 02 22 06 20 01 28 01 30 01",
            ),
            (
                Command::close_consumer(7, None, None),
                "00000016 00000012 08 10 82 01 0d 08 07 10 ff ff ff ff ff ff ff ff ff 01",
            ),
            (
                duplicate.into(),
                "00000026 00000022 08 07 3a 1e 08 01 10 05 1a 16 08 ffffffffffffffffff 01 10 ffffffffffffffffff 01 20 05",
            ),
        ] {
            assert_eq!(encoded(&command), hex(bytes), "{command:?}");
            let mut buffer = BytesMut::from(hex(bytes).as_slice());
            let frame = FrameSplitter::default().split(&mut buffer).unwrap().unwrap();
            assert!(buffer.is_empty() && frame.payload.is_empty());
            assert_eq!(decode_command(&frame.command), Ok(command));
        }
    }

    #[test]
    fn says_what_is_wrong() {
        use DecodeError::{MissingField, NoBody, NoType, UnknownCommand};
        for (bytes, error) in [
            ("", NoType),
            ("92 01 00", NoType),
            ("08 01", UnknownCommand(1)),
            ("08 46 b2 04 00", UnknownCommand(70)),
            ("08 ffffffffffffffffff 01", UnknownCommand(-1)),
            ("08 06", NoBody("SEND")),
            ("08 06 92 01 00", NoBody("SEND")),
            ("08 06 32 00", MissingField { message: "CommandSend", field: "producer_id" }),
            ("08 0b 5a 02 08 01", MissingField { message: "CommandFlow", field: "messagePermits" }),
        ] {
            assert_eq!(decode_command(&hex(bytes)), Err(error), "{bytes}");
        }
        for bytes in ["08 06 30 01", "08 06 32 05 08", "08", "0a 00", "00 00"] {
            assert!(matches!(decode_command(&hex(bytes)), Err(DecodeError::Malformed(_))), "{bytes}");
        }
        // Text that is not UTF-8.
        assert!(matches!(decode_command(&hex("08 02 12 03 0a 01 ff")), Err(DecodeError::Generated(_))));
    }

    #[test]
    fn order_repetition_and_strangers_do_not_matter() {
        let flow = Command::from(FlowCommand { consumer_id: 3, message_permits: 9 });
        for bytes in [
            "08 0b 5a 04 08 03 10 09",
            "5a 04 08 03 10 09 08 0b",
            "5a 02 08 03 08 0b 5a 02 10 09",
            "08 06 08 0b 5a 06 08 01 10 09 08 03",
            "08 0b c0 3e 05 92 01 00 5a 07 08 03 10 09 c0 3e 05",
        ] {
            assert_eq!(decode_command(&hex(bytes)), Ok(flow.clone()), "{bytes}");
        }
        let unsubscribe = proto::CommandUnsubscribe { consumer_id: 1, request_id: 2, force: None };
        assert_eq!(decode_command(&hex("62 02 08 01 08 0c 62 02 10 02")), Ok(unsubscribe.into()));
    }

    #[test]
    fn a_command_is_small() {
        assert!(size_of::<Command>() <= 200, "{}", size_of::<Command>());
    }

    /// Every type has a variant, and the variant writes the field that the generated description reads.
    #[test]
    fn every_type_is_in_its_place() {
        let types: Vec<Type> = (0..100).filter_map(|number| Type::try_from(number).ok()).collect();
        assert_eq!(types.len(), 58);
        for kind in types {
            let number = kind as u32;
            let mut bytes = vec![8];
            put_varint(&mut bytes, u64::from(number));
            put_varint(&mut bytes, u64::from(number << 3 | 2));
            bytes.push(0);
            // Enough for those whose required fields are checked.
            let body: &[u8] = match kind {
                Type::Send | Type::SendReceipt | Type::Flow | Type::Ack => &[8, 0, 16, 0],
                Type::Message => &[8, 0, 18, 4, 8, 0, 16, 0],
                _ => &[],
            };
            *bytes.last_mut().unwrap() = u8::try_from(body.len()).unwrap();
            bytes.extend_from_slice(body);
            let command = decode_command(&bytes).unwrap();
            assert_eq!(command.command_type(), kind);
            let frame = encoded(&command);
            let generated = proto::BaseCommand::decode(&frame[8..]).unwrap();
            assert_eq!(generated.r#type(), kind);
            assert_eq!(decode_command(&generated.encode_to_vec()), Ok(command));
            // Of all the description's fields, only the type's own is set.
            let empty = proto::BaseCommand { r#type: generated.r#type, ..Default::default() };
            assert!(generated.encoded_len() > empty.encoded_len());
        }
    }

    fn generated_command() -> impl Strategy<Value = Vec<u8>> {
        (any::<u64>(), any::<u64>(), ".{0,8}", prop::collection::vec(any::<u8>(), 0..8), 0u8..6).prop_map(
            |(a, b, text, bytes, which)| {
                let command: Command = match which {
                    0 => proto::CommandSubscribe { topic: text, consumer_id: a, ..Default::default() }.into(),
                    1 => Command::error(a, proto::ServerError::ConsumerBusy, text),
                    2 => Command::producer_success(a, text, b.cast_signed(), Bytes::from(bytes), Some(b), true),
                    3 => proto::CommandSeek { consumer_id: a, message_publish_time: Some(b), ..Default::default() }
                        .into(),
                    4 => Command::topics_of_namespace(a, vec![text.clone(), text], "c7559e98".into(), true, false),
                    _ => Command::auth_challenge(text, Bytes::from(bytes), 21),
                };
                encoded(&command)[8..].to_vec()
            },
        )
    }

    proptest! {
        #[test]
        fn generated_bodies_agree_with_the_generated_command(bytes in damage(generated_command())) {
            match (decode_command(&bytes), proto::BaseCommand::decode(bytes.as_slice())) {
                (Ok(command), Ok(generated)) => {
                    prop_assert_eq!(command.command_type(), generated.r#type());
                    let again = decode_command(&generated.encode_to_vec());
                    // Not equal as a whole: prost keeps unknown enum values, and so do we.
                    prop_assert_eq!(again, Ok(command));
                }
                (Ok(_), Err(_)) | (Err(_), Err(_)) => {}
                (Err(error), Ok(_)) => {
                    let ours_to_refuse = matches!(
                        error,
                        DecodeError::NoType | DecodeError::UnknownCommand(_) | DecodeError::NoBody(_) | DecodeError::MissingField { .. }
                    );
                    prop_assert!(ours_to_refuse, "{}", error);
                }
            }
        }

        #[test]
        fn the_plain_form_is_decoded_as_any(bytes in damage(generated_command())) {
            if let Some((kind, body)) = decode_plain(&bytes) {
                prop_assert_eq!(Command::decode_body(kind, &[body]), decode_any(&bytes));
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..0x20], 0..64)) {
            if let Ok(command) = decode_command(&bytes) {
                let frame = encoded(&command);
                let again = decode_command(&frame[8..]);
                prop_assert_eq!(again.map(|command| encoded(&command)), Ok(frame));
            }
        }
    }
}
