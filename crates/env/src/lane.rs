//! Lanes: owners whose work blocks, such as a log that syncs.
//!
//! A lane takes all that arrived for it, works it off, and looks again. For real it is a thread of its own; under
//! simulation it is a task, so that one thread runs everything in a repeatable order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use geminga_model::Instant;

use crate::scope::panic_text;
use crate::{Clock, Inbox, OnPanic, Scope};

/// How lanes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneStyle {
    /// A thread each.
    Threads,
    /// A task each, for simulation.
    Tasks,
}

/// An owner that blocks. A panic in it ends the process, because what it owned can no longer be trusted.
pub trait Lane: Send + 'static {
    /// What it is sent.
    type Item: Send + 'static;

    /// Works off a batch, in order. `batch` is left empty.
    fn work(&mut self, batch: &mut Vec<Self::Item>);

    /// When to call [`Lane::idle`] if nothing arrives; `None` for never.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Nothing arrived until the deadline.
    fn idle(&mut self) {}

    /// Whether the lane has ended; looked at after each batch.
    fn ended(&self) -> bool;
}

/// Starts `lane` on what arrives in `inbox`.
///
/// # Errors
/// The thread could not be started.
pub fn start<L: Lane>(
    style: LaneStyle,
    scope: &Scope,
    clock: Clock,
    name: &'static str,
    mut inbox: Inbox<L::Item>,
    mut lane: L,
) -> std::io::Result<()> {
    match style {
        LaneStyle::Threads => {
            let run = move || {
                let mut batch = Vec::new();
                while !lane.ended() {
                    let wait = lane.deadline().map(|deadline| deadline.since(clock.now()));
                    inbox.wait_blocking(
                        wait.map(|wait| std::time::Instant::now() + wait.min(Duration::from_secs(3600))),
                    );
                    turn(&mut lane, &mut inbox, &mut batch);
                }
            };
            let guarded = move || {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                    tracing::error!(lane = name, panic = panic_text(panic.as_ref()), "a lane panicked");
                    std::process::exit(70);
                }
            };
            std::thread::Builder::new().name(name.to_owned()).spawn(guarded).map(drop)
        }
        LaneStyle::Tasks => {
            scope.spawn(name, OnPanic::ExitProcess, async move {
                let mut batch = Vec::new();
                while !lane.ended() {
                    tokio::select! {
                        biased;
                        () = inbox.wait() => {}
                        () = clock.sleep_until_some(lane.deadline()) => {}
                    }
                    turn(&mut lane, &mut inbox, &mut batch);
                    tokio::task::yield_now().await;
                }
            });
            Ok(())
        }
    }
}

fn turn<L: Lane>(lane: &mut L, inbox: &mut Inbox<L::Item>, batch: &mut Vec<L::Item>) {
    inbox.take(batch);
    if batch.is_empty() { lane.idle() } else { lane.work(batch) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reply, mailbox, reply};

    struct Adder {
        total: u64,
        done: bool,
    }

    enum Item {
        Add(u64),
        Total(Reply<u64>),
    }

    impl Lane for Adder {
        type Item = Item;

        fn work(&mut self, batch: &mut Vec<Item>) {
            for item in batch.drain(..) {
                match item {
                    Item::Add(n) => self.total += n,
                    Item::Total(reply) => {
                        reply.send(self.total);
                        self.done = true;
                    }
                }
            }
        }

        fn ended(&self) -> bool {
            self.done
        }
    }

    #[tokio::test]
    async fn both_styles_work_in_order() {
        for style in [LaneStyle::Threads, LaneStyle::Tasks] {
            let scope = Scope::new("test", tokio::runtime::Handle::current());
            let (mailbox, inbox) = mailbox();
            start(style, &scope, Clock::real(), "adder", inbox, Adder { total: 0, done: false }).unwrap();
            for n in 1..=10 {
                mailbox.push(Item::Add(n)).unwrap();
            }
            let (to, mut from) = reply();
            mailbox.push(Item::Total(to)).unwrap();
            assert_eq!(from.wait().await, Ok(55));
            scope.close().await;
        }
    }
}
