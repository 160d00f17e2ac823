//! The embedded store: one redb file, for a standalone.
//!
//! One lane owns the database. It takes its mailbox whole: all requests that arrived ride one transaction and one sync,
//! each against the state that those before it left. Answers and notices go out after the sync, in order.
//!
//! The file's bytes go through the `disk` seam, so that lost and torn writes reach it in simulation. A sync that failed
//! is never tried again: the store answers `Unavailable` from then on, and whoever opened it is told, to end the process.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use geminga_disk::{Disk, DiskError, DiskErrorKind, DiskFile, OpenMode};
use geminga_env::{Clock, Env, Lane, Mailbox, mailbox, start_lane};
use geminga_model::UnixMillis;
use redb::{Database, ReadableTable, StorageBackend, Table, TableDefinition};

use crate::memory::Watches;
use crate::store::{Answer, Backend, Change, MetadataError, MetadataStore, Node, Notice, Request, SessionId, Version};
use crate::tree::{self, Nodes, Put};

/// Version of what is in the tables.
const FORMAT: u64 = 1;
/// Bytes of pages that redb keeps in memory.
const CACHE_BYTES: usize = 8 << 20;

/// What a file of redb begins with.
const MAGIC: [u8; 9] = *b"redb\x1A\x0A\xA9\x0D\x0A";

/// Key to node: version, created, modified (i64 little-endian each), then the value.
const NODES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("nodes");
/// Key of an ephemeral node to its session.
const EPHEMERAL: TableDefinition<'_, &str, u64> = TableDefinition::new("ephemeral");
/// Parent to the next sequential number.
const SEQUENCES: TableDefinition<'_, &str, u64> = TableDefinition::new("sequences");
/// `format` to the version of the tables.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

/// Why an embedded store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenFailed {
    /// The file cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The file is not a metadata store, or is damaged.
    #[error(
        "{path} is not a sound metadata store: {why}. Restore it from a backup, or start with another data directory"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What redb says.
        why: String,
    },
    /// The file was written by a newer version.
    #[error("{path} has metadata format {found}; this version reads up to {FORMAT}. Use the version that wrote it")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// The thread of the store could not be started.
    #[error("cannot start the metadata lane: {0}")]
    Lane(io::Error),
}

/// Opens the store in file `path`, or makes one. The caller holds the directory for itself.
///
/// # Errors
/// [`OpenFailed`].
pub fn redb(env: &Env, disk: &dyn Disk, path: &Path) -> Result<MetadataStore, OpenFailed> {
    redb_with(env, disk, path, |error| tracing::error!(error, "the metadata store failed; restart the process"))
}

/// As [`redb`]; `on_failure` is told, once and on the store's own lane, what went wrong when it cannot go on. Nothing of
/// the batch that failed has been answered by then.
///
/// # Errors
/// [`OpenFailed`].
pub fn redb_with(
    env: &Env,
    disk: &dyn Disk,
    path: &Path,
    on_failure: impl FnOnce(&str) + Send + 'static,
) -> Result<MetadataStore, OpenFailed> {
    let file = disk.open(path, OpenMode::OpenOrCreate)?;
    if let Some(parent) = path.parent() {
        disk.sync_dir(parent)?;
    }
    let damaged = |why: String| OpenFailed::Damaged { path: path.to_owned(), why };
    let database = Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(FileBackend(file))
        .map_err(|error| damaged(error.to_string()))?;
    let found = prepare(&database).map_err(|error| damaged(error.to_string()))?;
    if found != FORMAT {
        return Err(OpenFailed::TooNew { path: path.to_owned(), found });
    }
    let (mailbox, inbox) = mailbox();
    let on_failure: Option<OnFailure> = Some(Box::new(on_failure));
    let lane = RedbLane { clock: env.clock, database, watches: Watches::default(), on_failure, closed: false };
    start_lane(env.lanes, &env.control, env.clock, "metadata", inbox, lane).map_err(OpenFailed::Lane)?;
    let url = format!("redb:{}", path.display());
    Ok(MetadataStore::new(Arc::new(Redb { url, mailbox })))
}

/// Whether a file is a database of redb, sound or not; an empty one is on its way to be one.
///
/// # Errors
/// What the system reports.
pub fn is_redb(disk: &dyn Disk, path: &Path) -> Result<bool, DiskError> {
    let file = disk.open(path, OpenMode::Read)?;
    let mut start = [0; MAGIC.len()];
    if file.len()? == 0 {
        return Ok(true);
    }
    let read = file.read_at(0, &mut start)?;
    Ok(start.get(..read) == Some(MAGIC.as_slice()))
}

