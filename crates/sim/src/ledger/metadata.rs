//! The metadata store: one node for each ledger, changed by compare-and-set.

use geminga_records::{LedgerMetadata, RecordError};

/// What a client asks of the store.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Get,
    Put { metadata: Box<LedgerMetadata>, version: u64 },
}

/// What a client hears.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Found(Box<LedgerMetadata>, u64),
    Stored(u64),
    BadVersion,
    /// No answer came: whether the operation was done, or will be, is not known.
    Nothing,
}

#[derive(Debug)]
struct Node {
    bytes: Vec<u8>,
    version: u64,
}

#[derive(Debug, Default)]
pub(super) struct SimMetadata {
    nodes: Vec<Node>,
    /// Until when nothing gets through.
    pub(super) out_until: u64,
}

impl SimMetadata {
    pub(super) fn create(&mut self, metadata: &LedgerMetadata) {
        self.nodes.push(Node { bytes: metadata.encode(), version: 0 });
    }

    pub(super) fn read(&self, ledger: usize) -> Result<(LedgerMetadata, u64), RecordError> {
        let node = self.nodes.get(ledger).ok_or(RecordError::CutShort)?;
        Ok((LedgerMetadata::decode(&node.bytes)?, node.version))
    }

    /// Stores `metadata` if the node has `version`; the new version if so.
    pub(super) fn put(&mut self, ledger: usize, metadata: &LedgerMetadata, version: u64) -> Option<u64> {
        let node = self.nodes.get_mut(ledger).filter(|node| node.version == version)?;
        node.bytes = metadata.encode();
        node.version += 1;
        Some(node.version)
    }
}
