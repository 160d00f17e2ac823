//! The rows of the table: what is measured, against which target.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::acks;
use crate::connection::Connection;
use crate::grown;
use crate::many::{self, Clients};
use crate::probe::{self, Probe};
use crate::publish::{self, Load, Outcome};
use crate::server::Server;

/// What is to be measured.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) geminga: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) duration: Duration,
    pub(crate) topics: usize,
    pub(crate) gibibytes: u64,
    pub(crate) only: String,
}

/// What a client costs and waits beyond the machine's limits: the reference's fitted cost of 1,000 small messages.
const CYCLE: Duration = Duration::from_micros(450);

struct Row {
    name: &'static str,
    measured: String,
    target: String,
    reached: Option<bool>,
    also: String,
}

impl Row {
    fn print(&self) {
        let reached = match self.reached {
            None => "",
            Some(true) => "reached",
            Some(false) => "MISSED",
        };
        println!("| {} | {} | {} | {reached} | {} |", self.name, self.measured, self.target, self.also);
    }
}

/// Prints a table. Errors are of the run, not of targets that are missed.
pub(crate) fn run(plan: &Plan) -> Result<(), String> {
    let folder =
        tempfile::Builder::new().prefix("geminga-bench-").tempdir_in(&plan.folder).map_err(|e| e.to_string())?;
    let wanted = |name: &str| name.contains(&plan.only);
    let (sync, sequential) = probe::disk(folder.path())?;
    let mut probe = Probe { sync, sequential, round_trip: Duration::ZERO };
    println!("| what | measured | target | | also |\n|---|---|---|---|---|");
    if wanted("start on an empty directory") {
        start(plan, folder.path())?.print();
    }
    let server = Server::start(&plan.geminga, &folder.path().join("data"))?;
    probe.round_trip = probe::round_trip(&mut Connection::open(server.broker)?)?;
    Row {
        name: "the machine",
        measured: format!("S {:?}, R {:?}", probe.sync, probe.round_trip),
        target: String::new(),
        reached: None,
        also: format!("sequential, synced each 4 MiB: {:.0} MB/s", probe.sequential / 1e6),
    }
    .print();
    for (name, load, target) in LOADS {
        if wanted(name) {
            let topic = format!("persistent://public/default/{}", name.replace([' ', ','], "-"));
            let outcome = publish::run(&server, &topic, load, plan.duration)?;
            target.row(name, &outcome, &probe).print();
        }
    }
    if wanted("fan-out to 1,000 subscriptions") {
        fan_out(plan, &server)?.print();
    }
    let stopped = server.stop()?;
    if wanted("graceful stop") {
        Row {
            name: "graceful stop",
            measured: format!("{stopped:.0?}"),
            target: "under 5 s".into(),
            reached: Some(stopped < Duration::from_secs(5)),
            also: String::new(),
        }
        .print();
    }
    if wanted(ACKS) || wanted(AFTER_KILL) {
        acks(plan, folder.path(), &probe)?;
    }
    if wanted(MUCH_DATA) {
        start_with_much_data(plan, folder.path())?;
    }
    if wanted("idle") || wanted("topics") {
        idle_and_topics(plan, folder.path())?;
    }
    Ok(())
}

const MUCH_DATA: &str = "start with much data";

/// From the command to the first receipt on a new topic, after an orderly stop and after a kill, from the disk.
fn start_with_much_data(plan: &Plan, folder: &std::path::Path) -> Result<(), String> {
    let data = folder.join("grown");
    let mut server = Server::start(&plan.geminga, &data)?;
    let topics = usize::try_from(plan.gibibytes).unwrap_or(1) * 1000;
    let filling = Instant::now();
    grown::fill(server.broker, topics, plan.gibibytes << 30)?;
    let filled = filling.elapsed();
    for (name, ended) in [("start with much data, stopped", true), ("start with much data, killed", false)] {
        if ended {
            server.stop()?;
        } else {
            server.kill()?;
        }
        let cold = if grown::drop_page_cache() { "page cache dropped" } else { "page cache NOT dropped: root may" };
        let started = Instant::now();
        server = Server::start(&plan.geminga, &data)?;
        let ready = started.elapsed();
        many::topics(server.broker, if ended { "after-stop" } else { "after-kill" }, 1, Clients::Leave)?;
        let took = started.elapsed();
        Row {
            name,
            measured: format!("{took:.0?}"),
            target: "under 1 s".into(),
            reached: Some(took < Duration::from_secs(1)),
            also: format!(
                "ready in {ready:.0?}; {topics} topics with {} GiB, written in {filled:.0?}, {cold}",
                plan.gibibytes
            ),
        }
        .print();
        // The next end finds something under way.
        grown::fill(server.broker, topics.min(2000), 256 << 20)?;
    }
    Ok(())
}

