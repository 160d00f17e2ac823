//! The hand-written codecs against prost: for all bytes, both accept or both refuse, and both read the same.
//!
//! prost does not tell a missing required field from an empty one. So the model is a description of our own in which
//! every field is optional, and what is required is checked here.

use bytes::BytesMut;
use geminga_model::Position;
use proptest::option::of;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::command::{Body, Command, decode_command, encode_command};
use crate::frame::FrameSplitter;
use crate::proto;
use crate::proto::command_ack::{AckType, ValidationError};
use crate::testing::{damage, hex, number};

#[derive(Clone, PartialEq, Message)]
struct LooseId {
    #[prost(uint64, optional, tag = "1")]
    ledger: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    entry: Option<u64>,
    #[prost(int32, optional, tag = "3")]
    partition: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    batch_index: Option<i32>,
    #[prost(int64, repeated, packed = "false", tag = "5")]
    ack_set: Vec<i64>,
    #[prost(int32, optional, tag = "6")]
    batch_size: Option<i32>,
    #[prost(message, optional, boxed, tag = "7")]
    first_chunk: Option<Box<LooseId>>,
}

#[derive(Clone, PartialEq, Message)]
struct LooseSend {
    #[prost(uint64, optional, tag = "1")]
    producer_id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    sequence_id: Option<u64>,
    #[prost(int32, optional, tag = "3")]
    num_messages: Option<i32>,
    #[prost(uint64, optional, tag = "4")]
    least: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    most: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    highest: Option<u64>,
    #[prost(bool, optional, tag = "7")]
    is_chunk: Option<bool>,
    #[prost(bool, optional, tag = "8")]
    marker: Option<bool>,
    #[prost(message, optional, tag = "9")]
    message_id: Option<LooseId>,
}

