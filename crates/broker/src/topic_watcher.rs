//! Watching which topics of a namespace match a pattern, for one watcher of a connection (Pulsar's PIP-145).
//!
//! The task is told by metadata of every topic that is created or deleted. It tells the connection at most ten times a
//! second, and only once the connection has written what it was told before: a client that does not read holds up one
//! update, which sums up whatever happens meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use geminga_env::{Inbox, Mailbox, OnPanic, mailbox};
use geminga_metastore::{Change, Notice};
use geminga_model::{Domain, NamespaceName, TopicName, decode_local_name};
use geminga_records::paths;
use geminga_session::{Refusal, WatcherKey};
use geminga_topic::{ConnectionHandle, ConnectionItem};
use geminga_wire::{ServerError, topics_hash};

use crate::admin_error::AdminError;
use crate::broker::Broker;
use crate::topic_list::Pattern;
use crate::topics::is_system_topic;

/// The least time between two updates: each takes a look at all names.
const PACE: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum Item {
    /// This topic was created, or deleted.
    Topic(TopicName, bool),
    /// What was told before is on its way to the client.
    Written,
    Close,
}

/// A watcher, for its connection. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct TopicWatcher(Mailbox<Item>);

impl TopicWatcher {
    /// Starts to watch; answered by [`ConnectionItem::WatchStarted`], then [`ConnectionItem::TopicsChanged`].
    pub(crate) fn start(
        broker: &Broker,
        key: WatcherKey,
        namespace: NamespaceName,
        pattern: &str,
        known_hash: Option<String>,
        to: ConnectionHandle,
    ) -> TopicWatcher {
        let (me, inbox) = mailbox();
        let pattern = Pattern::parse(pattern);
        let task = Watching { broker: broker.clone(), key, namespace, to, me: me.clone() };
        broker.env().control.spawn("topic watcher", OnPanic::Log, async move {
            let Some(pattern) = pattern else {
                let message = "the pattern is not one that the broker reads: filter in the client";
                return task.refuse(Refusal::new(ServerError::NotAllowedError, message));
            };
            task.run(inbox, pattern, known_hash).await;
        });
        TopicWatcher(me)
    }

    /// What it told before is written.
    pub(crate) fn written(&self) {
        drop(self.0.push(Item::Written));
    }
}

impl Drop for TopicWatcher {
    fn drop(&mut self) {
        drop(self.0.push(Item::Close));
    }
}

struct Watching {
    broker: Broker,
    key: WatcherKey,
    namespace: NamespaceName,
    to: ConnectionHandle,
    me: Mailbox<Item>,
}

impl Watching {
    fn refuse(&self, refusal: Refusal) {
        self.to.push(ConnectionItem::WatchStarted { watcher: self.key, result: Err(refusal) });
    }

    async fn run(self, mut inbox: Inbox<Item>, pattern: Pattern, known_hash: Option<String>) {
        let mut topics = match self.begin(&pattern).await {
            Ok(topics) => topics,
            Err(error) => return self.refuse(error.into()),
        };
        let hash = topics.hash();
        let told = if known_hash.as_ref() == Some(&hash) { Vec::new() } else { topics.there.iter().cloned().collect() };
        self.to.push(ConnectionItem::WatchStarted { watcher: self.key, result: Ok((told, hash)) });
        let clock = self.broker.env().clock;
        let (mut may_tell, mut next_at, mut batch) = (true, clock.now(), Vec::new());
        loop {
            let due = (may_tell && topics.changed()).then_some(next_at);
            tokio::select! {
                biased;
                () = inbox.wait() => {}
                () = clock.sleep_until_some(due) => {}
            }
            inbox.take(&mut batch);
            for item in batch.drain(..) {
                match item {
                    Item::Topic(topic, there) if pattern.matches(&topic) => topics.apply(topic.to_string(), there),
                    Item::Topic(..) => {}
                    Item::Written => may_tell = true,
                    Item::Close => return,
                }
            }
            if may_tell && topics.changed() && next_at <= clock.now() {
                let (new, deleted) = topics.take();
                let hash = topics.hash();
                self.to.push(ConnectionItem::TopicsChanged { watcher: self.key, new, deleted, hash });
                may_tell = false;
                next_at = clock.now() + PACE;
            }
        }
    }

    /// Watches, then looks: so nothing is missed between the two, and what is seen twice changes nothing.
    async fn begin(&self, pattern: &Pattern) -> Result<Topics, AdminError> {
        let (parent, namespace, me) =
            (paths::managed_ledgers_of(&self.namespace), self.namespace.clone(), self.me.clone());
        let below = format!("{parent}/");
        let tell = move |notices: &[Notice]| {
            let mut items = notices.iter().filter_map(|notice| of_topic(notice, &below, &namespace)).collect();
            me.push_all(&mut items).is_ok()
        };
        self.broker.metadata().watch(&parent, tell).await?;
        let mut topics = match self.broker.topics_of(&self.namespace, false).await {
            Err(AdminError::NamespaceNotFound(_)) => Vec::new(),
            topics => topics?,
        };
        topics.retain(|topic| pattern.matches(topic));
        Ok(Topics { there: topics.iter().map(TopicName::to_string).collect(), ..Topics::default() })
    }
}

/// A notice of a topic's node, neither of its cursors below nor of what is the broker's own.
fn of_topic(notice: &Notice, below: &str, namespace: &NamespaceName) -> Option<Item> {
    let there = match notice.change {
        Change::Created => true,
        Change::Deleted => false,
        Change::Modified => return None,
    };
    let encoded = notice.path.strip_prefix(below).filter(|rest| !rest.contains('/'))?;
    let topic = TopicName::new(Domain::Persistent, namespace.clone(), &decode_local_name(encoded)?).ok()?;
    (!is_system_topic(&topic)).then_some(Item::Topic(topic, there))
}

/// The topics that match, and how they differ from what the client was told.
#[derive(Debug, Default)]
struct Topics {
    there: BTreeSet<String>,
    new: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

impl Topics {
    fn apply(&mut self, topic: String, there: bool) {
        let (changed, undone, done) = if there {
            (self.there.insert(topic.clone()), &mut self.deleted, &mut self.new)
        } else {
            (self.there.remove(&topic), &mut self.new, &mut self.deleted)
        };
        if changed && !undone.remove(&topic) {
            done.insert(topic);
        }
    }

    fn changed(&self) -> bool {
        !self.new.is_empty() || !self.deleted.is_empty()
    }

    fn take(&mut self) -> (Vec<String>, Vec<String>) {
        let take = |set: &mut BTreeSet<String>| std::mem::take(set).into_iter().collect();
        (take(&mut self.new), take(&mut self.deleted))
    }

    fn hash(&self) -> String {
        topics_hash(self.there.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_the_difference() {
        let mut topics = Topics::default();
        for (topic, there) in [("a", true), ("b", true), ("b", false), ("b", false), ("a", true)] {
            topics.apply(topic.to_owned(), there);
        }
        assert_eq!(topics.take(), (vec!["a".to_owned()], vec![]));
        assert!(!topics.changed());
        topics.apply("a".to_owned(), false);
        topics.apply("a".to_owned(), true);
        assert!(!topics.changed());
        topics.apply("a".to_owned(), false);
        assert_eq!((topics.take(), topics.hash().as_str()), ((vec![], vec!["a".to_owned()]), "00000000"));
    }
}
