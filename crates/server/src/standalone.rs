//! Everything in one process: embedded metadata, one bookie, broker and REST.
//!
//! [`run`] is the whole life of the process: what is opened in which order, and in which order it stops.

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use geminga_bookie_store::StoreOptions;
use geminga_broker::{Broker, BrokerOptions, Memory};
use geminga_disk::{DirLock, Disk, RealDisk};
use geminga_env::{Budget, Env, net, reply};
use geminga_ledger::LedgerClient;
use geminga_managed_ledger::{ManagedLedgers, ManagedLedgersConfig, TailCache};
use geminga_model::BookieId;
use geminga_records::Quorum;
use geminga_session::SessionConfig;
use geminga_topic::{ProducerNames, TopicOptions};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::bookie::LocalBookie;
use crate::bootstrap::bootstrap;
use crate::config::{Config, Settings, Sources, read_file, resolve};
use crate::failed::end_failed;
use crate::memory::{Shares, default_memory, parse_size};
use crate::wipe::wipe;

/// How long the stop may take; then the process ends anyway, because a crash is always safe.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// How long a start waits for a former process to let go of the data directory and the ports.
const START_PATIENCE: Duration = Duration::from_secs(2);

/// Options of `geminga standalone`.
///
/// Example: geminga standalone --data-dir /var/lib/geminga --broker-port 6650
#[derive(Debug, Args)]
#[command(
    after_help = "Example: geminga standalone --data-dir ./data --bind-address 0.0.0.0 --advertised-address my-host"
)]
pub(crate) struct StandaloneArgs {
    /// Settings as in Pulsar's standalone.conf or broker.conf. Variables PULSAR_PREFIX_<key> win over it, and the
    /// options here over both. docs/configuration.md has the keys.
    #[arg(short = 'c', long, visible_alias = "config", value_name = "FILE")]
    conf: Option<PathBuf>,
    /// Show the settings that this start would have, each with where it comes from, and exit.
    #[arg(long)]
    print_config: bool,
    /// Where everything is kept. Made if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "data")]
    data_dir: PathBuf,
    /// Delete everything in the data directory first. Refused if there is anything that Geminga did not make.
    #[arg(long)]
    wipe_data: bool,
    /// Memory to use, such as 256M. Clients wait before it is exceeded. By default a quarter of what there is, at most
    /// 1G.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Port of the binary protocol; 0 picks a free one [default: 6650]
    #[arg(long, value_name = "PORT")]
    broker_port: Option<String>,
    /// Port of REST; 0 picks a free one [default: 8080]
    #[arg(long, value_name = "PORT")]
    web_port: Option<String>,
    /// Address to listen on. Anyone who reaches it may do everything: there is no authentication in this version
    /// [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    bind_address: Option<String>,
    /// Host name or address that clients are told to connect to; by default the bind address, or localhost.
    #[arg(short = 'a', long, value_name = "HOST")]
    advertised_address: Option<String>,
    /// Break the disk on purpose, for tests: no-sync, sync-delay=MILLISECONDS or sync-failure=PATH.
    #[cfg(feature = "canary")]
    #[arg(long, value_name = "FAULT", hide = true)]
    inject: Option<geminga_disk::DiskFault>,
}

impl StandaloneArgs {
    /// Where everything but what is wiped goes.
    fn disk(&self) -> Arc<dyn Disk> {
        #[cfg(feature = "canary")]
        if let Some(fault) = &self.inject {
            tracing::warn!("the disk is broken on purpose: {fault:?}");
            return Arc::new(geminga_disk::FaultyDisk::new(Arc::new(RealDisk), fault.clone()));
        }
        Arc::new(RealDisk)
    }

