//! The topics that are open, and those that must not be opened because they are being deleted.

use std::sync::Arc;

use geminga_env::reply;
use geminga_managed_ledger::ManagedLedgerError;
use geminga_model::{NamespaceName, TopicName};
use geminga_topic::{TopicEnd, TopicHandle, TopicOptions, open_topic};
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

/// The topics that are open, or being opened. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct OpenTopics(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    topics: HashMap<TopicName, TopicHandle>,
    /// Not opened meanwhile; a partitioned topic stands for its partitions.
    deleted_topics: HashSet<TopicName>,
    deleted_namespaces: HashSet<NamespaceName>,
    closed: bool,
}

impl State {
    fn is_being_deleted(&self, name: &TopicName) -> bool {
        if self.deleted_topics.is_empty() && self.deleted_namespaces.is_empty() {
            return false;
        }
        self.deleted_topics.contains(name)
            || self.deleted_topics.contains(&name.base())
            || self.deleted_namespaces.contains(name.namespace())
    }
}

/// Nothing of a topic or namespace is opened until this is dropped.
#[derive(Debug)]
pub(crate) struct Deletion {
    topics: OpenTopics,
    what: Doomed,
}

#[derive(Debug)]
enum Doomed {
    Topic(TopicName),
    Namespace(NamespaceName),
}

impl Drop for Deletion {
    fn drop(&mut self) {
        let mut state = self.topics.0.lock();
        match &self.what {
            Doomed::Topic(name) => state.deleted_topics.remove(name),
            Doomed::Namespace(name) => state.deleted_namespaces.remove(name),
        };
    }
}

impl OpenTopics {
    /// The topic, if it is open.
    #[must_use]
    pub fn get(&self, name: &TopicName) -> Option<TopicHandle> {
        self.0.lock().topics.get(name).filter(|topic| !topic.is_gone()).cloned()
    }

    /// Those that are open, or being opened.
    #[must_use]
    pub fn all(&self) -> Vec<TopicHandle> {
        self.0.lock().topics.values().filter(|topic| !topic.is_gone()).cloned().collect()
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

    /// Keeps a topic, and its partitions, from being opened; `None` if somebody does so already.
    pub(crate) fn begin_topic_deletion(&self, name: &TopicName) -> Option<Deletion> {
        let new = self.0.lock().deleted_topics.insert(name.clone());
        new.then(|| Deletion { topics: self.clone(), what: Doomed::Topic(name.clone()) })
    }

    /// Keeps the topics of a namespace from being opened; `None` if somebody does so already.
    pub(crate) fn begin_namespace_deletion(&self, name: &NamespaceName) -> Option<Deletion> {
        let new = self.0.lock().deleted_namespaces.insert(name.clone());
        new.then(|| Deletion { topics: self.clone(), what: Doomed::Namespace(name.clone()) })
    }

    /// `None` if it is being deleted.
    pub(crate) fn get_or_open(&self, name: &TopicName, options: &TopicOptions, create: bool) -> Option<TopicHandle> {
        let mut state = self.0.lock();
        if state.is_being_deleted(name) {
            return None;
        }
        if let Some(open) = state.topics.get(name).filter(|topic| !topic.is_gone()) {
            return Some(open.clone());
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
        Some(topic)
    }

    pub(crate) async fn close(&self) {
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
