//! Where the state of a durable subscription's cursor is kept, inside the subscription's task.
//!
//! The cursor's node holds the state itself, or names a cursor ledger whose end is the state. A quiet subscription never
//! needs a ledger: its first state goes into the node, if nobody waits for it and the node holds all of it as Java reads
//! it. The next one makes a ledger; from then on saving is an append, and metadata is left alone until the ledger is
//! full. When a cursor ledger cannot be written the state goes back into the node.
//!
//! At most one save is under way at a time; what changes meanwhile is in the next one. So the owner coalesces by
//! itself: it saves when it must and nothing is under way. What an append consists of is [`SaveLog`]'s to decide.

use std::sync::Arc;
use std::time::Duration;

use geminga_cursor::{Cursor, SaveLimits, SaveLog, StoredCursor};
use geminga_env::OnPanic;
use geminga_ledger::{CreatedLedger, LedgerError, LedgerEvent, LedgerSink, Writer};
use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::{EntryId, Instant, LedgerId, Position, TopicName};
use geminga_quorum::WriterState;
use geminga_records::{ManagedCursorInfo, paths};

use crate::cursor_read::{of_node, read_ledger};
use crate::error::ManagedLedgerError;
use crate::options::ManagedLedgers;

/// Bytes after which a cursor ledger is replaced.
const MAX_LEDGER_BYTES: i64 = 64 << 20;
/// Age after which a cursor ledger is replaced (`managedLedgerCursorRolloverTimeInSeconds`).
const MAX_LEDGER_AGE: Duration = Duration::from_secs(4 * 3600);
/// How long an old ledger is written on when the next could not be made.
const RETRY_ROLL: Duration = Duration::from_secs(60);
/// Ranges, and redelivery counts, that a node may hold unless there is no other way.
///
/// Fact: `managedLedgerMaxUnackedRangesToPersistInMetadataStore`, 1000.
const MAX_IN_NODE: usize = 1000;
/// What comes back to a cursor store through its owner's mailbox.
#[derive(Debug)]
pub struct CursorEvent(Event);

#[derive(Debug)]
enum Event {
    Ledger(LedgerEvent),
    Created(Result<CreatedLedger, LedgerError>),
    Node(Result<Version, ManagedLedgerError>),
}

/// The owner of a cursor store: takes its events into the owner's mailbox.
pub trait CursorSink: Send + Sync {
    /// Takes an event; never waits.
    fn deliver(&self, event: CursorEvent);
}

struct ToOwner(Arc<dyn CursorSink>);

impl LedgerSink for ToOwner {
    fn deliver(&self, event: LedgerEvent) {
        self.0.deliver(CursorEvent(Event::Ledger(event)));
    }
}

/// How a save ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The state of this revision, and so all before it, is durable.
    Durable(u64),
    /// The cursor is another owner's, or cannot be stored: the subscription must be opened anew.
    Failed(ManagedLedgerError),
}

/// Why a state is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveFor {
    /// It is time, and nobody waits.
    Time,
    /// Somebody waits for it, and others will.
    Receipt,
    /// The subscription closes: whoever opens it next, Java too, is to find all of it.
    Close,
}

/// Writers are boxed: most cursors have none.
enum State {
    /// The node holds the state, or names the ledger of the former owner.
    InNode,
    /// A ledger is being made, for the state that is being saved. It may replace one.
    Creating(Option<Box<Writer>>),
    /// The new ledger gets its first state; then the node will name it.
    Starting(Box<Writer>),
    /// The node is being written to name the ledger.
    Naming(Box<Writer>),
    /// States are appended.
    Writing { writer: Box<Writer>, roll_at: Instant },
    /// The node is being written to hold the state.
    Folding,
    /// It cannot go on.
    Failed,
}

/// Keeps one cursor's state; see the module.
pub struct CursorStore {
    ledgers: ManagedLedgers,
    topic: TopicName,
    subscription: String,
    sink: Arc<dyn CursorSink>,
    node: ManagedCursorInfo,
    version: Version,
    state: State,
    /// Of the ledger that is written.
    log: Option<Box<SaveLog>>,
    /// The revision that is being saved.
    saving: Option<u64>,
    /// Whether nothing was saved since the store was opened: the first state may go into the node.
    is_first: bool,
    /// Whether what is stored is all there is to Java too, as far as its form allows.
    is_exact: bool,
    /// The mark-delete position with which the new ledger begins.
    starting_at: Position,
    /// Ledgers that the node does not name any more once it is written.
    replaced: Vec<LedgerId>,
}

