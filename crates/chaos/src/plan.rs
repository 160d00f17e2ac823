//! Who produces and consumes what.

use std::sync::Arc;
use std::time::Duration;

use geminga_client::{Client, ClientError, ClientOptions, ConsumerOptions};
use geminga_env::{Env, Scope, Stop};
use geminga_wire::proto::command_subscribe::{InitialPosition, SubType};
use parking_lot::Mutex;

use crate::history::History;

/// The topics. Each has producers and subscriptions of every kind.
const TOPICS: [&str; 3] = ["chaos-a", "chaos-b", "chaos-c"];

/// Name, type, and how many consumers it has in a cycle. The keeper never acknowledges before the end, so that nothing
/// is trimmed.
const SUBSCRIPTIONS: [(&str, SubType, u32); 6] = [
    ("keeper", SubType::Exclusive, 0),
    ("exclusive", SubType::Exclusive, 1),
    ("failover", SubType::Failover, 2),
    ("shared", SubType::Shared, 2),
    ("key-shared", SubType::KeyShared, 2),
    (ENTRIES, SubType::Shared, 2),
];

/// The subscription whose consumers acknowledge entries only, never a part of a batch.
const ENTRIES: &str = "entries";

/// A subscription of the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    /// Its index in the history.
    pub(crate) index: usize,
    pub(crate) topic: &'static str,
    pub(crate) name: &'static str,
    pub(crate) sub_type: SubType,
    pub(crate) consumers: u32,
}

impl Subscription {
    /// Whether one consumer at a time gets all messages.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self.sub_type, SubType::Exclusive | SubType::Failover)
    }

    pub(crate) fn by_entry(&self) -> bool {
        self.name == ENTRIES
    }

    /// Options of a consumer. The subscription exists; were it lost, it would not come back with its messages.
    pub(crate) fn options(&self) -> ConsumerOptions {
        ConsumerOptions {
            sub_type: self.sub_type,
            initial_position: InitialPosition::Latest,
            batch_index_ack: !self.by_entry(),
            negative_ack_delay: Duration::from_millis(50),
            ..ConsumerOptions::new(self.name)
        }
    }
}

/// The topics by their index in the history, and all their subscriptions.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) topics: [&'static str; 3],
    pub(crate) subscriptions: Vec<Subscription>,
}

impl Plan {
    /// Makes it known to the history.
    pub(crate) fn new(history: &mut History) -> Plan {
        let mut subscriptions = Vec::new();
        for topic in TOPICS {
            let topic_index = history.add_topic(topic);
            for (name, sub_type, consumers) in SUBSCRIPTIONS {
                let index = history.add_subscription(topic_index, name);
                subscriptions.push(Subscription { index, topic, name, sub_type, consumers });
            }
        }
        Plan { topics: TOPICS, subscriptions }
    }

    /// Creates the subscriptions, before the first message.
    pub(crate) async fn create(&self, client: &Client) -> Result<(), ClientError> {
        for subscription in &self.subscriptions {
            let options = ConsumerOptions { initial_position: InitialPosition::Earliest, ..subscription.options() };
            client.subscribe(subscription.topic, options).await?.close().await?;
        }
        Ok(())
    }
}

/// What every producer and consumer of a scope works with.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) env: Env,
    pub(crate) client: Client,
    pub(crate) history: Arc<Mutex<History>>,
    pub(crate) seed: u64,
    /// Given when the work is to end.
    pub(crate) stop: Stop,
    /// Given before the server is killed: from then on, operations may fail.
    pub(crate) killed: Stop,
}

impl Setting {
    /// With a client of its own, whose tasks end with `scope`.
    pub(crate) async fn new(
        env: &Env,
        scope: &Scope,
        url: &str,
        history: &Arc<Mutex<History>>,
        seed: u64,
    ) -> Result<Setting, ClientError> {
        let options = ClientOptions { backoff_max: Duration::from_millis(300), ..ClientOptions::default() };
        let client = Client::with_options(env, url, options).await?;
        let stop = scope.stop_signal().clone();
        Ok(Setting { env: env.clone(), client, history: Arc::clone(history), seed, stop, killed: Stop::new() })
    }

    /// Notes an error, unless the server was killed by then.
    pub(crate) fn failed(&self, who: &str, error: ClientError) {
        if !self.killed.is_stopped() {
            self.history.lock().failed(who.to_owned(), error);
        }
    }
}
