//! The words everything else is said in: topic and namespace names, ledger and entry ids, positions, points in time,
//! and the hashes that Pulsar's clients and brokers agree on.
//!
//! Deliberately not here: anything that is stored or sent (see `records` and the wire crates), and anything that
//! happens. A value of this crate is parsed once, at the edge, and is valid from then on.
//!
//! Start reading at [`TopicName`] and [`Position`].

mod canary;
mod digest;
mod encoding;
mod hash;
mod ids;
mod names;
mod time;

#[cfg(feature = "canary")]
pub use canary::choose_canary;
pub use canary::is_canary;
pub use digest::DigestType;
pub use encoding::{decode_local_name, encode_local_name};
pub use hash::{HashRange, KEY_HASH_SLOTS, bundle_hash, java_string_hash, key_slot, murmur3_32};
pub use ids::{BookieId, EntryId, InvalidBookieId, LedgerId, Position};
pub use names::{Domain, InvalidName, NamespaceName, TopicName};
pub use time::{Instant, UnixMillis};
