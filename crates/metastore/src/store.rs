//! The handle, and what a backend must do.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use geminga_env::{Pending, Reply, reply};
use geminga_model::UnixMillis;

/// How often a node was written since it was created; 0 after its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

/// What a write expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Whatever there is, or nothing.
    Any,
    /// No node.
    Absent,
    /// The node at this version.
    Version(Version),
}

/// How long a node lives, and how it gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Until it is deleted.
    Persistent,
    /// Until it is deleted or the session that made it ends.
    Ephemeral,
    /// Ephemeral, with a number appended to its name: ten digits, greater than that of every earlier sibling.
    EphemeralSequential,
}

/// A node as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its value.
    pub value: Bytes,
    /// Its version, for the next compare-and-set.
    pub version: Version,
    /// When it was created.
    pub created: UnixMillis,
    /// When it was last written.
    pub modified: UnixMillis,
    /// The session it lives by, if it is ephemeral.
    pub session: Option<SessionId>,
}

/// A session: one handle and its clones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Why a request did not do what it asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The version is another one, or the node exists though it must not. Read it again and decide anew.
    #[error("the node {0} was changed by somebody else")]
    BadVersion(String),
    /// There is no such node.
    #[error("there is no node {0}")]
    NoNode(String),
    /// The node has children and cannot be deleted before them.
    #[error("the node {0} has children")]
    NotEmpty(String),
    /// Not a path: it must begin with a slash, not end with one, and have no empty segment.
    #[error("'{0}' is not a path")]
    InvalidPath(String),
    /// The store failed or is gone. Whether the request had its effect is not known.
    #[error("the metadata store is unavailable: {0}")]
    Unavailable(String),
}

/// What happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was made.
    Created,
    /// Its value was written.
    Modified,
    /// It was deleted, by request or with its session.
    Deleted,
}

/// Told to watchers, in the order in which the changes were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The node.
    pub path: String,
    /// What happened to it.
    pub change: Change,
}

/// Receives notices of a path and everything below it. Returns false to receive no more.
pub type Watch = Box<dyn Fn(&[Notice]) -> bool + Send>;

/// An answer that will come.
pub type Answer<T> = Reply<Result<T, MetadataError>>;

/// One request to a backend. Every request is answered.
pub enum Request {
    /// Read a node.
    Get {
        /// Its path.
        path: String,
        /// The node, or `None` if there is none.
        reply: Answer<Option<Node>>,
    },
    /// Write a node, making missing parents as empty nodes.
    Put {
        /// Its path; for a sequential node the part before the number.
        path: String,
        /// Its value.
        value: Bytes,
        /// What must be there.
        expected: Expected,
        /// How long it lives, if it is made.
        kind: Kind,
        /// For whom it lives.
        session: SessionId,
        /// Its path, and its version now.
        reply: Answer<(String, Version)>,
    },
    /// Delete a node.
    Delete {
        /// Its path.
        path: String,
        /// What must be there; [`Expected::Absent`] never holds.
        expected: Expected,
        /// Done.
        reply: Answer<()>,
    },
    /// List the names of a node's children.
    Children {
        /// Its path.
        path: String,
        /// Sorted names; empty also if there is no such node.
        reply: Answer<Vec<String>>,
    },
    /// Watch a path and everything below it, from now on.
    Watch {
        /// The path.
        path: String,
        /// Who is told.
        watch: Watch,
        /// The watch is set: every later change is told.
        reply: Answer<()>,
    },
    /// The session's handles are gone: its ephemeral nodes go too.
    EndSession(SessionId),
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Get { path, .. } => write!(f, "Get({path})"),
            Request::Put { path, expected, kind, .. } => write!(f, "Put({path}, {expected:?}, {kind:?})"),
            Request::Delete { path, expected, .. } => write!(f, "Delete({path}, {expected:?})"),
            Request::Children { path, .. } => write!(f, "Children({path})"),
            Request::Watch { path, .. } => write!(f, "Watch({path})"),
            Request::EndSession(session) => write!(f, "EndSession({})", session.0),
        }
    }
}

/// A store behind a handle. Requests of one handle take effect in the order in which they were submitted.
pub trait Backend: Send + Sync + fmt::Debug {
    /// Takes a request; never waits. It is answered even if the store is gone.
    fn submit(&self, request: Request);

    /// Where the store is, as an operator would name it: `memory:` or `redb:<path>`.
    fn url(&self) -> &str;
}

/// A handle of the metadata store. Clones share its session, which ends when the last of them is dropped.
#[derive(Clone, Debug)]
pub struct MetadataStore {
    backend: Arc<dyn Backend>,
    session: Arc<Session>,
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    backend: Arc<dyn Backend>,
    shared: Arc<Shared>,
}

/// What all handles of a store share.
#[derive(Debug)]
struct Shared {
    next_session: AtomicU64,
    writes: AtomicU64,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.backend.submit(Request::EndSession(self.id));
    }
}

