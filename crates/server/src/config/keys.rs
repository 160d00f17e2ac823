//! The keys that have an effect, each with what it may be and where its value goes.

use std::time::Duration;

use geminga_model::NamespaceName;

use crate::config::settings::Settings;

/// What a value may be, and what it sets.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A whole number within these bounds.
    Integer { least: u64, most: u64, set: fn(&mut Settings, u64) },
    /// `true` or `false`.
    Boolean { set: fn(&mut Settings, bool) },
    /// One of these words.
    Choice { of: &'static [&'static str], set: fn(&mut Settings, &str) },
    /// A text of this form; the function tells whether it is one.
    Text { form: &'static str, set: fn(&mut Settings, &str) -> bool },
}

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Pulsar's name.
    pub(crate) name: &'static str,
    /// The option of the command line that sets it too.
    pub(crate) flag: Option<&'static str>,
    pub(crate) kind: Kind,
    /// Empty for none.
    pub(crate) default: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the document"))]
    pub(crate) unit: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the document"))]
    pub(crate) doc: &'static str,
}

impl Key {
    /// What a value may be, in words.
    pub(crate) fn form(&self) -> String {
        match &self.kind {
            Kind::Integer { least, most, .. } => format!("a whole number from {least} to {most}"),
            Kind::Boolean { .. } => "true or false".to_owned(),
            Kind::Choice { of, .. } => of.join(" or "),
            Kind::Text { form, .. } => (*form).to_owned(),
        }
    }

    /// Puts a value that is not empty into the settings; false if it is none.
    #[must_use]
    pub(crate) fn apply(&self, settings: &mut Settings, value: &str) -> bool {
        match &self.kind {
            Kind::Integer { least, most, set } => {
                let number = value.parse::<u64>().ok().filter(|number| (least..=most).contains(&number));
                number.map(|number| set(settings, number)).is_some()
            }
            Kind::Boolean { set } => match value.to_ascii_lowercase().as_str() {
                "true" => {
                    set(settings, true);
                    true
                }
                "false" => {
                    set(settings, false);
                    true
                }
                _ => false,
            },
            Kind::Choice { of, set } => of.contains(&value).then(|| set(settings, value)).is_some(),
            Kind::Text { set, .. } => set(settings, value),
        }
    }
}

/// The bounds of [`Kind::Integer`] keep all of these numbers small enough.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn port(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn minutes(number: u64) -> Duration {
    Duration::from_secs(number.saturating_mul(60))
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c))
}

