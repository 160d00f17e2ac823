//! What happened in all seeds.

use crate::counts::tally;

tally! {
    /// Entries that writers added.
    adds,
    /// Entries that writers reported as confirmed.
    confirmed,
    /// Ensemble changes stored.
    ensemble_changes,
    /// Ensemble changes that found nobody to take over, or no metadata.
    changes_put_off,
    /// Writes that only make sure that an earlier one is not applied any more.
    settling_writes,
    /// Ledgers closed by their writers.
    closes,
    /// Writers that found their ledger closed by somebody else.
    closed_elsewhere,
    /// Writers that were stopped by a recovery.
    writers_fenced,
    /// Recoveries begun.
    recoveries,
    /// Recoveries whose CLOSED was stored.
    recoveries_won,
    /// Recoveries that ended with the CLOSED of somebody else.
    recoveries_beaten,
    /// Recoveries that failed and were tried again.
    recoveries_failed,
    /// Entries written back.
    write_backs,
    /// Segments that a closing recovery changed or added.
    recovery_replacements,
    /// Adds refused by a fence.
    fenced_adds,
    /// Entries read by readers.
    reads,
    /// Entries that readers could not get.
    failed_reads,
    /// Group commits of bookies.
    commits,
    /// Starts of a bookie's store.
    opens,
    /// Writers whose process ended.
    dead_writers,
    /// Recoveries whose process ended.
    dead_recoveries,
    /// Bookie processes ended.
    kills,
    /// Power cuts of a bookie at rest or between a commit and its answers.
    power_cuts,
    /// Power cuts in the middle of a commit.
    cuts_in_commit,
    /// Power cuts in the middle of a start.
    cuts_in_open,
    /// Failed syncs.
    failed_syncs,
    /// Bookies that were slow for a while.
    slow_bookies,
    /// Links that were slow for a while.
    slow_links,
    /// Partitions between actors and bookies.
    partitions,
    /// Times that metadata was out of reach.
    metadata_outages,
    /// Requests that never reached a bookie.
    lost_requests,
    /// Answers of bookies that never arrived.
    lost_replies,
    /// Requests that reached a bookie after they were given up.
    late_requests,
    /// Metadata operations that were never done.
    lost_metadata_requests,
    /// Metadata operations that were done and never answered.
    lost_metadata_replies,
    /// Metadata writes that were stored after they were given up.
    late_metadata_writes,
    /// Compare-and-sets that met another version.
    bad_versions,
}

/// Faults that a script chooses, whose sum is what a seed suffers; lost and late messages come on top.
const FAULTS: [&str; 11] = [
    "dead_writers",
    "dead_recoveries",
    "kills",
    "power_cuts",
    "cuts_in_commit",
    "cuts_in_open",
    "failed_syncs",
    "slow_bookies",
    "slow_links",
    "partitions",
    "metadata_outages",
];

/// What needs two rare things at once, and may be missing from a few hundred seeds.
const RARE: [&str; 2] = ["settling_writes", "late_metadata_writes"];

const LEAST_ADDS: u64 = 30;
const LEAST_FAULTS: u64 = 3;

impl Tally {
    /// Faults of all kinds together.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.counts().iter().filter(|(name, _)| FAULTS.contains(name)).map(|(_, count)| count).sum()
    }

    /// Whether `seeds` seeds were worth running.
    ///
    /// # Errors
    /// The names of what never happened, or what happened too rarely.
    pub fn check_that_enough_happened(&self, seeds: u64) -> Result<(), String> {
        let never: Vec<_> = self
            .counts()
            .into_iter()
            .filter(|(name, count)| *count == 0 && !RARE.contains(name))
            .map(|(name, _)| name)
            .collect();
        if !never.is_empty() {
            return Err(format!("these never happened: {}", never.join(", ")));
        }
        if self.adds < LEAST_ADDS * seeds {
            return Err(format!("fewer than {LEAST_ADDS} adds a seed"));
        }
        if self.faults() < LEAST_FAULTS * seeds {
            return Err(format!("fewer than {LEAST_FAULTS} faults a seed"));
        }
        Ok(())
    }
}
