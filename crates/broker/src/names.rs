//! What is known of topics by their names alone: whether their namespace exists, how many partitions they have, which
//! broker serves them.

use geminga_model::{Domain, TopicName};
use geminga_records::PartitionedTopicMetadata;
use geminga_session::{LookupAnswer, Refusal};
use geminga_wire::ServerError;
use serde_json::Map;

use crate::admin_error::AdminError;
use crate::broker::Broker;
use crate::limits::AutoCreation;

impl Broker {
    /// Whether a producer or consumer may use the topic.
    pub(crate) async fn check_topic(&self, topic: &TopicName) -> Result<(), AdminError> {
        if topic.domain() == Domain::NonPersistent {
            return Err(AdminError::NotInThisVersion("non-persistent topics".to_owned()));
        }
        self.policies(topic.namespace()).await.map(drop)
    }

    /// How many partitions a topic has, 0 if it is not partitioned. With `auto_create` one that does not exist is what
    /// [`AutoCreation`] says, and made if that is with partitions.
    ///
    /// # Errors
    /// [`AdminError::TopicNotFound`], or that of its namespace.
    pub async fn partitions(
        &self,
        topic: &TopicName,
        auto_create: bool,
    ) -> Result<PartitionedTopicMetadata, AdminError> {
        self.check_topic(topic).await?;
        if topic.partition().is_none() {
            if let Some((found, _)) = self.partitioned_topic(topic).await? {
                return Ok(found);
            }
            let becomes = if auto_create { self.limits().auto_creation_of(topic) } else { AutoCreation::Off };
            if becomes != AutoCreation::Plain && !self.topic_exists(topic).await? {
                return match becomes {
                    AutoCreation::Partitioned(count) => self.auto_create_partitions(topic, count).await,
                    AutoCreation::Plain | AutoCreation::Off => Err(AdminError::TopicNotFound(topic.clone())),
                };
            }
        }
        Ok(PartitionedTopicMetadata { partitions: 0, deleted: false, unknown: Map::new() })
    }

    async fn auto_create_partitions(
        &self,
        topic: &TopicName,
        count: u32,
    ) -> Result<PartitionedTopicMetadata, AdminError> {
        match self.create_partitioned_topic(topic, count, Map::new()).await {
            // Somebody else was first.
            Ok(()) | Err(AdminError::PartitionedTopicExists) => {}
            Err(error) => return Err(error),
        }
        let found = self.partitioned_topic(topic).await?.ok_or_else(|| AdminError::TopicNotFound(topic.clone()))?;
        Ok(found.0)
    }

    /// Who serves the topic: this broker, which owns everything.
    ///
    /// # Errors
    /// What its client is told.
    pub async fn lookup(&self, topic: &TopicName, listener: Option<&str>) -> Result<LookupAnswer, Refusal> {
        self.check_topic(topic).await?;
        if let Some(listener) = listener {
            // Fact: the C++ client looks for these words; with others it would close its connection and try on.
            let text = format!("the broker do not have {listener} listener");
            return Err(Refusal::new(ServerError::ServiceNotReady, text));
        }
        let options = self.options();
        Ok(LookupAnswer::Connect {
            url: Some(options.service_url.clone()),
            url_tls: None,
            through_service_url: options.through_service_url,
        })
    }
}