/// Makes a durable cursor that has acked everything up to `mark_delete`.
///
/// # Errors
/// [`ManagedLedgerError::Fenced`] if there is one of that name already, or [`ManagedLedgerError::Metadata`].
pub async fn create_cursor(
    ledgers: &ManagedLedgers,
    topic: &TopicName,
    subscription: &str,
    mark_delete: Position,
    properties: &[(String, String)],
) -> Result<(), ManagedLedgerError> {
    let mut node = ManagedCursorInfo::at(mark_delete);
    node.cursor_properties = properties.to_vec();
    let path = paths::cursor(topic, subscription);
    ledgers.metadata.put(&path, node.encode(), Expected::Absent).await?;
    Ok(())
}

/// Takes a durable cursor over from a former owner and reads its state. Events of the store go to `sink`.
///
/// # Errors
/// [`ManagedLedgerError::CursorNotFound`], or what stops it; nothing is forgotten and the call can be repeated.
pub async fn open_cursor(
    ledgers: &ManagedLedgers,
    topic: &TopicName,
    subscription: &str,
    sink: Arc<dyn CursorSink>,
) -> Result<(CursorStore, StoredCursor), ManagedLedgerError> {
    let path = paths::cursor(topic, subscription);
    let found = ledgers.metadata.get(&path).await?.ok_or(ManagedLedgerError::CursorNotFound)?;
    let unreadable = |error| ManagedLedgerError::Record(path.clone(), error);
    let node = ManagedCursorInfo::decode(&found.value).map_err(unreadable)?;
    let mut stored = of_node(&node);
    if node.cursor_ledger > LedgerId::NONE {
        // Recovery stops a former owner; an empty or lost ledger leaves what the node said.
        match ledgers.ledgers.recover(node.cursor_ledger).await {
            Ok(closed) if closed.last_entry > EntryId::NONE => {
                stored = read_ledger(ledgers, closed, &path).await?;
            }
            Ok(_) => {}
            Err(LedgerError::NoLedger(ledger)) => {
                tracing::warn!(%topic, subscription, %ledger, "the cursor ledger is gone; going on from the node");
            }
            Err(error) => return Err(error.into()),
        }
    }
    if stored.is_partial {
        tracing::warn!(%topic, subscription, "a part of what the cursor acked cannot be read and is delivered again: a newer version wrote it, or it is damaged");
    }
    let version = ledgers.metadata.put(&path, node.encode(), Expected::Version(found.version)).await?;
    let store = CursorStore {
        ledgers: ledgers.clone(),
        topic: topic.clone(),
        subscription: subscription.to_owned(),
        sink,
        replaced: if node.cursor_ledger > LedgerId::NONE { vec![node.cursor_ledger] } else { vec![] },
        node,
        version,
        state: State::InNode,
        log: None,
        saving: None,
        is_first: true,
        starting_at: stored.snapshot.mark_delete,
        is_exact: stored.deltas.is_empty() && !stored.is_partial,
    };
    Ok((store, stored))
}

