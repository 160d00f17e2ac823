//! Commands about clusters, tenants, namespaces, brokers and schemas.

use clap::Subcommand;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::plan::{Call, Plan, encode, flag, namespace, topic};

#[derive(Debug, Subcommand)]
pub(super) enum Clusters {
    /// List the clusters.
    List,
    /// Show a cluster.
    Get { cluster: String },
}

impl Clusters {
    pub(super) fn plan(&self) -> Plan {
        Plan::Show(Call::get(match self {
            Clusters::List => "/admin/v2/clusters".to_owned(),
            Clusters::Get { cluster } => format!("/admin/v2/clusters/{}", encode(cluster)),
        }))
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Tenants {
    /// List the tenants.
    List,
    /// Show a tenant.
    Get { tenant: String },
    /// Make a tenant. Without clusters it may use all of them.
    Create {
        tenant: String,
        /// Who may administrate it.
        #[arg(short = 'r', long, value_delimiter = ',', value_name = "ROLES")]
        admin_roles: Vec<String>,
        /// The clusters that it may use.
        #[arg(short = 'c', long, value_delimiter = ',', value_name = "CLUSTERS")]
        allowed_clusters: Vec<String>,
    },
    /// Change what is given of a tenant.
    Update {
        tenant: String,
        /// Who may administrate it.
        #[arg(short = 'r', long, value_delimiter = ',', value_name = "ROLES")]
        admin_roles: Option<Vec<String>>,
        /// The clusters that it may use.
        #[arg(short = 'c', long, value_delimiter = ',', value_name = "CLUSTERS")]
        allowed_clusters: Option<Vec<String>>,
    },
    /// Delete a tenant that has no namespaces.
    Delete {
        tenant: String,
        /// Also if it has namespaces; servers refuse that by default.
        #[arg(short, long)]
        force: bool,
    },
}

impl Tenants {
    pub(super) fn plan(&self) -> Plan {
        let path = |tenant: &str| format!("/admin/v2/tenants/{}", encode(tenant));
        match self {
            Tenants::List => Plan::Show(Call::get("/admin/v2/tenants")),
            Tenants::Get { tenant } => Plan::Show(Call::get(path(tenant))),
            Tenants::Create { tenant, admin_roles, allowed_clusters } => {
                let put = Call::new(Method::PUT, path(tenant));
                let mut change = Map::from_iter([("adminRoles".to_owned(), json!(admin_roles))]);
                if !allowed_clusters.is_empty() {
                    change.insert("allowedClusters".to_owned(), json!(allowed_clusters));
                    return Plan::Do(put.body(&Value::Object(change)));
                }
                // Fact: the list of clusters stands for what is not given.
                Plan::Update { get: Call::get("/admin/v2/clusters"), change, put }
            }
            Tenants::Update { tenant, admin_roles, allowed_clusters } => {
                let given = [("adminRoles", admin_roles), ("allowedClusters", allowed_clusters)];
                let change =
                    given.into_iter().filter_map(|(name, list)| Some((name.to_owned(), json!(list.as_ref()?))));
                let (get, put) = (Call::get(path(tenant)), Call::new(Method::POST, path(tenant)));
                Plan::Update { get, change: change.collect(), put }
            }
            Tenants::Delete { tenant, force } => {
                Plan::Do(Call::new(Method::DELETE, path(tenant) + &flag("force", *force)))
            }
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Namespaces {
    /// List the namespaces of a tenant.
    List { tenant: String },
    /// List the topics of a namespace.
    Topics {
        namespace: String,
        /// Also the broker's own. Also -ist.
        #[arg(long)]
        include_system_topic: bool,
    },
    /// Show the policies of a namespace.
    Policies { namespace: String },
    /// Show how a namespace is divided.
    Bundles { namespace: String },
    /// Make a namespace.
    Create {
        namespace: String,
        /// The clusters that it is in.
        #[arg(short, long, value_delimiter = ',', value_name = "CLUSTERS")]
        clusters: Vec<String>,
        /// Into how many bundles it is divided; 0 for the server's default.
        #[arg(short, long, default_value_t = 0)]
        bundles: u32,
    },
    /// Delete a namespace.
    Delete {
        namespace: String,
        /// With its topics, whoever uses them.
        #[arg(short, long)]
        force: bool,
    },
}

impl Namespaces {
    pub(super) fn plan(&self) -> Result<Plan, String> {
        let path = |name: &str, rest: &str| Ok::<_, String>(format!("/admin/v2/namespaces/{}{rest}", namespace(name)?));
        Ok(match self {
            Namespaces::List { tenant } => Plan::Show(Call::get(format!("/admin/v2/namespaces/{}", encode(tenant)))),
            Namespaces::Topics { namespace, include_system_topic } => {
                let system = flag("includeSystemTopic", *include_system_topic);
                Plan::Show(Call::get(path(namespace, "/topics")? + &system))
            }
            Namespaces::Policies { namespace } => Plan::Show(Call::get(path(namespace, "")?)),
            Namespaces::Bundles { namespace } => Plan::Show(Call::get(path(namespace, "/bundles")?)),
            Namespaces::Create { namespace, clusters, bundles } => {
                let mut policies = Map::new();
                if !clusters.is_empty() {
                    policies.insert("replication_clusters".to_owned(), json!(clusters));
                }
                if *bundles > 0 {
                    policies.insert("bundles".to_owned(), json!({"numBundles": bundles}));
                }
                Plan::Do(Call::new(Method::PUT, path(namespace, "")?).body(&Value::Object(policies)))
            }
            Namespaces::Delete { namespace, force } => {
                Plan::Do(Call::new(Method::DELETE, path(namespace, &flag("force", *force))?))
            }
        })
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Brokers {
    /// List the brokers of a cluster.
    List { cluster: String },
    /// Show the leader.
    LeaderBroker,
    /// Ask whether the server can serve.
    Healthcheck,
    /// Show the version of the server.
    Version,
}

impl Brokers {
    pub(super) fn plan(&self) -> Plan {
        Plan::Show(Call::get(match self {
            Brokers::List { cluster } => format!("/admin/v2/brokers/{}", encode(cluster)),
            Brokers::LeaderBroker => "/admin/v2/brokers/leaderBroker".to_owned(),
            Brokers::Healthcheck => "/admin/v2/brokers/health".to_owned(),
            Brokers::Version => "/admin/v2/brokers/version".to_owned(),
        }))
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Schemas {
    /// Show the schema of a topic.
    Get {
        topic: String,
        /// This version, instead of the latest.
        #[arg(short, long, value_name = "VERSION", conflicts_with = "all_version")]
        version: Option<i64>,
        /// All versions.
        #[arg(short, long)]
        all_version: bool,
    },
    /// Delete the schema of a topic.
    Delete {
        topic: String,
        /// Also what is stored of its versions.
        #[arg(short, long)]
        force: bool,
    },
    /// Give a topic a schema.
    Upload {
        topic: String,
        /// A file with JSON: type, schema and properties.
        #[arg(short, long, value_name = "FILE")]
        filename: std::path::PathBuf,
    },
}

impl Schemas {
    /// `read` gives the content of a file.
    pub(super) fn plan(&self, read: impl FnOnce(&std::path::Path) -> Result<String, String>) -> Result<Plan, String> {
        let path = |name: &str, rest: &str| {
            let name = topic(name)?;
            let path = name.rest_path();
            let local = path.strip_prefix(name.domain().as_str()).unwrap_or(&path);
            Ok::<_, String>(format!("/admin/v2/schemas{local}{rest}"))
        };
        Ok(match self {
            Schemas::Get { topic, all_version: true, .. } => Plan::Show(Call::get(path(topic, "/schemas")?)),
            Schemas::Get { topic, version: Some(version), .. } => {
                Plan::Show(Call::get(path(topic, &format!("/schema/{version}"))?))
            }
            Schemas::Get { topic, .. } => Plan::Show(Call::get(path(topic, "/schema")?)),
            Schemas::Delete { topic, force } => {
                Plan::Do(Call::new(Method::DELETE, path(topic, "/schema")? + &flag("force", *force)))
            }
            Schemas::Upload { topic, filename } => {
                let text = read(filename)?;
                let body: Value = serde_json::from_str(&text).map_err(|error| {
                    format!("{}: expected JSON with type, schema and properties: {error}", filename.display())
                })?;
                Plan::Do(Call::new(Method::POST, path(topic, "/schema")?).body(&body))
            }
        })
    }
}