    /// File, environment and options.
    fn sources(&self) -> Result<Sources, Vec<String>> {
        let flags = [
            ("brokerServicePort", &self.broker_port),
            ("webServicePort", &self.web_port),
            ("bindAddress", &self.bind_address),
            ("advertisedAddress", &self.advertised_address),
        ];
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Ok(Sources {
            file: self.conf.as_ref().map_or(Ok(Vec::new()), |path| read_file(&RealDisk, path))?,
            environment: std::env::vars_os().filter_map(text).collect(),
            flags: flags.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect(),
        })
    }
}

/// Why the process does not start: one line that says what to do.
type StartError = Box<dyn std::error::Error + Send + Sync>;

/// Runs until it is told to stop by SIGINT or SIGTERM.
pub(crate) fn run(args: &StandaloneArgs) -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("GEMINGA_LOG").unwrap_or_else(|_| "info".into()))
        .init();
    let config = match args.sources().and_then(|sources| resolve(&sources)) {
        Ok(config) => config,
        Err(wrong) => {
            wrong.iter().for_each(|what| tracing::error!("cannot start: {what}"));
            return ExitCode::FAILURE;
        }
    };
    if args.print_config {
        let printed = writeln!(
            std::io::stdout(),
            "{config}# memory={}\n# dataDir={}",
            args.memory.unwrap_or_else(default_memory),
            args.data_dir.display()
        );
        return if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    tell_ignored(&config);
    raise_file_limit();
    match start_and_serve(args, &config.settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tell_ignored(config: &Config) {
    if !config.without_effect.is_empty() {
        tracing::warn!("settings of Pulsar without effect in this version: {}", config.without_effect.join(", "));
    }
    if !config.unknown.is_empty() {
        tracing::warn!("unknown settings, ignored: {}", config.unknown.join(", "));
    }
}

/// Every client is an open file, and shells hand out a soft limit of about a thousand. Who set the hard limit meant it.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        let files = limit.current.unwrap_or(u64::MAX);
        tracing::warn!(%error, "at most {files} files and connections: the limit could not be raised");
    }
}

fn runtime(name: &'static str, threads: usize) -> Result<Runtime, StartError> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(threads).thread_name(name).enable_all().build()?)
}

fn start_and_serve(args: &StandaloneArgs, settings: &Settings) -> Result<(), StartError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (data, control) = (runtime("data", cores)?, runtime("control", 1)?);
    let env = Env::real(data.handle().clone(), control.handle().clone());
    let served = control.block_on(serve(args, settings, &env, &data));
    // Lanes and tasks that are left hold nothing that a restart would miss.
    data.shutdown_background();
    control.shutdown_background();
    served
}

