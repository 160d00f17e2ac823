//! Which bookies serve a ledger: the choice of an ensemble, and the metadata that an ensemble change writes.

use geminga_model::{BookieId, EntryId};
use geminga_records::{LedgerMetadata, LedgerState, Quorum, Segment};

use crate::write::ChangeFailed;

/// Chooses E of the `available` bookies for a new ledger, starting at a place that `random` decides; `None` if there
/// are too few.
#[must_use]
pub fn choose(available: &[BookieId], quorum: Quorum, random: u64) -> Option<Vec<BookieId>> {
    if available.len() < quorum.ensemble {
        return None;
    }
    let start = usize::try_from(random % available.len().max(1) as u64).unwrap_or(0);
    Some(available.iter().cycle().skip(start).take(quorum.ensemble).cloned().collect())
}

/// What an ensemble change would write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This metadata, by compare-and-set.
    Write(LedgerMetadata),
    /// Nothing: failed bookies were already replaced, by somebody such as re-replication or by an attempt whose reply was
    /// lost. What is stored is to be adopted; those that are still there are a change of their own.
    AlreadyDone,
}

/// Replaces the failed bookies of the last ensemble from the entry after `last_add_confirmed` on.
///
/// `stored` is the metadata as just read; `failed` names bookies and where the writer saw them. The transform is
/// applied anew to each version that a lost compare-and-set brings to light. Replaces as many as there are candidates
/// for.
///
/// # Errors
/// [`ChangeFailed`]: the ledger is no longer this writer's, or no bookie can take over.
pub fn change(
    stored: &LedgerMetadata,
    last_add_confirmed: EntryId,
    failed: &[(usize, BookieId)],
    available: &[BookieId],
) -> Result<Change, ChangeFailed> {
    match stored.state {
        LedgerState::Open => {}
        LedgerState::InRecovery => return Err(ChangeFailed::Fenced),
        LedgerState::Closed { .. } => return Err(ChangeFailed::Closed),
    }
    let current = &stored.last_segment().ensemble;
    let still: Vec<&(usize, BookieId)> =
        failed.iter().filter(|(index, bookie)| current.get(*index) == Some(bookie)).collect();
    if still.is_empty() {
        return Ok(Change::AlreadyDone);
    }
    // One that failed is no replacement, also after it was replaced itself.
    let sound: Vec<BookieId> =
        available.iter().filter(|bookie| !failed.iter().any(|(_, failed)| failed == *bookie)).cloned().collect();
    let ensemble = replace(current, &still, &sound);
    if ensemble == *current {
        // What is replaced already is adopted first; the writer then asks again for the rest.
        let some_replaced = still.len() < failed.len();
        return if some_replaced { Ok(Change::AlreadyDone) } else { Err(ChangeFailed::NoReplacement) };
    }
    let mut changed = stored.clone();
    changed.segments = with_segment(&stored.segments, Segment { first_entry: last_add_confirmed.next(), ensemble });
    Ok(Change::Write(changed))
}

/// `current` with the failed members exchanged for available bookies that are neither in it nor failed.
pub(crate) fn replace(current: &[BookieId], failed: &[&(usize, BookieId)], available: &[BookieId]) -> Vec<BookieId> {
    let mut ensemble = current.to_vec();
    let mut candidates =
        available.iter().filter(|bookie| !current.contains(bookie) && !failed.iter().any(|(_, f)| f == *bookie));
    for (index, _) in failed {
        if let (Some(slot), Some(candidate)) = (ensemble.get_mut(*index), candidates.next()) {
            *slot = candidate.clone();
        }
    }
    ensemble
}

/// `segments` with `segment` at its end, in place of one that starts at the same entry or later.
pub(crate) fn with_segment(segments: &[Segment], segment: Segment) -> Vec<Segment> {
    let kept = segments.iter().filter(|earlier| earlier.first_entry < segment.first_entry).cloned();
    kept.chain([segment.clone()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use geminga_model::DigestType;

    fn bookies(names: &str) -> Vec<BookieId> {
        names.chars().map(|name| BookieId::parse(&name.to_string()).unwrap()).collect()
    }

    fn failed(members: &[(usize, &str)]) -> Vec<(usize, BookieId)> {
        members.iter().map(|(index, name)| (*index, BookieId::parse(name).unwrap())).collect()
    }

    fn stored() -> LedgerMetadata {
        LedgerMetadata::open(Quorum::new(3, 2, 2).unwrap(), bookies("abc"), DigestType::Crc32c, Bytes::new())
    }

    #[test]
    fn chooses_distinct_bookies() {
        let quorum = Quorum::new(3, 2, 2).unwrap();
        for random in 0..10 {
            let mut chosen = choose(&bookies("abcd"), quorum, random).unwrap();
            chosen.sort();
            chosen.dedup();
            assert_eq!(chosen.len(), 3);
        }
        assert_eq!(choose(&bookies("ab"), quorum, 0), None);
    }

    #[test]
    fn a_change_starts_after_the_last_confirmed_entry() {
        let Ok(Change::Write(changed)) = change(&stored(), EntryId(9), &failed(&[(1, "b")]), &bookies("abcd")) else {
            panic!("a change")
        };
        assert_eq!(changed.segments.len(), 2);
        assert_eq!(changed.segments[1], Segment { first_entry: EntryId(10), ensemble: bookies("adc") });
        // Before any entry the first segment itself is exchanged.
        let Ok(Change::Write(changed)) = change(&stored(), EntryId::NONE, &failed(&[(1, "b")]), &bookies("abcd"))
        else {
            panic!("a change")
        };
        assert_eq!(changed.segments, [Segment { first_entry: EntryId(0), ensemble: bookies("adc") }]);
    }

    #[test]
    fn what_is_no_longer_true_changes_nothing() {
        assert_eq!(change(&stored(), EntryId(0), &failed(&[(1, "x")]), &bookies("abcd")), Ok(Change::AlreadyDone));
        let no_candidate = change(&stored(), EntryId(0), &failed(&[(1, "b")]), &bookies("abc"));
        assert_eq!(no_candidate, Err(ChangeFailed::NoReplacement));
        let recovering = LedgerMetadata { state: LedgerState::InRecovery, ..stored() };
        assert_eq!(change(&recovering, EntryId(0), &failed(&[(1, "b")]), &bookies("d")), Err(ChangeFailed::Fenced));
    }

    /// The writer's own earlier attempt may have been applied though its reply was lost. Saying then that nothing could be
    /// replaced would let it go on with acks of a bookie that metadata no longer names.
    #[test]
    fn a_part_that_is_already_replaced_is_adopted_though_no_more_can_be() {
        let members = failed(&[(0, "a"), (1, "b")]);
        let Ok(Change::Write(applied)) = change(&stored(), EntryId(0), &members, &bookies("abcd")) else {
            panic!("a change")
        };
        assert_eq!(applied.last_segment().ensemble, bookies("dbc"));
        assert_eq!(change(&applied, EntryId(0), &members, &bookies("abcd")), Ok(Change::AlreadyDone));
        let left = failed(&[(1, "b")]);
        assert_eq!(change(&applied, EntryId(0), &left, &bookies("bcd")), Err(ChangeFailed::NoReplacement));
    }

    #[test]
    fn replaces_as_many_as_it_can() {
        let Ok(Change::Write(changed)) =
            change(&stored(), EntryId(0), &failed(&[(0, "a"), (2, "c")]), &bookies("abcd"))
        else {
            panic!("a change")
        };
        assert_eq!(changed.last_segment().ensemble, bookies("dbc"));
    }
}
