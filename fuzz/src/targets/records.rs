//! What is stored in metadata and in cursor and schema ledgers: every decoder, and what it read written and read again.

use std::fmt::Debug;

use geminga_records::{
    Added, BundlesData, ClusterData, CursorEntry, LedgerMetadata, LocalPolicies, ManagedCursorInfo, ManagedLedgerInfo,
    PartitionedTopicMetadata, Policies, PositionInfo, RecordError, SchemaEntry, SchemaInfo, SchemaLocator, TenantInfo,
};

use super::choice;
use crate::memory::within;

/// The target.
pub fn run(data: &[u8]) {
    let (which, bytes) = choice(data);
    match which % 14 {
        0 => check(bytes, ManagedLedgerInfo::decode, ManagedLedgerInfo::encode),
        1 => check(bytes, ManagedCursorInfo::decode, ManagedCursorInfo::encode),
        2 => check(bytes, PositionInfo::decode, PositionInfo::encode),
        3 => check(bytes, Added::decode, Added::encode),
        4 => check(bytes, CursorEntry::decode, |entry| entry.info.encode_with(entry.extension.as_ref())),
        5 => check(bytes, LedgerMetadata::decode, LedgerMetadata::encode),
        6 => check(bytes, SchemaLocator::decode, SchemaLocator::encode),
        7 => check(bytes, SchemaEntry::decode, SchemaEntry::encode),
        8 => check(bytes, SchemaInfo::decode, SchemaInfo::encode),
        9 => check(bytes, ClusterData::decode, ClusterData::encode),
        10 => check(bytes, TenantInfo::decode, TenantInfo::encode),
        11 => check(bytes, Policies::decode, Policies::encode),
        12 => check(bytes, LocalPolicies::decode, LocalPolicies::encode),
        _ => check(bytes, PartitionedTopicMetadata::decode, PartitionedTopicMetadata::encode),
    }
    if let Some(count) = bytes.first() {
        assert_eq!(BundlesData::even(u32::from(*count).max(1)).num_bundles, u32::from(*count).max(1));
    }
}

fn check<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, RecordError>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let Ok(record) = within(4096 + 160 * bytes.len(), || decode(bytes)) else { return };
    let written = encode(&record);
    let again = decode(&written).unwrap();
    // What a newer version wrote is not written again.
    let known = format!("{record:?}").replace("is_newer: true", "is_newer: false");
    assert_eq!(format!("{again:?}"), known);
    assert_eq!(encode(&again), written);
}
