//! Dispatchers against a topic of ten entries, and against arbitrary calls.

use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

const START: Position = Position::new(1, -1);

fn consumer(id: u64) -> NewConsumer {
    NewConsumer { id: ConsumerId(id), name: format!("c{id}"), priority: 0, max_unacked: 0, ranges: vec![] }
}

fn at(entry: i64) -> Position {
    Position::new(1, entry)
}

/// Entries with the same remainder have the same key.
const KEYS: i64 = 3;

fn slot(position: Position) -> u32 {
    u32::try_from(position.entry.0 % KEYS).unwrap() * 20_000
}

/// Delivers what can be delivered of entries 0 to 9 that `acked` does not name.
fn deliver(dispatcher: &mut Dispatcher, acked: &[i64]) -> Vec<(i64, u64)> {
    let mut delivered = vec![];
    loop {
        let entries: Vec<Position> = match dispatcher.next_read() {
            NextRead::None => return delivered,
            NextRead::Replay(positions) => positions,
            NextRead::After { position, .. } => (position.entry.0 + 1..10).map(at).collect(),
        };
        if entries.is_empty() {
            return delivered;
        }
        for position in entries {
            if acked.contains(&position.entry.0) {
                dispatcher.skip(position);
                continue;
            }
            match dispatcher.assign(position, 1, slot(position)) {
                Assigned::To(to) => delivered.push((position.entry.0, to.0)),
                Assigned::Waits => {}
                Assigned::Nobody => break,
            }
        }
    }
}

#[test]
fn exclusive_takes_one_consumer_and_keeps_order() {
    let mut d = Dispatcher::new(Kind::Exclusive, START);
    d.add_consumer(Kind::Exclusive, consumer(1), START).unwrap();
    assert_eq!(d.add_consumer(Kind::Exclusive, consumer(2), START), Err(Busy::Exclusive));
    assert_eq!(d.add_consumer(Kind::Shared, consumer(2), START), Err(Busy::OtherKind(Kind::Exclusive)));
    assert_eq!(d.why(ConsumerId(1)), Some(Why::NoPermits(ConsumerId(1))));
    d.flow(ConsumerId(1), 4);
    assert_eq!(deliver(&mut d, &[1]), [(0, 1), (2, 1), (3, 1), (4, 1)]);
    d.redeliver(ConsumerId(1), &[], at(0));
    d.flow(ConsumerId(1), 100);
    let again: Vec<i64> = deliver(&mut d, &[0, 1]).into_iter().map(|(entry, _)| entry).collect();
    assert_eq!(again, (2..10).collect::<Vec<_>>());
    d.remove_consumer(ConsumerId(1), at(5));
    d.add_consumer(Kind::Shared, consumer(3), at(5)).unwrap();
    d.flow(ConsumerId(3), 100);
    assert_eq!(deliver(&mut d, &[]).first(), Some(&(6, 3)));
}

#[test]
fn failover_hands_over_from_the_mark_delete_position() {
    let mut d = Dispatcher::new(Kind::Failover, START);
    d.add_consumer(Kind::Failover, consumer(2), START).unwrap();
    assert_eq!(d.active(), Some(ConsumerId(2)));
    d.flow(ConsumerId(2), 3);
    assert_eq!(deliver(&mut d, &[]).len(), 3);
    d.add_consumer(Kind::Failover, consumer(1), at(0)).unwrap();
    assert_eq!(d.active(), Some(ConsumerId(1)), "the first by name");
    assert_eq!(d.why(ConsumerId(2)), Some(Why::NotActive(ConsumerId(1))));
    d.flow(ConsumerId(1), 1);
    assert_eq!(deliver(&mut d, &[0]), [(1, 1)]);
    d.remove_consumer(ConsumerId(1), at(0));
    d.flow(ConsumerId(2), 1);
    assert_eq!(deliver(&mut d, &[0]), [(1, 2)]);
}

#[test]
fn shared_deals_in_turn_and_replays_first() {
    let mut d = Dispatcher::new(Kind::Shared, START);
    for id in [1, 2] {
        d.add_consumer(Kind::Shared, consumer(id), START).unwrap();
        d.flow(ConsumerId(id), 2);
    }
    assert_eq!(deliver(&mut d, &[]), [(0, 1), (1, 2), (2, 1), (3, 2)]);
    d.acked(at(0));
    assert_eq!(d.redeliver(ConsumerId(2), &[at(3), at(0)], START), [at(3)], "what is acked is not held");
    d.remove_consumer(ConsumerId(1), START);
    d.flow(ConsumerId(2), 3);
    assert_eq!(deliver(&mut d, &[0]), [(2, 2), (3, 2), (4, 2)]);
}

