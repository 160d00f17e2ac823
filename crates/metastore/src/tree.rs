//! The rules of the tree, over any sorted map of paths. Both embedded backends stand on it, so they cannot differ.

use bytes::Bytes;
use geminga_model::UnixMillis;

use crate::store::{Change, Expected, Kind, MetadataError, Node, Notice, SessionId, Version};

/// A sorted map of nodes, and a counter per parent for sequential names.
///
/// Nodes are kept under [`key`]s, not paths.
pub(crate) trait Nodes {
    fn get(&self, key: &str) -> Result<Option<Node>, MetadataError>;
    fn set(&mut self, key: &str, node: &Node) -> Result<(), MetadataError>;
    fn remove(&mut self, key: &str) -> Result<(), MetadataError>;
    /// The first key that is at least `from`, if it begins with `prefix`.
    fn next_key(&self, from: &str, prefix: &str) -> Result<Option<String>, MetadataError>;
    /// The next number for a sequential child of `parent`; never given out twice, also across restarts.
    fn next_sequence(&mut self, parent: &str) -> Result<u64, MetadataError>;
}

/// What a path is kept under: with its slashes as NUL, so that all that is below a node sorts directly behind it.
pub(crate) fn key(path: &str) -> String {
    path.replace('/', "\0")
}

pub(crate) fn path_of(key: &str) -> String {
    key.replace('\0', "/")
}

pub(crate) fn check_path(path: &str) -> Result<(), MetadataError> {
    let sound = path.strip_prefix('/').is_some_and(|rest| !rest.is_empty() && rest.split('/').all(|s| !s.is_empty()));
    // NUL stands for the slash in keys.
    if sound && !path.contains('\0') { Ok(()) } else { Err(MetadataError::InvalidPath(path.to_owned())) }
}

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty())
}

/// What a write is about, besides its path.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) value: Bytes,
    pub(crate) expected: Expected,
    pub(crate) kind: Kind,
    pub(crate) session: SessionId,
}

pub(crate) fn put(
    nodes: &mut impl Nodes,
    now: UnixMillis,
    path: &str,
    put: Put,
    notices: &mut Vec<Notice>,
) -> Result<(String, Version), MetadataError> {
    check_path(path)?;
    let path = match put.kind {
        Kind::Persistent | Kind::Ephemeral => path.to_owned(),
        Kind::EphemeralSequential => format!("{path}{:010}", nodes.next_sequence(parent(path).unwrap_or("/"))?),
    };
    let current = nodes.get(&key(&path))?;
    match (&current, put.expected) {
        (_, Expected::Any) | (None, Expected::Absent) => {}
        (Some(node), Expected::Version(version)) if node.version == version => {}
        (None, Expected::Version(_)) => return Err(MetadataError::NoNode(path)),
        (Some(_), _) => return Err(MetadataError::BadVersion(path)),
    }
    let session = (put.kind != Kind::Persistent).then_some(put.session);
    let node = match current {
        Some(node) => Node { value: put.value, version: Version(node.version.0 + 1), modified: now, ..node },
        None => {
            make_parents(nodes, now, &path, notices)?;
            Node { value: put.value, version: Version(0), created: now, modified: now, session }
        }
    };
    nodes.set(&key(&path), &node)?;
    let change = if node.version == Version(0) { Change::Created } else { Change::Modified };
    notices.push(Notice { path: path.clone(), change });
    Ok((path, node.version))
}

fn make_parents(
    nodes: &mut impl Nodes,
    now: UnixMillis,
    path: &str,
    notices: &mut Vec<Notice>,
) -> Result<(), MetadataError> {
    let mut missing = Vec::new();
    let mut above = parent(path);
    while let Some(path) = above {
        if nodes.get(&key(path))?.is_some() {
            break;
        }
        missing.push(path);
        above = parent(path);
    }
    for path in missing.into_iter().rev() {
        let node = Node { value: Bytes::new(), version: Version(0), created: now, modified: now, session: None };
        nodes.set(&key(path), &node)?;
        notices.push(Notice { path: path.to_owned(), change: Change::Created });
    }
    Ok(())
}

pub(crate) fn delete(
    nodes: &mut impl Nodes,
    path: &str,
    expected: Expected,
    notices: &mut Vec<Notice>,
) -> Result<(), MetadataError> {
    check_path(path)?;
    let node = nodes.get(&key(path))?.ok_or_else(|| MetadataError::NoNode(path.to_owned()))?;
    match expected {
        Expected::Any => {}
        Expected::Version(version) if version == node.version => {}
        Expected::Version(_) | Expected::Absent => return Err(MetadataError::BadVersion(path.to_owned())),
    }
    let below = key(&format!("{path}/"));
    if nodes.next_key(&below, &below)?.is_some() {
        return Err(MetadataError::NotEmpty(path.to_owned()));
    }
    nodes.remove(&key(path))?;
    notices.push(Notice { path: path.to_owned(), change: Change::Deleted });
    Ok(())
}

pub(crate) fn children(nodes: &impl Nodes, path: &str) -> Result<Vec<String>, MetadataError> {
    check_path(path)?;
    let below = key(&format!("{path}/"));
    let mut names = Vec::new();
    let mut from = below.clone();
    while let Some(found) = nodes.next_key(&from, &below)? {
        let name = found.get(below.len()..).and_then(|rest| rest.split('\0').next()).unwrap_or_default();
        // The first key that is neither the child nor below it.
        from = format!("{below}{name}\u{1}");
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Whether a watch on `watched` is told of `path`.
pub(crate) fn is_watched(watched: &str, path: &str) -> bool {
    path.strip_prefix(watched).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
