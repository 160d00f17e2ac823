//! What the clients did and were told, and what is wrong with that. Pure.
//!
//! What is promised: a message whose receipt came is in the topic at the position of its receipt; those of one producer
//! are there in the order of its numbers. A producer that loses its connection sends again what had no receipt, so a
//! message may be there more than once: of such only the one of the receipt has a promised place, and the first ones
//! still follow the numbers. An ack whose receipt came holds for all later cycles; an ack without a receipt may hold or
//! not. What nobody tried to acknowledge is delivered in the end.

use std::collections::{BTreeMap, BTreeSet};

use crate::violation::{Id, Violation};

/// Violations beyond these say nothing new.
const MAX_VIOLATIONS: usize = 50;

/// A producer, by the order in which they were made known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProducerId(usize);

/// A message, by its sender and the sender's number of it.
type Message = (ProducerId, u64);

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    One(Id),
    UpTo(Id),
}

#[derive(Debug)]
struct Producer {
    name: String,
    topic: usize,
    /// Numbers below were handed over to be sent.
    sent: u64,
    stored: BTreeMap<u64, Id>,
}

#[derive(Debug, Default)]
struct Topic {
    name: String,
    /// What any consumer or reader was given, wherever it was given it.
    seen: BTreeMap<Id, Message>,
    /// What the reader at the end was given, in its order.
    read: Vec<(Id, Message)>,
}

/// Which messages acknowledgements cover.
#[derive(Debug, Default)]
struct Acks {
    single: BTreeSet<Id>,
    up_to: Option<Id>,
}

impl Acks {
    fn add(&mut self, ack: Ack) {
        match ack {
            Ack::One(id) => drop(self.single.insert(id)),
            Ack::UpTo(id) => self.up_to = self.up_to.max(Some(id)),
        }
    }

    fn covers(&self, id: Id) -> bool {
        self.up_to.is_some_and(|up_to| id <= up_to) || self.single.contains(&id)
    }

    fn take_from(&mut self, other: &mut Acks) {
        self.single.append(&mut other.single);
        self.up_to = self.up_to.max(other.up_to.take());
    }
}

#[derive(Debug)]
struct Subscription {
    name: String,
    topic: usize,
    tried: Acks,
    /// With receipts of this cycle: deliveries under way may still come.
    fresh: Acks,
    /// With receipts of earlier cycles.
    kept: Acks,
    /// What it gave since the last cycle began.
    given: BTreeSet<Id>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) stored: u64,
    pub(crate) acked: u64,
    pub(crate) delivered: u64,
    pub(crate) duplicates: u64,
}

/// Everything that matters of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    topics: Vec<Topic>,
    subscriptions: Vec<Subscription>,
    producers: Vec<Producer>,
    by_name: BTreeMap<String, ProducerId>,
    counts: Counts,
    violations: Vec<Violation>,
}

impl History {
    /// A topic; its index counts from 0.
    pub(crate) fn add_topic(&mut self, name: &str) -> usize {
        self.topics.push(Topic { name: name.to_owned(), ..Topic::default() });
        self.topics.len() - 1
    }

    /// A subscription of a topic; its index counts from 0 over all topics.
    pub(crate) fn add_subscription(&mut self, topic: usize, name: &str) -> usize {
        let name = format!("{}/{name}", self.topics[topic].name);
        let (tried, fresh, kept) = Default::default();
        self.subscriptions.push(Subscription { name, topic, tried, fresh, kept, given: BTreeSet::new() });
        self.subscriptions.len() - 1
    }

    /// A producer with a name that no other has.
    pub(crate) fn add_producer(&mut self, topic: usize, name: &str) -> ProducerId {
        let id = ProducerId(self.producers.len());
        self.producers.push(Producer { name: name.to_owned(), topic, sent: 0, stored: BTreeMap::new() });
        let former = self.by_name.insert(name.to_owned(), id);
        assert!(former.is_none(), "two producers are called {name}");
        id
    }

    /// The next message is about to be sent; its number.
    pub(crate) fn send(&mut self, producer: ProducerId) -> u64 {
        let producer = &mut self.producers[producer.0];
        producer.sent += 1;
        producer.sent - 1
    }

    /// A message has its receipt.
    pub(crate) fn stored(&mut self, producer: ProducerId, number: u64, id: Id) {
        self.counts.stored += 1;
        self.producers[producer.0].stored.insert(number, id);
    }

    /// A consumer was given a message: producer and number, or nothing if the payload is none that anybody sends.
    pub(crate) fn delivered(&mut self, subscription: usize, id: Id, said: Option<(&str, u64)>) {
        let (name, topic) = (self.subscriptions[subscription].name.clone(), self.subscriptions[subscription].topic);
        let Some(message) = self.see(topic, &name, id, said) else { return };
        self.counts.delivered += 1;
        let subscription = &mut self.subscriptions[subscription];
        subscription.given.insert(id);
        if subscription.kept.covers(id) {
            let message = self.show(message);
            self.report(Violation::Redelivered { subscription: name, message, id });
        }
    }

    /// The reader at the end was given a message.
    pub(crate) fn read(&mut self, topic: usize, id: Id, said: Option<(&str, u64)>) {
        let name = self.topics[topic].name.clone();
        let Some(message) = self.see(topic, &name, id, said) else { return };
        self.topics[topic].read.push((id, message));
    }

