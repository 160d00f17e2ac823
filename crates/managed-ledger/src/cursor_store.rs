//! Where the state of a durable subscription's cursor is kept, inside the subscription's task.
//!
//! The cursor's node holds the state itself, or names a cursor ledger whose last entry is the state. A quiet
//! subscription never needs a ledger: its first state goes into the node. The next one makes a ledger; from then on
//! saving is an append, and metadata is left alone until the ledger is full. When a cursor ledger cannot be written the
//! state goes back into the node.
//!
//! At most one state is being saved at a time; what changes meanwhile is in the next one. So the owner coalesces by
//! itself: it saves when it must and nothing is under way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_env::OnPanic;
use geminga_ledger::{CreatedLedger, LedgerError, LedgerEvent, LedgerSink, Writer};
use geminga_metastore::{Expected, MetadataError, Version};
use geminga_model::{EntryId, Instant, LedgerId, Position, TopicName};
use geminga_quorum::WriterState;
use geminga_records::{ManagedCursorInfo, PositionInfo, paths};

use crate::error::ManagedLedgerError;
use crate::options::ManagedLedgers;

/// Bytes after which a cursor ledger is replaced.
const MAX_LEDGER_BYTES: i64 = 64 << 20;
/// Age after which a cursor ledger is replaced (`managedLedgerCursorRolloverTimeInSeconds`).
const MAX_LEDGER_AGE: Duration = Duration::from_secs(4 * 3600);

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

/// Writers are boxed: most cursors have none.
enum State {
    /// The node holds the state.
    InNode,
    /// A ledger is being made, for the state that is being saved.
    Creating,
    /// The new ledger gets its first state; then the node will name it.
    Starting(Box<Writer>),
    /// The node is being written to name the ledger.
    Naming(Box<Writer>),
    /// States are appended.
    Writing { writer: Box<Writer>, opened_at: Instant },
    /// The node is being written to hold the state.
    Folding,
    /// It cannot go on.
    Failed,
}

