//! The configuration: from a file, the environment and the command line to values that were checked.
//!
//! [`resolve`] is pure. Flags win over the environment, which wins over the file. What is wrong is told all at once;
//! what this version does not know, or knows and does not heed, is listed for one line of the log.
//!
//! Start reading at [`resolve`], then `config/keys.rs`.

mod keys;
mod properties;
mod protection;
mod settings;
mod source;

#[cfg(test)]
mod document;

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use geminga_broker::AutoCreation;

pub(crate) use keys::KEYS;
use keys::Key;
use protection::PROTECTIONS;
pub(crate) use settings::Settings;
pub(crate) use source::{Origin, Sources, read_file};

/// The names of Pulsar's keys, one a line, with the values that its files have for them: whoever leaves those as they
/// are asks for nothing.
const PULSAR_KEYS: &str = include_str!("config/pulsar_keys.txt");

/// What was configured.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) settings: Settings,
    /// Every key that has an effect, with its value and where that came from.
    values: Vec<(&'static Key, String, Origin)>,
    /// Keys of Pulsar that were changed and have no effect in this version, sorted.
    pub(crate) without_effect: Vec<String>,
    /// Keys that nobody knows, sorted.
    pub(crate) unknown: Vec<String>,
}

/// Checks everything that was given.
///
/// # Errors
/// One text for each thing that is wrong.
pub(crate) fn resolve(sources: &Sources) -> Result<Config, Vec<String>> {
    let mut given: BTreeMap<String, (String, Origin)> = sources.merged(&|name| is_known(name));
    let mut wrong = Vec::new();
    let mut settings = Settings::blank();
    let mut values = Vec::new();
    for key in KEYS {
        let (value, origin) = given.remove(key.name).unwrap_or_else(|| (key.default.to_owned(), Origin::Default));
        if !value.is_empty() && !key.apply(&mut settings, &value) {
            let name = key.name_in(origin);
            wrong.push(format!("{name}={} ({origin}): it must be {}", value.escape_debug(), key.form()));
        }
        values.push((key, value, origin));
    }
    for protection in PROTECTIONS {
        if let Some((value, origin)) = given.remove(protection.name)
            && protection.asked_by(&value)
        {
            wrong.push(format!(
                "{} ({origin}): it asks for {}, which is not in this version; to start without, leave it out",
                protection.name, protection.what
            ));
        }
    }
    let (mut without_effect, mut unknown) = (Vec::new(), Vec::new());
    for (name, (value, _)) in given {
        let shown = name.escape_debug().to_string();
        match is_known(&name) {
            true if is_pulsars(&name, &value) => {}
            true => without_effect.push(shown),
            false => unknown.push(shown),
        }
    }
    together(&mut settings, &mut wrong);
    if wrong.is_empty() { Ok(Config { settings, values, without_effect, unknown }) } else { Err(wrong) }
}

/// What several keys say together.
fn together(settings: &mut Settings, wrong: &mut Vec<String>) {
    let auto = settings.auto_topics;
    settings.limits.auto_creation = match (auto.allowed, auto.partitioned) {
        (false, _) => AutoCreation::Off,
        (true, false) => AutoCreation::Plain,
        (true, true) => AutoCreation::Partitioned(auto.partitions),
    };
    let most = settings.limits.max_partitions;
    if most > 0 && auto.partitions > most {
        wrong.push("defaultNumPartitions is above maxNumPartitionsPerPartitionedTopic".to_owned());
    }
    if settings.rollover.min_age > settings.rollover.max_age {
        let text = "managedLedgerMinLedgerRolloverTimeMinutes is above managedLedgerMaxLedgerRolloverTimeMinutes";
        wrong.push(text.to_owned());
    }
}

/// Whether it is a key of Pulsar's.
fn is_known(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name)
        || PROTECTIONS.iter().any(|protection| protection.name == name)
        || pulsar_keys().any(|(known, _)| known == name)
}

/// Whether Pulsar's files have this value.
fn is_pulsars(name: &str, value: &str) -> bool {
    pulsar_keys().any(|(known, default)| known == name && default == Some(value))
}

fn pulsar_keys() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    PULSAR_KEYS.lines().map(|line| line.split_once('=').map_or((line, None), |(name, value)| (name, Some(value))))
}

impl Key {
    /// What whoever set it there called it.
    fn name_in(&self, origin: Origin) -> &'static str {
        match origin {
            Origin::Flag => self.flag.unwrap_or(self.name),
            Origin::Default | Origin::File | Origin::Environment => self.name,
        }
    }
}

