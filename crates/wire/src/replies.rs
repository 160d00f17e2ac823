//! Short ways to the commands that brokers send often.

use bytes::Bytes;
use geminga_model::Position;

use crate::command::Command;
use crate::proto::{self, ServerError};

/// The request id of what answers no request: −1.
const NO_REQUEST: u64 = u64::MAX;

impl Command {
    /// PING.
    pub const PING: Command = Command::Ping(proto::CommandPing {});

    /// PONG.
    pub const PONG: Command = Command::Pong(proto::CommandPong {});

    /// CONNECTED: the handshake succeeded.
    #[must_use]
    pub fn connected(
        server_version: impl Into<String>,
        protocol_version: i32,
        max_message_size: i32,
        flags: proto::FeatureFlags,
    ) -> Command {
        proto::CommandConnected {
            server_version: server_version.into(),
            protocol_version: Some(protocol_version),
            max_message_size: Some(max_message_size),
            feature_flags: Some(flags),
        }
        .into()
    }

    /// AUTH_CHALLENGE: the peer must send (further or fresh) credentials.
    #[must_use]
    pub fn auth_challenge(method: impl Into<String>, data: Bytes, protocol_version: i32) -> Command {
        let challenge = proto::AuthData { auth_method_name: Some(method.into()), auth_data: Some(data) };
        proto::CommandAuthChallenge {
            server_version: None,
            challenge: Some(challenge),
            protocol_version: Some(protocol_version),
        }
        .into()
    }

    /// SUCCESS.
    #[must_use]
    pub fn success(request_id: u64) -> Command {
        proto::CommandSuccess { request_id, schema: None }.into()
    }

    /// ERROR in answer to a request.
    #[must_use]
    pub fn error(request_id: u64, error: ServerError, message: impl Into<String>) -> Command {
        proto::CommandError { request_id, error: error.into(), message: message.into() }.into()
    }

    /// ERROR about the connection itself, before it is closed.
    #[must_use]
    pub fn connection_error(error: ServerError, message: impl Into<String>) -> Command {
        Command::error(NO_REQUEST, error, message)
    }

    /// SEND_ERROR. `sequence_id` is the highest of the failed SEND.
    #[must_use]
    pub fn send_error(producer_id: u64, sequence_id: u64, error: ServerError, message: impl Into<String>) -> Command {
        proto::CommandSendError { producer_id, sequence_id, error: error.into(), message: message.into() }.into()
    }

    /// PRODUCER_SUCCESS. `last_sequence_id` is −1 if not known; `topic_epoch` is for exclusive producers; `ready` is
    /// false while the producer waits to become exclusive.
    #[must_use]
    pub fn producer_success(
        request_id: u64,
        producer_name: impl Into<String>,
        last_sequence_id: i64,
        schema_version: Bytes,
        topic_epoch: Option<u64>,
        ready: bool,
    ) -> Command {
        proto::CommandProducerSuccess {
            request_id,
            producer_name: producer_name.into(),
            last_sequence_id: Some(last_sequence_id),
            schema_version: Some(schema_version),
            topic_epoch,
            producer_ready: Some(ready),
        }
        .into()
    }

    /// LOOKUP_RESPONSE: connect to this broker, which owns the topic. With `through_service_url` the client keeps to
    /// the address that it knows, because this one is not for it.
    #[must_use]
    pub fn lookup_connect(
        request_id: u64,
        url: Option<String>,
        url_tls: Option<String>,
        through_service_url: bool,
    ) -> Command {
        let response = proto::command_lookup_topic_response::LookupType::Connect;
        proto::CommandLookupTopicResponse {
            broker_service_url: url,
            broker_service_url_tls: url_tls,
            response: Some(response.into()),
            request_id,
            // Fact: Java brokers always say so here.
            authoritative: Some(true),
            proxy_through_service_url: Some(through_service_url),
            ..Default::default()
        }
        .into()
    }

    /// LOOKUP_RESPONSE: ask this broker, with the flag given here.
    #[must_use]
    pub fn lookup_redirect(
        request_id: u64,
        url: Option<String>,
        url_tls: Option<String>,
        authoritative: bool,
    ) -> Command {
        let response = proto::command_lookup_topic_response::LookupType::Redirect;
        proto::CommandLookupTopicResponse {
            broker_service_url: url,
            broker_service_url_tls: url_tls,
            response: Some(response.into()),
            request_id,
            authoritative: Some(authoritative),
            ..Default::default()
        }
        .into()
    }

    /// LOOKUP_RESPONSE: failed.
    #[must_use]
    pub fn lookup_failed(request_id: u64, error: ServerError, message: impl Into<String>) -> Command {
        let response = proto::command_lookup_topic_response::LookupType::Failed;
        proto::CommandLookupTopicResponse {
            response: Some(response.into()),
            request_id,
            error: Some(error.into()),
            message: Some(message.into()),
            ..Default::default()
        }
        .into()
    }

