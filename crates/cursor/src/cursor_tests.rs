//! The cursor against a plain set of acked positions.

use std::collections::BTreeSet;

use geminga_records::{AckedRange, PositionInfo};

use super::*;
use proptest::prelude::*;

fn extents() -> Extents {
    let mut extents = Extents::default();
    for (ledger, entries) in [(1, 5), (3, 0), (4, 3), (9, 70)] {
        extents.set(LedgerId(ledger), entries);
    }
    extents
}

fn all() -> Vec<Position> {
    extents().iter().flat_map(|(l, n)| (0..n).map(move |e| Position { ledger: l, entry: EntryId(e) })).collect()
}

#[derive(Clone, Debug)]
enum Op {
    Ack(Vec<Position>),
    Cumulative(Position),
    Batch(Position, i64),
    Reset(Position),
    Restore,
}

fn position() -> impl Strategy<Value = Position> {
    prop_oneof![
        (0usize..78).prop_map(|i| all()[i]),
        (prop_oneof![Just(-1i64), Just(1), Just(2), Just(4), Just(9), Just(12)], -1i64..80)
            .prop_map(|(ledger, entry)| Position::new(ledger, entry)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => proptest::collection::vec(position(), 1..12).prop_map(Op::Ack),
        1 => position().prop_map(Op::Cumulative),
        3 => (position(), 0i64..16).prop_map(|(position, left)| Op::Batch(position, left)),
        1 => (0usize..78).prop_map(|i| Op::Reset(extents().previous(all()[i]))),
        1 => Just(Op::Restore),
    ]
}

/// What is acked, and what is left of batches, without any cleverness.
#[derive(Default)]
struct Model {
    acked: BTreeSet<Position>,
    left: BTreeMap<Position, i64>,
}

impl Model {
    fn ack(&mut self, position: Position) {
        if all().contains(&position) {
            self.acked.insert(position);
            self.left.remove(&position);
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Ack(positions) => positions.iter().for_each(|p| self.ack(*p)),
            Op::Cumulative(upto) => all().into_iter().filter(|p| p <= upto).for_each(|p| self.ack(p)),
            Op::Batch(position, left) => {
                if all().contains(position) && !self.acked.contains(position) {
                    let left = self.left.get(position).map_or(*left, |before| before & left);
                    self.left.insert(*position, left);
                    if left == 0 {
                        self.ack(*position);
                    }
                }
            }
            Op::Reset(mark_delete) => {
                self.acked = all().into_iter().filter(|p| p <= mark_delete).collect();
                self.left.clear();
            }
            Op::Restore => {}
        }
    }
}

/// A client, or damaged metadata, may name an entry below the point before the first one.
#[test]
fn an_impossible_entry_is_the_point_before_its_ledger() {
    let mut extents = Extents::default();
    extents.set(LedgerId(1), 3);
    extents.set(LedgerId(4), 70);
    for entry in [i64::MIN, -57, -1] {
        let odd = Position::new(4, entry);
        let mut acked = Cursor::at(extents.start());
        acked.ack_cumulative(odd, &extents);
        let mut reset = Cursor::at(extents.start());
        reset.reset(odd);
        for cursor in [acked, reset, Cursor::at(odd), Cursor::restore(&PositionInfo::at(odd), &extents)] {
            assert_eq!((cursor.mark_delete(), cursor.backlog(&extents)), (Position::new(4, -1), 70), "{entry}");
            assert_eq!(cursor.nth_unacked(1, &extents), Some(Position::new(4, 0)));
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_a_set(ops in proptest::collection::vec(op(), 0..40)) {
        let extents = extents();
        let mut cursor = Cursor::at(extents.start());
        let mut model = Model::default();
        for op in &ops {
            model.apply(op);
            match op {
                Op::Ack(positions) => cursor.ack(positions.iter().copied(), &extents),
                Op::Cumulative(position) => cursor.ack_cumulative(*position, &extents),
                Op::Batch(position, left) => cursor.ack_in_batch(*position, &UnackedSet::from_words(&[*left]), &extents),
                Op::Reset(position) => cursor.reset(*position),
                Op::Restore => {
                    let stored = PositionInfo::decode(&cursor.snapshot().encode()).unwrap();
                    let restored = Cursor::restore(&stored, &extents);
                    prop_assert_eq!(restored.snapshot(), cursor.snapshot());
                    cursor = restored;
                }
            }
            for position in all() {
                prop_assert_eq!(cursor.is_acked(position), model.acked.contains(&position), "{} after {:?}", position, op);
                let left = cursor.unacked_of(position).map(UnackedSet::words);
                prop_assert_eq!(left, model.left.get(&position).map(|left| vec![*left]));
            }
            prop_assert_eq!(cursor.backlog(&extents), 78 - model.acked.len() as u64);
            let unacked = all().into_iter().filter(|position| !model.acked.contains(position));
            for (n, position) in (1..).zip(unacked.map(Some).chain([None])) {
                prop_assert_eq!(cursor.nth_unacked(n, &extents), position);
            }
            let next = extents.next(cursor.mark_delete());
            prop_assert!(next.is_none_or(|next| !cursor.is_acked(next)), "mark-delete stops short of {:?}", next);
        }
    }
}

#[test]
fn a_state_with_many_holes_is_stored_as_bitmaps() {
    let mut extents = Extents::default();
    extents.set(LedgerId(1), 50_000);
    let mut cursor = Cursor::at(extents.start());
    cursor.ack((0..25_000).map(|i| Position::new(1, 2 * i + 1)), &extents);
    let stored = cursor.snapshot();
    assert!(stored.acked.is_empty() && stored.acked_bitmaps.len() == 1);
    let restored = Cursor::restore(&PositionInfo::decode(&stored.encode()).unwrap(), &extents);
    assert_eq!((restored.acked_beyond(), restored.backlog(&extents)), (25_000, 25_000));
}

/// A client names an entry that no ledger can have.
#[test]
fn a_cumulative_ack_beyond_a_ledger() {
    let extents = extents();
    let mut cursor = Cursor::at(extents.start());
    cursor.ack_cumulative(Position::new(1, i64::MAX), &extents);
    assert_eq!((extents.next(cursor.mark_delete()), cursor.backlog(&extents)), (Some(Position::new(4, 0)), 73));
}

#[test]
fn restoring_fits_the_topic() {
    let extents = extents();
    let before = Cursor::restore(&PositionInfo::at(Position::new(0, 7)), &extents);
    assert_eq!(before.mark_delete(), Position::new(1, -1));
    let beyond = Cursor::restore(&PositionInfo::at(Position::new(12, 3)), &extents);
    assert_eq!(beyond.mark_delete(), Position::new(9, 69));
    let between = Cursor::restore(&PositionInfo::at(Position::new(2, 50)), &extents);
    assert_eq!(extents.next(between.mark_delete()), Some(Position::new(4, 0)));
    // Java writes a range that reaches over the end of a ledger.
    let across = PositionInfo {
        acked: vec![AckedRange { lower: Position::new(1, 2), upper: Position::new(4, 0) }],
        ..PositionInfo::at(Position::new(1, 0))
    };
    let across = Cursor::restore(&across, &extents);
    assert!([(1, 3), (1, 4), (4, 0)].iter().all(|(l, e)| across.is_acked(Position::new(*l, *e))));
    assert!(!across.is_acked(Position::new(1, 2)) && !across.is_acked(Position::new(4, 1)));
}
