//! Why something about clusters, tenants, namespaces and topics was not done.

use std::time::Duration;

use geminga_managed_ledger::ManagedLedgerError;
use geminga_metastore::MetadataError;
use geminga_model::{NamespaceName, Position, TopicName};
use geminga_records::RecordError;
use geminga_schema::{Incompatible, InvalidSchema};
use geminga_session::Refusal;
use geminga_wire::ServerError;

/// The fact that stands in the way. Texts are Pulsar's where it has one, because scripts look for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// There is no such cluster.
    #[error("Cluster does not exist")]
    ClusterNotFound,
    /// A tenant must be allowed in some cluster.
    #[error("Clusters cannot be empty")]
    NoClusters,
    /// Clusters of a request that do not exist.
    #[error("Clusters do not exist: {0:?}")]
    UnknownClusters(Vec<String>),
    /// A tenant may not lose a cluster that a namespace of its uses.
    #[error("Tenant {0} has namespaces in cluster {1}, which cannot be taken from it")]
    ClusterInUse(String, String),
    /// A namespace wants a cluster that its tenant may not use.
    #[error("Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]")]
    ClusterNotAllowed {
        /// The cluster.
        cluster: String,
        /// The tenant.
        tenant: String,
    },
    /// The name has characters that are not allowed.
    #[error("Tenant name is not valid")]
    TenantName,
    /// There is no such tenant.
    #[error("Tenant does not exist")]
    TenantNotFound,
    /// There is one already.
    #[error("Tenant already exist")]
    TenantExists,
    /// There may be no more (`maxTenants`).
    #[error("Exceed the maximum number of tenants")]
    TooManyTenants,
    /// The tenant may have no more (`maxNamespacesPerTenant`).
    #[error("Exceed the maximum number of namespace in tenant :{0}")]
    TooManyNamespaces(String),
    /// A tenant with namespaces cannot be deleted.
    #[error("The tenant still has active namespaces")]
    TenantHasNamespaces,
    /// Fact: Pulsar's default.
    #[error("Broker doesn't allow forced deletion of tenants: delete its namespaces first")]
    ForcedTenantDeletion,
    /// A role with blanks at its ends.
    #[error("AdminRoles contains whitespace in the beginning or end.")]
    AdminRole,
    /// The name has characters that are not allowed.
    #[error("Namespace name is not valid")]
    NamespaceName,
    /// There is no such namespace, or it is being deleted.
    #[error("Namespace does not exist")]
    NamespaceNotFound(NamespaceName),
    /// There is one already.
    #[error("Namespace already exists")]
    NamespaceExists,
    /// A namespace with topics is only deleted by force.
    #[error("Cannot delete non empty namespace")]
    NamespaceNotEmpty,
    /// The division of a new namespace into bundles is none.
    #[error("Invalid number of bundles: {0}")]
    Bundles(String),
    /// The name is none.
    #[error("Topic name is not valid")]
    TopicName,
    /// There is no such topic.
    #[error("Topic {0} not found")]
    TopicNotFound(TopicName),
    /// There is no such partitioned topic.
    #[error("Partitioned Topic not found: {0} has no metadata")]
    PartitionedTopicNotFound(TopicName),
    /// There is one already.
    #[error("This topic already exists")]
    TopicExists,
    /// There is one already.
    #[error("Partitioned topic already exists")]
    PartitionedTopicExists,
    /// A topic is named as a partition that the new partitioned topic would not have.
    #[error("{0} exists already, and is not one of {1} partitions")]
    StrayPartition(TopicName, u32),
    /// Only partitions are named so.
    #[error("Topic name {0} is that of a partition, and there is no partitioned topic that has it")]
    PartitionName(TopicName),
    /// The name is kept for the broker's own use.
    #[error("Cannot create topic in system topic format: {0}")]
    SystemTopic(TopicName),
    /// A partition count that is not allowed.
    #[error("Number of partitions should be more than 0 and at most {0}")]
    PartitionCount(u32),
    /// Partitions can be added, not taken away.
    #[error("{topic} has {has} partitions already, more than {wants}")]
    FewerPartitions {
        /// The topic.
        topic: TopicName,
        /// What it has.
        has: u32,
        /// What it is to have.
        wants: u32,
    },
    /// It must be addressed as a partitioned topic.
    #[error("{0} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic")]
    IsPartitioned(TopicName),
    /// It must be addressed as a topic without partitions.
    #[error("{0} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete")]
    IsNotPartitioned(TopicName),
    /// Clients are connected: only force deletes it.
    #[error("Topic has active producers/subscriptions: {topic} has {producers} producers and {consumers} consumers")]
    TopicInUse {
        /// The topic.
        topic: TopicName,
        /// Producers that are connected.
        producers: usize,
        /// Consumers that are connected.
        consumers: usize,
    },
    /// Clients are just connecting: only force deletes it.
    #[error("Topic has active producers/subscriptions: {0} is being opened for one")]
    TopicOpening(TopicName),
    /// The topic has no schema, or not this version of it.
    #[error("Schema not found")]
    SchemaNotFound,
    /// The topic had a schema.
    #[error("Schema is deleted")]
    SchemaDeleted,
    /// The schema does not fit the topic's.
    #[error(transparent)]
    IncompatibleSchema(Incompatible),
    /// What was brought is no schema.
    #[error(transparent)]
    InvalidSchema(InvalidSchema),
    /// Somebody else does so at this moment.
    #[error("{0} is being deleted already")]
    BeingDeleted(String),
    /// There is no such subscription.
    #[error("Subscription {subscription} not found for topic {topic}")]
    SubscriptionNotFound {
        /// The topic.
        topic: TopicName,
        /// The subscription.
        subscription: String,
    },
    /// There is one already.
    #[error("{0}")]
    SubscriptionExists(String),
    /// Consumers are connected, or it is being moved.
    #[error("{0}")]
    SubscriptionBusy(String),
    /// A subscription must have a name.
    #[error("Subscription name is empty")]
    SubscriptionName,
    /// There is no such message.
    #[error("Message not found")]
    MessageNotFound,
    /// What is stored cannot be understood; a client could not either.
    #[error("the entry {0} cannot be read: {1}")]
    Unreadable(Position, String),
    /// Only a single partition can do this.
    #[error("{0} on a partitioned topic is not allowed: ask for a partition")]
    NotOnPartitioned(&'static str),
    /// The topic is just closing. Try again.
    #[error("{0}")]
    NotReady(String),
    /// The topic did not answer. It may still do what was asked.
    #[error("{0} did not answer within {1:?}")]
    Late(TopicName, Duration),
    /// The topic refuses.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// Something that a later version does.
    #[error("{0}: not in this version")]
    NotInThisVersion(String),
    /// Somebody else changed the same at this moment: look, and try again.
    #[error("Concurrent modification")]
    Concurrent,
    /// Metadata cannot be reached. Try again.
    #[error(transparent)]
    Metadata(MetadataError),
    /// A node cannot be understood. An operator must look.
    #[error("the node {0} cannot be read: {1}")]
    Record(String, RecordError),
    /// A topic's log stands in the way.
    #[error(transparent)]
    ManagedLedger(ManagedLedgerError),
}

