//! Geminga beside Apache Pulsar: the same client, load, durability and memory, in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use geminga_wire::proto::MessageMetadata;
use geminga_wire::{SendCommand, encode_entry, encode_send_header};

use crate::connection::Connection;
use crate::probe;
use crate::publish::{self, Load};
use crate::pulsar;
use crate::server::Server;

/// What is to be compared, and for how long.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) geminga: PathBuf,
    /// The folder with Pulsar's `bin`, `conf` and `lib`.
    pub(crate) pulsar: PathBuf,
    /// Where data is kept while it runs.
    pub(crate) folder: PathBuf,
    /// Only loads whose name has this in it.
    pub(crate) only: String,
    pub(crate) rounds: usize,
    /// Of the same load, before each measured interval.
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// Geminga's cap, that of Pulsar's heap and direct memory together.
const MEMORY: &str = "1G";
/// How long a peer may take until it stores its first message.
const READY_DEADLINE: Duration = Duration::from_secs(120);
/// Between two attempts to reach one that starts.
const PAUSE: Duration = Duration::from_millis(5);
const MIB: f64 = 1048576.0;

const LOADS: [(&str, Load); 6] = [
    ("one in flight, 100 B", load(1, 0, 100, 0)),
    ("unbatched 100 B, 1000 in flight", load(1000, 0, 100, 0)),
    ("unbatched 1 KiB, 1000 in flight", load(1000, 0, 1024, 0)),
    ("batched 1000 x 100 B, 32 in flight", load(32, 1000, 100, 0)),
    ("batched 126 x 1 KiB, 32 in flight", load(32, 126, 1024, 0)),
    ("fan-out 10, 100 B, 100 in flight", load(100, 0, 100, 10)),
];

const fn load(window: usize, batch: u32, bytes: usize, subscriptions: usize) -> Load {
    Load { window, batch, bytes, subscriptions, rest: Duration::ZERO }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Geminga,
    Pulsar,
}

/// One figure, of the rounds so far.
#[derive(Debug, Default)]
struct Figure {
    name: String,
    geminga: Vec<f64>,
    pulsar: Vec<f64>,
}

/// Prints a table. Errors are of the run.
pub(crate) fn run(plan: &Plan) -> Result<(), String> {
    // Absolute, as Pulsar starts in a folder of its own.
    let base = fs::canonicalize(&plan.folder).map_err(|error| format!("{}: {error}", plan.folder.display()))?;
    let folder = tempfile::Builder::new().prefix("geminga-compare-").tempdir_in(base).map_err(|e| e.to_string())?;
    describe(plan);
    let mut figures = Vec::new();
    for round in 0..plan.rounds {
        // Whoever comes second in a round comes first in the next, so that a drift of the machine favours neither.
        let order = if round % 2 == 0 { [Peer::Geminga, Peer::Pulsar] } else { [Peer::Pulsar, Peer::Geminga] };
        for peer in order {
            let (sync, sequential) = probe::disk(folder.path())?;
            let loaded = fs::read_to_string("/proc/loadavg").unwrap_or_default();
            println!(
                "Round {}, {peer:?}; the machine before it: S {sync:?}, sequential, synced each 4 MiB: {:.0} MB/s, load {}",
                round + 1,
                sequential / 1e6,
                loaded.split(' ').next().unwrap_or("unknown")
            );
            let data = folder.path().join("data");
            let measured = turn(plan, peer, &data);
            fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
            collect(&mut figures, peer, measured?);
        }
    }
    println!("\n| what | Geminga | Pulsar | Geminga / Pulsar |\n|---|---|---|---|");
    figures.iter().for_each(|figure| println!("{}", figure.row()));
    Ok(())
}

