//! Targets for a fuzzer: each takes arbitrary bytes, hands them to what reads such bytes, and checks more than that it
//! does not panic: that what was read can be written and is read again as the same, that answers come, that no memory
//! is taken for bytes that are not there.
//!
//! `cargo xtask fuzz` runs them with libFuzzer. The tests run each on the seeds, which are in `seeds/<target>`; an input
//! that found something is added there when that is repaired.
//!
//! Start reading at [`TARGETS`].

pub mod memory;
pub mod targets;

/// A target: it panics if what must hold does not.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("wire-commands", targets::wire_commands::run),
    ("wire-entries", targets::wire_entries::run),
    ("wire-batches", targets::wire_batches::run),
    ("session", targets::session::run),
    ("records", targets::records::run),
    ("cursor-replay", targets::cursor_replay::run),
    ("bookie-entries", targets::bookie_entries::run),
    ("bookie-store", targets::bookie_store::run),
    ("schemas", targets::schemas::run),
    ("names", targets::names::run),
    ("rest-bodies", targets::rest_bodies::run),
    ("properties", targets::properties::run),
];
