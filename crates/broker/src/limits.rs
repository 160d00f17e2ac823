//! What a broker's configuration allows: which topics appear by being used, and how many of what there may be.

use geminga_model::TopicName;

use crate::topics::{MAX_PARTITIONS, is_system_topic};

/// How a topic that does not exist is made when it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoCreation {
    /// It is not (`allowAutoTopicCreation=false`).
    Off,
    /// Without partitions.
    Plain,
    /// With so many partitions (`allowAutoTopicCreationType=partitioned`, `defaultNumPartitions`).
    Partitioned(u32),
}

/// See the module. A maximum of 0 is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What becomes of topics that do not exist.
    pub auto_creation: AutoCreation,
    /// Tenants (`maxTenants`).
    pub max_tenants: usize,
    /// Namespaces of a tenant (`maxNamespacesPerTenant`).
    pub max_namespaces_per_tenant: usize,
    /// Partitions of a topic (`maxNumPartitionsPerPartitionedTopic`); never more than 10,000.
    pub max_partitions: u32,
    /// Bundles of a namespace that asks for no number (`defaultNumberOfNamespaceBundles`).
    pub default_bundles: u32,
}

impl Default for Limits {
    /// Pulsar's.
    fn default() -> Limits {
        Limits {
            auto_creation: AutoCreation::Plain,
            max_tenants: 0,
            max_namespaces_per_tenant: 0,
            max_partitions: 0,
            default_bundles: 4,
        }
    }
}

impl Limits {
    /// How this topic is made when it is used. Facts: system topics always are; those that clients keep for what they
    /// could not process have no partitions.
    pub(crate) fn auto_creation_of(&self, topic: &TopicName) -> AutoCreation {
        let name = topic.local();
        match self.auto_creation {
            AutoCreation::Off if is_system_topic(topic) => AutoCreation::Plain,
            AutoCreation::Partitioned(_)
                if topic.partition().is_some()
                    || is_system_topic(topic)
                    || name.ends_with("-DLQ")
                    || name.ends_with("-RETRY") =>
            {
                AutoCreation::Plain
            }
            other => other,
        }
    }

    /// The largest number of partitions that a topic may have.
    pub(crate) fn partitions(&self) -> u32 {
        if self.max_partitions == 0 { MAX_PARTITIONS } else { self.max_partitions.min(MAX_PARTITIONS) }
    }
}
