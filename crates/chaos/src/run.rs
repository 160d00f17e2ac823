//! A run: cycle after cycle of clients that lose their server, then the judgement.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use geminga_client::ClientError;
use geminga_env::{Env, OnPanic, Scope};
use parking_lot::Mutex;

use crate::blow::{Blow, Failure};
use crate::history::{Counts, History};
use crate::plan::{Plan, Setting};
use crate::producing::{self, Kind};
use crate::server::Server;
use crate::{consuming, drain};

/// How long a server lives in a cycle, in milliseconds.
const LIFE: std::ops::RangeInclusive<u64> = 200..=1500;
/// Below the ports that systems give to connections: one of those could take the port while the server is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Violations that are printed.
const PRINTED: usize = 10;

/// A server, what breaks it, and all that its clients were told.
pub(crate) struct Run<B> {
    env: Env,
    seed: u64,
    rng: fastrand::Rng,
    server: Server,
    blow: B,
    plan: Plan,
    history: Arc<Mutex<History>>,
    slowest: Duration,
}

/// What a run without a failure was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    cycles: u32,
    counts: Counts,
    slowest: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { cycles, counts: Counts { stored, acked, delivered, duplicates }, slowest } = self;
        write!(
            f,
            "{cycles} cycles: {stored} messages with receipts, {acked} acks with receipts, {delivered} deliveries, \
             {duplicates} duplicates, slowest start {slowest:?}"
        )
    }
}

/// A runtime for clients.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| Failure::Run(format!("cannot start a runtime: {error}")))
}

/// Clock, tasks and randomness for clients on a runtime.
pub(crate) fn env(runtime: &tokio::runtime::Runtime, seed: u64) -> Env {
    Env::real(runtime.handle().clone(), runtime.handle().clone()).with_seed(seed)
}

/// A port that is free now. Not of the seed: two runs may be under way.
pub(crate) fn free_port(runtime: &tokio::runtime::Runtime) -> Result<u16, Failure> {
    let _runtime = runtime.enter();
    for _ in 0..100 {
        let port = fastrand::u16(PORTS);
        if geminga_env::net::listen(([127, 0, 0, 1], port).into()).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::Run("no port is free".to_owned()))
}

impl<B: Blow> Run<B> {
    pub(crate) fn new(env: Env, seed: u64, server: Server, blow: B) -> Run<B> {
        let mut history = History::default();
        let plan = Plan::new(&mut history);
        let history = Arc::new(Mutex::new(history));
        let rng = fastrand::Rng::with_seed(seed);
        Run { env, seed, rng, server, blow, plan, history, slowest: Duration::ZERO }
    }

    /// Runs it all. A person who interrupts it ends it in order, as what it broke must be mended.
    pub(crate) async fn all(&mut self, cycles: u32) -> Result<Summary, Failure> {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => Err(Failure::Run("interrupted".to_owned())),
            summary = self.cycles(cycles) => summary,
        }
    }

    async fn cycles(&mut self, cycles: u32) -> Result<Summary, Failure> {
        let steady_scope = self.env.data.child("steady");
        self.start().await?;
        let steady = self.setting(&steady_scope).await?;
        let failed = |what: &str, error: ClientError| Failure::Server(format!("{what}: {error}"));
        self.plan.create(&steady.client).await.map_err(|error| failed("creating the subscriptions", error))?;
        for (index, topic) in self.plan.topics.into_iter().enumerate() {
            self.producer(&steady_scope, &steady, index, topic, "steady");
        }
        for cycle in 1..=cycles {
            let place = format!("in cycle {cycle}");
            if cycle > 1 {
                self.restart().await.map_err(|why| why.within(&place))?;
            }
            self.cycle(cycle).await.map_err(|why| why.within(&place))?;
            self.check_so_far().map_err(|why| why.within(&place))?;
            if cycle % 10 == 0 {
                self.tell(cycle, cycles);
            }
        }
        self.restart().await?;
        // They send what is under way, and end.
        steady_scope.close().await;
        let end_scope = self.env.data.child("end");
        let end = self.setting(&end_scope).await?;
        drain::read(&end, &self.plan).await.map_err(|error| failed("reading the topics at the end", error))?;
        drain::drain(&end, &self.plan).await.map_err(|error| failed("draining the subscriptions at the end", error))?;
        steady.client.close().await;
        end.client.close().await;
        self.server.kill()?;
        self.server.check_log()?;
        let counts = self.judge()?;
        Ok(Summary { cycles, counts, slowest: self.slowest })
    }

    #[expect(clippy::print_stdout, reason = "progress, for the person who waits")]
    fn tell(&self, cycle: u32, cycles: u32) {
        let Counts { stored, acked, delivered, .. } = self.history.lock().counts();
        println!(
            "{cycle} of {cycles} cycles: {stored} messages and {acked} acks with receipts, {delivered} deliveries, \
             slowest start {:?}",
            self.slowest
        );
    }

    async fn setting(&self, scope: &Scope) -> Result<Setting, Failure> {
        let url = self.server.url();
        let made = Setting::new(&self.env, scope, &url, &self.history, self.seed).await;
        made.map_err(|error| Failure::Server(format!("connecting to a server that is ready: {error}")))
    }

    async fn start(&mut self) -> Result<(), Failure> {
        let took = self.server.start().await?;
        self.slowest = self.slowest.max(took);
        Ok(())
    }

    /// After a blow. Sometimes there is another while it recovers.
    async fn restart(&mut self) -> Result<(), Failure> {
        self.history.lock().next_cycle();
        self.blow.mend().await?;
        if self.rng.u8(..4) == 0 {
            self.blow.strike_start(&mut self.server, &mut self.rng).await?;
            self.blow.mend().await?;
        }
        self.start().await
    }

    /// Clients come, work, and lose their server.
    async fn cycle(&mut self, cycle: u32) -> Result<(), Failure> {
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
        let strike_at = self.env.clock.now() + Duration::from_millis(self.rng.u64(LIFE));
        self.env.clock.sleep_until(strike_at).await;
        self.server.check_runs()?;
        setting.killed.stop();
        self.blow.strike(&mut self.server, Some(&setting)).await?;
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

    fn check_so_far(&self) -> Result<(), Failure> {
        let history = self.history.lock();
        if history.violations().is_empty() { Ok(()) } else { Err(listed(history.violations())) }
    }

    fn judge(&self) -> Result<Counts, Failure> {
        self.history.lock().judge().map_err(|violations| listed(&violations))
    }
}

fn listed(violations: &[crate::violation::Violation]) -> Failure {
    let mut text = format!("{} violations:", violations.len());
    for violation in violations.iter().take(PRINTED) {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {violation}");
    }
    Failure::Server(text)
}
