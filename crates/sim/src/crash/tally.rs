//! What happened in all seeds, to see that every kind of work and fault was tried.

use crate::counts::tally;

tally! {
    /// Group commits answered.
    commits,
    /// Adds acknowledged.
    adds,
    /// Adds acknowledged to fenced ledgers, because they were recovery's.
    recovery_adds,
    /// Adds of an entry that was there.
    duplicate_adds,
    /// Fences acknowledged.
    fences,
    /// Explicit LACs acknowledged.
    explicit_lacs,
    /// Deletions acknowledged.
    deletes,
    /// Adds refused by a fence.
    fenced_adds,
    /// Requests refused for ledgers that were fenced and then deleted.
    refused_after_delete,
    /// Requests refused by a wrong key.
    unauthorized,
    /// Requests refused for lack of space.
    read_only,
    /// Segments dropped.
    drops,
    /// Segments that got an index file.
    seals,
    /// Times that the store was opened.
    opens,
    /// Orderly ends.
    closes,
    /// Ends without a power cut.
    kills,
    /// Power cuts while nothing ran.
    cuts_at_rest,
    /// Power cuts in the middle of a group commit.
    cuts_in_commit,
    /// Power cuts in the middle of cleaning or maintenance.
    cuts_in_cleaning,
    /// Power cuts in the middle of opening.
    cuts_in_open,
    /// Failed syncs.
    failed_syncs,
    /// Failed writes.
    failed_writes,
    /// Refusals of a full disk.
    full_disk,
    /// Index files lost or garbled.
    bad_indexes,
    /// Bits flipped and found at opening.
    flips_refused,
    /// Bits flipped and found, or not noticed because they did no harm, at reading.
    flips_served,
    /// Crash images tried.
    images,
}

impl Tally {
    /// # Errors
    /// The names of what never happened.
    pub fn check_that_all_happened(&self) -> Result<(), String> {
        let missing: Vec<_> = self
            .counts()
            .into_iter()
            .filter(|(name, count)| *count == 0 && *name != "images")
            .map(|(n, _)| n)
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("these never happened: {}", missing.join(", "))) }
    }
}
