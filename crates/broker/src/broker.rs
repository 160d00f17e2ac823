//! The broker: what its connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use geminga_env::{Env, OnPanic, Scope};
use geminga_managed_ledger::ManagedLedgers;
use geminga_metastore::MetadataStore;
use geminga_model::TopicName;
use geminga_session::{Refusal, SessionConfig};
use geminga_topic::{TopicHandle, TopicOptions};
use geminga_wire::ServerError;
use tokio::net::TcpListener;

use crate::connection::run_connection;
use crate::limits::Limits;
use crate::memory::Memory;
use crate::open_topics::OpenTopics;

/// What a broker is started with.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// The rules of its connections.
    pub session: SessionConfig,
    /// What its topics share.
    pub topics: TopicOptions,
    /// The cluster that the broker belongs to.
    pub cluster: String,
    /// The address that lookups answer with: `pulsar://host:port`.
    pub service_url: String,
    /// The address of REST that lookups answer with: `http://host:port`.
    pub web_service_url: String,
    /// Whether clients are to keep to the address they dialled. Fact: so for a standalone that advertises loopback.
    pub through_service_url: bool,
    /// What may be made, and how much of it.
    pub limits: Limits,
    /// What connections may hold in memory together.
    pub memory: Memory,
}

/// A broker. Clones are the same broker.
#[derive(Clone, Debug)]
pub struct Broker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    env: Env,
    metadata: MetadataStore,
    options: BrokerOptions,
    session: Arc<SessionConfig>,
    topics: OpenTopics,
    /// The task that accepts, and below it those of the clients.
    connections: Scope,
    clients: Scope,
    next_connection: AtomicU64,
}

impl Broker {
    /// A broker that has no topic open and does not listen yet.
    #[must_use]
    pub fn new(env: Env, metadata: MetadataStore, options: BrokerOptions) -> Broker {
        let connections = env.data.child("connections");
        Broker(Arc::new(Shared {
            session: Arc::new(options.session.clone()),
            env,
            metadata,
            options,
            topics: OpenTopics::default(),
            clients: connections.child("clients"),
            connections,
            next_connection: AtomicU64::new(1),
        }))
    }

    /// Accepts connections until the broker is closed.
    pub fn serve(&self, listener: TcpListener) {
        let broker = self.clone();
        let scope = self.0.clients.clone();
        self.0.connections.spawn("accept", OnPanic::ExitProcess, async move {
            let stop = scope.stop_signal().clone();
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = stop.stopped() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((socket, address)) => {
                        let id = broker.0.next_connection.fetch_add(1, Ordering::Relaxed);
                        let task = run_connection(broker.clone(), id, socket, address, stop.clone());
                        scope.spawn("connection", OnPanic::Log, task);
                    }
                    Err(error) => {
                        // Most often the process has no file descriptors left; others must end first.
                        tracing::warn!(%error, "cannot accept a connection");
                        let clock = broker.0.env.clock;
                        clock.sleep_until(clock.now() + std::time::Duration::from_millis(100)).await;
                    }
                }
            }
        });
    }

    /// Closes topics, then connections. Nothing new is admitted meanwhile.
    pub async fn close(&self) {
        self.0.topics.close().await;
        self.0.connections.close().await;
        self.0.clients.close().await;
    }

    /// The topics that are open.
    #[must_use]
    pub fn topics(&self) -> &OpenTopics {
        &self.0.topics
    }

    /// The topic, opened if it is not; with `create` it is made if it does not exist. It may still turn out that it
    /// cannot be opened; then it refuses what it is asked.
    ///
    /// # Errors
    /// It is being deleted.
    pub fn topic(&self, name: &TopicName, create: bool) -> Result<TopicHandle, Refusal> {
        let being_deleted = || Refusal::new(ServerError::ServiceNotReady, format!("{name} is being deleted"));
        self.0.topics.get_or_open(name, &self.0.options.topics, create).ok_or_else(being_deleted)
    }

    /// How many clients are connected.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.clients.running()
    }

    pub(crate) fn ledgers(&self) -> &ManagedLedgers {
        &self.0.options.topics.ledgers
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.options.limits
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }

    /// How many metadata nodes this process asked to be written or deleted.
    #[must_use]
    pub fn metadata_writes(&self) -> u64 {
        self.0.metadata.writes()
    }

    pub(crate) fn metadata(&self) -> &MetadataStore {
        &self.0.metadata
    }

    /// What it was started with.
    #[must_use]
    pub fn options(&self) -> &BrokerOptions {
        &self.0.options
    }

    pub(crate) fn session(&self) -> &Arc<SessionConfig> {
        &self.0.session
    }
}
