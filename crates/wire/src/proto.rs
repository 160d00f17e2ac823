//! The generated types of the protocol: one struct a message, one enum an enum, in Pulsar's names.
//!
//! A field that the protocol requires is not missed by these types' own `decode`: it reads as empty or 0.
//! Ids are `u64` here and signed everywhere else: −1 is `u64::MAX`.

// The style of generated code is not ours to set, and its fields are documented in `proto/*.proto`.
#![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic)]

include!(concat!(env!("OUT_DIR"), "/pulsar.proto.rs"));
