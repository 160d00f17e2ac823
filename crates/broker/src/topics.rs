//! Which topics there are: listing, making and deleting them.

use geminga_admin_model::TopicReport;
use geminga_env::reply;
use geminga_managed_ledger::{ManagedLedgerError, create_cursor, delete, list_cursors};
use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::{Domain, NamespaceName, Position, TopicName, decode_local_name};
use geminga_records::{ManagedLedgerInfo, PartitionedTopicMetadata, paths};
use serde_json::{Map, Value};

use geminga_topic::StillUsed;

use crate::admin_error::AdminError;
use crate::broker::Broker;
use crate::open_topics::Deletion;

/// Each partition is a node of its own; more than this would keep metadata busy for minutes.
pub(crate) const MAX_PARTITIONS: u32 = 10_000;

/// Whether a topic is the broker's own. Fact: listings leave these out, and nobody may make them.
pub(crate) fn is_system_topic(topic: &TopicName) -> bool {
    let base = topic.base();
    let local = base.local();
    topic.namespace().as_str() == "pulsar/system"
        || matches!(
            local,
            "__change_events"
                | "__transaction_buffer_snapshot"
                | "__transaction_buffer_snapshot_segments"
                | "__transaction_buffer_snapshot_indexes"
                | "transaction_coordinator_assign"
        )
        || local.starts_with("__transaction_log_")
        || local.ends_with("__transaction_pending_ack")
}

/// Fact: cursors that the broker keeps for itself begin so, and are not subscriptions.
pub(crate) fn is_system_cursor(name: &str) -> bool {
    name.starts_with("pulsar.repl.") || matches!(name, "pulsar.dedup" | "__compaction")
}

impl Broker {
    /// The topics of a namespace, every partition for itself, sorted; `system` with the broker's own.
    ///
    /// # Errors
    /// [`AdminError::NamespaceNotFound`], or metadata cannot be reached.
    pub async fn topics_of(&self, namespace: &NamespaceName, system: bool) -> Result<Vec<TopicName>, AdminError> {
        self.policies(namespace).await?;
        let mut topics = self.stored_topics(namespace).await?;
        topics.retain(|topic| system || !is_system_topic(topic));
        Ok(topics)
    }

    /// The partitioned topics of a namespace, without their partitions; `system` with the broker's own.
    ///
    /// # Errors
    /// [`AdminError::NamespaceNotFound`], or metadata cannot be reached.
    pub async fn partitioned_topics_of(
        &self,
        namespace: &NamespaceName,
        system: bool,
    ) -> Result<Vec<TopicName>, AdminError> {
        self.policies(namespace).await?;
        let mut topics = self.stored_partitioned_topics(namespace).await?;
        topics.retain(|topic| system || !is_system_topic(topic));
        Ok(topics)
    }

    pub(crate) async fn stored_topics(&self, namespace: &NamespaceName) -> Result<Vec<TopicName>, AdminError> {
        self.children_of(namespace, &paths::managed_ledgers_of(namespace)).await
    }

    pub(crate) async fn stored_partitioned_topics(
        &self,
        namespace: &NamespaceName,
    ) -> Result<Vec<TopicName>, AdminError> {
        self.children_of(namespace, &paths::partitioned_topics_of(namespace, Domain::Persistent.as_str())).await
    }

    async fn children_of(&self, namespace: &NamespaceName, path: &str) -> Result<Vec<TopicName>, AdminError> {
        let names = self.metadata().children(path).await?;
        let local = names.iter().filter_map(|name| decode_local_name(name));
        Ok(local.filter_map(|local| TopicName::new(Domain::Persistent, namespace.clone(), &local).ok()).collect())
    }

    /// Whether there is a topic of that name, which may be a partition.
    pub(crate) async fn topic_exists(&self, topic: &TopicName) -> Result<bool, AdminError> {
        Ok(self.metadata().get(&paths::managed_ledger(topic)).await?.is_some())
    }

    /// What is stored of a partitioned topic, if there is one.
    pub(crate) async fn partitioned_topic(
        &self,
        topic: &TopicName,
    ) -> Result<Option<(PartitionedTopicMetadata, Version)>, AdminError> {
        let path = paths::partitioned_topic(topic);
        let Some(node) = self.metadata().get(&path).await? else { return Ok(None) };
        let found = PartitionedTopicMetadata::decode(&node.value).map_err(|error| AdminError::Record(path, error))?;
        Ok(Some((found, node.version)))
    }

