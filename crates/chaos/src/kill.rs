//! `geminga-chaos kill`: cycle after cycle, then the judgement.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use geminga_client::ClientError;
use geminga_env::{Env, OnPanic, Scope};
use parking_lot::Mutex;

use crate::history::{Counts, History};
use crate::plan::{Plan, Setting};
use crate::producing::{self, Kind};
use crate::server::Server;
use crate::{consuming, drain};

/// How long a server lives in a cycle, in milliseconds.
const LIFE: std::ops::RangeInclusive<u64> = 200..=1500;
/// How long one lives that is killed while it starts, in milliseconds.
const SHORT_LIFE: std::ops::RangeInclusive<u64> = 0..=60;
/// Below the ports that systems give to connections: one of those could take the port while the server is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Violations that are printed.
const PRINTED: usize = 10;

struct Run {
    env: Env,
    seed: u64,
    rng: fastrand::Rng,
    server: Server,
    plan: Plan,
    history: Arc<Mutex<History>>,
    slowest: Duration,
}

/// Runs it all; what happened, or what is wrong and where the evidence is.
pub(crate) fn run(geminga: &Path, cycles: u32, seed: u64) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))?;
    let folder = tempfile::Builder::new().prefix("geminga-chaos-").tempdir();
    let folder = folder.map_err(|error| format!("cannot make a folder for the data: {error}"))?;
    let env = Env::real(runtime.handle().clone(), runtime.handle().clone()).with_seed(seed);
    let rng = fastrand::Rng::with_seed(seed);
    let server = {
        let _runtime = runtime.enter();
        Server::new(geminga, folder.path(), free_port()?, env.clock)
    };
    let mut history = History::default();
    let plan = Plan::new(&mut history);
    let history = Arc::new(Mutex::new(history));
    let mut run = Run { env, seed, rng, server, plan, history, slowest: Duration::ZERO };
    let outcome = runtime.block_on(run.all(cycles));
    let log = run.server.log().to_owned();
    drop(run);
    match outcome {
        Ok(summary) => Ok(summary),
        Err(why) => {
            let kept = folder.keep();
            Err(format!("{why}\ndata and log are kept: {} and {}", kept.join("data").display(), log.display()))
        }
    }
}

/// A port that is free now. Not of the seed: two runs may be under way.
fn free_port() -> Result<u16, String> {
    for _ in 0..100 {
        let port = fastrand::u16(PORTS);
        if geminga_env::net::listen(([127, 0, 0, 1], port).into()).is_ok() {
            return Ok(port);
        }
    }
    Err("no port is free".to_owned())
}

impl Run {
    async fn all(&mut self, cycles: u32) -> Result<String, String> {
        let steady_scope = self.env.data.child("steady");
        self.start().await?;
        let steady = self.setting(&steady_scope).await?;
        self.plan.create(&steady.client).await.map_err(|error| format!("creating the subscriptions: {error}"))?;
        for (index, topic) in self.plan.topics.into_iter().enumerate() {
            self.producer(&steady_scope, &steady, index, topic, "steady");
        }
        for cycle in 1..=cycles {
            if cycle > 1 {
                self.restart().await?;
            }
            self.cycle(cycle).await.map_err(|why| format!("in cycle {cycle}: {why}"))?;
            self.check_so_far().map_err(|why| format!("in cycle {cycle}: {why}"))?;
            if cycle % 10 == 0 {
                let Counts { stored, acked, delivered, .. } = self.history.lock().counts();
                println!(
                    "{cycle} of {cycles} cycles: {stored} messages and {acked} acks with receipts, {delivered} \
                     deliveries, slowest start {:?}",
                    self.slowest
                );
            }
        }
        self.restart().await?;
        // They send what is under way, and end.
        steady_scope.close().await;
        let end_scope = self.env.data.child("end");
        let end = self.setting(&end_scope).await?;
        let failed = |what: &str, error: ClientError| format!("{what}: {error}");
        drain::read(&end, &self.plan).await.map_err(|error| failed("reading the topics at the end", error))?;
        drain::drain(&end, &self.plan).await.map_err(|error| failed("draining the subscriptions at the end", error))?;
        steady.client.close().await;
        end.client.close().await;
        self.server.kill()?;
        self.server.check_log()?;
        let counts = self.judge()?;
        Ok(format!(
            "{cycles} cycles: {} messages with receipts, {} acks with receipts, {} deliveries, {} duplicates, slowest \
             start {:?}",
            counts.stored, counts.acked, counts.delivered, counts.duplicates, self.slowest
        ))
    }

    async fn setting(&self, scope: &Scope) -> Result<Setting, String> {
        let url = self.server.url();
        let made = Setting::new(&self.env, scope, &url, &self.history, self.seed).await;
        made.map_err(|error| format!("connecting to a server that is ready: {error}"))
    }

    async fn start(&mut self) -> Result<(), String> {
        let took = self.server.start().await?;
        self.slowest = self.slowest.max(took);
        Ok(())
    }

    /// After a kill. Sometimes it is killed again while it recovers.
    async fn restart(&mut self) -> Result<(), String> {
        self.history.lock().next_cycle();
        if self.rng.u8(..4) == 0 {
            let life = Duration::from_millis(self.rng.u64(SHORT_LIFE));
            self.server.start_in_vain(life).await?;
        }
        self.start().await
    }

    /// Clients come, work, and lose their server.
    async fn cycle(&mut self, cycle: u32) -> Result<(), String> {
        let scope = self.env.data.child("cycle");
        let setting = self.setting(&scope).await?;
        for subscription in self.plan.subscriptions.clone() {
            for _ in 0..subscription.consumers {
                let task = consuming::consume(setting.clone(), subscription, self.rng.fork());
                scope.spawn("consumer", OnPanic::ExitProcess, task);
            }
        }
        for (index, topic) in self.plan.topics.into_iter().enumerate() {
            for _ in 0..2 {
                self.producer(&scope, &setting, index, topic, &format!("cycle-{cycle}"));
            }
        }
        let kill_at = self.env.clock.now() + Duration::from_millis(self.rng.u64(LIFE));
        self.env.clock.sleep_until(kill_at).await;
        setting.killed.stop();
        self.server.kill()?;
        scope.stop_signal().stop();
        setting.client.close().await;
        scope.close().await;
        Ok(())
    }

    /// A producer of its own name, batched and named by chance.
    fn producer(&mut self, scope: &Scope, setting: &Setting, index: usize, topic: &'static str, prefix: &str) {
        let mut history = self.history.lock();
        let name = format!("{prefix}-{topic}-{}", history.producer_count());
        let id = history.add_producer(index, &name);
        drop(history);
        let kind = Kind { id, name, topic, batched: self.rng.bool(), named: self.rng.bool() };
        scope.spawn("producer", OnPanic::ExitProcess, producing::produce(setting.clone(), kind, self.rng.fork()));
    }

    fn check_so_far(&self) -> Result<(), String> {
        let history = self.history.lock();
        if history.violations().is_empty() { Ok(()) } else { Err(listed(history.violations())) }
    }

    fn judge(&self) -> Result<Counts, String> {
        self.history.lock().judge().map_err(|violations| listed(&violations))
    }
}

fn listed(violations: &[crate::violation::Violation]) -> String {
    let mut text = format!("{} violations:", violations.len());
    for violation in violations.iter().take(PRINTED) {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {violation}");
    }
    text
}
