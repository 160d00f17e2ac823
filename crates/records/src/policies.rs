//! Clusters, tenants, namespaces and partition counts: JSON nodes below `/admin`.
//!
//! Only the fields that have an effect here have a name; the others are kept as they are.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::RecordError;

macro_rules! json_record {
    ($name:ident) => {
        impl $name {
            /// Writes the node's bytes.
            #[must_use]
            pub fn encode(&self) -> Vec<u8> {
                // Maps with text keys and plain values: serialization has nothing to fail on.
                serde_json::to_vec(self).unwrap_or_default()
            }

            /// Reads a node's bytes.
            ///
            /// # Errors
            /// [`RecordError::Json`] if they are not such a record.
            pub fn decode(node: &[u8]) -> Result<$name, RecordError> {
                decode(node)
            }
        }
    };
}

fn decode<T: DeserializeOwned>(node: &[u8]) -> Result<T, RecordError> {
    serde_json::from_slice(node).map_err(|error| RecordError::Json(error.to_string()))
}

/// A cluster and where to reach it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterData {
    /// The REST address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_url: Option<String>,
    /// The address of the binary protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker_service_url: Option<String>,
    /// What else the node holds.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}
json_record!(ClusterData);

/// A tenant: who administers it, and in which clusters it may have namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantInfo {
    /// Roles that administer it.
    #[serde(default)]
    pub admin_roles: Vec<String>,
    /// Clusters in which it may have namespaces.
    #[serde(default)]
    pub allowed_clusters: Vec<String>,
    /// What else the node holds.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}
json_record!(TenantInfo);

/// The policies of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// Clusters to which the namespace is replicated.
    #[serde(default)]
    pub replication_clusters: Vec<String>,
    /// Whether the namespace is being deleted.
    #[serde(default)]
    pub deleted: bool,
    /// What else the node holds.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}
json_record!(Policies);

/// The hash ranges into which a namespace is divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundlesData {
    /// n + 1 ascending bounds of the form `0x%08x`, from `0x00000000` to `0xffffffff`.
    pub boundaries: Vec<String>,
    /// n.
    pub num_bundles: u32,
}

impl BundlesData {
    /// `count` bundles of equal size; at least one.
    #[must_use]
    pub fn even(count: u32) -> BundlesData {
        let count = count.max(1);
        let bound =
            |i: u64| if i == u64::from(count) { u64::from(u32::MAX) } else { (1u64 << 32) / u64::from(count) * i };
        let boundaries = (0..=u64::from(count)).map(|i| format!("0x{:08x}", bound(i))).collect();
        BundlesData { boundaries, num_bundles: count }
    }
}

/// The policies of a namespace that are one cluster's alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LocalPolicies {
    /// The bundles.
    pub bundles: BundlesData,
    /// What else the node holds.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}
json_record!(LocalPolicies);

/// How many partitions a topic has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionedTopicMetadata {
    /// The partition count.
    pub partitions: u32,
    /// Whether the topic is being deleted.
    #[serde(default)]
    pub deleted: bool,
    /// What else the node holds.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}
json_record!(PartitionedTopicMetadata);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_survive() {
        let node = br#"{"replication_clusters":["c"],"deleted":false,"retention_policies":{"retentionSizeInMB":5}}"#;
        let policies = Policies::decode(node).unwrap();
        assert_eq!(policies.replication_clusters, ["c"]);
        assert_eq!(policies.encode(), node);
    }

    #[test]
    fn names_are_pulsars() {
        let tenant = TenantInfo { allowed_clusters: vec!["standalone".into()], ..Default::default() };
        assert_eq!(tenant.encode(), br#"{"adminRoles":[],"allowedClusters":["standalone"]}"#);
        let partitions = PartitionedTopicMetadata { partitions: 3, deleted: false, unknown: Map::new() };
        assert_eq!(partitions.encode(), br#"{"partitions":3,"deleted":false}"#);
        assert!(matches!(TenantInfo::decode(b"[]"), Err(RecordError::Json(_))));
    }

    #[test]
    fn bundles_divide_evenly() {
        let four = BundlesData::even(4);
        assert_eq!(four.boundaries, ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]);
        assert_eq!(BundlesData::even(0).boundaries, ["0x00000000", "0xffffffff"]);
    }
}
