//! Ways to break the server, again and again.

use std::time::Duration;

use crate::plan::Setting;
use crate::server::Server;

/// How long one lives that is broken while it starts, in milliseconds.
const SHORT_LIFE: std::ops::RangeInclusive<u64> = 0..=60;

/// What ends a cycle.
pub(crate) trait Blow {
    /// Breaks the server, which runs or is about to, so that it is gone afterwards. `under_load` are clients that work,
    /// if there are any. Fails if the server ended in another way than it should.
    async fn strike(&mut self, server: &mut Server, under_load: Option<&Setting>) -> Result<(), Failure>;

    /// Makes what it broke usable again, so that the server can start on what is left.
    async fn mend(&mut self) -> Result<(), Failure>;

    /// Starts the server and breaks it before it may be ready.
    async fn strike_start(&mut self, server: &mut Server, rng: &mut fastrand::Rng) -> Result<(), Failure> {
        let life = Duration::from_millis(rng.u64(SHORT_LIFE));
        server.start_in_vain(life).await?;
        self.strike(server, None).await
    }
}

/// Why a run ends early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The server did what it must not.
    #[error("{0}")]
    Server(String),
    /// The run itself cannot go on; nothing is said about the server.
    #[error("the run cannot go on: {0}")]
    Run(String),
}

impl Failure {
    /// With words in front.
    pub(crate) fn within(self, place: &str) -> Failure {
        match self {
            Failure::Server(what) => Failure::Server(format!("{place}: {what}")),
            Failure::Run(what) => Failure::Run(format!("{place}: {what}")),
        }
    }
}

/// `kill -9`.
#[derive(Debug)]
pub(crate) struct Kill;

impl Blow for Kill {
    async fn strike(&mut self, server: &mut Server, _under_load: Option<&Setting>) -> Result<(), Failure> {
        server.kill()
    }

    async fn mend(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
