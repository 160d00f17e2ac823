//! An entry with its metadata: its parts are where they say, what a broker scans agrees with the generated type, and what
//! a broker puts in front is found again.

use bytes::Bytes;
use geminga_model::UnixMillis;
use geminga_wire::{BrokerEntry, Entry, encode_entry, with_broker_entry};

use crate::memory::within;

/// The target.
pub fn run(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    // Nothing is copied but the metadata, if all of it is asked for.
    let Ok(entry) = within(256, || Entry::parse(bytes)) else {
        assert!(Entry::check(data).is_err());
        return;
    };
    let checked = within(256, || Entry::check(data));
    let summary = within(256, || entry.summary());
    assert_eq!(checked.is_ok(), entry.verify_checksum().is_ok() && summary.is_ok());
    assert_eq!(entry.bytes(), data);
    assert!(data.ends_with(&entry.without_broker_entry()) && data.ends_with(&entry.payload()));
    assert_eq!(entry.broker_entry().is_none(), entry.without_broker_entry().len() == data.len());

    let block = BrokerEntry { broker_timestamp: Some(UnixMillis(data.len() as i64)), index: Some(-1) };
    let stored = Entry::parse(with_broker_entry(&block, &entry.without_broker_entry())).unwrap();
    assert_eq!((stored.broker_entry(), stored.payload()), (Some(block), entry.payload()));
    assert_eq!(stored.without_broker_entry(), entry.without_broker_entry());

    let metadata = within(1024 + 160 * data.len(), || entry.metadata());
    if let (Ok(summary), Ok(metadata)) = (&summary, &metadata) {
        assert_eq!(summary.producer_name, metadata.producer_name.as_bytes());
        assert_eq!(summary.sequence_id, metadata.sequence_id);
        assert_eq!(summary.publish_time.0.cast_unsigned(), metadata.publish_time);
        assert_eq!(summary.num_messages_in_batch, metadata.num_messages_in_batch);
        assert_eq!(summary.partition_key, metadata.partition_key.as_deref().map(str::as_bytes));
        assert!(summary.messages() >= 1);
    }
    if let Ok(metadata) = metadata {
        let sealed = Entry::parse(encode_entry(&metadata, &entry.payload())).unwrap();
        assert_eq!(sealed.verify_checksum(), Ok(()));
        assert_eq!((sealed.metadata(), sealed.payload()), (Ok(metadata), entry.payload()));
    }
}