/// In the order of Pulsar's files.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: "brokerServicePort",
        flag: Some("--broker-port"),
        kind: Kind::Integer { least: 0, most: 65_535, set: |s, value| s.broker_port = port(value) },
        default: "6650",
        unit: "",
        doc: "Port of the binary protocol; 0 picks a free one.",
    },
    Key {
        name: "webServicePort",
        flag: Some("--web-port"),
        kind: Kind::Integer { least: 0, most: 65_535, set: |s, value| s.web_port = port(value) },
        default: "8080",
        unit: "",
        doc: "Port of REST; 0 picks a free one.",
    },
    Key {
        name: "bindAddress",
        flag: Some("--bind-address"),
        kind: Kind::Text {
            form: "an IP address",
            set: |s, value| value.parse().map(|address| s.bind_address = address).is_ok(),
        },
        default: "127.0.0.1",
        unit: "",
        doc: "Address to listen on. Pulsar's default is 0.0.0.0; without authentication, ours is this machine alone.",
    },
    Key {
        name: "advertisedAddress",
        flag: Some("--advertised-address"),
        kind: Kind::Text {
            form: "a host name or address",
            set: |s, value| {
                s.advertised_address = Some(value.to_owned());
                is_host(value)
            },
        },
        default: "",
        unit: "",
        doc: "Host that clients are told to connect to; by default the bind address, or localhost if that is any.",
    },
    Key {
        name: "clusterName",
        flag: None,
        kind: Kind::Text {
            form: "a name of letters, digits and -=:._",
            set: |s, value| {
                value.clone_into(&mut s.cluster);
                NamespaceName::new(value, "x").is_ok()
            },
        },
        default: "standalone",
        unit: "",
        doc: "The cluster, and the start of the names of producers without one. A data directory keeps the name it was made with: another stops the start.",
    },
    Key {
        name: "maxTenants",
        flag: None,
        kind: Kind::Integer { least: 0, most: 1 << 32, set: |s, value| s.limits.max_tenants = size(value) },
        default: "0",
        unit: "",
        doc: "Tenants that there may be; 0 for any number.",
    },
    Key {
        name: "maxNamespacesPerTenant",
        flag: None,
        kind: Kind::Integer {
            least: 0,
            most: 1 << 32,
            set: |s, value| s.limits.max_namespaces_per_tenant = size(value),
        },
        default: "0",
        unit: "",
        doc: "Namespaces that a tenant may have; 0 for any number.",
    },
    Key {
        name: "defaultNumberOfNamespaceBundles",
        flag: None,
        kind: Kind::Integer { least: 1, most: 65_536, set: |s, value| s.limits.default_bundles = count(value) },
        default: "4",
        unit: "",
        doc: "Bundles of a new namespace that asks for no number.",
    },
    Key {
        name: "maxMessageSize",
        flag: None,
        kind: Kind::Integer { least: 1024, most: 100 << 20, set: |s, value| s.session.max_message_size = size(value) },
        default: "5242880",
        unit: "bytes",
        doc: "The largest message, with its metadata. Clients are told when they connect; frames may have 10 KiB more.",
    },
    Key {
        name: "keepAliveIntervalSeconds",
        flag: None,
        kind: Kind::Integer {
            least: 1,
            most: 86_400,
            set: |s, value| s.session.keep_alive = Duration::from_secs(value),
        },
        default: "30",
        unit: "s",
        doc: "How long a client may be silent before it is asked whether it is there, and again before it is given up.",
    },
    Key {
        name: "allowAutoTopicCreation",
        flag: None,
        kind: Kind::Boolean { set: |s, value| s.auto_topics.allowed = value },
        default: "true",
        unit: "",
        doc: "Whether a topic that does not exist is made when it is used.",
    },
    Key {
        name: "allowAutoTopicCreationType",
        flag: None,
        kind: Kind::Choice {
            of: &["non-partitioned", "partitioned"],
            set: |s, value| s.auto_topics.partitioned = value == "partitioned",
        },
        default: "non-partitioned",
        unit: "",
        doc: "What it is made as.",
    },
    Key {
        name: "defaultNumPartitions",
        flag: None,
        kind: Kind::Integer { least: 1, most: 10_000, set: |s, value| s.auto_topics.partitions = count(value) },
        default: "1",
        unit: "",
        doc: "Partitions of a topic that is made as partitioned.",
    },
    Key {
        name: "maxNumPartitionsPerPartitionedTopic",
        flag: None,
        kind: Kind::Integer { least: 0, most: 10_000, set: |s, value| s.limits.max_partitions = count(value) },
        default: "0",
        unit: "",
        doc: "Partitions that a topic may have; 0 for as many as this version can, 10000.",
    },
    Key {
        name: "maxUnackedMessagesPerConsumer",
        flag: None,
        kind: Kind::Integer { least: 0, most: 1 << 32, set: |s, value| s.max_unacked_per_consumer = value },
        default: "50000",
        unit: "messages",
        doc: "What a consumer of a Shared or Key_Shared subscription may hold without acknowledging; 0 for any number.",
    },
    Key {
        name: "maxConsumerMetadataSize",
        flag: None,
        kind: Kind::Integer { least: 0, most: 1 << 20, set: |s, value| s.session.max_consumer_metadata = size(value) },
        default: "1024",
        unit: "bytes",
        doc: "Keys and values that a consumer may be described with.",
    },
    Key {
        name: "enableBrokerSideSubscriptionPatternEvaluation",
        flag: None,
        kind: Kind::Boolean { set: |s, value| s.session.topic_watchers = value },
        default: "true",
        unit: "",
        doc: "Whether the broker filters topics by a consumer's pattern and tells it of new ones.",
    },
    Key {
        name: "subscriptionPatternMaxLength",
        flag: None,
        kind: Kind::Integer { least: 1, most: 10_000, set: |s, value| s.session.max_pattern_len = size(value) },
        default: "50",
        unit: "characters",
        doc: "The longest pattern that the broker filters by.",
    },
    Key {
        name: "managedLedgerCacheSizeMB",
        flag: None,
        kind: Kind::Integer { least: 0, most: 1 << 24, set: |s, value| s.cache_bytes = Some(size(value << 20)) },
        default: "",
        unit: "MiB",
        doc: "Memory for the newest entries of all topics, from which consumers that keep up are served; by default 3/16 of --memory.",
    },
    Key {
        name: "managedLedgerMaxEntriesPerLedger",
        flag: None,
        kind: Kind::Integer { least: 1, most: 1 << 40, set: |s, value| s.rollover.max_entries = value.cast_signed() },
        default: "50000",
        unit: "entries",
        doc: "Entries after which a topic goes on in another ledger.",
    },
    Key {
        name: "managedLedgerMinLedgerRolloverTimeMinutes",
        flag: None,
        kind: Kind::Integer { least: 0, most: 1 << 32, set: |s, value| s.rollover.min_age = minutes(value) },
        default: "10",
        unit: "min",
        doc: "How long a topic stays in a ledger at least.",
    },
    Key {
        name: "managedLedgerMaxLedgerRolloverTimeMinutes",
        flag: None,
        kind: Kind::Integer { least: 1, most: 1 << 32, set: |s, value| s.rollover.max_age = minutes(value) },
        default: "240",
        unit: "min",
        doc: "How long it stays in a ledger at most.",
    },
    Key {
        name: "managedLedgerMaxSizePerLedgerMbytes",
        flag: None,
        kind: Kind::Integer {
            least: 1,
            most: 1 << 32,
            set: |s, value| s.rollover.max_bytes = (value << 20).cast_signed(),
        },
        default: "2048",
        unit: "MiB",
        doc: "Bytes after which a topic goes on in another ledger.",
    },
];
