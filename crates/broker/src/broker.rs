//! The broker: what its connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use geminga_env::{Env, OnPanic, Scope, reply};
use geminga_managed_ledger::ManagedLedgerError;
use geminga_metastore::MetadataStore;
use geminga_model::TopicName;
use geminga_session::SessionConfig;
use geminga_topic::{TopicEnd, TopicHandle, TopicOptions, open_topic};
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::connection::run_connection;

/// What a broker is started with.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// The rules of its connections.
    pub session: SessionConfig,
    /// What its topics share.
    pub topics: TopicOptions,
    /// The address that lookups answer with: `pulsar://host:port`.
    pub service_url: String,
    /// Whether clients are to keep to the address they dialled. Fact: so for a standalone that advertises loopback.
    pub through_service_url: bool,
    /// Bytes that may be delivered to a connection before its socket took them.
    pub outbox_bytes: usize,
    /// Bytes of publishes without a receipt above which a connection is not read from.
    pub ingress_bytes: usize,
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
    connections: Scope,
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
            connections,
            next_connection: AtomicU64::new(1),
        }))
    }

    /// Accepts connections until the broker is closed.
    pub fn serve(&self, listener: TcpListener) {
        let broker = self.clone();
        let scope = self.0.connections.clone();
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
    }

    /// The topics that are open.
    #[must_use]
    pub fn topics(&self) -> &OpenTopics {
        &self.0.topics
    }

    /// The topic, opened if it is not; with `create` it is made if it does not exist. It may still turn out that it
    /// cannot be opened; then it refuses what it is asked.
    #[must_use]
    pub fn topic(&self, name: &TopicName, create: bool) -> TopicHandle {
        self.0.topics.get_or_open(name, &self.0.options.topics, create)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn metadata(&self) -> &MetadataStore {
        &self.0.metadata
    }

    pub(crate) fn options(&self) -> &BrokerOptions {
        &self.0.options
    }

    pub(crate) fn session(&self) -> &Arc<SessionConfig> {
        &self.0.session
    }
}

/// The topics that are open, or being opened. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct OpenTopics(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    topics: HashMap<TopicName, TopicHandle>,
    closed: bool,
}

impl OpenTopics {
    /// The topic, if it is open.
    #[must_use]
    pub fn get(&self, name: &TopicName) -> Option<TopicHandle> {
        self.0.lock().topics.get(name).filter(|topic| !topic.is_gone()).cloned()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().topics.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get_or_open(&self, name: &TopicName, options: &TopicOptions, create: bool) -> TopicHandle {
        let mut state = self.0.lock();
        if let Some(open) = state.topics.get(name).filter(|topic| !topic.is_gone()) {
            return open.clone();
        }
        let (topics, gone) = (self.clone(), name.clone());
        let ended = move |end: TopicEnd| {
            match &end {
                TopicEnd::Closed => {}
                TopicEnd::Failed(ManagedLedgerError::NotFound) => {}
                TopicEnd::Failed(error) => tracing::warn!(topic = %gone, %error, "the topic ended"),
                TopicEnd::Panicked => tracing::error!(topic = %gone, "the topic's task panicked; it is opened anew"),
            }
            // Unless it was opened anew already.
            let mut state = topics.0.lock();
            if state.topics.get(&gone).is_some_and(TopicHandle::is_gone) {
                state.topics.remove(&gone);
            }
        };
        let topic = open_topic(options.clone(), name.clone(), create, ended);
        if !state.closed {
            state.topics.insert(name.clone(), topic.clone());
        }
        topic
    }

    async fn close(&self) {
        let topics: Vec<TopicHandle> = {
            let mut state = self.0.lock();
            state.closed = true;
            state.topics.drain().map(|(_, topic)| topic).collect()
        };
        let mut closing = Vec::new();
        for topic in topics {
            let (done, answer) = reply();
            topic.close(done);
            closing.push(answer);
        }
        for mut answer in closing {
            // A topic that went away without an answer has nothing more to store.
            let _ = answer.wait().await;
        }
    }
}
