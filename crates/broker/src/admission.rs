//! What comes before a producer or consumer reaches its topic: the namespace, the topic itself, and the schema.
//!
//! These wait, so they run in tasks of their own; a connection is told how it went by an item.

use bytes::Bytes;
use geminga_env::reply;
use geminga_model::TopicName;
use geminga_schema::{Bearer, Offered, Schema, offered, version_bytes, version_of_bytes};
use geminga_session::{Answer, ProducerSpec, Refusal, SubscribeSpec};
use geminga_topic::TopicHandle;
use geminga_wire::{ServerError, proto};

use crate::admin_error::AdminError;
use crate::broker::Broker;
use crate::limits::AutoCreation;

impl Broker {
    /// The topic for a producer, and the version of its schema, empty without one.
    pub(crate) async fn admit_producer(
        &self,
        name: &TopicName,
        spec: &ProducerSpec,
    ) -> Result<(TopicHandle, Bytes), Refusal> {
        let topic = self.admit(name, true).await?;
        let version = self.schema_of_writer(&topic, spec.schema.as_ref()).await?;
        Ok((topic, version))
    }

    /// The topic for a consumer, whose schema fits it.
    pub(crate) async fn admit_consumer(&self, name: &TopicName, spec: &SubscribeSpec) -> Result<TopicHandle, Refusal> {
        let topic = self.admit(name, spec.force_topic_creation).await?;
        if let Some(schema) = schema_of(spec.schema.as_ref())? {
            let active = is_active(&topic).await?;
            self.register_schema(name, schema, Bearer::Reader { active }).await?;
        }
        Ok(topic)
    }

    /// Registers a schema of a topic that exists, and gives its version.
    pub(crate) async fn create_schema(&self, name: &TopicName, schema: &proto::Schema) -> Result<Answer, Refusal> {
        let topic = self.admit(name, false).await?;
        // It must exist, whatever is said of its messages.
        is_active(&topic).await?;
        Ok(Answer::SchemaVersion(self.schema_of_writer(&topic, Some(schema)).await?))
    }

    /// A version of a topic's schema, the latest without one.
    pub(crate) async fn find_schema(&self, topic: &TopicName, version: Option<&[u8]>) -> Result<Answer, Refusal> {
        let number = match version {
            None => None,
            Some(bytes) => Some(version_of_bytes(bytes).ok_or_else(|| {
                let text = format!("a schema version has 8 bytes, not {}", bytes.len());
                Refusal::new(ServerError::IncompatibleSchema, text)
            })?),
        };
        self.check_topic(topic).await?;
        let found = self.schema(topic, number).await?;
        let schema = Box::new(found.schema.to_wire(&topic.schema_id()));
        Ok(Answer::Schema { schema, version: version_bytes(found.version) })
    }

    async fn admit(&self, name: &TopicName, create: bool) -> Result<TopicHandle, Refusal> {
        self.check_topic(name).await?;
        let create = create && self.limits().auto_creation_of(name) != AutoCreation::Off;
        self.topic(name, create)
    }

    /// The version of what a producer writes.
    async fn schema_of_writer(&self, topic: &TopicHandle, said: Option<&proto::Schema>) -> Result<Bytes, Refusal> {
        let Some(schema) = schema_of(said)? else { return Ok(Bytes::new()) };
        // Nothing is registered for a topic that cannot be opened.
        is_active(topic).await?;
        Ok(version_bytes(self.register_schema(topic.name(), schema, Bearer::Writer).await?))
    }
}

/// The schema to register or compare, if what a client says is one.
fn schema_of(said: Option<&proto::Schema>) -> Result<Option<Schema>, Refusal> {
    match offered(said).map_err(AdminError::InvalidSchema)? {
        Offered::Schema(schema) => Ok(Some(schema)),
        Offered::Nothing | Offered::Any => Ok(None),
    }
}

/// Whether an open topic is used. One that is being opened answers when it is open, or at its deadline for that.
async fn is_active(topic: &TopicHandle) -> Result<bool, Refusal> {
    let (to, mut from) = reply();
    topic.is_active(to);
    let gone = |_| Refusal::new(ServerError::ServiceNotReady, "the topic is being closed; look it up again");
    from.wait().await.map_err(gone)?
}
