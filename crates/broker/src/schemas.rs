//! The schemas of topics: reading, registering and deleting versions.
//!
//! A version is stored when the topic's node names its ledger. The node is only ever changed by compare-and-set, so
//! whoever registers the same schema at the same moment gets the same version.

use std::time::Duration;

use geminga_env::{OnPanic, reply};
use geminga_ledger::LedgerError;
use geminga_managed_ledger::ManagedLedgerError;
use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::{Domain, EntryId, LedgerId, NamespaceName, Position, TopicName, UnixMillis, decode_local_name};
use geminga_records::{RecordError, SchemaEntry, SchemaIndexEntry, SchemaInfo, SchemaLocator, paths};
use geminga_schema::{Bearer, Decision, Schema, SchemaType, decide};

use crate::admin_error::AdminError;
use crate::broker::Broker;

/// How long a request about schemas may take. A write that is under way then comes to its end all the same.
const SCHEMA_DEADLINE: Duration = Duration::from_secs(30);

/// A version of a topic's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaVersion {
    /// Its number.
    pub version: i64,
    /// When it was registered.
    pub timestamp: UnixMillis,
    /// The schema.
    pub schema: Schema,
}

/// The node of a topic's schemas as it was read, and the versions since the schema was last deleted, oldest first.
struct Stored {
    locator: Option<(SchemaLocator, Version)>,
    versions: Vec<SchemaVersion>,
}

impl Broker {
    /// A version of a topic's schema, the latest without a number. Versions before a deletion are gone.
    ///
    /// # Errors
    /// [`AdminError::SchemaNotFound`], [`AdminError::SchemaDeleted`], or what stops the read.
    pub async fn schema(&self, topic: &TopicName, version: Option<i64>) -> Result<SchemaVersion, AdminError> {
        let Stored { locator, mut versions } = self.stored_schemas(topic).await?;
        match version {
            Some(number) => {
                versions.into_iter().find(|found| found.version == number).ok_or(AdminError::SchemaNotFound)
            }
            None => versions.pop().ok_or_else(|| absent(locator.as_ref())),
        }
    }

    /// All versions of a topic's schema since it was last deleted, oldest first.
    ///
    /// # Errors
    /// [`AdminError::SchemaNotFound`], [`AdminError::SchemaDeleted`], or what stops the read.
    pub async fn schemas(&self, topic: &TopicName) -> Result<Vec<SchemaVersion>, AdminError> {
        let Stored { locator, versions } = self.stored_schemas(topic).await?;
        if versions.is_empty() { Err(absent(locator.as_ref())) } else { Ok(versions) }
    }

    /// The version that this schema has, if it is registered.
    ///
    /// # Errors
    /// What stops the read.
    pub async fn version_of_schema(&self, topic: &TopicName, schema: &Schema) -> Result<Option<i64>, AdminError> {
        let versions = self.stored_schemas(topic).await?.versions;
        Ok(versions.iter().rev().find(|stored| stored.schema.is_same(schema)).map(|stored| stored.version))
    }

    /// Registers a schema, unless it is known, and gives its version.
    ///
    /// # Errors
    /// [`AdminError::IncompatibleSchema`], or what stops it; then the call can be repeated.
    pub async fn register_schema(&self, topic: &TopicName, schema: Schema, bearer: Bearer) -> Result<i64, AdminError> {
        let (broker, topic) = (self.clone(), topic.clone());
        self.finish_in_time(async move { broker.register(&topic, &schema, bearer).await }).await
    }

    /// Deletes a topic's schema and gives the version that says so; what is registered next is the version after that.
    /// With `force` every version is deleted with its storage, and numbers start anew; the last one is given.
    ///
    /// # Errors
    /// [`AdminError::SchemaNotFound`], [`AdminError::SchemaDeleted`], or what stops it; then the call can be repeated.
    pub async fn delete_schema(&self, topic: &TopicName, force: bool) -> Result<i64, AdminError> {
        let (broker, topic) = (self.clone(), topic.clone());
        let deleting = async move {
            if force {
                broker.remove_schema(&topic).await?.ok_or(AdminError::SchemaNotFound)
            } else {
                broker.mark_deleted(&topic).await
            }
        };
        self.finish_in_time(deleting).await
    }