/// From the command to the first receipt, on a topic that must be created.
fn start(plan: &Plan, folder: &std::path::Path) -> Result<Row, String> {
    let mut took = Vec::new();
    for run in 0..5 {
        let started = Instant::now();
        let server = Server::start(&plan.geminga, &folder.join(format!("start-{run}")))?;
        first_receipt(&server)?;
        took.push(started.elapsed());
        server.kill()?;
    }
    took.sort_unstable();
    let median = took.get(took.len() / 2).copied().unwrap_or_default();
    Ok(Row {
        name: "start on an empty directory",
        measured: format!("{median:.0?}"),
        target: "under 300 ms".into(),
        reached: Some(median < Duration::from_millis(300)),
        also: format!("slowest of {}: {:.0?}", took.len(), took.last().copied().unwrap_or_default()),
    })
}

fn first_receipt(server: &Server) -> Result<(), String> {
    many::topics(server.broker, "first", 1, Clients::Leave).map(drop)
}

#[derive(Clone, Copy, Debug)]
enum Target {
    /// The median is at most sync, round trip and four wake-ups of a thread.
    OneInFlight,
    /// This share of what a window of a thousand allows.
    Window(f64),
    /// This share of the sequential synced write.
    Sequential(f64),
}

const LOADS: [(&str, Load, Target); 6] = [
    (
        "one in flight, 100 B",
        Load { window: 1, batch: 0, bytes: 100, subscriptions: 0, rest: Duration::ZERO },
        Target::OneInFlight,
    ),
    (
        "unbatched, 1000 in flight, 100 B",
        Load { window: 1000, batch: 0, bytes: 100, subscriptions: 0, rest: Duration::ZERO },
        Target::Window(0.5),
    ),
    (
        "unbatched, 1000 in flight, 1 KiB",
        Load { window: 1000, batch: 0, bytes: 1024, subscriptions: 0, rest: Duration::ZERO },
        Target::Sequential(0.35),
    ),
    (
        "batched 126 x 1 KiB, 32 in flight",
        Load { window: 32, batch: 126, bytes: 1024, subscriptions: 0, rest: Duration::ZERO },
        Target::Sequential(0.6),
    ),
    (
        "batched with a consumer",
        Load { window: 32, batch: 126, bytes: 1024, subscriptions: 1, rest: Duration::ZERO },
        Target::Sequential(0.6),
    ),
    (
        "unbatched with a consumer, 100 B",
        Load { window: 1000, batch: 0, bytes: 100, subscriptions: 1, rest: Duration::ZERO },
        Target::Window(0.5),
    ),
];

impl Target {
    fn row(self, name: &'static str, outcome: &Outcome, probe: &Probe) -> Row {
        let micros = |percentile| outcome.latency.value_at_percentile(percentile);
        let (target, reached) = match self {
            Target::OneInFlight => {
                // A wake-up of a halted processor takes 25 to 50 µs; four of them are half a round trip at the least.
                let limit = probe.sync + probe.round_trip + 4 * Duration::from_micros(40);
                (format!("p50 at most {limit:.0?}"), Duration::from_micros(micros(50.0)) <= limit)
            }
            Target::Window(share) => {
                let limit = 1000.0 / (probe.sync + probe.round_trip + CYCLE).as_secs_f64();
                let reached = outcome.messages_a_second / limit;
                (format!("{share} of {:.0}/s: at {reached:.2}", limit), reached >= share)
            }
            Target::Sequential(share) => {
                let reached = outcome.bytes_a_second / probe.sequential;
                (format!("{share} of {:.0} MB/s: at {reached:.2}", probe.sequential / 1e6), reached >= share)
            }
        };
        let received = match outcome.received_a_second {
            0.0 => String::new(),
            rate => format!(", received {rate:.0}/s"),
        };
        Row {
            name,
            measured: format!("{:.0} msg/s, {:.0} MB/s", outcome.messages_a_second, outcome.bytes_a_second / 1e6),
            target,
            reached: Some(reached),
            also: format!(
                "p50 {} p99 {} p99.9 {} µs, {:.2} CPU s/M{received}",
                micros(50.0),
                micros(99.0),
                micros(99.9),
                outcome.cpu_a_million
            ),
        }
    }
}

fn fan_out(plan: &Plan, server: &Server) -> Result<Row, String> {
    // Slow enough that what was published is delivered before the next comes: else the row is about processor time.
    let load = Load { window: 1, batch: 0, bytes: 100, subscriptions: 0, rest: Duration::from_millis(20) };
    let alone = publish::run(server, "persistent://public/default/alone", load, plan.duration)?;
    let many = Load { subscriptions: 1000, ..load };
    let fanned = publish::run(server, "persistent://public/default/fan-out", many, plan.duration)?;
    let p99 = |outcome: &Outcome| outcome.latency.value_at_percentile(99.0);
    let ratio = p99(&fanned) as f64 / p99(&alone).max(1) as f64;
    Ok(Row {
        name: "fan-out to 1,000 subscriptions",
        measured: format!("receipt p99 {} µs, without {} µs", p99(&fanned), p99(&alone)),
        target: format!("at most 1.5 times: at {ratio:.2}"),
        reached: Some(ratio <= 1.5),
        also: format!("{:.0} published/s, {:.0} received/s", fanned.messages_a_second, fanned.received_a_second),
    })
}

