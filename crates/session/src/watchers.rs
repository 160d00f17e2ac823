//! Watchers of topic lists.

use geminga_model::NamespaceName;
use geminga_wire::proto::{
    CommandWatchTopicList, CommandWatchTopicListClose, CommandWatchTopicListSuccess, CommandWatchTopicUpdate,
};
use geminga_wire::{Command, ServerError};

use crate::answer::Refusal;
use crate::effect::{Effect, WatcherKey};
use crate::session::Session;

/// A watcher of the connection.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) key: WatcherKey,
    /// The request that it starts with, until it has started.
    starting: Option<u64>,
}

impl Session {
    pub(crate) fn on_watch(&mut self, command: CommandWatchTopicList) {
        let request_id = command.request_id;
        match self.watch(command) {
            Ok(()) => self.in_flight += 1,
            Err(refusal) => self.send(Command::error(request_id, refusal.error, refusal.message)),
        }
    }

    fn watch(&mut self, command: CommandWatchTopicList) -> Result<(), Refusal> {
        let id = command.watcher_id;
        if !self.config.topic_watchers {
            return Err(Refusal::new(ServerError::NotAllowedError, "topic-list watchers are disabled on this broker"));
        }
        let (length, longest) = (command.topics_pattern.len(), self.config.max_pattern_len);
        if length > longest {
            let message = format!("a pattern of {length} characters is longer than the {longest} allowed");
            return Err(Refusal::new(ServerError::NotAllowedError, message));
        }
        let namespace: NamespaceName = command
            .namespace
            .parse()
            .map_err(|error| Refusal::new(ServerError::InvalidTopicName, format!("{error}")))?;
        let known = self.watchers.get(&id);
        if known.is_some_and(|watcher| watcher.starting.is_some()) {
            let message = format!("watcher {id} is already present on the connection, and not ready");
            return Err(Refusal::new(ServerError::ServiceNotReady, message));
        }
        if known.is_none() && self.watchers.len() >= self.config.max_watchers {
            let message = format!("the connection has {} watchers, as many as allowed", self.watchers.len());
            return Err(Refusal::new(ServerError::NotAllowedError, message));
        }
        self.check_room()?;
        // Fact: a client that asks again for a watcher wants the list afresh.
        if let Some(old) = self.watchers.remove(&id) {
            self.push(Effect::CloseWatcher { watcher: old.key });
        }
        let watcher = WatcherKey { id, serial: self.serial() };
        self.watchers.insert(id, Watcher { key: watcher, starting: Some(command.request_id) });
        let (pattern, hash) = (command.topics_pattern, command.topics_hash);
        self.push(Effect::WatchTopicList { watcher, namespace, pattern, hash });
        Ok(())
    }

    pub(crate) fn on_close_watcher(&mut self, command: CommandWatchTopicListClose) {
        if let Some(watcher) = self.watchers.remove(&command.watcher_id) {
            if let Some(request_id) = watcher.starting {
                self.in_flight -= 1;
                let message = "the watcher was closed before it had started";
                self.send(Command::error(request_id, ServerError::ServiceNotReady, message));
            }
            self.push(Effect::CloseWatcher { watcher: watcher.key });
        }
        self.send(Command::success(command.request_id));
    }

    /// A watcher has started with these topics and the hash of all of them, or has not. No topics if the client's hash
    /// was the same.
    pub fn handle_watch_started(&mut self, key: WatcherKey, started: Result<(Vec<String>, String), Refusal>) {
        let Some(watcher) = self.watchers.get_mut(&key.id).filter(|watcher| watcher.key == key) else { return };
        let Some(request_id) = watcher.starting.take() else { return };
        self.in_flight -= 1;
        match started {
            Ok((topic, topics_hash)) => {
                self.send(CommandWatchTopicListSuccess { request_id, watcher_id: key.id, topic, topics_hash });
            }
            Err(refusal) => {
                self.watchers.remove(&key.id);
                self.send(Command::error(request_id, refusal.error, refusal.message));
            }
        }
    }

    /// Topics that a watcher watches were created or deleted; `hash` is that of all that there are now.
    pub fn handle_topics_changed(&mut self, key: WatcherKey, new: Vec<String>, deleted: Vec<String>, hash: String) {
        let watching = |watcher: &&Watcher| watcher.key == key && watcher.starting.is_none();
        if self.watchers.get(&key.id).filter(watching).is_some() {
            self.send(CommandWatchTopicUpdate {
                watcher_id: key.id,
                new_topics: new,
                deleted_topics: deleted,
                topics_hash: hash,
            });
        }
    }
}
