//! Clusters and tenants.

use bytes::Bytes;
use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::NamespaceName;
use geminga_records::{ClusterData, TenantInfo, paths};

use crate::admin_error::AdminError;
use crate::broker::Broker;

/// A tenant's name is legal where a namespace's is.
fn check_tenant(name: &str) -> Result<(), AdminError> {
    NamespaceName::new(name, "x").map(drop).map_err(|_| AdminError::TenantName)
}

impl Broker {
    /// The names of the clusters.
    ///
    /// # Errors
    /// Metadata cannot be reached.
    pub async fn clusters(&self) -> Result<Vec<String>, AdminError> {
        Ok(self.metadata().children(paths::CLUSTERS).await?)
    }

    /// A cluster.
    ///
    /// # Errors
    /// [`AdminError::ClusterNotFound`], or metadata cannot be reached or understood.
    pub async fn cluster(&self, name: &str) -> Result<ClusterData, AdminError> {
        if check_tenant(name).is_err() {
            return Err(AdminError::ClusterNotFound);
        }
        let path = paths::cluster(name);
        let node = self.metadata().get(&path).await?.ok_or(AdminError::ClusterNotFound)?;
        ClusterData::decode(&node.value).map_err(|error| AdminError::Record(path, error))
    }

    /// The names of the tenants, sorted.
    ///
    /// # Errors
    /// Metadata cannot be reached.
    pub async fn tenants(&self) -> Result<Vec<String>, AdminError> {
        Ok(self.metadata().children(paths::POLICIES).await?)
    }

    /// A tenant.
    ///
    /// # Errors
    /// [`AdminError::TenantNotFound`], or metadata cannot be reached or understood.
    pub async fn tenant(&self, name: &str) -> Result<TenantInfo, AdminError> {
        Ok(self.find_tenant(name).await?.ok_or(AdminError::TenantNotFound)?.0)
    }

    async fn find_tenant(&self, name: &str) -> Result<Option<(TenantInfo, Version)>, AdminError> {
        check_tenant(name)?;
        let path = paths::tenant(name);
        let node = self.metadata().get(&path).await?;
        // An empty node was made as the parent of something.
        let Some(node) = node.filter(|node| !node.value.is_empty()) else { return Ok(None) };
        let info = TenantInfo::decode(&node.value).map_err(|error| AdminError::Record(path, error))?;
        Ok(Some((info, node.version)))
    }

    async fn check_tenant_info(&self, info: &TenantInfo) -> Result<(), AdminError> {
        if info.admin_roles.iter().any(|role| role.trim() != role) {
            return Err(AdminError::AdminRole);
        }
        if info.allowed_clusters.is_empty() {
            return Err(AdminError::NoClusters);
        }
        let known = self.clusters().await?;
        let unknown: Vec<String> =
            info.allowed_clusters.iter().filter(|cluster| !known.contains(cluster)).cloned().collect();
        if unknown.is_empty() { Ok(()) } else { Err(AdminError::UnknownClusters(unknown)) }
    }

    /// Makes a tenant.
    ///
    /// # Errors
    /// [`AdminError::TenantExists`], [`AdminError::TooManyTenants`], or what is wrong with its name, roles or clusters.
    pub async fn create_tenant(&self, name: &str, info: &TenantInfo) -> Result<(), AdminError> {
        check_tenant(name)?;
        self.check_tenant_info(info).await?;
        let path = paths::tenant(name);
        let expected = match self.metadata().get(&path).await? {
            Some(node) if node.value.is_empty() => Expected::Version(node.version),
            Some(_) => return Err(AdminError::TenantExists),
            None => Expected::Absent,
        };
        let most = self.limits().max_tenants;
        if most > 0 && self.tenants().await?.len() >= most {
            return Err(AdminError::TooManyTenants);
        }
        match self.metadata().put(&path, info.encode(), expected).await {
            Err(MetadataError::BadVersion(_)) => Err(AdminError::TenantExists),
            written => Ok(written.map(drop)?),
        }
    }

    /// Replaces a tenant's roles and clusters.
    ///
    /// # Errors
    /// [`AdminError::TenantNotFound`], [`AdminError::ClusterInUse`], or what is wrong with its roles or clusters.
    pub async fn update_tenant(&self, name: &str, info: &TenantInfo) -> Result<(), AdminError> {
        let (found, version) = self.find_tenant(name).await?.ok_or(AdminError::TenantNotFound)?;
        self.check_tenant_info(info).await?;
        let lost = |cluster: &&String| !info.allowed_clusters.contains(cluster);
        if found.allowed_clusters.iter().any(|cluster| lost(&cluster)) {
            for namespace in self.namespaces(name).await? {
                let clusters = self.policies(&namespace).await?.replication_clusters;
                if let Some(cluster) = clusters.iter().find(lost) {
                    return Err(AdminError::ClusterInUse(name.to_owned(), cluster.clone()));
                }
            }
        }
        let written = TenantInfo { unknown: found.unknown, ..info.clone() };
        Ok(self.metadata().put(&paths::tenant(name), written.encode(), Expected::Version(version)).await.map(drop)?)
    }

    /// Deletes a tenant that has no namespaces.
    ///
    /// # Errors
    /// [`AdminError::TenantNotFound`] or [`AdminError::TenantHasNamespaces`].
    pub async fn delete_tenant(&self, name: &str, force: bool) -> Result<(), AdminError> {
        let (_, version) = self.find_tenant(name).await?.ok_or(AdminError::TenantNotFound)?;
        if force {
            return Err(AdminError::ForcedTenantDeletion);
        }
        if !self.namespaces(name).await?.is_empty() {
            return Err(AdminError::TenantHasNamespaces);
        }
        match self.metadata().delete(&paths::tenant(name), Expected::Version(version)).await {
            Err(MetadataError::NotEmpty(_)) => return Err(AdminError::TenantHasNamespaces),
            deleted => deleted?,
        }
        for parent in paths::parents_of_tenant(name) {
            self.delete_if_empty(&parent).await?;
        }
        Ok(())
    }

    /// Deletes a node that was only the parent of others.
    pub(crate) async fn delete_if_empty(&self, path: &str) -> Result<(), AdminError> {
        let Some(node) = self.metadata().get(path).await? else { return Ok(()) };
        if node.value != Bytes::new() {
            return Ok(());
        }
        match self.metadata().delete(path, Expected::Version(node.version)).await {
            Ok(()) | Err(MetadataError::NoNode(_) | MetadataError::NotEmpty(_) | MetadataError::BadVersion(_)) => {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