const ACKS: &str = "10,000 subscriptions, acks";
const AFTER_KILL: &str = "10,000 subscriptions, after kill -9";

fn acks(plan: &Plan, folder: &std::path::Path, probe: &Probe) -> Result<(), String> {
    let data = folder.join("acks");
    let server = Server::start(&plan.geminga, &data)?;
    let outcome = acks::run(&server, plan.duration)?;
    let p99 = Duration::from_micros(outcome.latency.value_at_percentile(99.0));
    let syncs = p99.as_secs_f64() / probe.sync.as_secs_f64().max(1e-6);
    let writes = outcome.metadata_writes;
    Row {
        name: ACKS,
        measured: format!(
            "{:.0} acks/s, half with receipts: p99 {} µs, {syncs:.1} S; {} metadata writes",
            outcome.acks_a_second,
            p99.as_micros(),
            writes.map_or_else(|| "?".to_owned(), |writes| writes.to_string())
        ),
        target: "p99 at most 3 S, no metadata writes".into(),
        reached: Some(syncs <= 3.0 && writes == Some(0)),
        also: format!(
            "p50 {} p99.9 {} µs, {:.2} CPU s/M, {:.0} B written an ack",
            outcome.latency.value_at_percentile(50.0),
            outcome.latency.value_at_percentile(99.9),
            outcome.cpu_a_million,
            outcome.written_an_ack
        ),
    }
    .print();
    server.kill()?;
    let started = Instant::now();
    let server = Server::start(&plan.geminga, &data)?;
    let ready = started.elapsed();
    let attached = acks::attach(server.broker)?;
    let (all, cpu) = (started.elapsed(), server.cpu()?);
    let stopped = server.stop()?;
    Row {
        name: AFTER_KILL,
        measured: format!("ready in {} ms, all answer in {} ms", ready.as_millis(), all.as_millis()),
        target: "under 1 s".into(),
        reached: Some(all < Duration::from_secs(1)),
        also: format!(
            "attaching {} ms, {:.2} CPU s; stopped in {} ms",
            attached.as_millis(),
            cpu.as_secs_f64(),
            stopped.as_millis()
        ),
    }
    .print();
    Ok(())
}

fn idle_and_topics(plan: &Plan, folder: &std::path::Path) -> Result<(), String> {
    const MIB: f64 = 1048576.0;
    let server = Server::start(&plan.geminga, &folder.join("many"))?;
    first_receipt(&server)?;
    let before = (server.cpu()?, Instant::now());
    // Nothing happens meanwhile: that is what is measured.
    std::thread::sleep(plan.duration.max(Duration::from_secs(5)));
    let idle_cpu = (server.cpu()? - before.0).as_secs_f64() / before.1.elapsed().as_secs_f64();
    let idle_rss = server.rss()?;
    Row {
        name: "idle",
        measured: format!("{:.1} MiB, {:.2} % of a core", idle_rss as f64 / MIB, idle_cpu * 100.0),
        target: "under 30 MiB and 0.5 %".into(),
        reached: Some((idle_rss as f64) < 30.0 * MIB && idle_cpu < 0.005),
        also: String::new(),
    }
    .print();
    for (name, prefix, clients, limit) in
        [("topics loaded", "left", Clients::Leave, 4.0), ("topics with clients", "stay", Clients::Stay, 16.0)]
    {
        let count = if clients == Clients::Leave { plan.topics } else { plan.topics / 5 };
        let (before, started) = (server.rss()?, Instant::now());
        let held = many::topics(server.broker, prefix, count, clients)?;
        let (took, grown) = (started.elapsed(), server.rss()?.saturating_sub(before));
        let kib = grown as f64 / 1024.0 / count.max(1) as f64;
        let a_hundred_thousand = took.as_secs_f64() * 100_000.0 / count.max(1) as f64;
        Row {
            name,
            measured: format!("{kib:.1} KiB each, {:.0} topics/s", count as f64 / took.as_secs_f64()),
            target: format!("under {limit} KiB, 100,000 in 60 s: in {a_hundred_thousand:.0} s"),
            reached: Some(kib < limit && a_hundred_thousand < 60.0),
            also: format!("{count} topics"),
        }
        .print();
        drop(held);
    }
    server.kill()
}
