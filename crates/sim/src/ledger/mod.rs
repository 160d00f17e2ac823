//! Ledgers: writers, racing recoveries and readers over the real protocol machines, on real stores that crash, over a
//! network that loses and delays, with metadata that does not always answer.
//!
//! One loop takes the next event of a queue ordered by simulated time; everything random comes from the seed. The
//! actors do what the tasks around the machines do in a broker, as small state machines. The oracle sees what the
//! writers report as confirmed and every change of metadata, and asks in the end, after another power cut of all
//! bookies, for every entry and its ack quorum of copies.
//!
//! Deliberately not here: re-replication, deletion, two bookies of one name, lost disks, garbled bytes, and reads between
//! the write and the sync of a commit.
//!
//! Start reading at `script.rs` (one seed from start to end) and `oracle.rs` (what must hold).

mod bookie;
mod change;
mod core;
mod metadata;
mod network;
mod oracle;
mod reader;
mod recoverer;
mod script;
mod tally;
mod world;
mod writer;

pub use script::{run_seed, trace_seed};
pub use tally::Tally;

/// The known bugs that this simulation must find.
pub const CANARIES: [&str; 4] = ["LED-1", "LED-5", "BOO-1", "ack_beyond_durable_prefix"];
