//! Creating, opening and deleting ledgers: their metadata.

use std::sync::Arc;

use bytes::Bytes;
use geminga_env::Env;
use geminga_metastore::{Expected, Kind, MetadataError, MetadataStore, Version};
use geminga_model::{DigestType, EntryId, Instant, LedgerId};
use geminga_quorum::ensemble;
use geminga_records::{LedgerMetadata, LedgerState, Quorum, paths};

use crate::{Bookies, LedgerError, LedgerReader, LedgerSink, Writer, recovery, single};

/// What a new ledger is to be.
#[derive(Clone, Debug)]
pub struct CreateLedger {
    /// E, Qw, Qa.
    pub quorum: Quorum,
    /// How entries are protected.
    pub digest: DigestType,
    /// The password; Pulsar's is empty.
    pub password: Bytes,
    /// Facts for operators, such as the topic's name.
    pub custom: Vec<(String, Bytes)>,
}

/// A ledger that was created and that nobody writes yet: make a [`Writer`] of it.
#[derive(Debug)]
pub struct CreatedLedger {
    /// Its id.
    pub ledger: LedgerId,
    pub(crate) metadata: LedgerMetadata,
}

/// A ledger that will not change.
#[derive(Clone, Debug)]
pub struct ClosedLedger {
    /// Its id.
    pub ledger: LedgerId,
    /// Its last entry; −1 if it is empty.
    pub last_entry: EntryId,
    /// Bytes of its payloads, as far as they are known.
    pub length: i64,
    /// The whole record.
    pub metadata: LedgerMetadata,
}

/// Makes, opens, recovers and deletes ledgers. Clones share everything.
#[derive(Clone, Debug)]
pub struct LedgerClient(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    env: Env,
    metadata: MetadataStore,
    bookies: Arc<dyn Bookies>,
}

impl LedgerClient {
    /// A client of the given store and bookies.
    #[must_use]
    pub fn new(env: Env, metadata: MetadataStore, bookies: Arc<dyn Bookies>) -> LedgerClient {
        LedgerClient(Arc::new(Shared { env, metadata, bookies }))
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.env
    }

    pub(crate) fn metadata(&self) -> &MetadataStore {
        &self.0.metadata
    }

    pub(crate) fn bookies(&self) -> &Arc<dyn Bookies> {
        &self.0.bookies
    }

