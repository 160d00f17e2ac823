//! The checker finds what it is there for.

use geminga_model::Position;

use crate::history::{Ack, Counts, History, ProducerId};
use crate::violation::{Id, Violation};

/// An entry that is no batch.
fn at(entry: i64) -> Id {
    Id { position: Position::new(1, entry), batch_index: -1 }
}

fn of_batch(entry: i64, batch_index: i32) -> Id {
    Id { position: Position::new(1, entry), batch_index }
}

/// One topic, one subscription, one producer `p`, whose messages 0, 1, ... have receipts for these places.
fn history(stored: &[Id]) -> (History, ProducerId) {
    let mut history = History::default();
    let topic = history.add_topic("t");
    history.add_subscription(topic, "s");
    let producer = history.add_producer(topic, "p");
    for id in stored {
        let number = history.send(producer);
        history.stored(producer, number, *id);
    }
    (history, producer)
}

/// Reads the topic and drains the subscription: the same messages of `p`.
fn end(history: &mut History, contents: &[(Id, u64)]) {
    for (id, number) in contents {
        history.read(0, *id, Some(("p", *number)));
        history.delivered(0, *id, Some(("p", *number)));
    }
}

/// The words that violations begin with.
fn kinds(mut history: History) -> Vec<String> {
    let violations = history.judge().err().unwrap_or_default();
    violations.iter().map(|violation| violation.to_string().split(':').next().unwrap().to_owned()).collect()
}

#[test]
fn nothing_wrong() {
    let (mut history, producer) = history(&[at(0), of_batch(1, 0), of_batch(1, 1)]);
    // Without a receipt, it may be there or not.
    assert_eq!(history.send(producer), 3);
    assert_eq!(history.send(producer), 4);
    end(&mut history, &[(at(0), 0), (of_batch(1, 0), 1), (of_batch(1, 1), 2), (at(2), 3)]);
    let counts = Counts { stored: 3, acked: 0, delivered: 4, duplicates: 0 };
    assert_eq!(history.judge(), Ok(counts));
}

#[test]
fn a_resend_may_duplicate() {
    let (mut history, producer) = history(&[at(0)]);
    let number = history.send(producer);
    history.stored(producer, number, at(2));
    end(&mut history, &[(at(0), 0), (at(1), 1), (at(2), 1)]);
    assert_eq!(history.judge().unwrap().duplicates, 1);
}

#[test]
fn a_lost_message() {
    let (mut lost, _) = history(&[at(0), at(1)]);
    end(&mut lost, &[(at(0), 0)]);
    assert_eq!(kinds(lost), ["lost", "undelivered"]);
    // Elsewhere is not where it was promised.
    let (mut moved, _) = history(&[at(0), at(1)]);
    end(&mut moved, &[(at(0), 0), (at(2), 1)]);
    assert_eq!(kinds(moved), ["lost", "undelivered"]);
    // A message of a batch.
    let (mut part, _) = history(&[of_batch(0, 0), of_batch(0, 1)]);
    end(&mut part, &[(of_batch(0, 1), 1)]);
    assert_eq!(kinds(part), ["lost", "undelivered"]);
}

#[test]
fn a_lost_message_that_was_delivered_before() {
    let (mut vanished, producer) = history(&[]);
    vanished.send(producer);
    vanished.delivered(0, at(0), Some(("p", 0)));
    vanished.next_cycle();
    assert_eq!(kinds(vanished), ["vanished"]);
    let (mut changed, producer) = history(&[]);
    assert_eq!([changed.send(producer), changed.send(producer)], [0, 1]);
    changed.delivered(0, at(0), Some(("p", 0)));
    end(&mut changed, &[(at(0), 1)]);
    assert_eq!(kinds(changed)[0], "changed");
}

#[test]
fn reordered_messages() {
    let (mut receipts, _) = history(&[at(1), at(0)]);
    end(&mut receipts, &[(at(0), 1), (at(1), 0)]);
    assert!(kinds(receipts).contains(&"reordered".to_owned()));
    // Also where there are no receipts.
    let (mut silent, producer) = history(&[]);
    assert_eq!([silent.send(producer), silent.send(producer)], [0, 1]);
    end(&mut silent, &[(at(0), 1), (at(1), 0)]);
    assert_eq!(kinds(silent), ["reordered"]);
    // Two messages with receipts for one place.
    let (mut same, _) = history(&[at(0), at(0)]);
    end(&mut same, &[(at(0), 0)]);
    assert_eq!(kinds(same), ["lost", "reordered"]);
}

#[test]
fn a_reader_that_goes_back() {
    let (mut history, _) = history(&[at(0), at(1)]);
    end(&mut history, &[(at(0), 0), (at(1), 1), (at(0), 0)]);
    assert_eq!(kinds(history), ["misread"]);
}

#[test]
fn phantoms() {
    for said in [None, Some(("p", 1)), Some(("q", 0)), Some(("elsewhere", 0))] {
        let (mut history, _) = history(&[at(0)]);
        let other = history.add_topic("other");
        let elsewhere = history.add_producer(other, "elsewhere");
        history.send(elsewhere);
        end(&mut history, &[(at(0), 0)]);
        history.read(0, at(1), said);
        assert_eq!(kinds(history), ["phantom"], "{said:?}");
    }
}

#[test]
fn redelivered_messages() {
    let stored = [at(0), of_batch(1, 0), of_batch(1, 1), at(2)];
    for (ack, redelivered) in [
        (Ack::One(at(0)), vec![at(0)]),
        (Ack::One(of_batch(1, 1)), vec![of_batch(1, 1)]),
        (Ack::UpTo(of_batch(1, 0)), vec![at(0), of_batch(1, 0)]),
    ] {
        let (mut history, _) = history(&stored);
        history.ack_tried(0, ack);
        history.ack_stored(0, ack);
        // What was under way in the same cycle may come.
        history.delivered(0, at(0), Some(("p", 0)));
        history.delivered(0, of_batch(1, 1), Some(("p", 2)));
        assert!(history.violations().is_empty());
        history.next_cycle();
        end(&mut history, &[(at(0), 0), (of_batch(1, 0), 1), (of_batch(1, 1), 2), (at(2), 3)]);
        let found: Vec<Id> = history
            .judge()
            .unwrap_err()
            .iter()
            .map(|violation| match violation {
                Violation::Redelivered { id, .. } => *id,
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(found, redelivered);
    }
}

#[test]
fn acks_without_receipts_may_hold_or_not() {
    for redelivered in [true, false] {
        let (mut history, _) = history(&[at(0)]);
        history.ack_tried(0, Ack::One(at(0)));
        history.next_cycle();
        history.read(0, at(0), Some(("p", 0)));
        if redelivered {
            history.delivered(0, at(0), Some(("p", 0)));
        }
        assert!(history.judge().is_ok());
    }
}

#[test]
fn an_undelivered_message() {
    let (mut history, _) = history(&[at(0), at(1)]);
    // Delivered before, and not acknowledged, it comes again.
    history.delivered(0, at(1), Some(("p", 1)));
    history.next_cycle();
    history.read(0, at(0), Some(("p", 0)));
    history.read(0, at(1), Some(("p", 1)));
    history.delivered(0, at(0), Some(("p", 0)));
    assert_eq!(history.missing(0), [(at(1), "p 1".to_owned())]);
    assert_eq!(kinds(history), ["undelivered"]);
}
