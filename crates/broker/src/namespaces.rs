//! Namespaces and their policies.

use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::NamespaceName;
use geminga_records::{BundlesData, LocalPolicies, Policies, TenantInfo, paths};
use serde_json::{Map, Value};

use crate::admin_error::AdminError;
use crate::broker::Broker;

/// A namespace's bundles are one list in one node.
const MAX_BUNDLES: u64 = 1 << 16;
/// Policies that say something about a namespace without asking for anything.
const DESCRIPTIONS: [&str; 2] = ["properties", "bundles"];

impl Broker {
    /// The namespaces of a tenant.
    ///
    /// # Errors
    /// [`AdminError::TenantNotFound`], or metadata cannot be reached.
    pub async fn namespaces(&self, tenant: &str) -> Result<Vec<NamespaceName>, AdminError> {
        self.tenant(tenant).await?;
        let names = self.metadata().children(&paths::tenant(tenant)).await?;
        Ok(names.iter().filter_map(|name| NamespaceName::new(tenant, name).ok()).collect())
    }

    /// The policies of a namespace.
    ///
    /// # Errors
    /// [`AdminError::NamespaceNotFound`], also while it is being deleted, or metadata cannot be reached or understood.
    pub async fn policies(&self, namespace: &NamespaceName) -> Result<Policies, AdminError> {
        match self.find_policies(namespace).await? {
            Some((policies, _)) if !policies.deleted => Ok(policies),
            _ => Err(AdminError::NamespaceNotFound(namespace.clone())),
        }
    }

    async fn find_policies(&self, namespace: &NamespaceName) -> Result<Option<(Policies, Version)>, AdminError> {
        let path = paths::namespace(namespace);
        let Some(node) = self.metadata().get(&path).await? else { return Ok(None) };
        let policies = Policies::decode(&node.value).map_err(|error| AdminError::Record(path, error))?;
        Ok(Some((policies, node.version)))
    }

    /// How a namespace is divided, if that is stored.
    ///
    /// # Errors
    /// Metadata cannot be reached or understood.
    pub async fn bundles(&self, namespace: &NamespaceName) -> Result<Option<BundlesData>, AdminError> {
        let path = paths::local_policies(namespace);
        let Some(node) = self.metadata().get(&path).await?.filter(|node| !node.value.is_empty()) else {
            return Ok(None);
        };
        let local = LocalPolicies::decode(&node.value).map_err(|error| AdminError::Record(path, error))?;
        Ok(Some(local.bundles))
    }