    /// Creates a ledger: draws an id, chooses an ensemble and writes the metadata. No bookie is contacted.
    ///
    /// # Errors
    /// [`LedgerError::NotEnoughBookies`] or [`LedgerError::Metadata`]; after the latter an empty ledger that nobody
    /// knows may be left behind.
    pub async fn create(&self, create: &CreateLedger) -> Result<CreatedLedger, LedgerError> {
        let available = self.bookies().available();
        let ensemble = ensemble::choose(&available, create.quorum, self.env().random.u64())
            .ok_or(LedgerError::NotEnoughBookies { needed: create.quorum.ensemble, available: available.len() })?;
        let mut metadata = LedgerMetadata::open(create.quorum, ensemble, create.digest, create.password.clone());
        metadata.custom.clone_from(&create.custom);
        metadata.created = Some(self.env().clock.wall());
        metadata.creation_token = Some((self.env().random.u64() >> 1).cast_signed());
        loop {
            let ledger = self.draw_id().await?;
            match self.metadata().put(&paths::ledger(ledger), metadata.encode(), Expected::Absent).await {
                Ok(_) => return Ok(CreatedLedger { ledger, metadata }),
                // An id that is taken was made by other means; the next one is drawn.
                Err(MetadataError::BadVersion(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Creates a ledger whose only entry, number 0, is `payload`, and closes it. Dropped before it returns, it leaves a
    /// ledger that nobody knows.
    ///
    /// # Errors
    /// Those of [`LedgerClient::create`], or [`LedgerError::NotWritten`] at `deadline`; nothing of the ledger is used
    /// then.
    pub async fn create_single(
        &self,
        create: &CreateLedger,
        payload: Bytes,
        deadline: Instant,
    ) -> Result<LedgerId, LedgerError> {
        single::create_single(self, create, payload, deadline).await
    }

    async fn draw_id(&self) -> Result<LedgerId, LedgerError> {
        let prefix = paths::LEDGER_ID_PREFIX;
        let path = self.metadata().create_ephemeral(prefix, "", Kind::EphemeralSequential).await?;
        // Only the number is wanted. If the deletion fails, the node goes with the session.
        drop(self.metadata().delete(&path, Expected::Any).await);
        path.strip_prefix(prefix)
            .and_then(|digits| digits.parse().ok())
            .map(LedgerId)
            .ok_or_else(|| MetadataError::InvalidPath(path).into())
    }

    /// The writer of a created ledger. Its events go to `sink`.
    #[must_use]
    pub fn writer(&self, created: CreatedLedger, sink: Arc<dyn LedgerSink>) -> Writer {
        Writer::new(self.clone(), created, sink)
    }

    /// Reads a ledger's metadata.
    ///
    /// # Errors
    /// [`LedgerError::NoLedger`], [`LedgerError::Record`] or [`LedgerError::Metadata`].
    pub async fn get(&self, ledger: LedgerId) -> Result<(LedgerMetadata, Version), LedgerError> {
        let node = self.metadata().get(&paths::ledger(ledger)).await?.ok_or(LedgerError::NoLedger(ledger))?;
        let metadata = LedgerMetadata::decode(&node.value).map_err(|error| LedgerError::Record(ledger, error))?;
        Ok((metadata, node.version))
    }

    /// Stops whoever writes a ledger and finds its end; a closed one is returned as it is. May take as long as bookies
    /// take to answer; can be called again after an error, also while somebody else does the same.
    ///
    /// # Errors
    /// [`LedgerError::NoLedger`] if it is gone; otherwise the ledger is fenced at some bookies, nothing is cut off, and
    /// the call can be repeated.
    pub async fn recover(&self, ledger: LedgerId) -> Result<ClosedLedger, LedgerError> {
        recovery::recover(self, ledger).await
    }

    /// A reader of entries that are known to be confirmed.
    #[must_use]
    pub fn reader(&self, ledger: LedgerId, metadata: LedgerMetadata) -> LedgerReader {
        LedgerReader::new(self.clone(), ledger, metadata)
    }

    /// Deletes a ledger: its metadata, and then what bookies have of it. One that is gone is a success.
    ///
    /// # Errors
    /// [`LedgerError::Metadata`]; whether it was deleted is then not known.
    pub async fn delete(&self, ledger: LedgerId) -> Result<(), LedgerError> {
        let members = match self.get(ledger).await {
            Ok((metadata, _)) => {
                let mut members: Vec<_> = metadata.segments.into_iter().flat_map(|s| s.ensemble).collect();
                members.sort();
                members.dedup();
                members
            }
            Err(LedgerError::NoLedger(_)) => return Ok(()),
            // What cannot be read can still be deleted; bookies find out by themselves.
            Err(LedgerError::Record(..)) => Vec::new(),
            Err(error) => return Err(error),
        };
        match self.metadata().delete(&paths::ledger(ledger), Expected::Any).await {
            Ok(()) | Err(MetadataError::NoNode(_)) => {}
            Err(error) => return Err(error.into()),
        }
        members.iter().for_each(|bookie| self.bookies().link(bookie).forget(ledger));
        Ok(())
    }

    /// Writes CLOSED. Closing at the same place twice is a success, whoever was first.
    pub(crate) async fn close_at(
        &self,
        ledger: LedgerId,
        last: EntryId,
        length: i64,
    ) -> Result<ClosedLedger, LedgerError> {
        loop {
            let (mut metadata, version) = self.get(ledger).await?;
            if let LedgerState::Closed { last_entry, length: stored } = metadata.state {
                if last_entry != last {
                    return Err(LedgerError::ClosedElsewhere(ledger));
                }
                return Ok(ClosedLedger { ledger, last_entry, length: stored, metadata });
            }
            metadata.state = LedgerState::Closed { last_entry: last, length };
            match self.metadata().put(&paths::ledger(ledger), metadata.encode(), Expected::Version(version)).await {
                Ok(_) => return Ok(ClosedLedger { ledger, last_entry: last, length, metadata }),
                Err(MetadataError::BadVersion(_)) => {}
                Err(MetadataError::NoNode(_)) => return Err(LedgerError::NoLedger(ledger)),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