    fn see(&mut self, topic: usize, place: &str, id: Id, said: Option<(&str, u64)>) -> Option<Message> {
        let place = place.to_owned();
        let Some((name, number)) = said else {
            self.report(Violation::Phantom { place, id, what: "bytes that are no producer's".to_owned() });
            return None;
        };
        let sender = self.by_name.get(name).copied();
        let known = sender.filter(|id| {
            let producer = &self.producers[id.0];
            producer.topic == topic && number < producer.sent
        });
        let Some(producer) = known else {
            self.report(Violation::Phantom { place, id, what: format!("'{name} {number}'") });
            return None;
        };
        let before = *self.topics[topic].seen.entry(id).or_insert((producer, number));
        if before != (producer, number) {
            let (before, now) = (self.show(before), self.show((producer, number)));
            self.report(Violation::Changed { place, id, before, now });
        }
        Some((producer, number))
    }

    /// A client is about to acknowledge: from now on the message may be gone for the subscription.
    pub(crate) fn ack_tried(&mut self, subscription: usize, ack: Ack) {
        self.subscriptions[subscription].tried.add(ack);
    }

    /// An ack has its receipt.
    pub(crate) fn ack_stored(&mut self, subscription: usize, ack: Ack) {
        self.counts.acked += 1;
        self.subscriptions[subscription].fresh.add(ack);
    }

    /// Something failed that must not.
    pub(crate) fn failed(&mut self, who: String, error: geminga_client::ClientError) {
        self.report(Violation::Failed { who, error });
    }

    /// The server was killed, and nothing that it gave before is under way any more.
    pub(crate) fn next_cycle(&mut self) {
        for Subscription { fresh, kept, given, .. } in &mut self.subscriptions {
            kept.take_from(fresh);
            given.clear();
        }
    }

    /// What a subscription must still give in this cycle, the last: messages with receipts that nobody acknowledged.
    pub(crate) fn missing(&self, subscription: usize) -> Vec<(Id, String)> {
        let Subscription { topic, tried, given, .. } = &self.subscriptions[subscription];
        let producers = self.producers.iter().enumerate().filter(|(_, producer)| producer.topic == *topic);
        let stored = producers.flat_map(|(index, producer)| {
            producer.stored.iter().map(move |(number, id)| (*id, (ProducerId(index), *number)))
        });
        stored
            .filter(|(id, _)| !tried.covers(*id) && !given.contains(id))
            .map(|(id, message)| (id, self.show(message)))
            .collect()
    }

    /// What is wrong so far.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn producer_count(&self) -> usize {
        self.producers.len()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The judgement: every topic was read, every subscription drained.
    pub(crate) fn judge(&mut self) -> Result<Counts, Vec<Violation>> {
        for topic in 0..self.topics.len() {
            self.judge_topic(topic);
            self.judge_order(topic);
        }
        for index in 0..self.subscriptions.len() {
            let subscription = self.subscriptions[index].name.clone();
            for (id, message) in self.missing(index) {
                self.report(Violation::Undelivered { subscription: subscription.clone(), message, id });
            }
        }
        if self.violations.is_empty() { Ok(self.counts) } else { Err(self.violations.clone()) }
    }

    /// What is at the positions of receipts, and whether all that was ever delivered is there.
    fn judge_topic(&mut self, index: usize) {
        let Topic { name, seen, read } = std::mem::take(&mut self.topics[index]);
        for pair in read.windows(2) {
            if let [(first, _), (second, _)] = *pair
                && first >= second
            {
                self.report(Violation::Misread { topic: name.clone(), first, second });
            }
        }
        let contents: BTreeMap<Id, Message> = read.iter().copied().collect();
        let distinct: BTreeSet<Message> = contents.values().copied().collect();
        self.counts.duplicates += (contents.len() - distinct.len()) as u64;
        for (id, message) in &seen {
            if !contents.contains_key(id) {
                let message = self.show(*message);
                self.report(Violation::Vanished { topic: name.clone(), message, id: *id });
            }
        }
        let mut lost = Vec::new();
        for (at, producer) in self.producers.iter().enumerate().filter(|(_, producer)| producer.topic == index) {
            for (number, id) in &producer.stored {
                let found = contents.get(id);
                if found != Some(&(ProducerId(at), *number)) {
                    let found = found.map_or("nothing".to_owned(), |found| format!("'{}'", self.show(*found)));
                    let message = self.show((ProducerId(at), *number));
                    lost.push(Violation::Lost { topic: name.clone(), message, id: *id, found });
                }
            }
        }
        lost.into_iter().for_each(|violation| self.report(violation));
        self.topics[index] = Topic { name, seen, read };
    }

    /// Whether each producer's messages are in the order of their numbers: those with receipts at their receipts'
    /// positions, and the first ones of all.
    fn judge_order(&mut self, index: usize) {
        let topic = &self.topics[index];
        let mut first: BTreeMap<Message, Id> = BTreeMap::new();
        for (id, message) in &topic.read {
            first.entry(*message).or_insert(*id);
        }
        let numbers = |at: usize| (ProducerId(at), 0)..=(ProducerId(at), u64::MAX);
        let mut reordered = Vec::new();
        for (at, producer) in self.producers.iter().enumerate().filter(|(_, producer)| producer.topic == index) {
            let stored: Vec<(u64, Id)> = producer.stored.iter().map(|(number, id)| (*number, *id)).collect();
            let found: Vec<(u64, Id)> = first.range(numbers(at)).map(|((_, number), id)| (*number, *id)).collect();
            for pair in stored.windows(2).chain(found.windows(2)) {
                if let [(one, before), (two, id)] = *pair
                    && id <= before
                {
                    let (first, second) = (self.show((ProducerId(at), one)), self.show((ProducerId(at), two)));
                    reordered.push(Violation::Reordered { topic: topic.name.clone(), first, second, id });
                }
            }
        }
        reordered.into_iter().for_each(|violation| self.report(violation));
    }

    fn show(&self, (producer, number): Message) -> String {
        format!("{} {number}", self.producers[producer.0].name)
    }

    fn report(&mut self, violation: Violation) {
        if self.violations.len() < MAX_VIOLATIONS && !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}