    /// Makes a namespace. Without clusters it is in this one.
    ///
    /// # Errors
    /// [`AdminError::NamespaceExists`], [`AdminError::TenantNotFound`], [`AdminError::TooManyNamespaces`], or what is
    /// wrong with the policies.
    pub async fn create_namespace(&self, namespace: &NamespaceName, wanted: Policies) -> Result<(), AdminError> {
        let tenant = self.tenant(namespace.tenant()).await?;
        let mut policies = wanted;
        let bundles = bundles_of(policies.unknown.remove("bundles").as_ref(), self.limits().default_bundles)?;
        if let Some(policy) = asks_for(&policies.unknown) {
            return Err(AdminError::NotInThisVersion(format!("the policy {policy} of a new namespace")));
        }
        policies.deleted = false;
        if policies.replication_clusters.is_empty() {
            policies.replication_clusters = vec![self.options().cluster.clone()];
        }
        self.check_clusters(namespace, &tenant, &policies.replication_clusters).await?;
        if self.find_policies(namespace).await?.is_some() {
            return Err(AdminError::NamespaceExists);
        }
        let most = self.limits().max_namespaces_per_tenant;
        if most > 0 && self.namespaces(namespace.tenant()).await?.len() >= most {
            return Err(AdminError::TooManyNamespaces(namespace.tenant().to_owned()));
        }
        let local = LocalPolicies { bundles, unknown: Map::new() };
        match self.metadata().put(&paths::local_policies(namespace), local.encode(), Expected::Absent).await {
            // Of somebody who makes the same namespace at this moment, or could not finish it.
            Ok(_) | Err(MetadataError::BadVersion(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match self.metadata().put(&paths::namespace(namespace), policies.encode(), Expected::Absent).await {
            Err(MetadataError::BadVersion(_)) => Err(AdminError::NamespaceExists),
            written => Ok(written.map(drop)?),
        }
    }

    async fn check_clusters(
        &self,
        namespace: &NamespaceName,
        tenant: &TenantInfo,
        clusters: &[String],
    ) -> Result<(), AdminError> {
        let known = self.clusters().await?;
        let unknown: Vec<String> = clusters.iter().filter(|cluster| !known.contains(cluster)).cloned().collect();
        if !unknown.is_empty() {
            return Err(AdminError::UnknownClusters(unknown));
        }
        if let Some(cluster) = clusters.iter().find(|cluster| !tenant.allowed_clusters.contains(cluster)) {
            let tenant = namespace.tenant().to_owned();
            return Err(AdminError::ClusterNotAllowed { cluster: cluster.clone(), tenant });
        }
        if clusters.len() > 1 {
            return Err(AdminError::NotInThisVersion("replication to other clusters".to_owned()));
        }
        Ok(())
    }

    /// Deletes a namespace; with `force` also one that has topics, whoever is connected to them. After an error the
    /// call can be repeated.
    ///
    /// # Errors
    /// [`AdminError::NamespaceNotFound`], [`AdminError::NamespaceNotEmpty`], or what stops the deletion.
    pub async fn delete_namespace(&self, namespace: &NamespaceName, force: bool) -> Result<(), AdminError> {
        let not_found = || AdminError::NamespaceNotFound(namespace.clone());
        let deletion = self.topics().begin_namespace_deletion(namespace);
        let _kept_closed = deletion.ok_or_else(|| AdminError::BeingDeleted(namespace.to_string()))?;
        let (policies, version) = self.find_policies(namespace).await?.ok_or_else(not_found)?;
        let topics = self.stored_topics(namespace).await?;
        let partitioned = self.stored_partitioned_topics(namespace).await?;
        let is_empty = topics.is_empty() && partitioned.is_empty();
        if !is_empty && !force {
            return Err(AdminError::NamespaceNotEmpty);
        }
        let path = paths::namespace(namespace);
        let marked = Policies { deleted: true, ..policies };
        let version = self.metadata().put(&path, marked.encode(), Expected::Version(version)).await?;
        for topic in topics {
            self.close_and_delete(&topic).await?;
        }
        for topic in partitioned {
            self.delete_node(&paths::partitioned_topic(&topic)).await?;
        }
        self.remove_schemas_of(namespace).await?;
        self.delete_node(&paths::local_policies(namespace)).await?;
        self.metadata().delete(&path, Expected::Version(version)).await?;
        for parent in paths::parents_of_namespace(namespace) {
            self.delete_if_empty(&parent).await?;
        }
        Ok(())
    }

    /// Deletes a node, whether it is there or not.
    pub(crate) async fn delete_node(&self, path: &str) -> Result<(), AdminError> {
        match self.metadata().delete(path, Expected::Any).await {
            Ok(()) | Err(MetadataError::NoNode(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What a request says of bundles: their bounds, their number, or nothing.
fn bundles_of(wanted: Option<&Value>, default: u32) -> Result<BundlesData, AdminError> {
    let Some(wanted) = wanted.filter(|value| !value.is_null()) else { return Ok(BundlesData::even(default)) };
    let count = wanted.get("numBundles").map_or(Some(0), Value::as_u64);
    let count = count.filter(|count| *count <= MAX_BUNDLES).and_then(|count| u32::try_from(count).ok());
    let count = count.ok_or_else(|| AdminError::Bundles(format!("expected 1 to {MAX_BUNDLES}")))?;
    let given: Vec<String> = match wanted.get("boundaries") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => serde_json::from_value(list.clone()).map_err(|error| AdminError::Bundles(error.to_string()))?,
    };
    if given.is_empty() {
        return Ok(BundlesData::even(if count == 0 { default } else { count }));
    }
    bounds(&given)
        .ok_or_else(|| AdminError::Bundles("the boundaries do not ascend from 0x00000000 to 0xffffffff".into()))
}

fn bounds(given: &[String]) -> Option<BundlesData> {
    let parse = |text: &String| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let numbers: Vec<u32> = given.iter().map(parse).collect::<Option<_>>()?;
    let complete = numbers.first() == Some(&0) && numbers.last() == Some(&u32::MAX);
    if !complete || !numbers.is_sorted_by(|a, b| a < b) {
        return None;
    }
    let num_bundles = u32::try_from(numbers.len() - 1).ok()?;
    Some(BundlesData { boundaries: numbers.iter().map(|bound| format!("0x{bound:08x}")).collect(), num_bundles })
}

/// The first policy that asks for something this version does not do. Fact: Java sends a full set with its defaults.
fn asks_for(policies: &Map<String, Value>) -> Option<&str> {
    let mut asking = policies.iter().filter(|(name, value)| match name.as_str() {
        // The one flag that is true by default.
        "is_allow_auto_update_schema" => **value == Value::Bool(false),
        name => !DESCRIPTIONS.contains(&name) && !is_default(value),
    });
    asking.next().map(|(name, _)| name.as_str())
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        // 0 and -1 mean no limit.
        Value::Number(number) => number.as_f64().is_some_and(|number| number <= 0.0),
        Value::String(text) => matches!(text.as_str(), "" | "None" | "UNDEFINED" | "Full"),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bundles_by_number_or_bounds() {
        for (wanted, count) in [
            (json!(null), 4),
            (json!({}), 4),
            (json!({"numBundles": 0, "boundaries": []}), 4),
            (json!({"numBundles": 16}), 16),
            (json!({"boundaries": ["0x00000000", "0x80000000", "0xFFFFFFFF"], "numBundles": 2}), 2),
        ] {
            let bundles = bundles_of(Some(&wanted), 4).unwrap();
            assert_eq!((bundles.num_bundles, bundles.boundaries.len()), (count, count as usize + 1), "{wanted}");
        }
        for bad in [
            json!({"numBundles": -1}),
            json!({"numBundles": 1_u64 << 40}),
            json!({"numBundles": "x"}),
            json!({"boundaries": ["0x00000000", "0x10000000"]}),
            json!({"boundaries": ["0x00000000", "0x90000000", "0x80000000", "0xffffffff"]}),
            json!({"boundaries": 3}),
        ] {
            assert!(matches!(bundles_of(Some(&bad), 4), Err(AdminError::Bundles(_))), "{bad}");
        }
    }

    #[test]
    fn what_asks_for_nothing_is_taken() {
        let java = json!({
            "auth_policies": {"namespace_auth": {}, "destination_auth": {}}, "backlog_quota_map": {},
            "encryption_required": false, "offload_threshold": -1, "subscription_auth_mode": "None",
            "schema_compatibility_strategy": "UNDEFINED", "is_allow_auto_update_schema": true,
            "subscription_types_enabled": [], "retention_policies": null, "properties": {"owner": "me"}
        });
        assert_eq!(asks_for(java.as_object().unwrap()), None);
        for (policy, value) in [
            ("encryption_required", json!(true)),
            ("retention_policies", json!({"retentionTimeInMinutes": 5, "retentionSizeInMB": 0})),
            ("max_producers_per_topic", json!(3)),
            ("schema_compatibility_strategy", json!("FORWARD")),
            ("is_allow_auto_update_schema", json!(false)),
        ] {
            let mut policies = java.as_object().unwrap().clone();
            policies.insert(policy.to_owned(), value);
            assert_eq!(asks_for(&policies), Some(policy));
        }
    }
}
