//! The writer of a ledger inside its owner.
//!
//! Order: [`Writer::add`] only takes entries in; they leave together with [`Writer::flush`], once per turn of the owner.
//! Answers come as events, after which [`Writer::last_add_confirmed`] tells what is stored for sure.

use std::sync::Arc;

use bytes::Bytes;
use geminga_bookie_wire::MasterKey;
use geminga_env::OnPanic;
use geminga_metastore::{Expected, MetadataError};
use geminga_model::{BookieId, EntryId, Instant, LedgerId};
use geminga_quorum::{ChangeFailed, LedgerWriter, WriteAction, WriterState, ensemble};
use geminga_records::{LedgerMetadata, paths};

use crate::client::CreatedLedger;
use crate::link::{AddReply, AddRequest, BookieLink, LedgerEvent, LedgerSink};
use crate::{ClosedLedger, LedgerClient, LedgerError};

/// Writes one ledger. See the module for the order of calls.
pub struct Writer {
    client: LedgerClient,
    machine: LedgerWriter,
    metadata: Arc<LedgerMetadata>,
    master_key: MasterKey,
    sink: Arc<dyn LedgerSink>,
    links: Vec<Outgoing>,
    actions: Vec<WriteAction>,
}

/// A member of the ensemble and what goes to it with the next flush.
struct Outgoing {
    bookie: BookieId,
    link: Arc<dyn BookieLink>,
    adds: Vec<AddRequest>,
}

impl Writer {
    pub(crate) fn new(client: LedgerClient, created: CreatedLedger, sink: Arc<dyn LedgerSink>) -> Writer {
        let CreatedLedger { ledger, mut metadata } = created;
        // Facts for operators, which only the stored record needs to have.
        metadata.custom = Vec::new();
        Writer {
            machine: LedgerWriter::new(ledger, &metadata),
            master_key: MasterKey::of_password(&metadata.password),
            metadata: Arc::new(metadata),
            client,
            sink,
            links: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> LedgerId {
        self.machine.ledger()
    }

    /// Whether it writes, or who does instead.
    #[must_use]
    pub fn state(&self) -> WriterState {
        self.machine.state()
    }

    /// The last entry that is stored for sure, with every one before it.
    #[must_use]
    pub fn last_add_confirmed(&self) -> EntryId {
        self.machine.last_add_confirmed()
    }

    /// Payload bytes up to the last confirmed entry.
    #[must_use]
    pub fn confirmed_length(&self) -> i64 {
        self.machine.confirmed_length()
    }

    /// The last entry taken in, confirmed or not.
    #[must_use]
    pub fn last_add_pushed(&self) -> EntryId {
        self.machine.last_add_pushed()
    }

    /// How many entries were taken in and are not confirmed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.machine.pending()
    }

    /// The ledger's metadata, as far as this writer knows it: enough to read what is confirmed.
    #[must_use]
    pub fn metadata(&self) -> &Arc<LedgerMetadata> {
        &self.metadata
    }

    /// Members that failed and are not replaced, for explanations.
    pub fn failed_members(&self) -> impl Iterator<Item = (usize, &BookieId)> {
        self.machine.failed_members()
    }

    /// Takes an entry in; `None` if the writer does not write any more.
    pub fn add(&mut self, payload: Bytes) -> Option<EntryId> {
        self.machine.add(payload)
    }

    /// Sends what was taken in and what events made necessary: one submission for each bookie.
    pub fn flush(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        self.machine.take_actions(&mut actions);
        for action in actions.drain(..) {
            match action {
                WriteAction::Send { index, bookie, first, bodies } => {
                    let ledger = self.machine.ledger();
                    let entries = (first, bodies.len());
                    let reply = AddReply::new(Arc::clone(&self.sink), ledger, entries, index, bookie.clone());
                    let master_key = self.master_key;
                    let request = AddRequest { ledger, first, bodies, master_key, recovery: false, reply };
                    self.outgoing(bookie).adds.push(request);
                }
                WriteAction::ChangeEnsemble { failed, last_add_confirmed } => {
                    self.change_ensemble(failed, last_add_confirmed);
                }
            }
        }
        self.actions = actions;
        for Outgoing { link, adds, .. } in &mut self.links {
            if !adds.is_empty() {
                link.add(adds);
            }
        }
    }

    /// An idle writer keeps no room for entries: there is one for every topic that was ever written to.
    fn rest(&mut self) {
        if self.machine.is_idle() {
            self.machine.rest();
            self.actions = Vec::new();
            self.links.iter_mut().filter(|link| link.adds.is_empty()).for_each(|link| link.adds = Vec::new());
        }
    }

    fn outgoing(&mut self, bookie: BookieId) -> &mut Outgoing {
        let known = self.links.iter().position(|outgoing| outgoing.bookie == bookie);
        let at = known.unwrap_or_else(|| {
            let link = self.client.bookies().link(&bookie);
            self.links.reserve_exact(1);
            self.links.push(Outgoing { bookie, link, adds: Vec::new() });
            self.links.len() - 1
        });
        &mut self.links[at]
    }

    /// Takes an event of this ledger. Events of other ledgers are left alone.
    pub fn handle_event(&mut self, now: Instant, event: LedgerEvent) {
        self.apply(now, event);
        self.machine.forget_stored();
        self.rest();
    }

    /// As [`Writer::handle_event`]. Moves the payloads of the entries that it confirmed to the end of `stored`, in order.
    pub fn handle_event_keeping(&mut self, now: Instant, event: LedgerEvent, stored: &mut Vec<Bytes>) {
        self.apply(now, event);
        self.machine.take_stored(stored);
        self.rest();
    }

    fn apply(&mut self, now: Instant, event: LedgerEvent) {
        match event {
            LedgerEvent::Added(results) => {
                let ledger = self.machine.ledger();
                for result in results.into_iter().filter(|result| result.ledger == ledger) {
                    let entries = (result.first, result.count);
                    self.machine.handle_added(result.index, &result.bookie, entries, result.result);
                }
            }
            LedgerEvent::Changed { ledger, outcome } if ledger == self.machine.ledger() => match outcome {
                Ok(metadata) => {
                    self.machine.handle_changed(now, Ok(&metadata));
                    let ensemble = &metadata.last_segment().ensemble;
                    self.links.retain(|outgoing| ensemble.contains(&outgoing.bookie));
                    self.metadata = Arc::from(metadata);
                }
                Err(failed) => self.machine.handle_changed(now, Err(failed)),
            },
            LedgerEvent::Changed { .. } => {}
        }
    }

    /// When [`Writer::handle_timeout`] wants to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.machine.handle_timeout(now);
    }

