//! `geminga-chaos pressure`: little memory, slow syncs, full speed, and clients that take nothing.
//!
//! One kind of messages after the other, each with producers of its own: 100 B, 1 KiB, 1 MiB, and all of them at once.
//! Consumers that take everything stay; so do one that stalls with very many permits, and the mute connections.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use geminga_client::{Client, ClientError, ClientOptions};
use geminga_env::{Env, Scope};

use crate::blow::Failure;
use crate::cap::{Cap, status_bytes};
use crate::consuming::join_all;
use crate::load::{self, Worker};
use crate::mute::{self, Fates, Role};
use crate::run::{env, free_port, runtime};
use crate::server::Server;
use crate::web;

/// What the server is told to use.
const MEMORY: &str = "256M";
const SYNC_DELAY: &str = "sync-delay=50";
const PRODUCERS: usize = 64;
const TOPICS: usize = 8;
const STALLED_PERMITS: u32 = 100_000;
/// Permits of a mute consumer.
const MUTE_PERMITS: u32 = 1000;
/// How long mute connections and the producers of a phase may take to be there.
const SET_UP_WITHIN: Duration = Duration::from_secs(60);
/// How long what is used may take to be given back when everybody is gone.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(15);
/// The class of memory that stays in use: it is a cache.
const CACHE: &str = "cache";

/// Sizes of messages, and what they are called.
const PHASES: [(&str, &[usize]); 4] =
    [("100 B", &[100]), ("1 KiB", &[1 << 10]), ("1 MiB", &[1 << 20]), ("all sizes", &[100, 1 << 10, 1 << 20])];

/// What a run of the command is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    pub(crate) geminga: &'a Path,
    /// Under load, over all phases.
    pub(crate) time: Duration,
    /// Within which everybody must get on.
    pub(crate) patience: Duration,
    /// Connections that never read.
    pub(crate) mute: u32,
    /// Bytes that the server may use.
    pub(crate) cap: u64,
}

/// What a run without a failure was.
#[derive(Debug)]
pub(crate) struct Summary {
    peak: u64,
    cap: u64,
    sent: u64,
    received: u64,
    mute_closed: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { peak, cap, sent, received, mute_closed } = self;
        write!(
            f,
            "everybody got on, and all memory was given back: {sent} messages with receipts, {received} received, {} MiB \
             resident at most of {}; {mute_closed} mute connections were closed and made anew",
            peak >> 20,
            cap >> 20
        )
    }
}

struct Pressure<'a> {
    options: Options<'a>,
    env: Env,
    server: Server,
    cap: Cap,
}

/// Runs it all.
pub(crate) fn run(options: Options<'_>) -> Result<Summary, Failure> {
    let runtime = runtime()?;
    let folder = tempfile::Builder::new().prefix("geminga-chaos-").tempdir();
    let folder = folder.map_err(|error| Failure::Run(format!("cannot make a folder for the data: {error}")))?;
    let env = env(&runtime, fastrand::u64(..));
    let (data, log) = (folder.path().join("data"), folder.path().join("server.log"));
    let server = Server::new(options.geminga, &data, &log, free_port(&runtime)?, env.clock);
    let server = server.with(["--memory", MEMORY, "--inject", SYNC_DELAY].map(Into::into));
    let mut pressure = Pressure { options, env, server, cap: Cap::new(options.cap) };
    let outcome = runtime.block_on(pressure.all());
    drop(pressure);
    outcome.map_err(|why| {
        // The data are large, and tell nothing.
        drop((std::fs::remove_dir_all(&data), folder.keep()));
        match why {
            Failure::Server(why) => Failure::Server(format!("{why}\nthe log is kept: {}", log.display())),
            run => run,
        }
    })
}

fn refused(what: &str) -> impl Fn(ClientError) -> Failure + '_ {
    move |error| Failure::Server(format!("{what}: {error}"))
}

fn topic(index: usize) -> String {
    format!("persistent://public/default/pressure-{}", index % TOPICS)
}