/// Makes the tables, and ends the sessions of the last process. Gives the format of the file.
fn prepare(database: &Database) -> Result<u64, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    let format = {
        let mut about = transaction.open_table(ABOUT)?;
        let found = about.get("format")?.map(|found| found.value());
        if found.is_none() {
            about.insert("format", FORMAT)?;
        }
        found.unwrap_or(FORMAT)
    };
    if format != FORMAT {
        transaction.abort()?;
        return Ok(format);
    }
    {
        let mut nodes = transaction.open_table(NODES)?;
        let mut ephemeral = transaction.open_table(EPHEMERAL)?;
        transaction.open_table(SEQUENCES)?;
        while let Some((key, _)) = ephemeral.pop_first()? {
            nodes.remove(key.value())?;
        }
    }
    transaction.commit()?;
    Ok(format)
}

#[derive(Debug)]
struct Redb {
    url: String,
    mailbox: Mailbox<LaneItem>,
}

#[derive(Debug)]
enum LaneItem {
    Request(Request),
    /// The last handle is gone.
    Close,
}

impl Backend for Redb {
    fn submit(&self, request: Request) {
        // A closed mailbox gives the request back; dropped, its reply answers that the store is gone.
        drop(self.mailbox.push(LaneItem::Request(request)));
    }

    fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        drop(self.mailbox.push(LaneItem::Close));
    }
}

struct RedbLane {
    clock: Clock,
    database: Database,
    watches: Watches,
    /// To be told of a failure; there was one if it is gone.
    on_failure: Option<OnFailure>,
    closed: bool,
}

type OnFailure = Box<dyn FnOnce(&str) + Send>;

/// What goes out once the transaction is durable.
enum Outcome {
    Got(Answer<Option<Node>>, Result<Option<Node>, MetadataError>),
    Put(Answer<(String, Version)>, Result<(String, Version), MetadataError>, Vec<Notice>),
    Deleted(Answer<()>, Result<(), MetadataError>, Vec<Notice>),
    Listed(Answer<Vec<String>>, Result<Vec<String>, MetadataError>),
    Watched(Answer<()>, String, crate::Watch),
    Ended(Vec<Notice>),
}

impl Lane for RedbLane {
    type Item = LaneItem;

    fn work(&mut self, batch: &mut Vec<LaneItem>) {
        let requests: Vec<Request> = batch
            .drain(..)
            .filter_map(|item| match item {
                LaneItem::Request(request) => Some(request),
                LaneItem::Close => {
                    self.closed = true;
                    None
                }
            })
            .collect();
        if self.on_failure.is_none() || requests.is_empty() {
            // After a failure the replies answer by being dropped.
            return;
        }
        match run(&self.database, self.clock.wall(), requests) {
            Ok(outcomes) => outcomes.into_iter().for_each(|outcome| self.deliver(outcome)),
            Err(error) => {
                if let Some(on_failure) = self.on_failure.take() {
                    on_failure(&error.to_string());
                }
            }
        }
    }

    fn ended(&self) -> bool {
        self.closed
    }
}

impl RedbLane {
    fn deliver(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Got(reply, answer) => reply.send(answer),
            Outcome::Put(reply, answer, notices) => {
                self.watches.tell(&notices);
                reply.send(answer);
            }
            Outcome::Deleted(reply, answer, notices) => {
                self.watches.tell(&notices);
                reply.send(answer);
            }
            Outcome::Listed(reply, answer) => reply.send(answer),
            Outcome::Watched(reply, path, watch) => {
                let sound = tree::check_path(&path);
                if sound.is_ok() {
                    self.watches.add(path, watch);
                }
                reply.send(sound);
            }
            Outcome::Ended(notices) => self.watches.tell(&notices),
        }
    }
}

/// Runs the whole batch in one transaction. An error means that nothing of it may be answered.
fn run(database: &Database, now: UnixMillis, requests: Vec<Request>) -> Result<Vec<Outcome>, redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    let mut outcomes = Vec::with_capacity(requests.len());
    let mut changed = false;
    {
        let mut nodes = RedbNodes {
            nodes: transaction.open_table(NODES)?,
            ephemeral: transaction.open_table(EPHEMERAL)?,
            sequences: transaction.open_table(SEQUENCES)?,
            broken: None.into(),
        };
        for request in requests {
            let outcome = apply(&mut nodes, now, request);
            if let Some(error) = nodes.broken.take() {
                return Err(error);
            }
            changed |=
                matches!(outcome, Outcome::Put(_, Ok(_), _) | Outcome::Deleted(_, Ok(()), _) | Outcome::Ended(_));
            outcomes.push(outcome);
        }
    }
    if changed {
        transaction.commit()?;
    } else {
        transaction.abort()?;
    }
    Ok(outcomes)
}

fn apply(nodes: &mut RedbNodes<'_>, now: UnixMillis, request: Request) -> Outcome {
    let mut notices = Vec::new();
    match request {
        Request::Get { path, reply } => {
            let answer = tree::check_path(&path).and_then(|()| nodes.get(&tree::key(&path)));
            Outcome::Got(reply, answer)
        }
        Request::Put { path, value, expected, kind, session, reply } => {
            let answer = tree::put(nodes, now, &path, Put { value, expected, kind, session }, &mut notices);
            Outcome::Put(reply, answer, notices)
        }
        Request::Delete { path, expected, reply } => {
            let answer = tree::delete(nodes, &path, expected, &mut notices);
            Outcome::Deleted(reply, answer, notices)
        }
        Request::Children { path, reply } => Outcome::Listed(reply, tree::children(nodes, &path)),
        Request::Watch { path, watch, reply } => Outcome::Watched(reply, path, watch),
        Request::EndSession(session) => {
            nodes.end_session(session, &mut notices);
            Outcome::Ended(notices)
        }
    }
}