    /// Makes a topic without partitions, or a partition that is missing.
    ///
    /// # Errors
    /// [`AdminError::TopicExists`], [`AdminError::PartitionName`], or what is wrong with its name or namespace.
    pub async fn create_topic(&self, topic: &TopicName, properties: Vec<(String, String)>) -> Result<(), AdminError> {
        self.check_new(topic).await?;
        match topic.partition() {
            None if self.partitioned_topic(topic).await?.is_some() => return Err(AdminError::TopicExists),
            None => {}
            Some(index) => {
                let whole = self.partitioned_topic(&topic.base()).await?;
                if whole.is_none_or(|(whole, _)| whole.partitions <= index) {
                    return Err(AdminError::PartitionName(topic.clone()));
                }
            }
        }
        let info = ManagedLedgerInfo { properties, ..ManagedLedgerInfo::default() };
        match self.metadata().put(&paths::managed_ledger(topic), info.encode(), Expected::Absent).await {
            Err(MetadataError::BadVersion(_)) => Err(AdminError::TopicExists),
            written => Ok(written.map(drop)?),
        }
    }

    fn check_partition_count(&self, partitions: u32) -> Result<(), AdminError> {
        let most = self.limits().partitions();
        if (1..=most).contains(&partitions) { Ok(()) } else { Err(AdminError::PartitionCount(most)) }
    }

    async fn check_new(&self, topic: &TopicName) -> Result<(), AdminError> {
        self.check_topic(topic).await?;
        if is_system_topic(topic) { Err(AdminError::SystemTopic(topic.clone())) } else { Ok(()) }
    }

    /// Makes a partitioned topic with all its partitions.
    ///
    /// # Errors
    /// [`AdminError::PartitionedTopicExists`], [`AdminError::TopicExists`] if there is one without partitions, or what
    /// is wrong with its name, number or namespace.
    pub async fn create_partitioned_topic(
        &self,
        topic: &TopicName,
        partitions: u32,
        properties: Map<String, Value>,
    ) -> Result<(), AdminError> {
        self.check_new(topic).await?;
        if topic.partition().is_some() {
            return Err(AdminError::PartitionName(topic.clone()));
        }
        self.check_partition_count(partitions)?;
        if self.partitioned_topic(topic).await?.is_some() {
            return Err(AdminError::PartitionedTopicExists);
        }
        for existing in self.stored_topics(topic.namespace()).await? {
            if existing == *topic {
                return Err(AdminError::TopicExists);
            }
            if existing.base() == *topic && existing.partition().is_some_and(|index| index >= partitions) {
                return Err(AdminError::StrayPartition(existing, partitions));
            }
        }
        let mut unknown = Map::new();
        if !properties.is_empty() {
            unknown.insert("properties".to_owned(), Value::Object(properties));
        }
        let whole = PartitionedTopicMetadata { partitions, deleted: false, unknown };
        match self.metadata().put(&paths::partitioned_topic(topic), whole.encode(), Expected::Absent).await {
            Err(MetadataError::BadVersion(_)) => return Err(AdminError::PartitionedTopicExists),
            written => written.map(drop)?,
        }
        self.create_partitions(topic, 0..partitions).await
    }

