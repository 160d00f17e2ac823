//! The ledgers of a topic and how many entries each has: how positions follow each other.

use geminga_model::{EntryId, LedgerId, Position};

/// Ledgers with the number of their confirmed entries, ascending. Most topics have one or two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<(LedgerId, i64)>);

impl Extents {
    /// Sets how many entries of a ledger are confirmed.
    pub fn set(&mut self, ledger: LedgerId, entries: i64) {
        match self.place(ledger) {
            Ok(at) => self.0.iter_mut().skip(at).take(1).for_each(|known| known.1 = entries),
            Err(at) => {
                self.0.reserve_exact(usize::from(self.0.is_empty()));
                self.0.insert(at, (ledger, entries));
            }
        }
    }

    /// A ledger left the topic.
    pub fn remove(&mut self, ledger: LedgerId) {
        self.0.retain(|(known, _)| *known != ledger);
    }

    /// Where a ledger is, or would be.
    fn place(&self, ledger: LedgerId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&ledger, |(known, _)| *known)
    }

    /// The ledgers from `ledger` on.
    fn from(&self, ledger: LedgerId) -> &[(LedgerId, i64)] {
        let at = self.0.partition_point(|(known, _)| *known < ledger);
        self.0.get(at..).unwrap_or_default()
    }

    /// The ledgers and their entries, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (LedgerId, i64)> + '_ {
        self.0.iter().copied()
    }

    /// The entries of a ledger; `None` if it is not part of the topic.
    #[must_use]
    pub fn entries(&self, ledger: LedgerId) -> Option<i64> {
        self.place(ledger).ok().and_then(|at| self.0.get(at)).map(|(_, entries)| *entries)
    }

    /// The point before the first entry of the topic; [`Position::EARLIEST`] if it has no ledger.
    #[must_use]
    pub fn start(&self) -> Position {
        let first = self.0.first();
        first.map_or(Position::EARLIEST, |(ledger, _)| Position { ledger: *ledger, entry: EntryId::NONE })
    }

    /// The last entry of the topic; the point before the first entry of the last ledger if there is none.
    #[must_use]
    pub fn end(&self) -> Position {
        let last_entry = self.iter().rev().find(|(_, entries)| *entries > 0);
        last_entry.map_or_else(|| self.start(), |(ledger, entries)| Position { ledger, entry: EntryId(entries - 1) })
    }

    /// The first entry after `position`, if it exists.
    #[must_use]
    pub fn next(&self, position: Position) -> Option<Position> {
        if position.ledger >= LedgerId(0) && self.entries(position.ledger).is_some_and(|n| position.next().entry.0 < n)
        {
            return Some(position.next());
        }
        let mut later = self.from(position.ledger).iter().filter(|(ledger, _)| *ledger > position.ledger);
        let (ledger, _) = later.find(|(_, entries)| *entries > 0)?;
        Some(Position { ledger: *ledger, entry: EntryId(0) })
    }

    /// The entry before `position`, or the point before the first entry.
    #[must_use]
    pub fn previous(&self, position: Position) -> Position {
        if position.entry > EntryId(0) {
            let last = self.entries(position.ledger).map_or(-1, |entries| entries - 1);
            return Position { ledger: position.ledger, entry: EntryId((position.entry.0 - 1).min(last)) };
        }
        let at = self.0.partition_point(|(ledger, _)| *ledger < position.ledger);
        let earlier = self.0.iter().take(at).rev().find(|(_, entries)| *entries > 0);
        earlier
            .map_or_else(|| self.start(), |(ledger, entries)| Position { ledger: *ledger, entry: EntryId(entries - 1) })
    }

    /// How many entries lie after `after` up to and including `through`.
    #[must_use]
    pub fn count(&self, after: Position, through: Position) -> u64 {
        if through <= after {
            return 0;
        }
        let entries = |ledger: LedgerId, entries: i64| {
            let first = if ledger == after.ledger { after.next().entry.0 } else { 0 };
            let end = if ledger == through.ledger { (through.entry.0.saturating_add(1)).min(entries) } else { entries };
            u64::try_from(end - first).unwrap_or(0)
        };
        let within = self.from(after.ledger).iter().take_while(|(ledger, _)| *ledger <= through.ledger);
        within.map(|(ledger, n)| entries(*ledger, *n)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extents(ledgers: &[(i64, i64)]) -> Extents {
        let mut extents = Extents::default();
        ledgers.iter().for_each(|(ledger, entries)| extents.set(LedgerId(*ledger), *entries));
        extents
    }

    #[test]
    fn ends() {
        assert_eq!((extents(&[]).start(), extents(&[]).end()), (Position::EARLIEST, Position::EARLIEST));
        let topic = extents(&[(3, 0), (5, 2), (9, 0)]);
        assert_eq!((topic.start(), topic.end()), (Position::new(3, -1), Position::new(5, 1)));
        assert_eq!(topic.next(Position::EARLIEST), Some(Position::new(5, 0)));
        assert_eq!(topic.next(Position::new(4, 7)), Some(Position::new(5, 0)));
        assert_eq!(topic.next(Position::new(5, 1)), None);
        assert_eq!(topic.previous(Position::new(9, 0)), Position::new(5, 1));
        assert_eq!(topic.previous(Position::new(5, 0)), Position::new(3, -1));
        assert_eq!(topic.count(Position::EARLIEST, Position::LATEST), 2);
        // A client may name any entry of a ledger that there is.
        let beyond = Position::new(3, i64::MAX);
        assert_eq!((topic.next(beyond), topic.count(beyond, topic.end())), (Some(Position::new(5, 0)), 2));
    }

    proptest! {
        #[test]
        fn steps_agree_with_a_list(sizes in proptest::collection::vec(0i64..4, 0..6), at in 0usize..20) {
            let ledgers: Vec<(i64, i64)> = sizes.iter().enumerate().map(|(i, n)| (2 * i as i64, *n)).collect();
            let topic = extents(&ledgers);
            let all: Vec<Position> = ledgers.iter().flat_map(|(l, n)| (0..*n).map(|e| Position::new(*l, e))).collect();
            let mut walked = vec![];
            let mut position = topic.start();
            while let Some(next) = topic.next(position) {
                walked.push(next);
                position = next;
            }
            prop_assert_eq!(&walked, &all);
            if let Some(position) = all.get(at) {
                prop_assert_eq!(topic.previous(*position), if at == 0 { topic.start() } else { all[at - 1] });
                prop_assert_eq!(topic.count(topic.start(), *position), at as u64 + 1);
                prop_assert_eq!(topic.count(*position, topic.end()), (all.len() - at - 1) as u64);
            }
        }
    }
}