impl Pressure<'_> {
    async fn all(&mut self) -> Result<Summary, Failure> {
        self.server.start().await?;
        let unknown = || Failure::Server("the server is ready, and does not say where its REST is".to_owned());
        let web = self.server.web().ok_or_else(unknown)?;
        self.cap.admit(self.server.pid().unwrap_or_default())?;
        self.tell(&format!("--memory {MEMORY} below {} MiB: {}", self.options.cap >> 20, self.cap));
        let (healthy_scope, mute_scope) = (self.env.data.child("healthy"), self.env.data.child("mute"));
        let clients = self.clients(PRODUCERS).await?;
        // On connections of their own: behind what a producer may not send yet, no ack comes through.
        let consuming = self.clients(TOPICS).await?;
        let consumers = self.consumers(&healthy_scope, &consuming).await?;
        let fates = self.mutes(&mute_scope).await?;
        let mut sent = 0;
        for (name, sizes) in PHASES {
            sent += self.phase(name, sizes, &clients, &consumers, web).await.map_err(|why| why.within(name))?;
        }
        let peak = self.peak()?;
        let received = consumers.iter().map(Worker::done).sum();
        let mute_closed = fates.closed.load(Ordering::Relaxed);
        mute_scope.close().await;
        healthy_scope.close().await;
        for client in clients.iter().chain(&consuming) {
            client.close().await;
        }
        self.given_back(web).await?;
        self.server.kill()?;
        self.server.check_log()?;
        Ok(Summary { peak, cap: self.options.cap, sent, received, mute_closed })
    }

    #[expect(clippy::print_stdout, reason = "progress, for the person who waits")]
    fn tell(&self, text: &str) {
        println!("{text}");
    }

    /// One for each producer or consumer, so that each has a connection of its own.
    async fn clients(&self, count: usize) -> Result<Vec<Client>, Failure> {
        let mut clients = Vec::new();
        for _ in 0..count {
            let connected = Client::with_options(&self.env, &self.server.url(), ClientOptions::default()).await;
            clients.push(connected.map_err(refused("connecting"))?);
        }
        Ok(clients)
    }

    async fn consumers(&self, scope: &Scope, clients: &[Client]) -> Result<Vec<Worker>, Failure> {
        let mut consumers = Vec::new();
        for (index, client) in clients.iter().enumerate() {
            let name = format!("the consumer of topic {index}");
            consumers.push(load::consume(scope, client, &topic(index), name).await.map_err(refused("consuming"))?);
        }
        Ok(consumers)
    }

    /// Those who take nothing, once all of them are there.
    async fn mutes(&mut self, scope: &Scope) -> Result<Arc<Fates>, Failure> {
        let (clock, address, fates) = (self.env.clock, self.server.address(), Arc::new(Fates::default()));
        let stalled =
            Role::Consumer { topic: topic(0), subscription: "stalled".into(), permits: STALLED_PERMITS, durable: true };
        mute::spawn(scope, clock, address, stalled, &fates);
        for index in 0..self.options.mute {
            let topic = topic(index as usize / 3);
            let role = match index % 3 {
                0 => Role::Consumer {
                    topic,
                    subscription: format!("mute-{index}"),
                    permits: MUTE_PERMITS,
                    durable: false,
                },
                1 => Role::Producer { topic },
                _ => Role::Pings,
            };
            mute::spawn(scope, clock, address, role, &fates);
        }
        let deadline = clock.now() + SET_UP_WITHIN;
        let wanted = u64::from(self.options.mute) + 1;
        while fates.open.load(Ordering::Relaxed) < wanted {
            self.server.check_runs()?;
            if clock.now() > deadline {
                let open = fates.open.load(Ordering::Relaxed);
                return Err(Failure::Server(format!(
                    "{open} of {wanted} connections came up within {SET_UP_WITHIN:?}"
                )));
            }
            clock.sleep_until(clock.now() + Duration::from_millis(50)).await;
        }
        Ok(fates)
    }

    /// One kind of messages for its share of the time; how many were sent.
    async fn phase(
        &mut self,
        name: &str,
        sizes: &[usize],
        clients: &[Client],
        consumers: &[Worker],
        web: SocketAddr,
    ) -> Result<u64, Failure> {
        let scope = self.env.data.child("producers");
        let mut workers = consumers.to_vec();
        // Together: each waits for slow syncs.
        let opened = clients.iter().enumerate().map(|(index, client)| {
            let size = sizes.get(index % sizes.len()).copied().unwrap_or_default();
            let batched = index % 2 == 0;
            let who = format!("producer {index}, {size} B, {}", if batched { "batched" } else { "unbatched" });
            let (scope, topic) = (&scope, topic(index));
            Box::pin(async move { load::produce(scope, client, &topic, who, size, batched).await }) as _
        });
        for worker in join_all::<Result<Worker, ClientError>>(opened.collect()).await {
            workers.push(worker.map_err(refused("opening a producer"))?);
        }
        let watched = self.watch(&workers, web).await;
        scope.close().await;
        watched?;
        let sent = workers.iter().skip(consumers.len()).map(Worker::done).sum();
        self.tell(&format!("{name}: {sent} messages, {} MiB resident at most so far", self.peak()? >> 20));
        Ok(sent)
    }

    /// Looks at everybody, round after round.
    async fn watch(&mut self, workers: &[Worker], web: SocketAddr) -> Result<(), Failure> {
        let clock = self.env.clock;
        let share = self.options.time / PHASES.len() as u32;
        let rounds = share.as_secs().div_ceil(self.options.patience.as_secs()).max(1);
        // All of them are at work before the first round begins.
        let deadline = clock.now() + SET_UP_WITHIN;
        while workers.iter().any(|worker| worker.done() == 0) && clock.now() < deadline {
            self.check(workers, web)?;
            clock.sleep_until(clock.now() + Duration::from_millis(20)).await;
        }
        let started = clock.now();
        let mut before: Vec<u64> = workers.iter().map(Worker::done).collect();
        for round in 1..=rounds {
            clock.sleep_until(started + self.options.patience * u32::try_from(round).unwrap_or(u32::MAX)).await;
            self.check(workers, web)?;
            let now: Vec<u64> = workers.iter().map(Worker::done).collect();
            let stuck: Vec<&Worker> = workers
                .iter()
                .zip(before.iter().zip(&now))
                .filter(|(_, (before, now))| before == now)
                .map(|(worker, _)| worker)
                .collect();
            if let Some(first) = stuck.first() {
                let names: Vec<&str> = stuck.iter().map(|worker| worker.name.as_str()).collect();
                return Err(Failure::Server(format!(
                    "no progress within {:?}, in round {round} of {rounds}: {}\n{}",
                    self.options.patience,
                    names.join("; "),
                    web::explain(self.options.geminga, web, &first.topic)
                )));
            }
            before = now;
        }
        Ok(())
    }

    /// Whether the server and all its clients are well.
    fn check(&mut self, workers: &[Worker], web: SocketAddr) -> Result<(), Failure> {
        self.server.check_runs()?;
        let peak = self.peak()?;
        if peak > self.options.cap {
            let (peak, cap) = (peak >> 20, self.options.cap >> 20);
            return Err(Failure::Server(format!("{peak} MiB were resident, above {cap}")));
        }
        for worker in workers {
            if let Some(failure) = worker.failure() {
                let explained = web::explain(self.options.geminga, web, &worker.topic);
                return Err(Failure::Server(format!("{} failed: {failure}\n{explained}", worker.name)));
            }
        }
        Ok(())
    }

    /// The most that was ever resident.
    fn peak(&self) -> Result<u64, Failure> {
        let peak = self.server.pid().and_then(|pid| status_bytes(pid, "VmHWM"));
        peak.ok_or_else(|| Failure::Server("the server is gone".to_owned()))
    }

    /// Waits until nothing is in use for clients who are gone.
    async fn given_back(&mut self, web: SocketAddr) -> Result<(), Failure> {
        let clock = self.env.clock;
        let deadline = clock.now() + GIVEN_BACK_WITHIN;
        loop {
            self.server.check_runs()?;
            let metrics = web::get(clock, web, "/metrics").await.map_err(Failure::Server)?;
            let used = web::memory_used(&metrics);
            let held: Vec<_> = used.iter().filter(|(class, used)| class != CACHE && *used > 0).collect();
            if held.is_empty() && used.len() > 1 {
                return Ok(());
            }
            if clock.now() > deadline {
                return Err(Failure::Server(format!("still in use when everybody is gone: {held:?}")));
            }
            clock.sleep_until(clock.now() + Duration::from_millis(100)).await;
        }
    }
}