impl fmt::Display for Config {
    /// A line for each key: name, value, where that came from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.values.iter().map(|(key, value, _)| key.name.len() + value.len()).max().unwrap_or(0) + 1;
        for (key, value, origin) in &self.values {
            let mut line = String::new();
            write!(line, "{}={}", key.name, value.escape_debug())?;
            writeln!(f, "{line:<width$}  # {origin}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn sources(file: &[(&str, &str)], environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
        let flags = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Sources { file: pairs(file), environment: pairs(environment), flags }
    }

    #[test]
    fn defaults_are_those_of_the_parts() {
        let config = resolve(&sources(&[], &[], &[])).unwrap();
        let settings = config.settings;
        assert_eq!(settings.session, geminga_session::SessionConfig::default());
        assert_eq!(settings.limits, geminga_broker::Limits::default());
        assert_eq!(settings.rollover, geminga_managed_ledger::Rollover::default());
        assert_eq!((settings.broker_port, settings.web_port, settings.cluster.as_str()), (6650, 8080, "standalone"));
        assert_eq!((settings.advertised_address, settings.cache_bytes), (None, None));
        assert_eq!(settings.max_unacked_per_consumer, 50_000);
        assert!(settings.bind_address.is_loopback());
        assert!(config.without_effect.is_empty() && config.unknown.is_empty());
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file = [
            ("brokerServicePort", "1"),
            ("webServicePort", "1"),
            ("bindAddress", "0.0.0.0"),
            ("clusterName", ""),
            ("keepAliveIntervalSeconds", "7"),
            ("maxMessageSize", "1"),
        ];
        let environment = [
            ("PULSAR_PREFIX_brokerServicePort", "2"),
            ("webServicePort", "2"),
            ("PULSAR_PREFIX_maxMessageSize", "1024000"),
            ("maxMessageSize", "3"),
            ("PATH", "/bin"),
            ("PULSAR_MEM", "-Xmx1g"),
        ];
        let config = resolve(&sources(&file, &environment, &[("brokerServicePort", "3")])).unwrap();
        let settings = &config.settings;
        assert_eq!((settings.broker_port, settings.web_port), (3, 2));
        assert_eq!(
            (settings.session.max_message_size, settings.session.keep_alive),
            (1_024_000, Duration::from_secs(7))
        );
        assert!(settings.bind_address.is_unspecified());
        assert_eq!(settings.cluster, "standalone");
        let shown = config.to_string();
        for (value, origin) in [
            ("brokerServicePort=3", "# flag"),
            ("webServicePort=2", "# environment"),
            ("bindAddress=0.0.0.0", "# file"),
            ("clusterName=standalone", "# default"),
        ] {
            let line = shown.lines().find(|line| line.starts_with(value)).unwrap();
            assert!(line.ends_with(origin), "{line}");
        }
        assert_eq!(shown.lines().count(), KEYS.len());
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let file = [
            ("maxMessageSize", "a lot"),
            ("allowAutoTopicCreationType", "some"),
            ("allowAutoTopicCreation", "yes"),
            ("bindAddress", "localhost"),
            ("authenticationEnabled", "true"),
            ("managedLedgerDefaultWriteQuorum", "2"),
            ("managedLedgerDefaultAckQuorum", "1"),
            ("managedLedgerPassword", "hunter2"),
            ("metadataStoreUrl", "zk:a:2181"),
            ("brokerServicePortTls", ""),
            ("managedLedgerMinLedgerRolloverTimeMinutes", "300"),
            ("maxNumPartitionsPerPartitionedTopic", "2"),
            ("defaultNumPartitions", "3"),
        ];
        let wrong = resolve(&sources(&file, &[("tlsEnabled", "TRUE")], &[("webServicePort", "70000")])).unwrap_err();
        let said = wrong.join("\n");
        for text in [
            "maxMessageSize=a lot (file): it must be a whole number from 1024 to 104857600",
            "allowAutoTopicCreationType=some (file): it must be non-partitioned or partitioned",
            "allowAutoTopicCreation=yes (file): it must be true or false",
            "bindAddress=localhost (file): it must be an IP address",
            "authenticationEnabled (file): it asks for authentication",
            "managedLedgerDefaultWriteQuorum (file)",
            "managedLedgerPassword (file)",
            "metadataStoreUrl (file)",
            "tlsEnabled (environment): it asks for encryption of connections",
            "--web-port=70000 (flag)",
            "managedLedgerMinLedgerRolloverTimeMinutes is above",
            "defaultNumPartitions is above",
        ] {
            assert!(said.contains(text), "{text} is not in\n{said}");
        }
        assert_eq!(wrong.len(), 12, "{said}");
        assert!(!said.contains("hunter2"));
    }

    #[test]
    fn what_has_no_effect_is_listed_unless_it_is_as_pulsar_has_it() {
        let file = [
            ("numIOThreads", "8"),
            ("brokerDeleteInactiveTopicsEnabled", "true"),
            ("loadBalancerEnabled", "false"),
            ("ttlDurationDefaultInSeconds", "60"),
            ("authenticationEnabled", "false"),
            ("maxMesageSize", "1"),
        ];
        let config = resolve(&sources(&file, &[("PULSAR_PREFIX_nosuch", "1"), ("other", "2")], &[])).unwrap();
        assert_eq!(config.without_effect, ["numIOThreads", "ttlDurationDefaultInSeconds"]);
        assert_eq!(config.unknown, ["maxMesageSize", "nosuch"]);
    }

    #[test]
    fn topics_are_made_as_several_keys_say() {
        let made = |file: &[(&str, &str)]| resolve(&sources(file, &[], &[])).unwrap().settings.limits.auto_creation;
        assert_eq!(made(&[("allowAutoTopicCreation", "False")]), AutoCreation::Off);
        let partitioned = [("allowAutoTopicCreationType", "partitioned"), ("defaultNumPartitions", "3")];
        assert_eq!(made(&partitioned), AutoCreation::Partitioned(3));
        assert_eq!(made(&partitioned[1..]), AutoCreation::Plain);
    }
}
