//! The store in memory: for tests and simulation, and wherever nothing has to outlive the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use geminga_env::Clock;
use parking_lot::Mutex;

use crate::store::{Backend, MetadataError, MetadataStore, Node, Notice, Request, SessionId, Watch};
use crate::tree::{self, Nodes, Put};

/// An empty store in memory. Its nodes live as long as any handle.
#[must_use]
pub fn memory(clock: Clock) -> MetadataStore {
    MetadataStore::new(Arc::new(Memory { clock, state: Mutex::new(State::default()) }))
}

struct Memory {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: MemoryNodes,
    watches: Watches,
}

#[derive(Default)]
struct MemoryNodes {
    nodes: BTreeMap<String, Node>,
    sequences: BTreeMap<String, u64>,
}

impl Nodes for MemoryNodes {
    fn get(&self, key: &str) -> Result<Option<Node>, MetadataError> {
        Ok(self.nodes.get(key).cloned())
    }

    fn set(&mut self, key: &str, node: &Node) -> Result<(), MetadataError> {
        self.nodes.insert(key.to_owned(), node.clone());
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), MetadataError> {
        self.nodes.remove(key);
        Ok(())
    }

    fn next_key(&self, from: &str, prefix: &str) -> Result<Option<String>, MetadataError> {
        let next = self.nodes.range::<str, _>((std::ops::Bound::Included(from), std::ops::Bound::Unbounded)).next();
        Ok(next.map(|(key, _)| key).filter(|key| key.starts_with(prefix)).cloned())
    }

    fn next_sequence(&mut self, parent: &str) -> Result<u64, MetadataError> {
        let next = self.sequences.entry(parent.to_owned()).or_default();
        *next += 1;
        Ok(*next - 1)
    }
}

/// The watches of a store, told in the order of the changes.
#[derive(Default)]
pub(crate) struct Watches(Vec<(String, Watch)>);

impl Watches {
    pub(crate) fn add(&mut self, path: String, watch: Watch) {
        self.0.push((path, watch));
    }

    pub(crate) fn tell(&mut self, notices: &[Notice]) {
        if notices.is_empty() {
            return;
        }
        self.0.retain(|(watched, watch)| {
            let seen: Vec<Notice> =
                notices.iter().filter(|notice| tree::is_watched(watched, &notice.path)).cloned().collect();
            seen.is_empty() || watch(&seen)
        });
    }
}

impl Backend for Memory {
    fn submit(&self, request: Request) {
        let now = self.clock.wall();
        let mut state = self.state.lock();
        let State { nodes, watches } = &mut *state;
        let mut notices = Vec::new();
        // The answer is sent after the notices, so that whoever wrote finds that watchers know.
        match request {
            Request::Get { path, reply } => {
                reply.send(tree::check_path(&path).and_then(|()| nodes.get(&tree::key(&path))));
            }
            Request::Put { path, value, expected, kind, session, reply } => {
                let put = Put { value, expected, kind, session };
                let answer = tree::put(nodes, now, &path, put, &mut notices);
                watches.tell(&notices);
                reply.send(answer);
            }
            Request::Delete { path, expected, reply } => {
                let answer = tree::delete(nodes, &path, expected, &mut notices);
                watches.tell(&notices);
                reply.send(answer);
            }
            Request::Children { path, reply } => reply.send(tree::children(nodes, &path)),
            Request::Watch { path, watch, reply } => {
                let sound = tree::check_path(&path);
                if sound.is_ok() {
                    watches.add(path, watch);
                }
                reply.send(sound);
            }
            Request::EndSession(session) => {
                end_session(nodes, session, &mut notices);
                watches.tell(&notices);
            }
        }
    }

    fn url(&self) -> &'static str {
        "memory:"
    }
}

fn end_session(nodes: &mut MemoryNodes, session: SessionId, notices: &mut Vec<Notice>) {
    let ended: Vec<String> =
        nodes.nodes.iter().filter(|(_, node)| node.session == Some(session)).map(|(key, _)| key.clone()).collect();
    for key in ended {
        nodes.nodes.remove(&key);
        notices.push(Notice { path: tree::path_of(&key), change: crate::Change::Deleted });
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("memory:")
    }
}
