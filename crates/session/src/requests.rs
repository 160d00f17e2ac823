//! Requests that are answered by one reply: how each is asked, and how each reply is spelled.

use geminga_model::{NamespaceName, TopicName};
use geminga_wire::proto;
use geminga_wire::proto::command_get_topics_of_namespace::Mode;
use geminga_wire::{Command, ServerError};

use crate::answer::{Answer, LookupAnswer, Refusal};
use crate::effect::{ConsumerKey, Effect, RequestKey};
use crate::session::Session;
use crate::specs::pairs;

/// A request that waits for the broker's answer: what the reply depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    Lookup,
    Partitions,
    Topics,
    GetSchema,
    GetOrCreateSchema,
    LastMessageId,
    ConsumerStats,
    Ack { consumer_id: u64 },
    Seek(ConsumerKey),
    Unsubscribe(ConsumerKey),
}

impl Pending {
    /// The reply if the request failed: most kinds have their own.
    pub(crate) fn refused(self, request_id: u64, refusal: Refusal) -> Command {
        let Refusal { error, message } = refusal;
        match self {
            Pending::Lookup => Command::lookup_failed(request_id, error, message),
            Pending::Partitions => Command::partitions_failed(request_id, error, message),
            Pending::Ack { consumer_id } => Command::ack_response(consumer_id, request_id, Some((error, message))),
            Pending::ConsumerStats => proto::CommandConsumerStatsResponse {
                request_id,
                error_code: Some(error.into()),
                error_message: Some(message),
                ..Default::default()
            }
            .into(),
            Pending::GetSchema => proto::CommandGetSchemaResponse {
                request_id,
                error_code: Some(error.into()),
                error_message: Some(message),
                ..Default::default()
            }
            .into(),
            Pending::GetOrCreateSchema => proto::CommandGetOrCreateSchemaResponse {
                request_id,
                error_code: Some(error.into()),
                error_message: Some(message),
                ..Default::default()
            }
            .into(),
            Pending::Topics | Pending::LastMessageId | Pending::Seek(_) | Pending::Unsubscribe(_) => {
                Command::error(request_id, error, message)
            }
        }
    }

    /// The reply if it succeeded.
    fn answered(self, request_id: u64, answer: Answer) -> Command {
        match (self, answer) {
            (Pending::Lookup, Answer::Lookup(LookupAnswer::Connect { url, url_tls, through_service_url })) => {
                Command::lookup_connect(request_id, url, url_tls, through_service_url)
            }
            (Pending::Lookup, Answer::Lookup(LookupAnswer::Redirect { url, url_tls, authoritative })) => {
                Command::lookup_redirect(request_id, url, url_tls, authoritative)
            }
            (Pending::Partitions, Answer::Partitions(partitions)) => Command::partitions(request_id, partitions),
            (Pending::Topics, Answer::Topics { topics, hash, filtered, changed }) => {
                Command::topics_of_namespace(request_id, topics, hash, filtered, changed)
            }
            (Pending::LastMessageId, Answer::LastMessageId { last, mark_delete }) => {
                Command::last_message_id(request_id, (&last).into(), mark_delete)
            }
            (Pending::ConsumerStats, Answer::ConsumerStats(mut stats)) => {
                stats.request_id = request_id;
                Command::ConsumerStatsResponse(stats)
            }
            (Pending::GetSchema, Answer::Schema { schema, version }) => proto::CommandGetSchemaResponse {
                request_id,
                schema: Some(*schema),
                schema_version: Some(version),
                ..Default::default()
            }
            .into(),
            (Pending::GetOrCreateSchema, Answer::SchemaVersion(version)) => proto::CommandGetOrCreateSchemaResponse {
                request_id,
                schema_version: Some(version),
                ..Default::default()
            }
            .into(),
            (Pending::Ack { consumer_id }, Answer::Done) => Command::ack_response(consumer_id, request_id, None),
            (Pending::Seek(_) | Pending::Unsubscribe(_), Answer::Done) => Command::success(request_id),
            (pending, answer) => {
                let message = format!("the broker answered {pending:?} with {answer:?}: please report this");
                pending.refused(request_id, Refusal::new(ServerError::UnknownError, message))
            }
        }
    }
}

impl Session {
    /// Remembers a request; or answers that there are too many.
    pub(crate) fn begin_if_room(&mut self, request_id: u64, pending: Pending) -> Option<RequestKey> {
        match self.check_room() {
            Ok(()) => Some(self.begin(request_id, pending)),
            Err(refusal) => {
                self.send(pending.refused(request_id, refusal));
                None
            }
        }
    }