/// Deletes a durable cursor. Its owner has closed it, or nobody owns it.
///
/// # Errors
/// [`ManagedLedgerError::CursorNotFound`] or [`ManagedLedgerError::Metadata`].
pub async fn delete_cursor(
    ledgers: &ManagedLedgers,
    topic: &TopicName,
    subscription: &str,
) -> Result<(), ManagedLedgerError> {
    let path = paths::cursor(topic, subscription);
    let found = ledgers.metadata.get(&path).await?.ok_or(ManagedLedgerError::CursorNotFound)?;
    match ledgers.metadata.delete(&path, Expected::Any).await {
        Ok(()) | Err(MetadataError::NoNode(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let ledger = ManagedCursorInfo::decode(&found.value).map_or(LedgerId::NONE, |node| node.cursor_ledger);
    if ledger > LedgerId::NONE
        && let Err(error) = ledgers.ledgers.delete(ledger).await
    {
        tracing::warn!(%topic, subscription, %ledger, %error, "the ledger of a deleted cursor remains");
    }
    Ok(())
}

impl CursorStore {
    /// The ledger that states are appended to, if there is one.
    #[must_use]
    pub fn ledger(&self) -> Option<LedgerId> {
        match &self.state {
            State::Writing { writer, .. } | State::Naming(writer) => Some(writer.ledger()),
            _ => None,
        }
    }

    /// The subscription's properties.
    #[must_use]
    pub fn properties(&self) -> &[(String, String)] {
        &self.node.cursor_properties
    }

    /// Whether a state is being saved.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.saving.is_some()
    }

    /// Whether the next owner, Java too, finds all of the state that was saved last. If not, a save for closing helps.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Saves the state of the cursor. Must not be called while one is being saved.
    pub fn save(&mut self, now: Instant, cursor: &mut Cursor, why: SaveFor) {
        debug_assert!(self.saving.is_none(), "one state at a time");
        self.saving = Some(cursor.revision());
        let is_first = std::mem::replace(&mut self.is_first, false);
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Writing { writer, roll_at } => {
                if now >= roll_at || writer.confirmed_length() >= MAX_LEDGER_BYTES {
                    self.create_ledger(Some(writer));
                } else {
                    self.state = State::Writing { writer, roll_at };
                    self.append(cursor, why == SaveFor::Close);
                }
            }
            State::InNode => {
                let may_fold = why == SaveFor::Close || (why == SaveFor::Time && is_first);
                if may_fold && fits_node(cursor) {
                    self.fold(cursor);
                } else {
                    self.create_ledger(None);
                }
            }
            // Transitions only last while something is being saved, and a failed store saves nothing.
            other => self.state = other,
        }
    }

    fn append(&mut self, cursor: &mut Cursor, whole: bool) {
        let (State::Writing { writer, .. } | State::Starting(writer)) = &mut self.state else { return };
        let Some(log) = &mut self.log else { return };
        let entries = log.save(cursor, whole);
        self.saving = Some(cursor.revision());
        if !entries.into_iter().all(|entry| writer.add(entry.into()).is_some()) {
            self.fold(cursor);
        }
    }

    /// Sends what a save took in.
    pub fn flush(&mut self) {
        if let State::Writing { writer, .. } | State::Starting(writer) = &mut self.state {
            writer.flush();
        }
    }

    /// When [`CursorStore::handle_timeout`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Writing { writer, .. } | State::Starting(writer) => writer.deadline(),
            _ => None,
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let State::Writing { writer, .. } | State::Starting(writer) = &mut self.state {
            writer.handle_timeout(now);
        }
    }

    /// Takes an event; tells how the save ended, if it did.
    pub fn handle_event(&mut self, now: Instant, event: CursorEvent, cursor: &mut Cursor) -> Option<Saved> {
        match event.0 {
            Event::Ledger(event) => self.handle_ledger(now, event, cursor),
            Event::Created(Ok(created)) => {
                self.start_ledger(created, cursor);
                None
            }
            Event::Created(Err(error)) => {
                tracing::warn!(topic = %self.topic, subscription = self.subscription, %error, "no cursor ledger now");
                match std::mem::replace(&mut self.state, State::Failed) {
                    State::Creating(Some(writer)) => {
                        self.state = State::Writing { writer, roll_at: now + RETRY_ROLL };
                        self.append(cursor, true);
                    }
                    _ => self.fold(cursor),
                }
                None
            }
            Event::Node(result) => self.handle_node(now, result),
        }
    }

    fn handle_ledger(&mut self, now: Instant, event: LedgerEvent, cursor: &mut Cursor) -> Option<Saved> {
        let (State::Writing { writer, .. } | State::Starting(writer)) = &mut self.state else { return None };
        writer.handle_event(now, event);
        if matches!(writer.state(), WriterState::Lost(_)) {
            // Whoever fenced it may have repaired it, or taken the topic: the node's version tells.
            self.replace_lost(cursor);
            return None;
        }
        if self.saving.is_none() || writer.last_add_confirmed() < writer.last_add_pushed() {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Starting(writer) => {
                self.name_ledger(writer);
                None
            }
            writing => {
                self.state = writing;
                self.is_exact = self.log.as_ref().is_some_and(|log| log.is_at_snapshot());
                self.saving.take().map(Saved::Durable)
            }
        }
    }

    fn handle_node(&mut self, now: Instant, result: Result<Version, ManagedLedgerError>) -> Option<Saved> {
        let version = match result {
            Ok(version) => version,
            Err(error) => {
                self.state = State::Failed;
                self.saving = None;
                return Some(Saved::Failed(error));
            }
        };
        self.version = version;
        self.state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Naming(writer) => State::Writing { writer, roll_at: now + MAX_LEDGER_AGE },
            _ => State::InNode,
        };
        self.is_exact = true;
        self.discard_replaced();
        self.saving.take().map(Saved::Durable)
    }

    fn create_ledger(&mut self, replaced: Option<Box<Writer>>) {
        self.state = State::Creating(replaced);
        let create = self.ledgers.cursor_ledger(&self.topic, &self.subscription);
        let (ledgers, sink) = (self.ledgers.ledgers.clone(), Arc::clone(&self.sink));
        self.ledgers.env.control.spawn("cursor ledger", OnPanic::ExitProcess, async move {
            sink.deliver(CursorEvent(Event::Created(ledgers.create(&create).await)));
        });
    }

    fn start_ledger(&mut self, created: CreatedLedger, cursor: &mut Cursor) {
        let writer = self.ledgers.ledgers.writer(created, Arc::new(ToOwner(Arc::clone(&self.sink))));
        if let State::Creating(Some(replaced)) = &self.state {
            self.replaced.push(replaced.ledger());
        }
        self.state = State::Starting(Box::new(writer));
        self.log = Some(Box::new(SaveLog::new(SaveLimits::default())));
        self.append(cursor, true);
        self.starting_at = cursor.mark_delete();
        self.flush();
    }

    fn name_ledger(&mut self, writer: Box<Writer>) {
        self.node = ManagedCursorInfo {
            cursor_ledger: writer.ledger(),
            mark_delete: Some(self.starting_at),
            cursor_properties: std::mem::take(&mut self.node.cursor_properties),
            unknown: std::mem::take(&mut self.node.unknown),
            ..ManagedCursorInfo::at(self.starting_at)
        };
        self.state = State::Naming(writer);
        self.write_node();
    }

    /// A ledger cannot be written any more. A state too large for the node gets another, if there is to be one.
    fn replace_lost(&mut self, cursor: &mut Cursor) {
        match std::mem::replace(&mut self.state, State::InNode) {
            State::Writing { writer, .. } if self.saving.is_some() && !fits_node(cursor) => {
                self.create_ledger(None);
                self.replaced.push(writer.ledger());
            }
            before => {
                self.state = before;
                self.fold(cursor);
            }
        }
    }

    /// Puts the state into the node.
    fn fold(&mut self, cursor: &mut Cursor) {
        if let State::Writing { writer, .. } | State::Starting(writer) = &self.state {
            self.replaced.push(writer.ledger());
        }
        if self.saving.is_none() {
            self.state = State::InNode;
            return;
        }
        self.saving = Some(cursor.revision());
        // What changes from now on is in the snapshot that a ledger begins with.
        cursor.keep_changes();
        // A node has no bitmaps, and nothing that is acked may be left out.
        let snapshot = cursor.snapshot();
        let mut redeliveries = cursor.redeliveries();
        redeliveries.truncate(MAX_IN_NODE);
        self.node = ManagedCursorInfo {
            cursor_ledger: LedgerId::NONE,
            mark_delete: Some(snapshot.mark_delete),
            acked: snapshot.acked_ranges(),
            properties: snapshot.properties,
            batch_sets: snapshot.batch_sets,
            cursor_properties: std::mem::take(&mut self.node.cursor_properties),
            redeliveries,
            unknown: std::mem::take(&mut self.node.unknown),
        };
        self.log = None;
        self.state = State::Folding;
        self.write_node();
    }

    fn write_node(&self) {
        let path = paths::cursor(&self.topic, &self.subscription);
        let (ledgers, value, version) = (self.ledgers.clone(), self.node.encode(), self.version);
        let sink = Arc::clone(&self.sink);
        self.ledgers.env.control.spawn("cursor node", OnPanic::ExitProcess, async move {
            let put = || ledgers.metadata.put(&path, value.clone(), Expected::Version(version));
            sink.deliver(CursorEvent(Event::Node(ledgers.persist(put).await)));
        });
    }

    fn discard_replaced(&mut self) {
        let named = self.node.cursor_ledger;
        for ledger in self.replaced.drain(..).filter(|ledger| *ledger != named) {
            let ledgers = self.ledgers.ledgers.clone();
            self.ledgers.env.control.spawn("old cursor ledger", OnPanic::Log, async move {
                if let Err(error) = ledgers.delete(ledger).await {
                    tracing::warn!(%ledger, %error, "an old cursor ledger remains");
                }
            });
        }
    }
}

/// Whether the node holds all of the state, and Java finds it there.
///
/// Fact: Java does not restore batch sets from the node.
fn fits_node(cursor: &Cursor) -> bool {
    !cursor.has_batches() && !cursor.has_ranges(MAX_IN_NODE + 1) && cursor.counted() <= MAX_IN_NODE
}

impl std::fmt::Debug for CursorStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CursorStore").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}
