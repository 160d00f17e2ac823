//! The end of the process when what it keeps can no longer be trusted to be kept.

use std::process::exit;

/// Says which store failed and why, and ends the process at once, with exit code 1. After a failed sync the system may
/// have dropped what was written, and would claim success for the next: what the process went on to answer could be
/// lost. Nothing that was answered is.
pub(crate) fn end_failed(store: &str, why: &str) -> ! {
    tracing::error!(
        "the {store} failed: {why}. Ending the process: nothing that was answered is lost. Look after the disk, then \
         start again"
    );
    exit(1)
}
