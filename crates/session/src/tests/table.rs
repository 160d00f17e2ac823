//! All commands there are, and what a session makes of those that clients send.

use geminga_wire::{FlowCommand, SendReceipt};

use super::*;

/// Command; effects when nothing of id 1 exists, when it is being opened, is open, and is being closed.
pub(super) fn table() -> Vec<(Command, [&'static str; 4])> {
    const TXN: [&str; 4] = ["ERROR:NotAllowedError"; 4];
    const NONE: [&str; 4] = [""; 4];
    let every = |word: &'static str| [word; 4];
    let (id, request_id) = (1, 7);
    let consumer = |word: &'static str| ["ERROR:MetadataError", "ERROR:MetadataError", word, "ERROR:MetadataError"];
    vec![
        (connect(21), every("Close CloseProducer CloseConsumer")),
        (Command::PING, every("PONG")),
        (Command::PONG, NONE),
        (
            producer(id, request_id),
            ["OpenProducer", "ERROR:ServiceNotReady", "PRODUCER_SUCCESS", "ERROR:ServiceNotReady"],
        ),
        (SendCommand::new(id, 0).into(), ["Close", "Close CloseProducer CloseConsumer", "Publish", "FailPublish"]),
        (close_producer(id), ["SUCCESS", "ERROR:ServiceNotReady CloseProducer", "CloseProducer", ""]),
        (
            subscription(id, request_id).into(),
            ["Subscribe", "ERROR:ServiceNotReady", "SUCCESS", "ERROR:ServiceNotReady"],
        ),
        (close_consumer(id), ["SUCCESS", "ERROR:ServiceNotReady CloseConsumer", "CloseConsumer", ""]),
        (FlowCommand { consumer_id: id, message_permits: 5 }.into(), ["", "", "Flow", ""]),
        (FlowCommand { consumer_id: id, message_permits: 0 }.into(), every("Close CloseProducer CloseConsumer")),
        (ack(None).into(), ["", "", "Ack", ""]),
        (
            ack(Some(request_id)).into(),
            ["ACK_RESPONSE:ConsumerNotFound", "ACK_RESPONSE:ConsumerNotFound", "Ack", "ACK_RESPONSE:ConsumerNotFound"],
        ),
        (
            proto::CommandRedeliverUnacknowledgedMessages { consumer_id: id, ..Default::default() }.into(),
            ["", "", "Redeliver", ""],
        ),
        (
            proto::CommandSeek { consumer_id: id, request_id, message_publish_time: Some(5), ..Default::default() }
                .into(),
            consumer("Seek"),
        ),
        (proto::CommandSeek { consumer_id: id, request_id, ..Default::default() }.into(), every("ERROR:MetadataError")),
        (proto::CommandUnsubscribe { consumer_id: id, request_id, force: None }.into(), consumer("Unsubscribe")),
        (proto::CommandGetLastMessageId { consumer_id: id, request_id }.into(), consumer("LastMessageId")),
        (
            proto::CommandConsumerStats { request_id, consumer_id: id }.into(),
            [
                "CONSUMER_STATS_RESPONSE:ConsumerNotFound",
                "CONSUMER_STATS_RESPONSE:ConsumerNotFound",
                "ConsumerStats",
                "CONSUMER_STATS_RESPONSE:ConsumerNotFound",
            ],
        ),
        (proto::CommandLookupTopic { topic: "t".into(), request_id, ..Default::default() }.into(), every("Lookup")),
        (
            proto::CommandPartitionedTopicMetadata { topic: "t".into(), request_id, ..Default::default() }.into(),
            every("PartitionMetadata"),
        ),
        (
            proto::CommandGetTopicsOfNamespace { namespace: "a/b".into(), request_id, ..Default::default() }.into(),
            every("TopicsOfNamespace"),
        ),
        (
            proto::CommandWatchTopicList { namespace: "a/b".into(), request_id, watcher_id: 1, ..Default::default() }
                .into(),
            every("WatchTopicList"),
        ),
        (proto::CommandWatchTopicListClose { request_id, watcher_id: 1 }.into(), every("SUCCESS")),
        (proto::CommandGetSchema { topic: "t".into(), request_id, schema_version: None }.into(), every("GetSchema")),
        (
            proto::CommandGetOrCreateSchema { topic: "t".into(), request_id, ..Default::default() }.into(),
            every("GetOrCreateSchema"),
        ),
        (proto::CommandNewTxn { request_id, ..Default::default() }.into(), TXN),
        (proto::CommandAddPartitionToTxn { request_id, ..Default::default() }.into(), TXN),
        (proto::CommandAddSubscriptionToTxn { request_id, ..Default::default() }.into(), TXN),
        (proto::CommandEndTxn { request_id, ..Default::default() }.into(), TXN),
        (proto::CommandEndTxnOnPartition { request_id, ..Default::default() }.into(), TXN),
        (proto::CommandEndTxnOnSubscription { request_id, ..Default::default() }.into(), TXN),
        (proto::CommandTcClientConnectRequest { request_id, tc_id: 0 }.into(), TXN),
    ]
}

/// What no client sends.
pub(super) fn out_of_place() -> Vec<Command> {
    let receipt = SendReceipt { producer_id: 1, sequence_id: 0, position: None, highest_sequence_id: 0 };
    vec![
        proto::CommandAuthResponse::default().into(),
        proto::CommandAuthChallenge::default().into(),
        Command::connected("", 21, 0, proto::FeatureFlags::default()),
        receipt.into(),
        proto::CommandSendError::default().into(),
        Command::success(1),
        Command::error(1, ServerError::UnknownError, ""),
        Command::producer_success(1, "", 0, Bytes::new(), None, true),
        Command::partitions(1, 0),
        Command::lookup_connect(1, None, None, false),
        proto::CommandConsumerStatsResponse::default().into(),
        Command::reached_end_of_topic(1),
        Command::last_message_id(1, Position::EARLIEST.into(), None),
        Command::active_consumer_change(1, true),
        Command::topics_of_namespace(1, vec![], String::new(), false, true),
        proto::CommandGetSchemaResponse::default().into(),
        proto::CommandGetOrCreateSchemaResponse::default().into(),
        Command::ack_response(1, 1, None),
        proto::CommandNewTxnResponse::default().into(),
        proto::CommandAddPartitionToTxnResponse::default().into(),
        proto::CommandAddSubscriptionToTxnResponse::default().into(),
        proto::CommandEndTxnResponse::default().into(),
        proto::CommandEndTxnOnPartitionResponse::default().into(),
        proto::CommandEndTxnOnSubscriptionResponse::default().into(),
        proto::CommandTcClientConnectResponse::default().into(),
        proto::CommandWatchTopicListSuccess::default().into(),
        proto::CommandWatchTopicUpdate::default().into(),
        proto::CommandTopicMigrated::default().into(),
    ]
}