#[derive(Clone, PartialEq, Message)]
struct LooseReceipt {
    #[prost(uint64, optional, tag = "1")]
    producer_id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    sequence_id: Option<u64>,
    #[prost(message, optional, tag = "3")]
    message_id: Option<LooseId>,
    #[prost(uint64, optional, tag = "4")]
    highest: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct LooseMessage {
    #[prost(uint64, optional, tag = "1")]
    consumer_id: Option<u64>,
    #[prost(message, optional, tag = "2")]
    message_id: Option<LooseId>,
    #[prost(uint32, optional, tag = "3")]
    redelivery_count: Option<u32>,
    #[prost(int64, repeated, packed = "false", tag = "4")]
    ack_set: Vec<i64>,
    #[prost(uint64, optional, tag = "5")]
    consumer_epoch: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct LooseAck {
    #[prost(uint64, optional, tag = "1")]
    consumer_id: Option<u64>,
    // Repeated where the protocol has one, so that the model sees which known value came last.
    #[prost(int32, repeated, packed = "false", tag = "2")]
    ack_type: Vec<i32>,
    #[prost(message, repeated, tag = "3")]
    message_ids: Vec<LooseId>,
    #[prost(int32, repeated, packed = "false", tag = "4")]
    validation_error: Vec<i32>,
    #[prost(message, repeated, tag = "5")]
    properties: Vec<proto::KeyLongValue>,
    #[prost(uint64, optional, tag = "6")]
    least: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    most: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    request_id: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct LooseFlow {
    #[prost(uint64, optional, tag = "1")]
    consumer_id: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    permits: Option<u32>,
}

/// What a model should be read as; `None` if a required field is missing.
trait Model: Message + Default {
    type Ours: Body + std::fmt::Debug + PartialEq;
    fn ours(self) -> Option<Self::Ours>;
}

impl LooseId {
    fn position(&self) -> Option<Position> {
        Some(Position::new(self.ledger?.cast_signed(), self.entry?.cast_signed()))
    }

    fn ours(self) -> Option<MessageId> {
        Some(MessageId {
            position: self.position()?,
            partition: self.partition.unwrap_or(-1),
            batch_index: self.batch_index.unwrap_or(-1),
            ack_set: self.ack_set.into(),
            batch_size: self.batch_size,
        })
    }
}

/// The inner `None` of an optional id is one that is there without its required fields.
fn optional_position(id: Option<LooseId>) -> Option<Option<Position>> {
    id.map_or(Some(None), |id| id.position().map(Some))
}

impl Model for LooseSend {
    type Ours = SendCommand;
    fn ours(self) -> Option<SendCommand> {
        Some(SendCommand {
            producer_id: self.producer_id?,
            sequence_id: self.sequence_id?,
            num_messages: self.num_messages.unwrap_or(1),
            txnid_least_bits: self.least,
            txnid_most_bits: self.most,
            highest_sequence_id: self.highest.unwrap_or(0),
            is_chunk: self.is_chunk.unwrap_or(false),
            marker: self.marker.unwrap_or(false),
            message_id: optional_position(self.message_id)?,
        })
    }
}

impl Model for LooseReceipt {
    type Ours = SendReceipt;
    fn ours(self) -> Option<SendReceipt> {
        Some(SendReceipt {
            producer_id: self.producer_id?,
            sequence_id: self.sequence_id?,
            position: optional_position(self.message_id)?,
            highest_sequence_id: self.highest.unwrap_or(0),
        })
    }
}

impl Model for LooseMessage {
    type Ours = MessageCommand;
    fn ours(self) -> Option<MessageCommand> {
        Some(MessageCommand {
            consumer_id: self.consumer_id?,
            message_id: self.message_id?.ours()?,
            redelivery_count: self.redelivery_count.unwrap_or(0),
            ack_set: self.ack_set.into(),
            consumer_epoch: self.consumer_epoch,
        })
    }
}

impl Model for LooseAck {
    type Ours = AckCommand;
    fn ours(self) -> Option<AckCommand> {
        Some(AckCommand {
            consumer_id: self.consumer_id?,
            ack_type: self.ack_type.into_iter().filter_map(|value| AckType::try_from(value).ok()).next_back()?,
            message_ids: self.message_ids.into_iter().map(LooseId::ours).collect::<Option<_>>()?,
            validation_error: self
                .validation_error
                .into_iter()
                .filter_map(|value| ValidationError::try_from(value).ok())
                .next_back(),
            properties: self.properties,
            txnid_least_bits: self.least,
            txnid_most_bits: self.most,
            request_id: self.request_id,
        })
    }
}

impl Model for LooseFlow {
    type Ours = FlowCommand;
    fn ours(self) -> Option<FlowCommand> {
        Some(FlowCommand { consumer_id: self.consumer_id?, message_permits: self.permits? })
    }
}

/// Both decoders on the same bytes.
fn agree<M: Model>(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = M::Ours::from_parts(&[bytes]);
    match (&ours, M::decode(bytes)) {
        (Err(DecodeError::Malformed(_) | DecodeError::Generated(_)), Err(_)) => {}
        // An earlier missing field within an id may be found before a later malformed part.
        (Err(DecodeError::MissingField { .. }), Err(_)) => {}
        (_, Ok(model)) => match model.ours() {
            Some(expected) => {
                // What we write is read back as the same, by us and by prost.
                prop_assert_eq!(&ours, &Ok(expected));
                let mut out = BytesMut::new();
                if let Ok(command) = &ours {
                    command.put(&mut out);
                    prop_assert_eq!(out.len(), command.body_len());
                }
                prop_assert_eq!(&M::Ours::from_parts(&[&out]), &ours);
                prop_assert_eq!(M::decode(out.as_ref()).unwrap().ours(), ours.ok());
            }
            None => prop_assert!(matches!(ours, Err(DecodeError::MissingField { .. })), "{:?}", ours),
        },
        (_, Err(error)) => prop_assert!(false, "{:?} but prost says {}", ours, error),
    }
    // A body in two parts is one body.
    let middle = bytes.len() / 2;
    if let (Some((front, back)), Ok(whole)) = (bytes.split_at_checked(middle), M::Ours::from_parts(&[bytes]))
        && let Ok(parts) = M::Ours::from_parts(&[front, back])
    {
        prop_assert_eq!(parts, whole);
    }
    Ok(())
}

fn words() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(any::<i64>(), 0..4)
}

prop_compose! {
    fn plain_id()(
        ledger in of(number()), entry in of(number()), partition: Option<i32>, batch_index: Option<i32>,
        ack_set in words(), batch_size: Option<i32>,
    ) -> LooseId {
        // Mostly complete: a missing field is the exception.
        let (ledger, entry) = (ledger.or(Some(1)), if partition == Some(0) { entry } else { entry.or(Some(2)) });
        LooseId { ledger, entry, partition, batch_index, ack_set, batch_size, first_chunk: None }
    }
}

fn id() -> impl Strategy<Value = LooseId> {
    (plain_id(), of(plain_id().prop_map(Box::new))).prop_map(|(id, first_chunk)| LooseId { first_chunk, ..id })
}

prop_compose! {
    fn send()(
        producer_id in of(number()), sequence_id in of(number()), num_messages: Option<i32>, least in of(number()),
        most in of(number()), highest in of(number()), is_chunk: Option<bool>, marker: Option<bool>, message_id in of(id()),
    ) -> Vec<u8> {
        LooseSend { producer_id, sequence_id, num_messages, least, most, highest, is_chunk, marker, message_id }.encode_to_vec()
    }
}

prop_compose! {
    fn receipt()(producer_id in of(number()), sequence_id in of(number()), message_id in of(id()), highest in of(number())) -> Vec<u8> {
        LooseReceipt { producer_id, sequence_id, message_id, highest }.encode_to_vec()
    }
}

prop_compose! {
    fn message()(
        consumer_id in of(number()), message_id in of(id()), redelivery_count: Option<u32>, ack_set in words(),
        consumer_epoch in of(number()),
    ) -> Vec<u8> {
        LooseMessage { consumer_id, message_id, redelivery_count, ack_set, consumer_epoch }.encode_to_vec()
    }
}

prop_compose! {
    fn ack()(
        consumer_id in of(number()), ack_type in prop::collection::vec(0i32..3, 0..3),
        message_ids in prop::collection::vec(id(), 0..3), validation_error in prop::collection::vec(0i32..7, 0..2),
        properties in prop::collection::vec((".{0,4}", number()), 0..2), least in of(number()), most in of(number()),
        request_id in of(number()),
    ) -> Vec<u8> {
        let properties = properties.into_iter().map(|(key, value)| proto::KeyLongValue { key, value }).collect();
        LooseAck { consumer_id, ack_type, message_ids, validation_error, properties, least, most, request_id }.encode_to_vec()
    }
}

prop_compose! {
    fn flow()(consumer_id in of(number()), permits: Option<u32>) -> Vec<u8> {
        LooseFlow { consumer_id, permits }.encode_to_vec()
    }
}

/// Appends fields that no description has, in every wire type, and the body again: for merging.
fn strange(valid: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let unknown = prop_oneof![
        Just(""),
        Just("c0 3e ff 01"),
        Just("c1 3e 0102030405060708"),
        Just("c2 3e 02 0000"),
        Just("c3 3e 08 01 c3 3e c4 3e c4 3e"),
        Just("c5 3e 01020304"),
        Just("c4 3e"),
    ];
    (valid, unknown, any::<bool>()).prop_map(|(valid, unknown, twice)| {
        let again = if twice { valid.clone() } else { Vec::new() };
        [valid, hex(unknown), again].concat()
    })
}

/// The protocol's enums take one value a field; the model of ACK would also take packed ones.
fn has_packed_enum(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, 0x12 | 0x22))
}

