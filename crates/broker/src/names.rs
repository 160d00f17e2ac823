//! What is known of topics by their names alone: whether their namespace exists, how many partitions they have, which
//! broker serves them.

use geminga_metastore::MetadataError;
use geminga_model::{Domain, NamespaceName, TopicName};
use geminga_records::{PartitionedTopicMetadata, Policies, RecordError, paths};
use geminga_session::{LookupAnswer, Refusal};
use geminga_wire::ServerError;

use crate::broker::Broker;

fn metadata_error(error: &MetadataError) -> Refusal {
    Refusal::new(ServerError::MetadataError, error.to_string())
}

fn record_error(path: &str, error: &RecordError) -> Refusal {
    Refusal::new(ServerError::MetadataError, format!("the node {path}: {error}"))
}

impl Broker {
    /// Whether topics of the namespace may be used.
    ///
    /// Fact: clients expect TopicNotFound for a missing tenant or namespace, at once.
    pub(crate) async fn check_namespace(&self, namespace: &NamespaceName) -> Result<(), Refusal> {
        let path = paths::namespace(namespace);
        let node = self.metadata().get(&path).await.map_err(|error| metadata_error(&error))?;
        let missing = || {
            let tenant = namespace.tenant();
            let text = format!("Namespace {namespace} not found: create tenant {tenant} and the namespace first");
            Refusal::new(ServerError::TopicNotFound, text)
        };
        let policies =
            Policies::decode(&node.ok_or_else(missing)?.value).map_err(|error| record_error(&path, &error))?;
        if policies.deleted { Err(missing()) } else { Ok(()) }
    }

    /// Whether a producer or consumer may use the topic.
    pub(crate) async fn check_topic(&self, topic: &TopicName) -> Result<(), Refusal> {
        if topic.domain() == Domain::NonPersistent {
            return Err(Refusal::new(ServerError::NotAllowedError, "non-persistent topics: not in this version"));
        }
        self.check_namespace(topic.namespace()).await
    }

    /// The partition count of a topic, 0 if it is not partitioned.
    pub(crate) async fn partitions(&self, topic: &TopicName, auto_create: bool) -> Result<u32, Refusal> {
        self.check_topic(topic).await?;
        if topic.partition().is_some() {
            return Ok(0);
        }
        let path = paths::partitioned_topic(topic);
        let node = self.metadata().get(&path).await.map_err(|error| metadata_error(&error))?;
        if let Some(node) = node {
            let found = PartitionedTopicMetadata::decode(&node.value).map_err(|error| record_error(&path, &error))?;
            return Ok(found.partitions);
        }
        if !auto_create {
            let path = paths::managed_ledger(topic);
            let exists = self.metadata().get(&path).await.map_err(|error| metadata_error(&error))?.is_some();
            if !exists {
                return Err(Refusal::new(ServerError::TopicNotFound, format!("Topic {topic} not found")));
            }
        }
        Ok(0)
    }

    /// Who serves the topic: this broker, which owns everything.
    pub(crate) async fn lookup(&self, topic: &TopicName, listener: Option<&str>) -> Result<LookupAnswer, Refusal> {
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