    /// Adds partitions. Subscriptions of the first partition start on the new ones too, at their first message: so
    /// nothing is missed by consumers that hear of them later.
    ///
    /// # Errors
    /// [`AdminError::PartitionedTopicNotFound`], [`AdminError::IsNotPartitioned`] or [`AdminError::FewerPartitions`].
    pub async fn update_partitions(&self, topic: &TopicName, partitions: u32) -> Result<(), AdminError> {
        self.check_topic(topic).await?;
        self.check_partition_count(partitions)?;
        let (whole, version) = self.existing_partitioned_topic(topic).await?;
        let has = whole.partitions;
        if partitions < has {
            return Err(AdminError::FewerPartitions { topic: topic.clone(), has, wants: partitions });
        }
        // Before anybody hears of the new partitions, they are there with all subscriptions.
        self.create_partitions(topic, 0..partitions).await?;
        for cursor in list_cursors(self.ledgers(), &topic.with_partition(0)).await? {
            if is_system_cursor(&cursor) {
                continue;
            }
            for index in has..partitions {
                let partition = topic.with_partition(index);
                match create_cursor(self.ledgers(), &partition, &cursor, Position::EARLIEST, &[]).await {
                    // It is there already.
                    Ok(()) | Err(ManagedLedgerError::Fenced) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let grown = PartitionedTopicMetadata { partitions, ..whole };
        let path = paths::partitioned_topic(topic);
        Ok(self.metadata().put(&path, grown.encode(), Expected::Version(version)).await.map(drop)?)
    }

    async fn existing_partitioned_topic(
        &self,
        topic: &TopicName,
    ) -> Result<(PartitionedTopicMetadata, Version), AdminError> {
        match self.partitioned_topic(topic).await? {
            Some(found) => Ok(found),
            None if self.topic_exists(topic).await? => Err(AdminError::IsNotPartitioned(topic.clone())),
            None => Err(AdminError::PartitionedTopicNotFound(topic.clone())),
        }
    }

    /// Makes the partitions that are missing, together.
    async fn create_partitions(&self, topic: &TopicName, indexes: std::ops::Range<u32>) -> Result<(), AdminError> {
        let mut written = Vec::new();
        for index in indexes {
            let (to, from) = reply();
            let path = paths::managed_ledger(&topic.with_partition(index));
            self.metadata().submit_put(&path, bytes::Bytes::new(), Expected::Absent, to);
            written.push(from);
        }
        for mut from in written {
            match from.wait().await {
                Ok(Ok(_) | Err(MetadataError::BadVersion(_))) => {}
                Ok(Err(error)) => return Err(error.into()),
                Err(gone) => return Err(AdminError::Metadata(MetadataError::Unavailable(gone.to_string()))),
            }
        }
        Ok(())
    }

    /// Deletes a topic without partitions, with its schema, or one partition; each with its subscriptions. With `force` also if clients are
    /// connected; they are told that it is closed.
    ///
    /// # Errors
    /// [`AdminError::TopicInUse`], [`AdminError::TopicNotFound`], [`AdminError::IsPartitioned`], or what stops it; then
    /// the call can be repeated.
    pub async fn delete_topic(&self, topic: &TopicName, force: bool) -> Result<(), AdminError> {
        self.check_topic(topic).await?;
        let _kept_closed = self.begin_deletion(topic)?;
        if self.partitioned_topic(topic).await?.is_some() {
            return Err(AdminError::IsPartitioned(topic.clone()));
        }
        if !force {
            self.close_if_unused(topic).await?;
        }
        if self.close_and_delete(topic).await? { Ok(()) } else { Err(AdminError::TopicNotFound(topic.clone())) }
    }

    /// Deletes a partitioned topic with all its partitions; otherwise as [`Broker::delete_topic`].
    ///
    /// # Errors
    /// [`AdminError::TopicInUse`], [`AdminError::PartitionedTopicNotFound`], [`AdminError::IsNotPartitioned`], or what
    /// stops it; then the call can be repeated.
    pub async fn delete_partitioned_topic(&self, topic: &TopicName, force: bool) -> Result<(), AdminError> {
        self.check_topic(topic).await?;
        let _kept_closed = self.begin_deletion(topic)?;
        let (whole, version) = self.existing_partitioned_topic(topic).await?;
        let partitions: Vec<TopicName> = (0..whole.partitions).map(|index| topic.with_partition(index)).collect();
        if !force {
            for partition in &partitions {
                self.close_if_unused(partition).await?;
            }
        }
        for partition in &partitions {
            self.close_and_delete(partition).await?;
        }
        self.remove_schema(topic).await?;
        Ok(self.metadata().delete(&paths::partitioned_topic(topic), Expected::Version(version)).await?)
    }

    fn begin_deletion(&self, topic: &TopicName) -> Result<Deletion, AdminError> {
        let deletion = self.topics().begin_topic_deletion(topic);
        deletion.ok_or_else(|| AdminError::BeingDeleted(topic.to_string()))
    }

    /// Closes a topic unless a client is connected. Fact: subscriptions without consumers do not count.
    async fn close_if_unused(&self, topic: &TopicName) -> Result<(), AdminError> {
        let Some(open) = self.topics().get(topic) else { return Ok(()) };
        let (done, mut closed) = reply();
        open.close_if_unused(done);
        match closed.wait().await {
            Ok(Err(StillUsed::Opening)) => Err(AdminError::TopicOpening(topic.clone())),
            Ok(Err(StillUsed::Clients { producers, consumers })) => {
                Err(AdminError::TopicInUse { topic: topic.clone(), producers, consumers })
            }
            // One that went away without an answer is closed.
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// What a topic that is open is doing; `None` if it is not, or goes away meanwhile. Asking never opens it.
    pub async fn explain_topic(&self, topic: &TopicName) -> Option<TopicReport> {
        let open = self.topics().get(topic)?;
        let (to, mut from) = reply();
        open.explain(to);
        from.wait().await.ok()
    }

    /// Closes a topic, and deletes what is stored of it. The caller keeps it from being opened. False if there was
    /// nothing.
    pub(crate) async fn close_and_delete(&self, topic: &TopicName) -> Result<bool, AdminError> {
        if let Some(open) = self.topics().get(topic) {
            let (done, mut closed) = reply();
            open.close(done);
            // One that went away without an answer is closed.
            let _ = closed.wait().await;
        }
        // Fact: the partitions of a topic share its schema, which goes with the whole.
        if topic.partition().is_none() && self.topic_exists(topic).await? {
            self.remove_schema(topic).await?;
        }
        match delete(self.ledgers(), topic).await {
            Ok(()) => Ok(true),
            Err(ManagedLedgerError::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