impl From<MetadataError> for AdminError {
    fn from(error: MetadataError) -> AdminError {
        match error {
            MetadataError::BadVersion(_) => AdminError::Concurrent,
            other => AdminError::Metadata(other),
        }
    }
}

impl From<ManagedLedgerError> for AdminError {
    fn from(error: ManagedLedgerError) -> AdminError {
        match error {
            ManagedLedgerError::Metadata(error) => error.into(),
            ManagedLedgerError::Fenced => AdminError::Concurrent,
            other => AdminError::ManagedLedger(other),
        }
    }
}

impl From<AdminError> for Refusal {
    /// What the binary protocol says of it.
    fn from(error: AdminError) -> Refusal {
        let code = match &error {
            // Fact: clients expect it for a missing tenant or namespace, at once.
            AdminError::NamespaceNotFound(namespace) => {
                let tenant = namespace.tenant();
                let text = format!("Namespace {namespace} not found: create tenant {tenant} and the namespace first");
                return Refusal::new(ServerError::TopicNotFound, text);
            }
            AdminError::SchemaNotFound | AdminError::SchemaDeleted => {
                return Refusal::new(ServerError::TopicNotFound, "Topic not found or no-schema");
            }
            AdminError::IncompatibleSchema(_) | AdminError::InvalidSchema(_) => ServerError::IncompatibleSchema,
            AdminError::TopicNotFound(_) | AdminError::PartitionedTopicNotFound(_) => ServerError::TopicNotFound,
            AdminError::NotInThisVersion(_) => ServerError::NotAllowedError,
            AdminError::BeingDeleted(_) => ServerError::ServiceNotReady,
            AdminError::Concurrent | AdminError::Metadata(_) | AdminError::Record(..) => ServerError::MetadataError,
            AdminError::ManagedLedger(_) => ServerError::PersistenceError,
            _ => ServerError::UnknownError,
        };
        Refusal::new(code, error.to_string())
    }
}