async fn serve(args: &StandaloneArgs, settings: &Settings, env: &Env, data: &Runtime) -> Result<(), StartError> {
    let started = env.clock.now();
    let memory = args.memory.unwrap_or_else(default_memory);
    let shares = Shares::of(memory, settings.cache_bytes);
    let disk = args.disk();
    disk.create_dir(&args.data_dir)?;
    // A process that was killed may hold directory and ports until its last write returned.
    let patience = env.clock.now() + START_PATIENCE;
    let (_held, web, binary) = loop {
        match claim(args, settings, disk.as_ref(), data) {
            Ok(claimed) => break claimed,
            Err(error) if env.clock.now() >= patience => return Err(error),
            Err(_) => env.clock.sleep_until(env.clock.now() + START_PATIENCE / 40).await,
        }
    };
    if args.wipe_data {
        let wiped = wipe(RealDisk, &args.data_dir)?;
        tracing::info!("wiped {}: {wiped} files", args.data_dir.display());
    }
    let host = settings.advertised_address.clone().unwrap_or_else(|| advertised(settings.bind_address));
    let service_url = format!("pulsar://{host}:{}", binary.local_addr()?.port());
    let web_url = format!("http://{host}:{}", web.local_addr()?.port());

    let metadata = &args.data_dir.join("metadata");
    let metadata = geminga_metastore::redb_with(env, disk.as_ref(), metadata, |why| end_failed("metadata store", why))?;
    let identity = bootstrap(env, &metadata, &settings.cluster, &service_url, &web_url).await?;
    let bookie_id = BookieId::parse("standalone:3181")?;
    let bookie = LocalBookie::start(
        env,
        disk,
        &args.data_dir.join("bookie"),
        StoreOptions { index_cache_bytes: shares.index, ..StoreOptions::new(bookie_id, &identity.instance) },
    )?;
    let ledgers = ManagedLedgers::from(ManagedLedgersConfig {
        env: env.clone(),
        metadata: metadata.clone(),
        ledgers: LedgerClient::new(env.clone(), metadata.clone(), Arc::new(bookie.clone())),
        quorum: Quorum::new(1, 1, 1)?,
        rollover: settings.rollover,
        cache: TailCache::new(shares.cache),
    });
    let session = SessionConfig {
        server_version: format!("Pulsar Server{}", env!("CARGO_PKG_VERSION")),
        ..settings.session.clone()
    };
    let names = format!("{}-{}", settings.cluster, identity.broker_number);
    let options = BrokerOptions {
        topics: TopicOptions {
            ledgers,
            producer_names: Arc::new(ProducerNames::new(names)),
            max_unacked_per_consumer: settings.max_unacked_per_consumer,
            read_ahead: Budget::new("read-ahead", shares.read_ahead),
        },
        session,
        through_service_url: is_loopback(&host),
        cluster: settings.cluster.clone(),
        service_url: service_url.clone(),
        web_service_url: web_url.clone(),
        limits: settings.limits.clone(),
        memory: Memory::new(shares.ingress, shares.outbox),
    };
    let broker = Broker::new(env.clone(), metadata, options);
    broker.serve(binary);
    geminga_admin::serve(env, &broker, web);
    if !settings.bind_address.is_loopback() {
        tracing::warn!(
            "listening beyond this machine without authentication: anyone who reaches {host} may do everything"
        );
    }
    tracing::info!("memory: {} MiB, of which {} MiB cache the newest entries", memory >> 20, shares.cache >> 20);
    tracing::info!("ready after {:?}: {service_url} and {web_url}", env.clock.now().since(started));

    stop_requested().await?;
    tracing::info!("stopping");
    let deadline = env.clock.now() + STOP_DEADLINE;
    tokio::select! {
        biased;
        () = stop(env, &broker, &bookie) => tracing::info!("stopped"),
        () = env.clock.sleep_until(deadline) => {
            tracing::warn!("not stopped within {STOP_DEADLINE:?}: ending anyway; nothing that was answered is lost");
        }
    }
    Ok(())
}

/// The data directory and the ports, for this process alone.
fn claim(
    args: &StandaloneArgs,
    settings: &Settings,
    disk: &dyn Disk,
    data: &Runtime,
) -> Result<(Box<dyn DirLock>, TcpListener, TcpListener), StartError> {
    let held = disk.lock_dir(&args.data_dir).map_err(|error| {
        format!("{error}. Another geminga uses {}: stop it, or choose another --data-dir", args.data_dir.display())
    })?;
    let listen = |port: u16, option: &str| {
        let address = SocketAddr::new(settings.bind_address, port);
        net::listen(address).map_err(|error| format!("cannot listen on {address}: {error}. Choose another {option}"))
    };
    let web = listen(settings.web_port, "--web-port")?;
    // The broker's socket belongs to the runtime that reads it.
    let _data = data.enter();
    let binary = listen(settings.broker_port, "--broker-port")?;
    Ok((held, web, binary))
}

/// The order of stopping: topics store what they have, connections end, then the log.
async fn stop(env: &Env, broker: &Broker, bookie: &LocalBookie) {
    broker.close().await;
    let (done, mut closed) = reply();
    bookie.close(done);
    let _ = closed.wait().await;
    env.control.stop_signal().stop();
}

async fn stop_requested() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        biased;
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn advertised(bind: IpAddr) -> String {
    if bind.is_unspecified() { "localhost".to_owned() } else { bind.to_string() }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