    /// Deletes whatever is stored of the schemas of a namespace's topics.
    pub(crate) async fn remove_schemas_of(&self, namespace: &NamespaceName) -> Result<(), AdminError> {
        for name in self.metadata().children(&paths::schemas_of(namespace)).await? {
            let local = decode_local_name(&name);
            let topic = local.and_then(|local| TopicName::new(Domain::Persistent, namespace.clone(), &local).ok());
            if let Some(topic) = topic {
                self.remove_schema(&topic).await?;
            }
        }
        Ok(())
    }

    /// Deletes every version of a topic's schema, and its node first, so that a crash leaves ledgers that nothing names
    /// and never versions that cannot be read. Gives the latest version; `None` if there was nothing.
    pub(crate) async fn remove_schema(&self, topic: &TopicName) -> Result<Option<i64>, AdminError> {
        let path = paths::schema(topic);
        loop {
            let Some(node) = self.metadata().get(&path).await? else { return Ok(None) };
            match self.metadata().delete(&path, Expected::Version(node.version)).await {
                Ok(()) => {}
                Err(MetadataError::BadVersion(_) | MetadataError::NoNode(_)) => continue,
                Err(error) => return Err(error.into()),
            }
            // What cannot be understood is gone as well; that is the way out for an operator.
            let Ok(locator) = SchemaLocator::decode(&node.value) else { return Ok(Some(-1)) };
            for entry in &locator.index {
                let ledger = entry.position.ledger;
                if let Err(error) = self.ledgers().ledgers.delete(ledger).await {
                    tracing::warn!(%topic, %ledger, %error, "a ledger of a deleted schema remains");
                }
            }
            return Ok(Some(locator.info.version));
        }
    }