    /// PARTITIONED_METADATA_RESPONSE: how many partitions; 0 for a topic without.
    #[must_use]
    pub fn partitions(request_id: u64, partitions: u32) -> Command {
        let response = proto::command_partitioned_topic_metadata_response::LookupType::Success;
        proto::CommandPartitionedTopicMetadataResponse {
            partitions: Some(partitions),
            request_id,
            response: Some(response.into()),
            ..Default::default()
        }
        .into()
    }

    /// PARTITIONED_METADATA_RESPONSE: failed.
    #[must_use]
    pub fn partitions_failed(request_id: u64, error: ServerError, message: impl Into<String>) -> Command {
        let response = proto::command_partitioned_topic_metadata_response::LookupType::Failed;
        proto::CommandPartitionedTopicMetadataResponse {
            request_id,
            response: Some(response.into()),
            error: Some(error.into()),
            message: Some(message.into()),
            ..Default::default()
        }
        .into()
    }

    /// GET_TOPICS_OF_NAMESPACE_RESPONSE. `filtered`: the broker applied the pattern. Not `changed`: the client's hash
    /// was right, and `topics` is empty.
    #[must_use]
    pub fn topics_of_namespace(
        request_id: u64,
        topics: Vec<String>,
        topics_hash: String,
        filtered: bool,
        changed: bool,
    ) -> Command {
        proto::CommandGetTopicsOfNamespaceResponse {
            request_id,
            topics,
            filtered: Some(filtered),
            topics_hash: Some(topics_hash),
            changed: Some(changed),
        }
        .into()
    }

    /// CLOSE_PRODUCER from the broker: connect again, to the broker of the URLs if it is known.
    #[must_use]
    pub fn close_producer(producer_id: u64, url: Option<String>, url_tls: Option<String>) -> Command {
        proto::CommandCloseProducer {
            producer_id,
            request_id: NO_REQUEST,
            assigned_broker_service_url: url,
            assigned_broker_service_url_tls: url_tls,
        }
        .into()
    }

    /// CLOSE_CONSUMER from the broker: connect again, to the broker of the URLs if it is known.
    #[must_use]
    pub fn close_consumer(consumer_id: u64, url: Option<String>, url_tls: Option<String>) -> Command {
        proto::CommandCloseConsumer {
            consumer_id,
            request_id: NO_REQUEST,
            assigned_broker_service_url: url,
            assigned_broker_service_url_tls: url_tls,
        }
        .into()
    }

    /// ACK_RESPONSE outside a transaction, with what went wrong if something did.
    #[must_use]
    pub fn ack_response(consumer_id: u64, request_id: u64, failure: Option<(ServerError, String)>) -> Command {
        let (error, message) = failure.map(|(error, message)| (error.into(), message)).unzip();
        proto::CommandAckResponse { consumer_id, error, message, request_id: Some(request_id), ..Default::default() }
            .into()
    }

    /// ACTIVE_CONSUMER_CHANGE of a Failover subscription.
    #[must_use]
    pub fn active_consumer_change(consumer_id: u64, is_active: bool) -> Command {
        proto::CommandActiveConsumerChange { consumer_id, is_active: Some(is_active) }.into()
    }

    /// REACHED_END_OF_TOPIC.
    #[must_use]
    pub fn reached_end_of_topic(consumer_id: u64) -> Command {
        proto::CommandReachedEndOfTopic { consumer_id }.into()
    }

    /// GET_LAST_MESSAGE_ID_RESPONSE. `mark_delete` is the subscription's; a position before every ledger is left out.
    #[must_use]
    pub fn last_message_id(
        request_id: u64,
        last_message_id: proto::MessageIdData,
        mark_delete: Option<Position>,
    ) -> Command {
        proto::CommandGetLastMessageIdResponse {
            last_message_id,
            request_id,
            consumer_mark_delete_position: mark_delete.filter(|position| position.ledger.0 >= 0).map(Into::into),
        }
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_no_request_says_so() {
        let Command::Error(error) = Command::connection_error(ServerError::NotAllowedError, "full") else {
            panic!("not an error")
        };
        assert_eq!((error.request_id, error.error()), (u64::MAX, ServerError::NotAllowedError));
    }

    #[test]
    fn mark_delete_before_every_ledger_is_left_out() {
        for (position, said) in [(None, false), (Some(Position::EARLIEST), false), (Some(Position::new(3, -1)), true)] {
            let Command::GetLastMessageIdResponse(reply) =
                Command::last_message_id(1, Position::new(4, 5).into(), position)
            else {
                panic!("not the response")
            };
            assert_eq!(reply.consumer_mark_delete_position.is_some(), said);
        }
    }

    #[test]
    fn ack_response_has_both_or_neither() {
        let Command::AckResponse(good) = Command::ack_response(1, 2, None) else { panic!("not the response") };
        assert_eq!((good.error, good.message, good.request_id), (None, None, Some(2)));
        let failure = Some((ServerError::TransactionConflict, "taken".to_owned()));
        let Command::AckResponse(bad) = Command::ack_response(1, 2, failure) else { panic!("not the response") };
        assert_eq!((bad.error(), bad.message()), (ServerError::TransactionConflict, "taken"));
    }
}
