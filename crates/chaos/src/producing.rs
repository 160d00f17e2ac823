//! A producer at work.

use std::collections::VecDeque;
use std::time::Duration;

use geminga_client::{Batching, ClientError, Message, Producer, ProducerOptions, Receipt};

use crate::history::ProducerId;
use crate::payload;
use crate::plan::Setting;
use crate::violation::Id;

/// The longest break between two bursts of messages.
const MAX_BREAK: Duration = Duration::from_millis(100);
/// Messages that a burst has at most.
const MAX_BURST: u64 = 30;
/// Messages under way above which a producer waits. Also bounds what is sent again after a loss.
const MAX_UNDER_WAY: usize = 300;
/// How many keys there are.
const KEYS: u32 = 40;
/// How long the last messages of a producer that outlives kills may take at the end.
const LAST_WITHIN: Duration = Duration::from_secs(30);

/// What a producer is.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) id: ProducerId,
    /// Also the beginning of its payloads.
    pub(crate) name: String,
    pub(crate) topic: &'static str,
    pub(crate) batched: bool,
    /// Whether the broker is told the name, or makes one up.
    pub(crate) named: bool,
}

impl Kind {
    fn options(&self) -> ProducerOptions {
        ProducerOptions {
            name: self.named.then(|| self.name.clone()),
            batching: self.batched.then(|| Batching { max_messages: 10, ..Batching::default() }),
            send_timeout: None,
            max_pending: MAX_UNDER_WAY,
            ..ProducerOptions::default()
        }
    }
}

/// Sends until it is stopped, then waits for the receipts that are out.
pub(crate) async fn produce(setting: Setting, kind: Kind, rng: fastrand::Rng) {
    let opened = tokio::select! {
        biased;
        () = setting.stop.stopped() => return,
        opened = setting.client.producer(kind.topic, kind.options()) => opened,
    };
    match opened {
        Ok(producer) => Work { setting, kind, rng, under_way: VecDeque::new() }.run(producer).await,
        Err(error) => setting.failed(&format!("opening producer {}", kind.name), error),
    }
}

struct Work {
    setting: Setting,
    kind: Kind,
    rng: fastrand::Rng,
    under_way: VecDeque<(u64, Receipt)>,
}

impl Work {
    async fn run(mut self, producer: Producer) {
        let (clock, stop) = (self.setting.env.clock, self.setting.stop.clone());
        while !stop.is_stopped() {
            if let Err(error) = self.burst(&producer).await {
                self.failed(error);
                break;
            }
            let pause = MAX_BREAK.mul_f64(self.rng.f64());
            tokio::select! {
                biased;
                () = stop.stopped() => {}
                () = clock.sleep_until(clock.now() + pause) => {}
            }
        }
        let deadline = clock.now() + LAST_WITHIN;
        while let Some((number, mut receipt)) = self.under_way.pop_front() {
            tokio::select! {
                biased;
                stored = receipt.wait() => self.settle(number, stored),
                () = clock.sleep_until(deadline) => {
                    let (operation, last) = (format!("storing message {number}"), "no receipt came".to_owned());
                    return self.failed(ClientError::Timeout { operation, after: LAST_WITHIN, last });
                }
            }
        }
    }

    async fn burst(&mut self, producer: &Producer) -> Result<(), ClientError> {
        let stop = self.setting.stop.clone();
        for _ in 0..self.rng.u64(1..=MAX_BURST) {
            let number = self.setting.history.lock().send(self.kind.id);
            let key = self.rng.u32(..KEYS).to_string();
            let body = payload::encode(self.setting.seed, &self.kind.name, number);
            let message = Message { key: Some(key), ..Message::new(body) };
            let receipt = tokio::select! {
                biased;
                () = stop.stopped() => return Ok(()),
                receipt = producer.send(message) => receipt?,
            };
            self.under_way.push_back((number, receipt));
        }
        while self.under_way.len() > MAX_UNDER_WAY / 2 {
            let Some((number, mut receipt)) = self.under_way.pop_front() else { break };
            tokio::select! {
                biased;
                stored = receipt.wait() => self.settle(number, stored),
                () = stop.stopped() => {
                    self.under_way.push_front((number, receipt));
                    break;
                }
            }
        }
        Ok(())
    }

    fn settle(&self, number: u64, stored: Result<geminga_client::MessageId, ClientError>) {
        match stored {
            Ok(id) => self.setting.history.lock().stored(self.kind.id, number, Id::from(&id)),
            Err(error) => self.failed(error),
        }
    }

    fn failed(&self, error: ClientError) {
        self.setting.failed(&format!("producer {}", self.kind.name), error);
    }
}
