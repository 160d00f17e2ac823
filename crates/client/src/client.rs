//! The client: which connections there are, and where topics live.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use geminga_env::{Budget, Env, OnPanic, Scope, mailbox};
use geminga_model::{Instant, TopicName};
use geminga_wire::proto::command_lookup_topic_response::LookupType;
use geminga_wire::{Command, ServerError, proto};
use parking_lot::Mutex;

use crate::consumer::Consumer;
use crate::consumer_options::ConsumerOptions;
use crate::error::ClientError;
use crate::link::Link;
use crate::link_task::{self, Target};
use crate::options::ClientOptions;
use crate::producer::Producer;
use crate::producer_options::ProducerOptions;
use crate::reader::{Reader, ReaderOptions};
use crate::retry::Retry;
use crate::url::ServiceUrl;

/// Fact: how many redirects the Java client follows.
const MAX_REDIRECTS: u32 = 20;

/// A client of one cluster, shared by clones. When the last clone and the last producer, consumer and reader are gone,
/// its connections end.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) scope: Scope,
    pub(crate) options: Arc<ClientOptions>,
    pub(crate) memory: Budget,
    url: ServiceUrl,
    /// By address, and by the broker behind a proxy. Held only to look one up.
    links: Mutex<BTreeMap<(String, Option<String>), Link>>,
    ids: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.scope.stop_signal().stop();
    }
}

impl Client {
    /// A client of the cluster at `service_url`, after a broker there has answered.
    ///
    /// # Errors
    /// The URL is none, or no broker answers within the operation timeout.
    pub async fn connect(env: &Env, service_url: &str) -> Result<Client, ClientError> {
        Client::with_options(env, service_url, ClientOptions::default()).await
    }

