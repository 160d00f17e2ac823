//! What a standalone needs in metadata before it serves: an identity, a cluster, and a tenant and namespace for names
//! that say none.

use bytes::Bytes;
use geminga_env::Env;
use geminga_metastore::{Expected, Kind, MetadataError, MetadataStore};
use geminga_model::NamespaceName;
use geminga_records::{BundlesData, ClusterData, LocalPolicies, Policies, TenantInfo, paths};

/// What was found or made.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The storage's instance id.
    pub(crate) instance: String,
    /// This start's number, for names of producers.
    pub(crate) broker_number: u64,
}

/// Why metadata cannot be made ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootstrapFailed {
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("the data directory is of cluster {found}: start with clusterName={found}, or with another --data-dir")]
    OtherCluster { found: String },
}

/// Makes what is missing. Repeats itself harmlessly.
pub(crate) async fn bootstrap(
    env: &Env,
    metadata: &MetadataStore,
    cluster: &str,
    service_url: &str,
    web_url: &str,
) -> Result<Identity, BootstrapFailed> {
    let clusters = metadata.children(paths::CLUSTERS).await?;
    if let Some(found) = clusters.first().filter(|_| !clusters.iter().any(|known| known == cluster)) {
        return Err(BootstrapFailed::OtherCluster { found: found.clone() });
    }
    let instance = match metadata.get(paths::INSTANCE_ID).await? {
        Some(node) => String::from_utf8_lossy(&node.value).into_owned(),
        None => {
            let id = uuid(env);
            create(metadata, paths::INSTANCE_ID, id.clone().into()).await?;
            id
        }
    };
    let data = ClusterData {
        service_url: Some(web_url.to_owned()),
        broker_service_url: Some(service_url.to_owned()),
        ..ClusterData::default()
    };
    metadata.put(&paths::cluster(cluster), data.encode(), Expected::Any).await?;
    let tenant = TenantInfo { allowed_clusters: vec![cluster.to_owned()], ..TenantInfo::default() };
    create(metadata, &paths::tenant("public"), tenant.encode().into()).await?;
    let namespace = NamespaceName::public_default();
    let policies = Policies { replication_clusters: vec![cluster.to_owned()], ..Policies::default() };
    create(metadata, &paths::namespace(&namespace), policies.encode().into()).await?;
    let local = LocalPolicies { bundles: BundlesData::even(16), unknown: Default::default() };
    create(metadata, &paths::local_policies(&namespace), local.encode().into()).await?;

    let prefix = format!("{}/-", paths::PRODUCER_NAME_COUNTER);
    let numbered = metadata.create_ephemeral(&prefix, "", Kind::EphemeralSequential).await?;
    let broker_number = numbered.strip_prefix(&prefix).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    Ok(Identity { instance, broker_number })
}

/// Writes a node unless it exists. One that was made empty as a parent is filled.
async fn create(metadata: &MetadataStore, path: &str, value: Bytes) -> Result<(), MetadataError> {
    let expected = match metadata.get(path).await? {
        Some(node) if node.value.is_empty() => Expected::Version(node.version),
        Some(_) => return Ok(()),
        None => Expected::Absent,
    };
    metadata.put(path, value, expected).await.map(drop)
}

/// A random UUID, version 4.
fn uuid(env: &Env) -> String {
    let (high, low) = (env.random.u64(), env.random.u64());
    let high = high & 0xffff_ffff_ffff_0fff | 0x4000;
    let low = low & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use geminga_metastore::memory;

    #[tokio::test(start_paused = true)]
    async fn it_repeats_itself_harmlessly() {
        let env = Env::simulated(1);
        let metadata = memory(env.clock);
        let first =
            bootstrap(&env, &metadata, "standalone", "pulsar://127.0.0.1:6650", "http://127.0.0.1:8080").await.unwrap();
        assert_eq!((first.instance.len(), &first.instance[14..15]), (36, "4"));
        let policies = metadata.get("/admin/policies/public/default").await.unwrap().unwrap();
        metadata.put("/admin/policies/public/default", "{}", Expected::Any).await.unwrap();
        let again =
            bootstrap(&env, &metadata, "standalone", "pulsar://127.0.0.1:6650", "http://127.0.0.1:8080").await.unwrap();
        assert_eq!((again.instance, again.broker_number), (first.instance, first.broker_number + 1));
        let kept = metadata.get("/admin/policies/public/default").await.unwrap().unwrap();
        assert_eq!((&kept.value[..], kept.version.0), (&b"{}"[..], policies.version.0 + 1));
        let other = bootstrap(&env, &metadata, "other", "pulsar://127.0.0.1:6650", "http://127.0.0.1:8080").await;
        assert!(matches!(other, Err(BootstrapFailed::OtherCluster { found }) if found == "standalone"));
        assert!(metadata.get("/admin/policies/public").await.unwrap().unwrap().value.starts_with(b"{"));
    }
}
