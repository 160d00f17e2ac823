//! What the configuration comes to: the values that the parts of a standalone are started with.

use std::net::{IpAddr, Ipv4Addr};

use geminga_broker::Limits;
use geminga_managed_ledger::Rollover;
use geminga_session::SessionConfig;

/// How topics that do not exist are made, before the number of partitions is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AutoTopics {
    pub(crate) allowed: bool,
    pub(crate) partitioned: bool,
    pub(crate) partitions: u32,
}

/// See the module. Built from the table of keys alone: [`Settings::blank`] is nobody's default.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) bind_address: IpAddr,
    pub(crate) advertised_address: Option<String>,
    pub(crate) broker_port: u16,
    pub(crate) web_port: u16,
    pub(crate) cluster: String,
    pub(crate) session: SessionConfig,
    pub(crate) limits: Limits,
    pub(crate) auto_topics: AutoTopics,
    pub(crate) max_unacked_per_consumer: u64,
    pub(crate) rollover: Rollover,
    /// Bytes of the tails of topics that are kept in memory.
    pub(crate) cache_bytes: Option<usize>,
}

impl Settings {
    /// What the table's defaults are put into.
    pub(crate) fn blank() -> Settings {
        Settings {
            bind_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            advertised_address: None,
            broker_port: 0,
            web_port: 0,
            cluster: String::new(),
            session: SessionConfig::default(),
            limits: Limits::default(),
            auto_topics: AutoTopics { allowed: true, partitioned: false, partitions: 1 },
            max_unacked_per_consumer: 0,
            rollover: Rollover::default(),
            cache_bytes: None,
        }
    }
}