#[test]
fn priorities_and_limits() {
    let mut d = Dispatcher::new(Kind::Shared, START);
    d.add_consumer(Kind::Shared, NewConsumer { priority: 1, ..consumer(1) }, START).unwrap();
    d.add_consumer(Kind::Shared, NewConsumer { max_unacked: 2, ..consumer(2) }, START).unwrap();
    d.flow(ConsumerId(1), 1);
    d.flow(ConsumerId(2), 100);
    assert_eq!(deliver(&mut d, &[]), [(0, 2), (1, 2), (2, 1)]);
    assert_eq!(d.why(ConsumerId(2)), Some(Why::Unacked(ConsumerId(2), 2)));
    d.acked(at(0));
    d.set_room(ConsumerId(2), false);
    assert_eq!(d.why(ConsumerId(2)), Some(Why::OutboxFull(ConsumerId(2))));
    assert_eq!(deliver(&mut d, &[]), []);
    d.set_room(ConsumerId(2), true);
    assert_eq!(deliver(&mut d, &[]), [(3, 2)]);
}

/// A reader never acks. Fact: Pulsar counts and limits unacked messages of subscriptions only whose consumers ack one by
/// one, Shared and Key_Shared.
#[test]
fn an_active_consumer_is_not_limited_by_what_it_did_not_ack() {
    for kind in [Kind::Exclusive, Kind::Failover] {
        let mut d = Dispatcher::new(kind, START);
        d.add_consumer(kind, NewConsumer { max_unacked: 2, ..consumer(1) }, START).unwrap();
        d.flow(ConsumerId(1), 100);
        assert_eq!(deliver(&mut d, &[]).len(), 10);
        assert_eq!((d.consumers()[0].unacked(), d.consumers()[0].permits()), (0, 90));
    }
}

#[test]
fn a_batch_larger_than_the_permits_is_delivered() {
    let mut d = Dispatcher::new(Kind::Shared, START);
    d.add_consumer(Kind::Shared, consumer(1), START).unwrap();
    d.flow(ConsumerId(1), 1);
    assert_eq!(d.assign(at(0), 50, 0), Assigned::To(ConsumerId(1)));
    assert_eq!((d.consumers()[0].permits(), d.consumers()[0].unacked()), (-49, 50));
    assert_eq!(d.assign(at(1), 1, 0), Assigned::Nobody);
}

const BY_KEY: Kind = Kind::KeyShared { sticky: false, out_of_order: false };

#[test]
fn a_key_goes_to_one_consumer_and_waits_for_its_former_one() {
    let mut d = Dispatcher::new(BY_KEY, START);
    d.add_consumer(BY_KEY, consumer(1), START).unwrap();
    d.flow(ConsumerId(1), 3);
    assert_eq!(deliver(&mut d, &[]), [(0, 1), (1, 1), (2, 1)]);
    // However the slots are divided now, what the first one holds keeps its keys there.
    for id in 2..8 {
        d.add_consumer(BY_KEY, consumer(id), START).unwrap();
        d.flow(ConsumerId(id), 100);
    }
    d.flow(ConsumerId(1), 100);
    let early = deliver(&mut d, &[]);
    assert!(early.iter().all(|(_, to)| *to == 1), "{early:?}");
    let moved: Vec<i64> = (0..KEYS).filter(|key| !early.iter().any(|(entry, _)| entry % KEYS == *key)).collect();
    assert!(!moved.is_empty());
    let waiting = d.consumers().iter().find_map(|state| match d.why(state.id()) {
        Some(Why::KeyHeldBy { holder, .. }) => Some(holder),
        _ => None,
    });
    assert_eq!(waiting, Some(ConsumerId(1)));
    for key in moved {
        d.acked(at(key));
        let later = deliver(&mut d, &[key]);
        assert_eq!(
            later.iter().map(|(entry, _)| *entry).collect::<Vec<_>>(),
            [key + 3, key + 6].iter().copied().chain((key == 0).then_some(9)).collect::<Vec<_>>()
        );
        assert!(later.iter().all(|(_, to)| *to == later[0].1 && *to != 1));
    }
}

#[test]
fn sticky_consumers_get_their_ranges_alone() {
    let kind = Kind::KeyShared { sticky: true, out_of_order: false };
    let range = |start, end| HashRange::new(start, end).unwrap();
    let mut d = Dispatcher::new(kind, START);
    d.add_consumer(kind, NewConsumer { ranges: vec![range(0, 19_999)], ..consumer(1) }, START).unwrap();
    let busy = d.add_consumer(kind, NewConsumer { ranges: vec![range(19_999, 30_000)], ..consumer(2) }, START);
    assert_eq!(busy, Err(Busy::Ranges { wanted: range(19_999, 30_000), taken: range(0, 19_999) }));
    d.add_consumer(kind, NewConsumer { ranges: vec![range(20_000, 39_999)], ..consumer(2) }, START).unwrap();
    assert!(matches!(d.add_consumer(BY_KEY, consumer(3), START), Err(Busy::OtherKind(_))));
    d.flow(ConsumerId(1), 100);
    d.flow(ConsumerId(2), 100);
    // Nobody serves the slot of entries 2, 5 and 8.
    assert_eq!(deliver(&mut d, &[]), [(0, 1), (1, 2), (3, 1), (4, 2), (6, 1), (7, 2), (9, 1)]);
    assert_eq!(d.replaying(), 3);
}