    /// Refuses further adds.
    pub fn refuse_adds(&mut self) {
        self.machine.close();
    }

    /// Takes what was taken in and never confirmed, for whoever continues elsewhere once this ledger's end is known.
    pub fn take_pending(&mut self) -> Vec<(EntryId, Bytes)> {
        self.machine.take_pending()
    }

    /// The procedure that writes CLOSED after the last confirmed entry. What is pending then is not part of the ledger.
    ///
    /// Fails with [`LedgerError::ClosedElsewhere`] if somebody else closed it at another entry.
    pub fn close(mut self) -> impl Future<Output = Result<ClosedLedger, LedgerError>> + Send + 'static {
        self.machine.close();
        let (ledger, last) = (self.machine.ledger(), self.machine.last_add_confirmed());
        let (length, client) = (self.machine.confirmed_length(), self.client.clone());
        async move { client.close_at(ledger, last, length).await }
    }

    fn change_ensemble(&self, failed: Vec<(usize, BookieId)>, last_add_confirmed: EntryId) {
        let (client, ledger, sink) = (self.client.clone(), self.machine.ledger(), Arc::clone(&self.sink));
        let task = async move {
            let outcome = change_ensemble(&client, ledger, &failed, last_add_confirmed).await;
            if let Err(error) = &outcome {
                tracing::warn!(%ledger, ?failed, %error, "could not replace failed bookies");
            }
            sink.deliver(LedgerEvent::Changed { ledger, outcome });
        };
        self.client.env().control.spawn("ensemble change", OnPanic::ExitProcess, task);
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// The compare-and-set loop of an ensemble change.
///
/// A write whose outcome is not known is settled by reading again until the store answers: reporting it either way
/// could count acks from bookies that metadata does not name. As it may even be applied after that read, "no
/// replacement" is reported only once the version moved, if need be by writing what is stored: entries confirmed by the
/// old ensemble would otherwise belong to the new one when the write comes through at last.
async fn change_ensemble(
    client: &LedgerClient,
    ledger: LedgerId,
    failed: &[(usize, BookieId)],
    last_add_confirmed: EntryId,
) -> Result<Box<LedgerMetadata>, ChangeFailed> {
    // The version at which a write may still be applied.
    let mut unsettled = None;
    loop {
        let (stored, version) = match client.get(ledger).await {
            Ok(found) => found,
            Err(LedgerError::NoLedger(_)) => return Err(ChangeFailed::Deleted),
            Err(_) if unsettled.is_none() => return Err(ChangeFailed::MetadataUnreachable),
            Err(_) => {
                client.env().clock.sleep_until(client.env().clock.now() + crate::recovery::RETRY_METADATA).await;
                continue;
            }
        };
        unsettled = unsettled.filter(|at| *at == version);
        let path = paths::ledger(ledger);
        match ensemble::change(&stored, last_add_confirmed, failed, &client.bookies().available()) {
            Err(ChangeFailed::NoReplacement) if unsettled.is_some() => {
                // Whatever comes of it, the next round sees it.
                drop(client.metadata().put(&path, stored.encode(), Expected::Version(version)).await);
            }
            Err(failed) => return Err(failed),
            Ok(ensemble::Change::AlreadyDone) => return Ok(Box::new(stored)),
            Ok(ensemble::Change::Write(changed)) => {
                match client.metadata().put(&path, changed.encode(), Expected::Version(version)).await {
                    Ok(_) => return Ok(Box::new(changed)),
                    Err(MetadataError::BadVersion(_) | MetadataError::NoNode(_)) => {}
                    Err(_) => unsettled = Some(version),
                }
            }
        }
    }
}
