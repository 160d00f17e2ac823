//! The bookie's store on a disk that loses power, tears writes, fails syncs and runs full.
//!
//! A seed makes a script of group commits, cleaning, restarts and faults over tiny segments. A naive model says what each
//! request must answer and what the store must hold afterwards. What a crash leaves undecided, how many requests of the
//! last group commit took effect, is tried in full: the store must equal the model after some prefix of them.

mod exhaustive;
mod model;
mod script;
mod tally;

pub use exhaustive::run_exhaustive;
pub use script::run_seed;
pub use tally::Tally;

/// The known bugs that this simulation must find.
pub const CANARIES: [&str; 4] = ["ack_beyond_durable_prefix", "BOO-1", "drop_segment_with_fence", "drop_delete_record"];
