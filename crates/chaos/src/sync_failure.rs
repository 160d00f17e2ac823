//! A sync that fails: the server must say so and end, and a restart must lose nothing.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use geminga_client::ProducerOptions;

use crate::blow::{Blow, Failure};
use crate::plan::Setting;
use crate::server::Server;

/// How long the server may take to meet the failure, and to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Whose syncs may fail: parts of paths.
const PLACES: [&str; 3] = ["", "/data/bookie", "/data/metadata"];

/// See the module.
#[derive(Debug)]
pub(crate) struct SyncFailure {
    /// While there is this file, the next sync fails.
    trigger: PathBuf,
    rng: fastrand::Rng,
    strikes: u32,
}

impl SyncFailure {
    pub(crate) fn new(trigger: PathBuf, seed: u64) -> SyncFailure {
        SyncFailure { trigger, rng: fastrand::Rng::with_seed(!seed), strikes: 0 }
    }

    /// The next one is of this place.
    fn arm(&mut self) -> Result<&'static str, Failure> {
        let place = self.rng.choice(PLACES).unwrap_or_default();
        self.strikes += 1;
        // Whole or not at all: the server may look at any moment.
        let draft = self.trigger.with_extension("draft");
        let armed = fs::write(&draft, place).and_then(|()| fs::rename(&draft, &self.trigger));
        armed.map(|()| place).map_err(|error| Failure::Run(format!("{}: {error}", self.trigger.display())))
    }

    /// Waits for the end of the server, and judges how it came.
    async fn expect_end(place: &str, server: &mut Server, log: u64) -> Result<(), Failure> {
        let place = if place.is_empty() { "any file" } else { place };
        let within = format!("after a failed sync of {place}");
        let status = server.wait(ENDS_WITHIN).await.map_err(|why| why.within(&within))?;
        let said = server.log_from(log)?;
        let line = said.lines().find(|line| line.contains("ERROR") && line.contains("an injected failure"));
        if status.code() == Some(1) && line.is_some() {
            return Ok(());
        }
        let line = line.unwrap_or("nothing about it");
        Err(Failure::Server(format!(
            "{within} the server must say so and end with exit code 1: it ended with {status}, and said {line}"
        )))
    }
}

impl Blow for SyncFailure {
    async fn strike(&mut self, server: &mut Server, under_load: Option<&Setting>) -> Result<(), Failure> {
        let log = server.log_length();
        let place = self.arm()?;
        let topic = format!("chaos-sync-failure-{}", self.strikes);
        // Messages sync the log; a new topic syncs metadata.
        let provoke = async {
            if let Some(setting) = under_load {
                drop(setting.client.producer(&topic, ProducerOptions::default()).await);
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            ended = Self::expect_end(place, server, log) => ended,
            () = provoke => Ok(()),
        }
    }

    async fn mend(&mut self) -> Result<(), Failure> {
        match fs::remove_file(&self.trigger) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Failure::Run(format!("{}: {error}", self.trigger.display())))
            }
            _ => Ok(()),
        }
    }

    /// Every start syncs metadata and log, so it cannot be ready.
    async fn strike_start(&mut self, server: &mut Server, _rng: &mut fastrand::Rng) -> Result<(), Failure> {
        let log = server.log_length();
        let place = self.arm()?;
        server.start_in_vain(Duration::ZERO).await?;
        Self::expect_end(place, server, log).await
    }
}