proptest! {
    /// Per key, entries reach consumers in order, and never two consumers at a time, whatever joins, leaves, is acked or
    /// asked for again; and nothing is lost.
    #[test]
    fn keys_keep_their_order(calls in proptest::collection::vec((0u8..6, 1u64..5, 0i64..10), 0..80)) {
        let mut d = Dispatcher::new(BY_KEY, START);
        let mut joined: Vec<u64> = vec![];
        let mut acked: Vec<i64> = vec![];
        let mut holders: BTreeMap<i64, u64> = BTreeMap::new();
        let mut next_id = 10;
        let check = |d: &mut Dispatcher, acked: &[i64], holders: &mut BTreeMap<i64, u64>| -> Result<(), TestCaseError> {
            for (entry, to) in deliver(d, acked) {
                let of_key = |e: &i64| e % KEYS == entry % KEYS;
                let earlier = (0..entry).filter(of_key).find(|e| !acked.contains(e) && !holders.contains_key(e));
                prop_assert_eq!(earlier, None, "entry {} before an earlier one of its key", entry);
                let other = holders.iter().find(|(e, holder)| of_key(e) && **holder != to);
                prop_assert_eq!(other, None, "entry {} while another consumer holds its key", entry);
                prop_assert_eq!(holders.insert(entry, to), None, "entry {} delivered twice", entry);
            }
            Ok(())
        };
        for (call, pick, entry) in calls {
            let id = ConsumerId(joined.get(pick as usize % joined.len().max(1)).copied().unwrap_or(0));
            match call {
                0 => {
                    next_id += 1;
                    joined.push(next_id);
                    d.add_consumer(BY_KEY, consumer(next_id), START).unwrap();
                }
                1 => {
                    d.remove_consumer(id, START);
                    joined.retain(|joined| *joined != id.0);
                    holders.retain(|_, holder| *holder != id.0);
                    if joined.is_empty() {
                        holders.clear();
                    }
                }
                2 => d.flow(id, u32::try_from(pick).unwrap()),
                3 if holders.contains_key(&entry) => {
                    acked.push(entry);
                    d.acked(at(entry));
                    holders.remove(&entry);
                }
                4 => {
                    // As the clients do it: all of a consumer, in order.
                    d.redeliver(id, &[], START);
                    holders.retain(|_, holder| *holder != id.0);
                }
                _ => check(&mut d, &acked, &mut holders)?,
            }
        }
        while let Some(id) = joined.pop() {
            d.remove_consumer(ConsumerId(id), START);
        }
        holders.clear();
        d.add_consumer(BY_KEY, consumer(99), START).unwrap();
        d.flow(ConsumerId(99), 1000);
        check(&mut d, &acked, &mut holders)?;
        prop_assert_eq!(holders.len() + acked.len(), 10);
    }

    /// Whatever happens, an entry is never lost: once everyone has permits, all that is not acked is delivered, and
    /// nothing twice.
    #[test]
    fn nothing_is_lost_or_doubled(calls in proptest::collection::vec((0u8..6, 1u64..4, 0i64..10), 0..60)) {
        let mut d = Dispatcher::new(Kind::Shared, START);
        let mut joined: Vec<u64> = vec![];
        let mut acked: Vec<i64> = vec![];
        let mut holders: BTreeMap<i64, u64> = BTreeMap::new();
        let mut next_id = 10;
        for (call, pick, entry) in calls {
            let id = ConsumerId(joined.get(pick as usize % joined.len().max(1)).copied().unwrap_or(0));
            match call {
                0 => {
                    next_id += 1;
                    joined.push(next_id);
                    d.add_consumer(Kind::Shared, consumer(next_id), START).unwrap();
                }
                1 => {
                    d.remove_consumer(id, START);
                    joined.retain(|joined| *joined != id.0);
                    holders.retain(|_, holder| *holder != id.0);
                    if joined.is_empty() {
                        holders.clear();
                    }
                }
                2 => d.flow(id, u32::try_from(pick).unwrap()),
                3 => {
                    acked.push(entry);
                    d.acked(at(entry));
                    holders.remove(&entry);
                }
                4 => {
                    d.redeliver(id, &[at(entry)], START);
                    if holders.get(&entry) == Some(&id.0) {
                        holders.remove(&entry);
                    }
                }
                _ => {
                    for (entry, to) in deliver(&mut d, &acked) {
                        prop_assert_eq!(holders.insert(entry, to), None, "entry {} delivered twice", entry);
                    }
                }
            }
        }
        d.add_consumer(Kind::Shared, consumer(99), START).unwrap();
        d.flow(ConsumerId(99), 1000);
        for (entry, to) in deliver(&mut d, &acked) {
            prop_assert_eq!(holders.insert(entry, to), None, "entry {} delivered twice", entry);
        }
        let missing: Vec<i64> = (0..10).filter(|e| !acked.contains(e) && !holders.contains_key(e)).collect();
        prop_assert!(missing.is_empty(), "lost {:?}", missing);
        let unacked: u64 = d.consumers().iter().map(ConsumerState::unacked).sum();
        prop_assert_eq!(unacked, holders.len() as u64);
    }
}