    /// As [`Client::connect`], with settings of your own.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn with_options(env: &Env, service_url: &str, options: ClientOptions) -> Result<Client, ClientError> {
        let url: ServiceUrl = service_url.parse()?;
        let client = Client(Arc::new(Shared {
            env: env.clone(),
            scope: env.data.child("client"),
            memory: Budget::new("producers", options.memory_limit),
            options: Arc::new(options),
            url,
            links: Mutex::new(BTreeMap::new()),
            ids: AtomicU64::new(0),
        }));
        let mut retry = client.retry(format!("connecting to {}", client.0.url));
        while let Err(error) = client.service_link().ready().await {
            retry.after(error).await?;
        }
        Ok(client)
    }

    /// The cluster's URL.
    #[must_use]
    pub fn service_url(&self) -> &ServiceUrl {
        &self.0.url
    }

    /// What the client waits by. Deadlines are those of its clock.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// Opens a producer on `topic`, one on every partition if it has any.
    ///
    /// # Errors
    /// The name is none, the broker refuses, or the operation timeout passes.
    pub async fn producer(&self, topic: &str, options: ProducerOptions) -> Result<Producer, ClientError> {
        Producer::open(self, topic.parse()?, options).await
    }

    /// Subscribes to `topic`, with a consumer on every partition if it has any.
    ///
    /// # Errors
    /// The name is none, the broker refuses, or the operation timeout passes.
    pub async fn subscribe(&self, topic: &str, options: ConsumerOptions) -> Result<Consumer, ClientError> {
        Consumer::open(self, topic.parse()?, options).await
    }

    /// Opens a reader on `topic`, on every partition if it has any.
    ///
    /// # Errors
    /// The name is none, the broker refuses, or the operation timeout passes.
    pub async fn reader(&self, topic: &str, options: ReaderOptions) -> Result<Reader, ClientError> {
        Reader::open(self, topic.parse()?, options).await
    }

    /// How many partitions `topic` has, 0 if it is not partitioned. It is created if the broker is so configured.
    ///
    /// # Errors
    /// The topic does not exist and is not created, or the operation timeout passes.
    pub async fn partitions(&self, topic: &TopicName) -> Result<u32, ClientError> {
        let mut retry = self.retry(format!("asking for the partitions of {topic}"));
        loop {
            match self.ask_partitions(topic, retry.deadline).await {
                Ok(partitions) => return Ok(partitions),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    async fn ask_partitions(&self, topic: &TopicName, deadline: Instant) -> Result<u32, ClientError> {
        const OPERATION: &str = "asking for the partitions of a topic";
        let link = self.service_link();
        let build = |request_id| {
            proto::CommandPartitionedTopicMetadata { topic: topic.to_string(), request_id, ..Default::default() }.into()
        };
        match link.request(OPERATION, deadline, build).await? {
            Command::PartitionedMetadataResponse(reply) if reply.error.is_some() => {
                Err(refused(OPERATION, reply.error(), reply.message))
            }
            Command::PartitionedMetadataResponse(reply) => Ok(reply.partitions()),
            other => Err(link.unexpected(OPERATION, &other)),
        }
    }

    /// The broker that serves `topic`: `pulsar://<host>:<port>`.
    ///
    /// # Errors
    /// No broker serves it, or the operation timeout passes.
    pub async fn lookup(&self, topic: &TopicName) -> Result<String, ClientError> {
        let mut retry = self.retry(format!("looking up {topic}"));
        loop {
            match self.find_broker(topic, retry.deadline).await {
                Ok((url, _)) => return Ok(url),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    /// One attempt to find the broker of a topic: its URL, and the connection by which it is reached.
    pub(crate) async fn find_broker(
        &self,
        topic: &TopicName,
        deadline: Instant,
    ) -> Result<(String, Link), ClientError> {
        const OPERATION: &str = "looking up the broker of a topic";
        let mut link = self.service_link();
        let mut authoritative = false;
        for _ in 0..MAX_REDIRECTS {
            let build = |request_id| {
                proto::CommandLookupTopic {
                    topic: topic.to_string(),
                    request_id,
                    authoritative: Some(authoritative),
                    advertised_listener_name: self.0.options.listener.clone(),
                    ..Default::default()
                }
                .into()
            };
            let reply = match link.request(OPERATION, deadline, build).await? {
                Command::LookupResponse(reply) => reply,
                other => return Err(link.unexpected(OPERATION, &other)),
            };
            let outcome = reply.response();
            if outcome == LookupType::Failed {
                return Err(refused(OPERATION, reply.error(), reply.message));
            }
            let through = reply.proxy_through_service_url();
            authoritative = reply.authoritative();
            let url = reply.broker_service_url.unwrap_or_default();
            let broker: ServiceUrl = url.parse().map_err(|_| ClientError::Protocol {
                address: link.address.to_string(),
                what: format!("the broker URL '{url}', which this version cannot use,"),
            })?;
            if outcome == LookupType::Redirect {
                link = self.link(&broker, None);
            } else if through {
                return Ok((url, self.link(&self.0.url, Some(broker.authority()))));
            } else {
                return Ok((url, self.link(&broker, None)));
            }
        }
        Err(refused(OPERATION, ServerError::ServiceNotReady, Some("the brokers sent each other in circles".into())))
    }

    /// Ends all connections; producers and consumers of the client fail from now on.
    pub async fn close(&self) {
        self.0.scope.close().await;
    }

    pub(crate) fn retry(&self, operation: String) -> Retry {
        Retry::new(&self.0.env, &self.0.options, operation)
    }

    /// An id for a producer or consumer, for all connections.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.ids.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn service_link(&self) -> Link {
        self.link(&self.0.url, None)
    }

    /// The connection to a broker, a new one if there is none or it has ended.
    pub(crate) fn link(&self, url: &ServiceUrl, proxy_to: Option<String>) -> Link {
        let shared = &self.0;
        let key = (url.authority(), proxy_to.clone());
        let mut links = shared.links.lock();
        if let Some(link) = links.get(&key).filter(|link| !link.is_gone()) {
            return link.clone();
        }
        links.retain(|_, link| !link.is_gone());
        let address: Arc<str> = match &proxy_to {
            Some(broker) => format!("{broker} through {}", key.0).into(),
            None => key.0.clone().into(),
        };
        let (mailbox, inbox) = mailbox();
        let (clock, request_ids) = (shared.env.clock, Arc::new(AtomicU64::new(0)));
        let link = Link { address: Arc::clone(&address), mailbox, clock, request_ids };
        links.insert(key, link.clone());
        let target = Target { hosts: url.hosts().to_vec(), proxy_to, address };
        let (env, options, stop) =
            (shared.env.clone(), Arc::clone(&shared.options), shared.scope.stop_signal().clone());
        shared.scope.spawn("link", OnPanic::Log, link_task::run(env, options, target, stop, inbox));
        link
    }
}

/// What a broker said no to.
pub(crate) fn refused(operation: &str, error: ServerError, message: Option<String>) -> ClientError {
    ClientError::Refused { operation: operation.to_owned(), error, message: message.unwrap_or_default() }
}
