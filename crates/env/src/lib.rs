//! All that waits: clock, randomness, task scopes, mailboxes, replies, budgets, lanes and sockets.
//!
//! Pure crates decide, their drivers wait, and they wait only through this crate. So there is one place to look for
//! every thread, task, timer and queue, and one pattern between owners: a [`Mailbox`] pushed by anyone and taken by its
//! owner, with a [`Reply`] inside an item that wants an answer.
//!
//! Deliberately not here: channels, locks held over an await, timers per object, retries.
//!
//! Start reading at [`mailbox()`] and [`Env`].

mod budget;
mod clock;
mod lane;
mod mailbox;
pub mod net;
mod random;
mod reply;
mod scope;

use std::sync::Arc;

pub use budget::{Budget, Permit};
pub use clock::Clock;
pub use lane::{Lane, LaneStyle, start as start_lane};
pub use mailbox::{Closed, Inbox, Mailbox, mailbox};
pub use random::Random;
pub use reply::{Pending, Reply, Unanswered, reply};
pub use scope::{OnPanic, Scope, Stop};

/// What every driver is handed: [`Surroundings`]. Clones are the same: whatever lives has one, down to every subscription.
#[derive(Clone, Debug)]
pub struct Env(Arc<Surroundings>);

impl std::ops::Deref for Env {
    type Target = Surroundings;

    fn deref(&self) -> &Surroundings {
        &self.0
    }
}

/// The clock, randomness, and the two scopes in which tasks run.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// Connections, topics, subscriptions and links: tasks that a message passes through.
    pub data: Scope,
    /// REST, metadata, opening and closing of topics: tasks whose slowness must not delay a message.
    pub control: Scope,
    /// How lanes run: threads, or tasks under simulation.
    pub lanes: LaneStyle,
}

impl Env {
    /// The real environment, with tasks on the two given runtimes.
    #[must_use]
    pub fn real(data: tokio::runtime::Handle, control: tokio::runtime::Handle) -> Env {
        Env(Arc::new(Surroundings {
            clock: Clock::real(),
            random: Random::from_entropy(),
            data: Scope::new("data", data),
            control: Scope::new("control", control),
            lanes: LaneStyle::Threads,
        }))
    }

    /// The same but for its randomness, which repeats itself for the same seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Env {
        Env(Arc::new(Surroundings { random: Random::from_seed(seed), ..Surroundings::clone(self) }))
    }

    /// A deterministic environment on the current runtime, which must be single-threaded with its time paused: the
    /// same seed gives the same run.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn simulated(seed: u64) -> Env {
        let handle = tokio::runtime::Handle::current();
        Env(Arc::new(Surroundings {
            clock: Clock::simulated(),
            random: Random::from_seed(seed),
            data: Scope::new("data", handle.clone()),
            control: Scope::new("control", handle),
            lanes: LaneStyle::Tasks,
        }))
    }
}