struct Saving {
    revision: u64,
    snapshot: PositionInfo,
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
    saving: Option<Saving>,
    /// States saved since the store was opened; the first goes into the node.
    saves: u64,
    /// A ledger that the node named before.
    replaced: LedgerId,
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
) -> Result<(CursorStore, PositionInfo), ManagedLedgerError> {
    let path = paths::cursor(topic, subscription);
    let found = ledgers.metadata.get(&path).await?.ok_or(ManagedLedgerError::CursorNotFound)?;
    let unreadable = |error| ManagedLedgerError::Record(path.clone(), error);
    let node = ManagedCursorInfo::decode(&found.value).map_err(unreadable)?;
    let mut state = PositionInfo::at(node.mark_delete.unwrap_or(Position::EARLIEST));
    state.acked.clone_from(&node.acked);
    state.properties.clone_from(&node.properties);
    state.batch_sets.clone_from(&node.batch_sets);
    if node.cursor_ledger > LedgerId::NONE {
        // Recovery stops a former owner; an empty or lost ledger leaves what the node said.
        match ledgers.ledgers.recover(node.cursor_ledger).await {
            Ok(closed) if closed.last_entry > EntryId::NONE => {
                let reader = ledgers.ledgers.reader(closed.ledger, closed.metadata);
                let last = reader.read(closed.last_entry, closed.last_entry, 0).await?;
                let bytes = last.first().map(|entry| entry.payload.clone()).unwrap_or_default();
                state = PositionInfo::decode(&bytes).map_err(unreadable)?;
            }
            Ok(_) => {}
            Err(LedgerError::NoLedger(ledger)) => {
                tracing::warn!(%topic, subscription, %ledger, "the cursor ledger is gone; going on from the node");
            }
            Err(error) => return Err(error.into()),
        }
    }
    let version = ledgers.metadata.put(&path, node.encode(), Expected::Version(found.version)).await?;
    let store = CursorStore {
        ledgers: ledgers.clone(),
        topic: topic.clone(),
        subscription: subscription.to_owned(),
        sink,
        replaced: node.cursor_ledger,
        node,
        version,
        state: State::InNode,
        saving: None,
        saves: 0,
    };
    Ok((store, state))
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

    /// Saves a state. Must not be called while one is being saved.
    pub fn save(&mut self, now: Instant, revision: u64, snapshot: PositionInfo) {
        debug_assert!(self.saving.is_none(), "one state at a time");
        self.saves += 1;
        let bytes = Bytes::from(snapshot.encode());
        self.saving = Some(Saving { revision, snapshot });
        match &mut self.state {
            State::Writing { writer, opened_at } => {
                let full = writer.confirmed_length() >= MAX_LEDGER_BYTES || now.since(*opened_at) >= MAX_LEDGER_AGE;
                if full {
                    self.replaced = writer.ledger();
                    self.create_ledger();
                } else if writer.add(bytes).is_none() {
                    self.fold();
                }
            }
            State::InNode if self.saves == 1 => self.fold(),
            State::InNode => self.create_ledger(),
            // Transitions only last while something is being saved, and a failed store saves nothing.
            State::Creating | State::Starting(_) | State::Naming(_) | State::Folding | State::Failed => {}
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
    pub fn handle_event(&mut self, now: Instant, event: CursorEvent) -> Option<Saved> {
        match event.0 {
            Event::Ledger(event) => self.handle_ledger(now, event),
            Event::Created(Ok(created)) => {
                self.start_ledger(created);
                None
            }
            Event::Created(Err(error)) => {
                tracing::warn!(topic = %self.topic, subscription = self.subscription, %error, "no cursor ledger now");
                self.fold();
                None
            }
            Event::Node(result) => self.handle_node(now, result),
        }
    }

    fn handle_ledger(&mut self, now: Instant, event: LedgerEvent) -> Option<Saved> {
        let (State::Writing { writer, .. } | State::Starting(writer)) = &mut self.state else { return None };
        writer.handle_event(now, event);
        if matches!(writer.state(), WriterState::Lost(_)) {
            // Whoever fenced it may have repaired it, or taken the topic: the node's version tells.
            self.replaced = writer.ledger();
            self.fold();
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
                self.saving.take().map(|saving| Saved::Durable(saving.revision))
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
            State::Naming(writer) => State::Writing { writer, opened_at: now },
            _ => State::InNode,
        };
        self.discard_replaced();
        self.saving.take().map(|saving| Saved::Durable(saving.revision))
    }

    fn create_ledger(&mut self) {
        self.state = State::Creating;
        let create = self.ledgers.cursor_ledger(&self.topic, &self.subscription);
        let (ledgers, sink) = (self.ledgers.ledgers.clone(), Arc::clone(&self.sink));
        self.ledgers.env.control.spawn("cursor ledger", OnPanic::ExitProcess, async move {
            sink.deliver(CursorEvent(Event::Created(ledgers.create(&create).await)));
        });
    }

    fn start_ledger(&mut self, created: CreatedLedger) {
        let writer = self.ledgers.ledgers.writer(created, Arc::new(ToOwner(Arc::clone(&self.sink))));
        let mut writer = Box::new(writer);
        if let Some(saving) = &self.saving {
            writer.add(saving.snapshot.encode().into());
        }
        self.state = State::Starting(writer);
        self.flush();
    }

    fn name_ledger(&mut self, writer: Box<Writer>) {
        let mark_delete = self.saving.as_ref().map(|saving| saving.snapshot.mark_delete);
        self.node = ManagedCursorInfo {
            cursor_ledger: writer.ledger(),
            mark_delete: mark_delete.or(self.node.mark_delete),
            acked: vec![],
            properties: vec![],
            batch_sets: vec![],
            ..self.node.clone()
        };
        self.state = State::Naming(writer);
        self.write_node();
    }

    /// Puts the state that is being saved into the node.
    fn fold(&mut self) {
        let Some(saving) = &self.saving else {
            self.state = State::InNode;
            return;
        };
        if let State::Writing { writer, .. } | State::Starting(writer) = &self.state {
            self.replaced = writer.ledger();
        }
        // A node has no bitmaps, and nothing that is acked may be left out.
        let acked = saving.snapshot.acked_ranges();
        let PositionInfo { mark_delete, properties, batch_sets, .. } = saving.snapshot.clone();
        let node = ManagedCursorInfo {
            cursor_ledger: LedgerId::NONE,
            mark_delete: Some(mark_delete),
            acked,
            properties,
            batch_sets,
            ..self.node.clone()
        };
        self.node = node;
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
        let ledger = std::mem::replace(&mut self.replaced, LedgerId::NONE);
        if ledger == LedgerId::NONE || ledger == self.node.cursor_ledger {
            return;
        }
        let ledgers = self.ledgers.ledgers.clone();
        self.ledgers.env.control.spawn("old cursor ledger", OnPanic::Log, async move {
            if let Err(error) = ledgers.delete(ledger).await {
                tracing::warn!(%ledger, %error, "an old cursor ledger remains");
            }
        });
    }
}

impl std::fmt::Debug for CursorStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CursorStore").field("subscription", &self.subscription).finish_non_exhaustive()
    }
}