    /// Waits for `work`, which comes to its end also if nobody waits any more.
    async fn finish_in_time<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, AdminError>> + Send + 'static,
    ) -> Result<T, AdminError> {
        let clock = self.env().clock;
        let deadline = clock.now() + SCHEMA_DEADLINE;
        let (to, mut from) = reply();
        self.env().control.spawn("schema", OnPanic::Log, async move { to.send(work.await) });
        let failed = |why: String| Err(AdminError::Metadata(MetadataError::Unavailable(why)));
        tokio::select! {
            biased;
            done = from.wait() => done.unwrap_or_else(|gone| failed(gone.to_string())),
            () = clock.sleep_until(deadline) => failed(format!("the schema was not read or written within {SCHEMA_DEADLINE:?}")),
        }
    }

    async fn stored_schemas(&self, topic: &TopicName) -> Result<Stored, AdminError> {
        let (broker, topic) = (self.clone(), topic.clone());
        self.finish_in_time(async move { broker.read_schemas(&topic).await }).await
    }

    async fn read_schemas(&self, topic: &TopicName) -> Result<Stored, AdminError> {
        let path = paths::schema(topic);
        let unreadable = |error| AdminError::Record(path.clone(), error);
        let Some(node) = self.metadata().get(&path).await? else {
            return Ok(Stored { locator: None, versions: Vec::new() });
        };
        let locator = SchemaLocator::decode(&node.value).map_err(unreadable)?;
        let mut versions = Vec::new();
        for entry in locator.index.iter().rev() {
            let info = self.read_schema(entry.position).await?.map_err(unreadable)?;
            if info.deleted {
                break;
            }
            let schema = Schema::of_stored(&info).ok_or_else(|| unreadable(RecordError::Impossible("type")))?;
            versions.push(SchemaVersion { version: entry.version, timestamp: info.timestamp, schema });
        }
        versions.reverse();
        Ok(Stored { locator: Some((locator, node.version)), versions })
    }

    /// Reads one version. The node names it, so its entry is stored, whether or not its ledger was closed.
    async fn read_schema(&self, position: Position) -> Result<Result<SchemaInfo, RecordError>, AdminError> {
        let ledgers = &self.ledgers().ledgers;
        let (metadata, _) = ledgers.get(position.ledger).await.map_err(of_ledger)?;
        let reader = ledgers.reader(position.ledger, metadata);
        let entries = reader.read(position.entry, position.entry, 0).await.map_err(of_ledger)?;
        let payload = entries.first().map(|entry| entry.payload.clone()).unwrap_or_default();
        Ok(SchemaEntry::decode(&payload).and_then(|entry| SchemaInfo::decode(&entry.schema_data)))
    }

    async fn register(&self, topic: &TopicName, schema: &Schema, bearer: Bearer) -> Result<i64, AdminError> {
        loop {
            let Stored { locator, versions } = self.read_schemas(topic).await?;
            let versions: Vec<(i64, Schema)> = versions.into_iter().map(|v| (v.version, v.schema)).collect();
            match decide(&versions, schema, bearer) {
                Decision::Known(version) => return Ok(version),
                Decision::Refuse(why) => return Err(AdminError::IncompatibleSchema(why)),
                Decision::Add => {}
            }
            let info = SchemaInfo {
                schema_id: topic.schema_id(),
                user: String::new(),
                kind: schema.kind().to_stored(),
                schema: schema.data().to_vec(),
                timestamp: self.env().clock.wall(),
                deleted: false,
                properties: schema.properties().to_vec(),
            };
            if let Some(version) = self.append_version(topic, locator, &info, schema.hash()).await? {
                return Ok(version);
            }
        }
    }

    async fn mark_deleted(&self, topic: &TopicName) -> Result<i64, AdminError> {
        loop {
            let Stored { locator, versions } = self.read_schemas(topic).await?;
            if versions.is_empty() {
                return Err(absent(locator.as_ref()));
            }
            let info = SchemaInfo {
                schema_id: topic.schema_id(),
                user: String::new(),
                kind: SchemaType::None.to_stored(),
                schema: Vec::new(),
                timestamp: self.env().clock.wall(),
                deleted: true,
                properties: Vec::new(),
            };
            // Fact: a version that says "deleted" has no hash.
            if let Some(version) = self.append_version(topic, locator, &info, Vec::new()).await? {
                return Ok(version);
            }
        }
    }

    /// Stores the version after those of `locator`, and gives its number; `None` if somebody else changed the node
    /// since it was read.
    async fn append_version(
        &self,
        topic: &TopicName,
        locator: Option<(SchemaLocator, Version)>,
        info: &SchemaInfo,
        hash: Vec<u8>,
    ) -> Result<Option<i64>, AdminError> {
        let version = locator.as_ref().map_or(0, |(locator, _)| locator.info.version.saturating_add(1));
        let position = Position { ledger: self.write_schema(locator.as_ref(), info, &hash).await?, entry: EntryId(0) };
        let added = SchemaIndexEntry { version, position, hash, unknown: Vec::new() };
        let (locator, expected) = match locator {
            Some((mut locator, read)) => {
                locator.push(added);
                (locator, Expected::Version(read))
            }
            None => (SchemaLocator::first(added), Expected::Absent),
        };
        match self.metadata().put(&paths::schema(topic), locator.encode(), expected).await {
            Ok(_) => Ok(Some(version)),
            Err(MetadataError::BadVersion(_) | MetadataError::NoNode(_)) => {
                if let Err(error) = self.ledgers().ledgers.delete(position.ledger).await {
                    tracing::warn!(%topic, ledger = %position.ledger, %error, "a ledger that no schema uses remains");
                }
                Ok(None)
            }
            // It may have been written, so the ledger stays.
            Err(error) => Err(error.into()),
        }
    }

    async fn write_schema(
        &self,
        locator: Option<&(SchemaLocator, Version)>,
        info: &SchemaInfo,
        hash: &[u8],
    ) -> Result<LedgerId, AdminError> {
        // Fact: an entry lists the versions before it, and the first one itself, at no place.
        let index = match locator {
            Some((locator, _)) => locator.index.clone(),
            None => {
                let nowhere = Position::new(-1, -1);
                vec![SchemaIndexEntry { version: 0, position: nowhere, hash: hash.to_vec(), unknown: Vec::new() }]
            }
        };
        let entry = SchemaEntry { schema_data: info.encode(), index };
        let create = self.ledgers().schema_ledger(&info.schema_id);
        let deadline = self.env().clock.now() + SCHEMA_DEADLINE;
        self.ledgers().ledgers.create_single(&create, entry.encode().into(), deadline).await.map_err(of_ledger)
    }
}

/// Why a topic has no schema.
fn absent(locator: Option<&(SchemaLocator, Version)>) -> AdminError {
    if locator.is_some() { AdminError::SchemaDeleted } else { AdminError::SchemaNotFound }
}

fn of_ledger(error: LedgerError) -> AdminError {
    ManagedLedgerError::from(error).into()
}
