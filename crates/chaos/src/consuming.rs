//! A consumer at work.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use geminga_client::{ClientError, Consumer, Received};

use crate::history::Ack;
use crate::payload;
use crate::plan::{Setting, Subscription};
use crate::violation::Id;

/// Messages that are looked at together.
const MAX_BURST: usize = 64;

/// How a consumer acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Single messages, also of batches.
    One,
    /// All up to a message.
    UpTo,
    /// Whole entries, by acknowledging each of their messages.
    Entries,
}

/// Consumes until it is stopped.
pub(crate) async fn consume(setting: Setting, subscription: Subscription, mut rng: fastrand::Rng) {
    let who = format!("a consumer of {}/{}", subscription.topic, subscription.name);
    let opened = tokio::select! {
        biased;
        () = setting.stop.stopped() => return,
        opened = setting.client.subscribe(subscription.topic, subscription.options()) => opened,
    };
    let style = match subscription.by_entry() {
        true => Style::Entries,
        false if subscription.is_ordered() && rng.bool() => Style::UpTo,
        false => Style::One,
    };
    let consumed = match opened {
        Ok(consumer) => Work { setting: setting.clone(), subscription, style, rng }.run(consumer).await,
        Err(error) => Err(error),
    };
    if let Err(error) = consumed {
        setting.failed(&who, error);
    }
}

struct Work {
    setting: Setting,
    subscription: Subscription,
    style: Style,
    rng: fastrand::Rng,
}

/// An acknowledgement under way.
type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send + 'a>>;

impl Work {
    async fn run(mut self, mut consumer: Consumer) -> Result<(), ClientError> {
        let stop = self.setting.stop.clone();
        let mut burst = Vec::new();
        let mut noted = 0;
        loop {
            let first = tokio::select! {
                biased;
                () = stop.stopped() => return Ok(()),
                received = consumer.receive() => received?,
            };
            burst.push(first);
            while burst.len() < MAX_BURST || (self.style == Style::Entries && !ends_entry(&burst)) {
                let Some(received) = consumer.try_receive() else { break };
                burst.push(received?);
            }
            self.note(burst.get(noted..).unwrap_or_default());
            noted = burst.len();
            if self.style == Style::Entries && !ends_entry(&burst) {
                // The rest of the entry is about to come.
                continue;
            }
            self.acknowledge(&consumer, &burst).await?;
            burst.clear();
            noted = 0;
        }
    }

    fn note(&self, burst: &[Received]) {
        let mut history = self.setting.history.lock();
        for received in burst {
            let said = payload::decode(self.setting.seed, &received.payload);
            history.delivered(self.subscription.index, Id::from(&received.id), said);
        }
    }

    async fn acknowledge(&mut self, consumer: &Consumer, burst: &[Received]) -> Result<(), ClientError> {
        match self.style {
            Style::One => self.one_by_one(consumer, burst).await,
            Style::UpTo => self.up_to(consumer, burst).await,
            Style::Entries => self.entries(consumer, burst).await,
        }
    }

    async fn one_by_one(&mut self, consumer: &Consumer, burst: &[Received]) -> Result<(), ClientError> {
        let mut asked: Vec<(Vec<Ack>, Asked<'_>)> = Vec::new();
        for Received { id, .. } in burst {
            let ack = Ack::One(id.into());
            match self.rng.u32(..100) {
                0..50 => {
                    self.tried(ack);
                    asked.push((vec![ack], Box::pin(consumer.ack_with_receipt(id, false))));
                }
                50..80 => {
                    self.tried(ack);
                    consumer.ack(id)?;
                }
                // In an ordered subscription all would come again.
                80..82 if !self.subscription.is_ordered() => consumer.negative_ack(id)?,
                _ => {}
            }
        }
        self.settle(asked).await
    }

    async fn up_to(&mut self, consumer: &Consumer, burst: &[Received]) -> Result<(), ClientError> {
        let Some(Received { id, .. }) = self.rng.choice(burst) else { return Ok(()) };
        let ack = Ack::UpTo(id.into());
        match self.rng.u32(..10) {
            0..6 => {
                self.tried(ack);
                self.settle(vec![(vec![ack], Box::pin(consumer.ack_with_receipt(id, true)))]).await
            }
            6..8 => {
                self.tried(ack);
                consumer.ack_cumulative(id)
            }
            _ => Ok(()),
        }
    }

    async fn entries(&mut self, consumer: &Consumer, burst: &[Received]) -> Result<(), ClientError> {
        let mut asked: Vec<(Vec<Ack>, Asked<'_>)> = Vec::new();
        for entry in burst.chunk_by(|one, other| one.id.position == other.id.position) {
            let Some((last, others)) = entry.split_last() else { continue };
            let choice = self.rng.u32(..10);
            if choice >= 8 {
                continue;
            }
            let acks: Vec<Ack> = entry.iter().map(|received| Ack::One(Id::from(&received.id))).collect();
            acks.iter().for_each(|ack| self.tried(*ack));
            for other in others {
                consumer.ack(&other.id)?;
            }
            if choice < 5 {
                asked.push((acks, Box::pin(consumer.ack_with_receipt(&last.id, false))));
            } else {
                consumer.ack(&last.id)?;
            }
        }
        self.settle(asked).await
    }

    fn tried(&self, ack: Ack) {
        self.setting.history.lock().ack_tried(self.subscription.index, ack);
    }

    /// Waits for all, and notes those that have their receipt.
    async fn settle(&self, asked: Vec<(Vec<Ack>, Asked<'_>)>) -> Result<(), ClientError> {
        let (acks, asked): (Vec<Vec<Ack>>, Vec<Asked<'_>>) = asked.into_iter().unzip();
        let mut outcome = Ok(());
        for (acks, answer) in acks.into_iter().zip(join_all(asked).await) {
            // Without its connection, a client forgets which messages of a batch it acknowledged, and says yes to a
            // part of one without asking: that is no receipt.
            let doubtful = self.style == Style::Entries && self.setting.killed.is_stopped();
            match answer {
                Ok(()) if doubtful => {}
                Ok(()) => {
                    let mut history = self.setting.history.lock();
                    acks.into_iter().for_each(|ack| history.ack_stored(self.subscription.index, ack));
                }
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }
}

/// Whether the last message is the last of its entry.
fn ends_entry(burst: &[Received]) -> bool {
    burst.last().is_none_or(|received| received.id.batch_index + 1 >= received.id.batch_size)
}

/// The results of all, in their order.
pub(crate) async fn join_all<'a, T>(mut running: Vec<Pin<Box<dyn Future<Output = T> + Send + 'a>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, done) in running.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
