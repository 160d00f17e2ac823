//! Every image that a power cut can leave, for short traces.

use super::script::Run;
use super::tally::Tally;

/// Unsynced operations up to which all images are tried: 4096 of them.
const MOST_UNITS: usize = 12;

/// Runs a short trace, cuts the power in the middle of a group commit, and opens every image that this can leave.
///
/// # Errors
/// The violation found, as a sentence.
pub fn run_exhaustive(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut run = Run::new(seed)?;
    run.reopen(&[], tally)?;
    for _ in 0..run.seeded.below(20) {
        run.commit(tally)?;
    }
    run.commit_into_every_image(MOST_UNITS, tally)
}