proptest! {
    #[test]
    fn send_agrees_with_prost(bytes in damage(strange(send()))) {
        agree::<LooseSend>(&bytes)?;
    }

    #[test]
    fn receipt_agrees_with_prost(bytes in damage(strange(receipt()))) {
        agree::<LooseReceipt>(&bytes)?;
    }

    #[test]
    fn message_agrees_with_prost(bytes in damage(strange(message()))) {
        agree::<LooseMessage>(&bytes)?;
    }

    #[test]
    fn ack_agrees_with_prost(bytes in prop_oneof![strange(ack()), damage(ack())]) {
        if !has_packed_enum(&bytes) {
            agree::<LooseAck>(&bytes)?;
        }
    }

    #[test]
    fn flow_agrees_with_prost(bytes in damage(strange(flow()))) {
        agree::<LooseFlow>(&bytes)?;
    }

    #[test]
    fn arbitrary_bytes_agree_with_prost(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..0x4A], 0..32)) {
        agree::<LooseSend>(&bytes)?;
        agree::<LooseReceipt>(&bytes)?;
        agree::<LooseMessage>(&bytes)?;
        agree::<LooseFlow>(&bytes)?;
        if !has_packed_enum(&bytes) {
            agree::<LooseAck>(&bytes)?;
        }
    }

    #[test]
    fn message_frames(
        consumer_id in number(), ledger: i64, entry: i64, partition in prop_oneof![Just(-1), any::<i32>()],
        redelivery_count in prop_oneof![Just(0), any::<u32>()], ack_set in words(), consumer_epoch in of(number()),
        payload in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        let header = MessageHeader {
            consumer_id, position: Position::new(ledger, entry), partition, redelivery_count, ack_set: &ack_set, consumer_epoch,
        };
        let mut out = BytesMut::new();
        encode_message_header(&mut out, &header, payload.len());
        out.extend_from_slice(&payload);
        let frame = FrameSplitter::default().split(&mut out).unwrap().unwrap();
        prop_assert!(out.is_empty());
        prop_assert_eq!(frame.payload, payload);
        let expected = MessageCommand {
            consumer_id,
            message_id: MessageId { partition, ..MessageId::of_entry(header.position) },
            redelivery_count,
            ack_set: ack_set.iter().copied().collect(),
            consumer_epoch,
        };
        let generated = proto::BaseCommand::decode(frame.command.as_ref()).unwrap();
        prop_assert_eq!(MessageId::from(&generated.message.unwrap().message_id), expected.message_id.clone());
        prop_assert_eq!(decode_command(&frame.command), Ok(expected.into()));
    }

    #[test]
    fn ids_convert_both_ways(id in plain_id()) {
        if let Some(id) = id.ours() {
            prop_assert_eq!(MessageId::from(&proto::MessageIdData::from(&id)), id);
        }
    }
}

