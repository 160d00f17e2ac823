//! Where records are kept. The layout is Pulsar's and BookKeeper's.

use geminga_model::{BookieId, LedgerId, NamespaceName, TopicName, encode_local_name};

/// Root of BookKeeper's tree.
pub const LEDGERS: &str = "/ledgers";
/// Parent of the sequential nodes from which ledger ids are drawn; the suffix of a node is an id.
pub const LEDGER_ID_PREFIX: &str = "/ledgers/idgen/ID-";
/// Parent of the registered bookies that can be written.
pub const AVAILABLE_BOOKIES: &str = "/ledgers/available";
/// The identity of the cluster's storage.
pub const INSTANCE_ID: &str = "/ledgers/INSTANCEID";
/// Parent of the clusters.
pub const CLUSTERS: &str = "/admin/clusters";
/// Parent of tenants, and below them of namespaces.
pub const POLICIES: &str = "/admin/policies";
/// Parent of tenants, and below them of the policies of namespaces that are one cluster's alone.
pub const LOCAL_POLICIES: &str = "/admin/local-policies";
/// Parent of tenants, below them of namespaces, of domains, and of partitioned topics.
pub const PARTITIONED_TOPICS: &str = "/admin/partitioned-topics";
/// Parent of the managed ledgers.
pub const MANAGED_LEDGERS: &str = "/managed-ledgers";
/// Parent of tenants, below them of namespaces, and of the schemas of topics.
pub const SCHEMAS: &str = "/schemas";
/// Parent of the sequential nodes by which brokers number themselves for the names of their producers.
pub const PRODUCER_NAME_COUNTER: &str = "/counters/producer-name";

/// The metadata of a ledger.
///
/// Fact: ids below 2^31 − 1 are ten digits split 2-4-4, larger ones nineteen digits split 3-4-4-4-4.
#[must_use]
pub fn ledger(ledger: LedgerId) -> String {
    let id = ledger.0;
    if id < i64::from(i32::MAX) {
        format!("{LEDGERS}/{:02}/{:04}/L{:04}", id / 100_000_000, id / 10_000 % 10_000, id % 10_000)
    } else {
        format!(
            "{LEDGERS}/{:03}/{:04}/{:04}/{:04}/L{:04}",
            id / 10_000_000_000_000_000,
            id / 1_000_000_000_000 % 10_000,
            id / 100_000_000 % 10_000,
            id / 10_000 % 10_000,
            id % 10_000
        )
    }
}

/// The registration of a bookie that can be written.
#[must_use]
pub fn available_bookie(bookie: &BookieId) -> String {
    format!("{AVAILABLE_BOOKIES}/{bookie}")
}

/// The managed ledger of a topic; its cursors are children.
#[must_use]
pub fn managed_ledger(topic: &TopicName) -> String {
    format!("{MANAGED_LEDGERS}/{}", topic.persistence_name())
}

/// The parent of a namespace's persistent managed ledgers.
#[must_use]
pub fn managed_ledgers_of(namespace: &NamespaceName) -> String {
    format!("{MANAGED_LEDGERS}/{namespace}/persistent")
}

/// The cursor of a subscription.
#[must_use]
pub fn cursor(topic: &TopicName, subscription: &str) -> String {
    format!("{}/{}", managed_ledger(topic), encode_local_name(subscription))
}

/// A cluster.
#[must_use]
pub fn cluster(name: &str) -> String {
    format!("{CLUSTERS}/{name}")
}

/// A tenant.
#[must_use]
pub fn tenant(name: &str) -> String {
    format!("{POLICIES}/{name}")
}

/// The policies of a namespace.
#[must_use]
pub fn namespace(namespace: &NamespaceName) -> String {
    format!("{POLICIES}/{namespace}")
}

/// The policies of a namespace that are this cluster's alone: its bundles.
#[must_use]
pub fn local_policies(namespace: &NamespaceName) -> String {
    format!("{LOCAL_POLICIES}/{namespace}")
}

/// The partition count of a partitioned topic.
#[must_use]
pub fn partitioned_topic(topic: &TopicName) -> String {
    format!(
        "{}/{}",
        partitioned_topics_of(topic.namespace(), topic.domain().as_str()),
        encode_local_name(topic.local())
    )
}

/// The parent of a namespace's partitioned topics of one domain.
#[must_use]
pub fn partitioned_topics_of(namespace: &NamespaceName, domain: &str) -> String {
    format!("{PARTITIONED_TOPICS}/{namespace}/{domain}")
}

/// The versions of a topic's schema, one node for all its partitions.
#[must_use]
pub fn schema(topic: &TopicName) -> String {
    format!("{SCHEMAS}/{}", topic.schema_id())
}

/// The parent of the schemas of a namespace's topics.
#[must_use]
pub fn schemas_of(namespace: &NamespaceName) -> String {
    format!("{SCHEMAS}/{namespace}")
}

/// Nodes that are made as parents of what a namespace has, from the lowest up.
#[must_use]
pub fn parents_of_namespace(namespace: &NamespaceName) -> Vec<String> {
    vec![
        managed_ledgers_of(namespace),
        format!("{MANAGED_LEDGERS}/{namespace}"),
        partitioned_topics_of(namespace, "persistent"),
        format!("{PARTITIONED_TOPICS}/{namespace}"),
        schemas_of(namespace),
    ]
}

/// Nodes that are made as parents of what a tenant's namespaces have.
#[must_use]
pub fn parents_of_tenant(tenant: &str) -> Vec<String> {
    [MANAGED_LEDGERS, PARTITIONED_TOPICS, LOCAL_POLICIES, SCHEMAS].map(|parent| format!("{parent}/{tenant}")).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_bookkeeper_and_pulsar_lay_them_out() {
        for (id, path) in [
            (1, "/ledgers/00/0000/L0001"),
            (1_234_567_890, "/ledgers/12/3456/L7890"),
            (2_147_483_646, "/ledgers/21/4748/L3646"),
            (2_147_483_647, "/ledgers/000/0000/0021/4748/L3647"),
            (5_000_000_000, "/ledgers/000/0000/0050/0000/L0000"),
            (i64::MAX, "/ledgers/922/3372/0368/5477/L5807"),
        ] {
            assert_eq!(ledger(LedgerId(id)), path);
        }
        let topic: TopicName = "persistent://t/n/a b".parse().unwrap();
        assert_eq!(managed_ledger(&topic), "/managed-ledgers/t/n/persistent/a+b");
        assert_eq!(cursor(&topic, "s/1"), "/managed-ledgers/t/n/persistent/a+b/s%2F1");
        assert_eq!(partitioned_topic(&topic), "/admin/partitioned-topics/t/n/persistent/a+b");
        assert_eq!(schema(&topic.with_partition(3)), "/schemas/t/n/a+b");
        assert_eq!(namespace(topic.namespace()), "/admin/policies/t/n");
        assert_eq!(local_policies(topic.namespace()), "/admin/local-policies/t/n");
        assert_eq!(parents_of_namespace(topic.namespace())[1], "/managed-ledgers/t/n");
        assert_eq!(parents_of_tenant("t")[1], "/admin/partitioned-topics/t");
    }
}