impl MetadataStore {
    /// The first handle of a backend.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> MetadataStore {
        let shared = Shared { next_session: AtomicU64::new(1), writes: AtomicU64::new(0) };
        MetadataStore::with_shared(backend, Arc::new(shared))
    }

    fn with_shared(backend: Arc<dyn Backend>, shared: Arc<Shared>) -> MetadataStore {
        let id = SessionId(shared.next_session.fetch_add(1, Ordering::Relaxed));
        let session = Arc::new(Session { id, backend: Arc::clone(&backend), shared });
        MetadataStore { backend, session }
    }

    /// A handle of the same store with a session of its own.
    #[must_use]
    pub fn new_session(&self) -> MetadataStore {
        MetadataStore::with_shared(Arc::clone(&self.backend), Arc::clone(&self.session.shared))
    }

    /// The session of this handle, by which to know one's own ephemeral nodes.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session.id
    }

    /// Where the store is.
    #[must_use]
    pub fn url(&self) -> &str {
        self.backend.url()
    }

    /// How many nodes were asked to be written or deleted, by all handles of the store in this process.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.session.shared.writes.load(Ordering::Relaxed)
    }

    fn submit(&self, request: Request) {
        if matches!(request, Request::Put { .. } | Request::Delete { .. }) {
            self.session.shared.writes.fetch_add(1, Ordering::Relaxed);
        }
        self.backend.submit(request);
    }

    /// Submits a write whose answer goes to `reply`. For owners that do not await.
    pub fn submit_put(&self, path: &str, value: Bytes, expected: Expected, reply: Answer<(String, Version)>) {
        let (path, session) = (path.to_owned(), self.session());
        self.submit(Request::Put { path, value, expected, kind: Kind::Persistent, session, reply });
    }

    /// Reads a node; `None` if there is none.
    ///
    /// # Errors
    /// [`MetadataError::InvalidPath`] or [`MetadataError::Unavailable`].
    pub async fn get(&self, path: &str) -> Result<Option<Node>, MetadataError> {
        let path = path.to_owned();
        self.ask(|reply| Request::Get { path, reply }).await
    }

    /// Writes a node and gives its version.
    ///
    /// # Errors
    /// [`MetadataError::BadVersion`] if what is there is not what was expected; [`MetadataError::NoNode`] if a version
    /// was expected and there is no node; [`MetadataError::Unavailable`] leaves open whether it was written.
    pub async fn put(&self, path: &str, value: impl Into<Bytes>, expected: Expected) -> Result<Version, MetadataError> {
        let (path, value, session) = (path.to_owned(), value.into(), self.session());
        self.ask(|reply| Request::Put { path, value, expected, kind: Kind::Persistent, session, reply })
            .await
            .map(|(_, version)| version)
    }

    /// Makes an ephemeral node, which must not exist; gives its path, which differs from `path` if it is sequential.
    ///
    /// # Errors
    /// As [`MetadataStore::put`].
    pub async fn create_ephemeral(
        &self,
        path: &str,
        value: impl Into<Bytes>,
        kind: Kind,
    ) -> Result<String, MetadataError> {
        let (path, value, session) = (path.to_owned(), value.into(), self.session());
        self.ask(|reply| Request::Put { path, value, expected: Expected::Absent, kind, session, reply })
            .await
            .map(|(path, _)| path)
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// [`MetadataError::NoNode`], [`MetadataError::NotEmpty`], [`MetadataError::BadVersion`], or
    /// [`MetadataError::Unavailable`], which leaves open whether it was deleted.
    pub async fn delete(&self, path: &str, expected: Expected) -> Result<(), MetadataError> {
        let path = path.to_owned();
        self.ask(|reply| Request::Delete { path, expected, reply }).await
    }

    /// The sorted names of a node's children; empty also if there is no such node.
    ///
    /// # Errors
    /// [`MetadataError::InvalidPath`] or [`MetadataError::Unavailable`].
    pub async fn children(&self, path: &str) -> Result<Vec<String>, MetadataError> {
        let path = path.to_owned();
        self.ask(|reply| Request::Children { path, reply }).await
    }

    /// Watches `path` and everything below it. Once this returns, every later change is told to `watch`.
    ///
    /// # Errors
    /// [`MetadataError::InvalidPath`] or [`MetadataError::Unavailable`].
    pub async fn watch(
        &self,
        path: &str,
        watch: impl Fn(&[Notice]) -> bool + Send + 'static,
    ) -> Result<(), MetadataError> {
        let path = path.to_owned();
        self.ask(|reply| Request::Watch { path, watch: Box::new(watch), reply }).await
    }

    async fn ask<T: Send + 'static>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, MetadataError> {
        let (to, mut from): (Answer<T>, Pending<Result<T, MetadataError>>) = reply();
        self.submit(request(to));
        from.wait().await.unwrap_or_else(|gone| Err(MetadataError::Unavailable(gone.to_string())))
    }
}
