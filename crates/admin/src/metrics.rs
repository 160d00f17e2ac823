//! The text that Prometheus reads.

use std::fmt::Write;
use std::path::Path;

use geminga_broker::BrokerOptions;
use geminga_disk::{Disk, OpenMode};
use geminga_model::UnixMillis;

use crate::exposition::escape;

/// What the broker knows of itself.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) cluster: String,
    pub(crate) started: UnixMillis,
    pub(crate) connections: usize,
    pub(crate) topics: usize,
    /// Classes of memory.
    pub(crate) memory: Vec<Memory>,
    pub(crate) metadata_writes: u64,
}

/// What is kept for clients of one kind.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) class: &'static str,
    pub(crate) used: usize,
    pub(crate) limit: usize,
}

/// Of all classes of a broker.
pub(crate) fn memory(options: &BrokerOptions) -> Vec<Memory> {
    let (read_ahead, cache) = (&options.topics.read_ahead, &options.topics.ledgers.cache);
    let beside = [(read_ahead.name(), read_ahead.used(), read_ahead.limit()), ("cache", cache.bytes(), cache.limit())];
    let of_connections = options.memory.used();
    of_connections.into_iter().chain(beside).map(|(class, used, limit)| Memory { class, used, limit }).collect()
}

/// What the system knows of the process; nothing where it does not say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Process {
    resident_bytes: Option<u64>,
    threads: Option<u64>,
}

/// Asks the system. Fact: Linux answers in `/proc/self/status`, a few KiB of `<name>: <value>` lines.
pub(crate) fn process(disk: &dyn Disk) -> Process {
    let Ok(file) = disk.open(Path::new("/proc/self/status"), OpenMode::Read) else { return Process::default() };
    let mut buffer = vec![0; 8192];
    let length = file.read_at(0, &mut buffer).unwrap_or(0);
    parse(&String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()))
}

fn parse(status: &str) -> Process {
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Process { resident_bytes: value("VmRSS:").map(|kib| kib * 1024), threads: value("Threads:") }
}

/// Names are Pulsar's and those that Prometheus recommends for processes.
pub(crate) fn render(facts: &Facts, process: &Process) -> String {
    let mut text = String::new();
    let cluster = escape(&facts.cluster);
    let mut line = |kind: &str, name: &str, help: &str, labels: &str, value: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}");
    };
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    let of_cluster = format!("{{cluster=\"{cluster}\"}}");
    line("gauge", "geminga_build_info", "The version that runs.", &version, &1);
    let of_version = format!("{{cluster=\"{cluster}\",version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    line("gauge", "pulsar_version_info", "The version that runs, as Pulsar tells it.", &of_version, &1);
    line("gauge", "pulsar_active_connections", "Clients that are connected.", &of_cluster, &facts.connections);
    line("gauge", "pulsar_broker_topics_count", "Topics that are open.", &of_cluster, &facts.topics);
    let started = format!("{}.{:03}", facts.started.0.div_euclid(1000), facts.started.0.rem_euclid(1000));
    line("gauge", "process_start_time_seconds", "When the process began to serve, since 1970.", "", &started);
    let written = "Metadata nodes that were asked to be written or deleted.";
    line("counter", "geminga_metadata_writes_total", written, &of_cluster, &facts.metadata_writes);
    if let Some(bytes) = &process.resident_bytes {
        line("gauge", "process_resident_memory_bytes", "Memory that the process occupies.", "", bytes);
    }
    if let Some(threads) = &process.threads {
        line("gauge", "process_threads", "Threads of the process.", "", threads);
    }
    for (name, help, value) in [
        (
            "geminga_memory_used_bytes",
            "Memory that is in use for clients.",
            (|memory| memory.used) as fn(&Memory) -> usize,
        ),
        ("geminga_memory_limit_bytes", "Memory that may be in use for clients.", |memory| memory.limit),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for memory in &facts.memory {
            let _ = writeln!(text, "{name}{{cluster=\"{cluster}\",class=\"{}\"}} {}", memory.class, value(memory));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says() {
        let status = "Name:\tgeminga\nVmRSS:\t    1024 kB\nThreads:\t7\n";
        assert_eq!(parse(status), Process { resident_bytes: Some(1 << 20), threads: Some(7) });
        assert_eq!(parse("VmRSS:\nThreads: x"), Process::default());
    }

    #[test]
    fn the_text() {
        let memory = ["ingress", "cache"].map(|class| Memory { class, used: 5, limit: 7 }).into();
        let started = UnixMillis(1_700_000_000_005);
        let facts = Facts { cluster: "a\"b".into(), started, connections: 2, topics: 3, memory, metadata_writes: 4 };
        let text = render(&facts, &Process { resident_bytes: None, threads: Some(7) });
        for line in [
            "pulsar_active_connections{cluster=\"a\\\"b\"} 2",
            "pulsar_broker_topics_count{cluster=\"a\\\"b\"} 3",
            "process_start_time_seconds 1700000000.005",
            "geminga_metadata_writes_total{cluster=\"a\\\"b\"} 4",
            "process_threads 7",
            "# TYPE process_threads gauge",
            "geminga_memory_used_bytes{cluster=\"a\\\"b\",class=\"ingress\"} 5",
            "geminga_memory_limit_bytes{cluster=\"a\\\"b\",class=\"cache\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("resident"));
    }
}