    /// The topic of a request; or answers that it is none.
    fn topic(&mut self, name: &str, request_id: u64, pending: Pending) -> Option<TopicName> {
        name.parse().map_err(|error| self.invalid_name(&error, request_id, pending)).ok()
    }

    fn namespace(&mut self, name: &str, request_id: u64) -> Option<NamespaceName> {
        name.parse().map_err(|error| self.invalid_name(&error, request_id, Pending::Topics)).ok()
    }

    fn invalid_name(&mut self, error: &geminga_model::InvalidName, request_id: u64, pending: Pending) {
        let refusal = Refusal::new(ServerError::InvalidTopicName, error.to_string());
        self.send(pending.refused(request_id, refusal));
    }

    pub(crate) fn on_lookup(&mut self, command: proto::CommandLookupTopic) {
        let Some(topic) = self.topic(&command.topic, command.request_id, Pending::Lookup) else { return };
        let Some(request) = self.begin_if_room(command.request_id, Pending::Lookup) else { return };
        let authoritative = command.authoritative();
        let listener = command.advertised_listener_name.filter(|name| !name.is_empty());
        self.push(Effect::Lookup { request, topic, authoritative, listener, properties: pairs(command.properties) });
    }

    pub(crate) fn on_partitions(&mut self, command: &proto::CommandPartitionedTopicMetadata) {
        let Some(topic) = self.topic(&command.topic, command.request_id, Pending::Partitions) else { return };
        let Some(request) = self.begin_if_room(command.request_id, Pending::Partitions) else { return };
        let auto_create = command.metadata_auto_creation_enabled();
        self.push(Effect::PartitionMetadata { request, topic, auto_create });
    }

    pub(crate) fn on_topics_of_namespace(&mut self, command: proto::CommandGetTopicsOfNamespace) {
        let Some(namespace) = self.namespace(&command.namespace, command.request_id) else { return };
        let Some(request) = self.begin_if_room(command.request_id, Pending::Topics) else { return };
        let mode = command.mode.and_then(|mode| Mode::try_from(mode).ok()).unwrap_or_default();
        // Fact: what the broker does not filter by, the client does.
        let (filters, longest) = (self.config.topic_watchers, self.config.max_pattern_len);
        let pattern = command.topics_pattern.filter(|pattern| filters && pattern.len() <= longest);
        self.push(Effect::TopicsOfNamespace { request, namespace, mode, pattern, hash: command.topics_hash });
    }

    pub(crate) fn on_get_schema(&mut self, command: proto::CommandGetSchema) {
        let Some(topic) = self.topic(&command.topic, command.request_id, Pending::GetSchema) else { return };
        // Fact: absent means the latest, and empty nothing.
        if command.schema_version.as_ref().is_some_and(|version| version.is_empty()) {
            let refusal = Refusal::new(ServerError::IncompatibleSchema, "Empty schema version");
            return self.send(Pending::GetSchema.refused(command.request_id, refusal));
        }
        let Some(request) = self.begin_if_room(command.request_id, Pending::GetSchema) else { return };
        self.push(Effect::GetSchema { request, topic, version: command.schema_version });
    }

    pub(crate) fn on_get_or_create_schema(&mut self, command: proto::CommandGetOrCreateSchema) {
        let Some(topic) = self.topic(&command.topic, command.request_id, Pending::GetOrCreateSchema) else { return };
        let Some(request) = self.begin_if_room(command.request_id, Pending::GetOrCreateSchema) else { return };
        self.push(Effect::GetOrCreateSchema { request, topic, schema: Box::new(command.schema) });
    }

    /// The broker has the answer to a request, or a reason to refuse it.
    pub fn handle_answer(&mut self, request: RequestKey, answer: Result<Answer, Refusal>) {
        let Some(pending) = self.requests.remove(&request.serial) else { return };
        self.in_flight -= 1;
        match answer {
            Ok(answer) => {
                let done = answer == Answer::Done;
                match pending {
                    Pending::Seek(consumer) if done => self.cut_off(consumer),
                    Pending::Unsubscribe(consumer) if done => self.unsubscribed(consumer),
                    _ => {}
                }
                if !self.is_closed() {
                    self.send(pending.answered(request.id, answer));
                }
            }
            Err(refusal) => self.send(pending.refused(request.id, refusal)),
        }
    }
}