fn describe(plan: &Plan) {
    let version = Command::new(&plan.geminga).arg("version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    println!("Geminga: {}; as shipped; --memory {MEMORY}", version.lines().next().unwrap_or("of unknown version"));
    println!("Pulsar: {}", pulsar::settings(&plan.pulsar));
    println!(
        "Both acknowledge a message when it is synced to disk, in one copy. Of each load {} s are warm-up and then {} s \
         are measured, in {} rounds; every round starts on empty data.\n",
        plan.warm_up.as_secs(),
        plan.measured.as_secs(),
        plan.rounds
    );
}

/// One peer under all loads, on empty data. Returns figures by name.
fn turn(plan: &Plan, peer: Peer, data: &Path) -> Result<Vec<(String, f64)>, String> {
    let started = Instant::now();
    let mut server = match peer {
        Peer::Geminga => Server::start_with(&plan.geminga, data, &["--memory", MEMORY])?,
        Peer::Pulsar => pulsar::start(&plan.pulsar, data)?,
    };
    await_first_receipt(&mut server, started).map_err(|error| match peer {
        Peer::Geminga => error,
        Peer::Pulsar => format!("{error}; Pulsar's last words:\n{}", pulsar::last_words(data)),
    })?;
    let mut figures = vec![("start to first receipt, ms".to_owned(), started.elapsed().as_secs_f64() * 1e3)];
    // Counted in ticks of 10 ms.
    figures.push(("start to first receipt, CPU s (0.01 at least)".to_owned(), server.cpu()?.as_secs_f64().max(0.01)));
    // It may still be busy with starting; nothing is measured but what it holds then.
    thread::sleep(Duration::from_secs(2));
    figures.push(("memory after the first message, MiB".to_owned(), server.memory()? as f64 / MIB));
    let mut most = 0;
    for (name, load) in LOADS.iter().filter(|(name, _)| name.contains(&plan.only)) {
        let topic = topic(&name.replace([' ', ','], "-"));
        Connection::open(server.broker)?.look_up(&topic)?;
        let outcome = publish::run_after(&server, &topic, *load, plan.warm_up, plan.measured)
            .map_err(|error| format!("{peer:?}, {name}: {error}"))?;
        most = most.max(server.memory()?);
        figures.push((format!("{name}: msg/s"), outcome.messages_a_second));
        if load.subscriptions > 0 {
            figures.push((format!("{name}: received/s"), outcome.received_a_second));
        }
        for percentile in [50.0, 99.0] {
            let micros = outcome.latency.value_at_percentile(percentile) as f64;
            figures.push((format!("{name}: receipt p{percentile}, µs"), micros));
        }
        figures.push((format!("{name}: CPU s per million published"), outcome.cpu_a_million));
    }
    if most > 0 {
        figures.push(("memory, most after a load, MiB".to_owned(), most as f64 / MIB));
    }
    // Pings take the path of a message but for topic and storage; the code for them is warm by now.
    let round_trip = probe::round_trip(&mut Connection::open(server.broker)?)?;
    figures.push(("ping, one in flight: p50, µs".to_owned(), round_trip.as_secs_f64() * 1e6));
    server.kill()?;
    Ok(figures)
}

fn topic(name: &str) -> String {
    format!("persistent://public/default/{name}")
}

/// Tries until a message on a new topic is acknowledged.
fn await_first_receipt(server: &mut Server, started: Instant) -> Result<(), String> {
    loop {
        match first_receipt(server) {
            Ok(()) => return Ok(()),
            Err(error) if server.has_ended() => return Err(format!("the server ended before it was ready ({error})")),
            Err(error) if started.elapsed() >= READY_DEADLINE => {
                return Err(format!("no message is stored after {READY_DEADLINE:?} ({error})"));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn first_receipt(server: &Server) -> Result<(), String> {
    let topic = topic("first");
    let mut connection = Connection::open(server.broker)?;
    connection.look_up(&topic)?;
    let producer = connection.open_producer(&topic)?;
    let metadata =
        MessageMetadata { producer_name: "bench".into(), publish_time: 1_700_000_000_000, ..Default::default() };
    let entry = encode_entry(&metadata, b"first");
    let mut out = bytes::BytesMut::new();
    encode_send_header(&mut out, &SendCommand::new(producer, 0), entry.len());
    out.extend_from_slice(&entry);
    connection.write(&out)?;
    while !matches!(connection.next()?.0, geminga_wire::Command::SendReceipt(_)) {}
    Ok(())
}

fn collect(figures: &mut Vec<Figure>, peer: Peer, measured: Vec<(String, f64)>) {
    for (name, value) in measured {
        let at = figures.iter().position(|figure| figure.name == name).unwrap_or_else(|| {
            figures.push(Figure { name, ..Figure::default() });
            figures.len() - 1
        });
        if let Some(figure) = figures.get_mut(at) {
            match peer {
                Peer::Geminga => figure.geminga.push(value),
                Peer::Pulsar => figure.pulsar.push(value),
            }
        }
    }
}

impl Figure {
    /// Every round's value, and every round's ratio with their geometric mean before them.
    fn row(&self) -> String {
        let ratios: Vec<f64> = self.geminga.iter().zip(&self.pulsar).map(|(ours, theirs)| ours / theirs).collect();
        let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        let mean = (logs / ratios.len().max(1) as f64).exp();
        let list = |values: &[f64]| values.iter().map(|value| rounded(*value)).collect::<Vec<_>>().join(", ");
        let (ours, theirs) = (list(&self.geminga), list(&self.pulsar));
        format!("| {} | {ours} | {theirs} | **{}** ({}) |", self.name, rounded(mean), list(&ratios))
    }
}

/// Three digits at least.
fn rounded(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else if value >= 1.0 {
        2
    } else {
        4
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_ratio_of_each_round() {
        let mut figures = Vec::new();
        let measured = |a: f64, b: f64| vec![("start, ms".to_owned(), a), ("rate".to_owned(), b)];
        collect(&mut figures, Peer::Geminga, measured(20.0, 400_000.0));
        collect(&mut figures, Peer::Pulsar, measured(4000.0, 50_000.0));
        collect(&mut figures, Peer::Pulsar, measured(5000.0, 40_000.0));
        collect(&mut figures, Peer::Geminga, measured(25.0, 80_000.0));
        let rows: Vec<String> = figures.iter().map(Figure::row).collect();
        assert_eq!(
            rows,
            [
                "| start, ms | 20.0, 25.0 | 4000, 5000 | **0.0050** (0.0050, 0.0050) |",
                "| rate | 400000, 80000 | 50000, 40000 | **4.00** (8.00, 2.00) |",
            ]
        );
    }
}