#[test]
fn nesting_is_limited_as_by_prost() {
    for levels in [95usize, 96, 97, 98, 99, 100] {
        // An ACK of an id whose first chunk's first chunk's … id is empty.
        let mut id = Vec::new();
        for _ in 0..levels {
            let mut outer = Vec::new();
            crate::varint::put_field(&mut outer, 1, 0);
            crate::varint::put_field(&mut outer, 2, 0);
            crate::varint::put_delimited(&mut outer, 7, id.len());
            outer.extend_from_slice(&id);
            id = outer;
        }
        let mut body = vec![8, 0, 16, 0];
        crate::varint::put_delimited(&mut body, 3, id.len());
        body.extend_from_slice(&id);
        let mut command = vec![8, 10];
        crate::varint::put_delimited(&mut command, 10, body.len());
        command.extend_from_slice(&body);
        let prost_accepts = proto::BaseCommand::decode(command.as_slice()).is_ok();
        assert_eq!(decode_command(&command).is_ok(), prost_accepts, "{levels}");
    }
}

#[test]
fn what_travels_per_message_does_not_allocate() {
    // SEND, SEND_RECEIPT and FLOW have nothing that could be allocated.
    fn is_copy<T: Copy>() {}
    is_copy::<SendCommand>();
    is_copy::<SendReceipt>();
    is_copy::<FlowCommand>();
    let id = MessageId { ack_set: AckSet::from_slice(&[1, 2]), ..MessageId::of_entry(Position::new(1, 2)) };
    let mut out = BytesMut::new();
    encode_command(&mut out, &AckCommand::new(1, AckType::Individual, id).into());
    let Ok(Command::Ack(ack)) = decode_command(&out[8..]) else { panic!("not an ACK") };
    assert!(!ack.message_ids.spilled() && !ack.message_ids[0].ack_set.spilled());
    assert_eq!(ack.properties.capacity(), 0);
}

#[test]
fn direct_encoders_write_what_encode_command_writes() {
    let send = SendCommand { highest_sequence_id: 9, num_messages: 3, ..SendCommand::new(4, 5) };
    let receipt = SendReceipt { producer_id: 1, sequence_id: 2, position: None, highest_sequence_id: 0 };
    let ack = AckCommand::new(7, AckType::Cumulative, MessageId::of_entry(Position::new(3, 4)));
    let flow = FlowCommand { consumer_id: 1, message_permits: 1000 };
    let direct = |encode: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        encode(&mut out);
        out
    };
    for (ours, command) in [
        (direct(&|out| encode_send_header(out, &send, 0)), Command::from(send)),
        (direct(&|out| encode_send_receipt(out, &receipt)), receipt.into()),
        (direct(&|out| encode_ack(out, &ack)), ack.clone().into()),
        (direct(&|out| encode_flow(out, &flow)), flow.into()),
    ] {
        assert_eq!(ours, direct(&|out| encode_command(out, &command)));
    }
}

#[test]
fn a_transaction_needs_both_halves() {
    let mut send = SendCommand { txnid_least_bits: Some(0), ..SendCommand::new(1, 2) };
    assert_eq!(send.txn_id(), None);
    send.txnid_most_bits = Some(3);
    assert_eq!(send.txn_id(), Some(crate::metadata::TxnId { most_bits: 3, least_bits: 0 }));
    let mut ack = AckCommand::new(1, AckType::Individual, MessageId::of_entry(Position::EARLIEST));
    assert_eq!(ack.txn_id(), None);
    (ack.txnid_least_bits, ack.txnid_most_bits) = (Some(1), Some(2));
    assert_eq!(ack.txn_id(), Some(crate::metadata::TxnId { most_bits: 2, least_bits: 1 }));
}
