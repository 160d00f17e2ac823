//! Reading confirmed entries.

use geminga_bookie_wire::{Digester, Entry, OpenedEntry};
use geminga_env::reply;
use geminga_model::{BookieId, EntryId, LedgerId};
use geminga_quorum::{BookieError, EntryRead, ReadStep};
use geminga_records::LedgerMetadata;

use bytes::Bytes;

use crate::link::ReadRequest;
use crate::{LedgerClient, LedgerError};

/// Reads entries of one ledger, of which the caller knows that they are confirmed: up to the last entry of a closed
/// ledger, or up to what its writer confirmed.
#[derive(Clone, Debug)]
pub struct LedgerReader {
    client: LedgerClient,
    ledger: LedgerId,
    metadata: LedgerMetadata,
    digester: Digester,
}

impl LedgerReader {
    pub(crate) fn new(client: LedgerClient, ledger: LedgerId, metadata: LedgerMetadata) -> LedgerReader {
        let digester = Digester::new(metadata.digest, &metadata.password);
        LedgerReader { client, ledger, metadata, digester }
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// Reads entries from `first` on without a gap: at least one, at most up to `last`, and no more than about
    /// `max_bytes`. The digest of each is checked; a bad copy is replaced by another bookie's.
    ///
    /// # Errors
    /// [`LedgerError::Read`] if the first entry cannot be had.
    pub async fn read(&self, first: EntryId, last: EntryId, max_bytes: usize) -> Result<Vec<OpenedEntry>, LedgerError> {
        if let Some(entries) = self.read_run(first, last, max_bytes).await {
            return Ok(entries);
        }
        self.read_one(first).await.map(|entry| vec![entry])
    }

    /// A run of entries from the first bookie of `first`'s write set, if it has them all by the rules of striping.
    async fn read_run(&self, first: EntryId, last: EntryId, max_bytes: usize) -> Option<Vec<OpenedEntry>> {
        let quorum = self.metadata.quorum;
        let last = if quorum.ensemble == quorum.write { last.min(self.segment_end(first)) } else { first };
        let ensemble = self.metadata.ensemble_of(first);
        let bookie = quorum.write_set(first).next().and_then(|index| ensemble.get(index))?;
        let stored = self.ask(bookie, first, last, max_bytes).await.ok()?;
        let mut opened = Vec::with_capacity(stored.len());
        for (bytes, id) in stored.into_iter().zip(first.0..=last.0) {
            let entry = Entry::split(bytes, &self.digester)
                .and_then(|entry| entry.open(self.ledger, Some(EntryId(id)), &self.digester));
            match entry {
                Ok(entry) => opened.push(entry),
                // What came before is good; the damaged one is asked for again, and then from another bookie.
                Err(_) => break,
            }
        }
        (!opened.is_empty()).then_some(opened)
    }

    /// The last entry that is on the same ensemble as `entry`, as far as metadata tells.
    fn segment_end(&self, entry: EntryId) -> EntryId {
        let next = self.metadata.segments.iter().find(|segment| segment.first_entry > entry);
        next.map_or(EntryId(i64::MAX), |segment| segment.first_entry.previous())
    }

    async fn read_one(&self, entry: EntryId) -> Result<OpenedEntry, LedgerError> {
        let mut read = EntryRead::new(self.ledger, entry, &self.metadata);
        let mut step = read.next_step();
        loop {
            match step {
                ReadStep::Ask(bookie) => {
                    let answer = self.ask(&bookie, entry, entry, 0).await;
                    let answer = answer.and_then(|found| found.into_iter().next().ok_or(BookieError::Damaged));
                    step = read.handle_read(answer, &self.digester);
                }
                ReadStep::Found(entry) => return Ok(entry),
                ReadStep::Failed(failed) => return Err(LedgerError::Read(self.ledger, failed)),
            }
        }
    }

    async fn ask(
        &self,
        bookie: &BookieId,
        first: EntryId,
        last: EntryId,
        max_bytes: usize,
    ) -> Result<Vec<Bytes>, BookieError> {
        let (to, mut from) = reply();
        let request = ReadRequest { ledger: self.ledger, first, last, max_bytes, fence: None, reply: to };
        self.client.bookies().link(bookie).read(request);
        from.wait().await.unwrap_or(Err(BookieError::Unreachable))
    }
}