struct RedbNodes<'t> {
    nodes: Table<'t, &'static str, &'static [u8]>,
    ephemeral: Table<'t, &'static str, u64>,
    sequences: Table<'t, &'static str, u64>,
    /// The first failure of the database itself: the transaction is void.
    broken: std::cell::Cell<Option<redb::Error>>,
}

impl RedbNodes<'_> {
    fn sound<T>(&self, result: Result<T, redb::StorageError>) -> Result<T, MetadataError> {
        result.map_err(|error| {
            let text = error.to_string();
            self.broken.set(Some(error.into()));
            MetadataError::Unavailable(text)
        })
    }

    fn end_session(&mut self, session: SessionId, notices: &mut Vec<Notice>) {
        let listed: Result<Vec<String>, redb::StorageError> = self.ephemeral.iter().and_then(|all| {
            let mine = all.filter(|entry| entry.as_ref().map_or(true, |(_, of)| of.value() == session.0));
            mine.map(|entry| entry.map(|(key, _)| key.value().to_owned())).collect()
        });
        for key in self.sound(listed).unwrap_or_default() {
            if self.remove(&key).is_ok() {
                notices.push(Notice { path: tree::path_of(&key), change: Change::Deleted });
            }
        }
    }
}

impl Nodes for RedbNodes<'_> {
    fn get(&self, key: &str) -> Result<Option<Node>, MetadataError> {
        let Some(stored) = self.sound(self.nodes.get(key))? else { return Ok(None) };
        let session = self.sound(self.ephemeral.get(key))?.map(|session| SessionId(session.value()));
        decode(stored.value(), session)
            .map(Some)
            .ok_or_else(|| MetadataError::Unavailable(format!("the node {} is damaged", tree::path_of(key))))
    }

    fn set(&mut self, key: &str, node: &Node) -> Result<(), MetadataError> {
        let stored = encode(node);
        let set = self.nodes.insert(key, stored.as_slice()).map(drop);
        self.sound(set)?;
        if let Some(session) = node.session {
            let set = self.ephemeral.insert(key, session.0).map(drop);
            self.sound(set)?;
        }
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), MetadataError> {
        let removed = self.nodes.remove(key).map(drop);
        self.sound(removed)?;
        let removed = self.ephemeral.remove(key).map(drop);
        self.sound(removed)
    }

    fn next_key(&self, from: &str, prefix: &str) -> Result<Option<String>, MetadataError> {
        let found = self.nodes.range(from..).and_then(|mut range| range.next().transpose());
        let key = self.sound(found)?.map(|(key, _)| key.value().to_owned());
        Ok(key.filter(|key| key.starts_with(prefix)))
    }

    fn next_sequence(&mut self, parent: &str) -> Result<u64, MetadataError> {
        let next = self.sound(self.sequences.get(parent).map(|next| next.map_or(0, |next| next.value())))?;
        let set = self.sequences.insert(parent, next + 1).map(drop);
        self.sound(set)?;
        Ok(next)
    }
}

fn encode(node: &Node) -> Vec<u8> {
    let numbers = [node.version.0, node.created.0, node.modified.0];
    numbers.iter().flat_map(|number| number.to_le_bytes()).chain(node.value.iter().copied()).collect()
}

fn decode(stored: &[u8], session: Option<SessionId>) -> Option<Node> {
    let (numbers, value) = stored.split_first_chunk::<24>()?;
    let (numbers, _) = numbers.as_chunks::<8>();
    let mut numbers = numbers.iter().map(|number| i64::from_le_bytes(*number));
    Some(Node {
        version: Version(numbers.next()?),
        created: UnixMillis(numbers.next()?),
        modified: UnixMillis(numbers.next()?),
        value: Bytes::copy_from_slice(value),
        session,
    })
}

/// redb's file, through the `disk` seam.
#[derive(Debug)]
struct FileBackend(Arc<dyn DiskFile>);

fn io_error(error: DiskError) -> io::Error {
    let kind = match error.kind {
        DiskErrorKind::NoSpace => io::ErrorKind::StorageFull,
        DiskErrorKind::EndOfFile => io::ErrorKind::UnexpectedEof,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl StorageBackend for FileBackend {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len().map_err(io_error)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read_exact_at(offset, out).map_err(io_error)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len).map_err(io_error)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync_data().map_err(io_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.write_at(offset, data).map_err(io_error)
    }
}

impl fmt::Debug for RedbLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedbLane")
    }
}
