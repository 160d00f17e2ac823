//! What all topics of a broker share: stores, quorums, limits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_env::Env;
use geminga_ledger::{CreateLedger, LedgerClient};
use geminga_metastore::MetadataStore;
use geminga_model::{DigestType, TopicName};
use geminga_records::Quorum;

use crate::cache::TailCache;
use crate::error::ManagedLedgerError;

/// When a ledger is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollover {
    /// Entries (`managedLedgerMaxEntriesPerLedger`).
    pub max_entries: i64,
    /// Payload bytes (`managedLedgerMaxSizePerLedgerMbytes`).
    pub max_bytes: i64,
    /// Age at which any ledger with an entry is full (`managedLedgerMaxLedgerRolloverTimeMinutes`).
    pub max_age: Duration,
    /// Age below which no ledger is full (`managedLedgerMinLedgerRolloverTimeMinutes`).
    pub min_age: Duration,
}

impl Default for Rollover {
    /// Pulsar's defaults.
    fn default() -> Rollover {
        Rollover {
            max_entries: 50_000,
            max_bytes: 2048 << 20,
            max_age: Duration::from_secs(240 * 60),
            min_age: Duration::from_secs(10 * 60),
        }
    }
}

/// What topics open their logs with. Clones are the same: every topic and subscription has one.
#[derive(Clone, Debug)]
pub struct ManagedLedgers(Arc<ManagedLedgersConfig>);

/// What [`ManagedLedgers`] are made of.
#[derive(Debug)]
pub struct ManagedLedgersConfig {
    /// Time, tasks, randomness.
    pub env: Env,
    /// Where lists of ledgers and cursors are.
    pub metadata: MetadataStore,
    /// Where entries are.
    pub ledgers: LedgerClient,
    /// Copies of each entry.
    pub quorum: Quorum,
    /// When a ledger is full.
    pub rollover: Rollover,
    /// The tail of all topics.
    pub cache: Arc<TailCache>,
}

/// How long a step that waits for metadata or bookies is tried before the topic fails and is opened anew
/// (`managedLedgerMetadataOperationsTimeoutSeconds`).
const STEP_DEADLINE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl std::ops::Deref for ManagedLedgers {
    type Target = ManagedLedgersConfig;

    fn deref(&self) -> &ManagedLedgersConfig {
        &self.0
    }
}

impl From<ManagedLedgersConfig> for ManagedLedgers {
    fn from(config: ManagedLedgersConfig) -> ManagedLedgers {
        ManagedLedgers(Arc::new(config))
    }
}

impl ManagedLedgers {
    /// What a new data ledger of `topic` is to be.
    pub(crate) fn data_ledger(&self, topic: &TopicName) -> CreateLedger {
        self.create_ledger(vec![
            ("application".to_owned(), Bytes::from_static(b"pulsar")),
            ("component".to_owned(), Bytes::from_static(b"managed-ledger")),
            ("pulsar/managed-ledger".to_owned(), topic.persistence_name().into()),
        ])
    }

    /// What a new cursor ledger is to be.
    pub(crate) fn cursor_ledger(&self, topic: &TopicName, subscription: &str) -> CreateLedger {
        let mut create = self.data_ledger(topic);
        create.custom.push(("pulsar/cursor".to_owned(), Bytes::copy_from_slice(subscription.as_bytes())));
        create
    }

    /// What a new ledger for a version of a topic's schema is to be.
    #[must_use]
    pub fn schema_ledger(&self, schema_id: &str) -> CreateLedger {
        self.create_ledger(vec![
            ("application".to_owned(), Bytes::from_static(b"pulsar")),
            ("component".to_owned(), Bytes::from_static(b"schema")),
            ("pulsar/schemaId".to_owned(), Bytes::copy_from_slice(schema_id.as_bytes())),
        ])
    }

    fn create_ledger(&self, custom: Vec<(String, Bytes)>) -> CreateLedger {
        // Pulsar's defaults: CRC-32C and an empty password.
        CreateLedger { quorum: self.quorum, digest: DigestType::Crc32c, password: Bytes::new(), custom }
    }

    /// Does `step` again while it fails for a reason that passes, up to a minute.
    pub(crate) async fn persist<T, E, F>(&self, mut step: impl FnMut() -> F) -> Result<T, ManagedLedgerError>
    where
        E: Into<ManagedLedgerError>,
        F: Future<Output = Result<T, E>>,
    {
        let clock = self.env.clock;
        let deadline = clock.now() + STEP_DEADLINE;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match step().await {
                Ok(done) => return Ok(done),
                Err(error) => error.into(),
            };
            if !error.is_passing() || clock.now() + pause > deadline {
                return Err(error);
            }
            clock.sleep_until(clock.now() + pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
