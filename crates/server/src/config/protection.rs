//! Keys that ask for something a message or its reader relies on, and that have no effect in this version.
//!
//! To start without it would be to promise it. So a value that asks for it stops the start.

/// What values of a key ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// `true` does.
    True,
    /// Any value does.
    Set,
    /// A number above this does.
    Above(u64),
    /// Any other value than this does.
    Not(&'static str),
}

/// One such key.
#[derive(Debug)]
pub(crate) struct Protection {
    pub(crate) name: &'static str,
    asks: Asks,
    /// What is asked for.
    pub(crate) what: &'static str,
}

const fn protection(name: &'static str, asks: Asks, what: &'static str) -> Protection {
    Protection { name, asks, what }
}

const TLS: &str = "encryption of connections";
const COPIES: &str = "several copies of each entry";
const ELSEWHERE: &str = "metadata outside of this process";
const KEPT: &str = "messages that are kept after they are acknowledged";

/// In the order of Pulsar's files.
pub(crate) const PROTECTIONS: &[Protection] = &[
    protection("metadataStoreUrl", Asks::Set, ELSEWHERE),
    protection("configurationMetadataStoreUrl", Asks::Set, ELSEWHERE),
    protection("zookeeperServers", Asks::Set, ELSEWHERE),
    protection("configurationStoreServers", Asks::Set, ELSEWHERE),
    protection("brokerServicePortTls", Asks::Set, TLS),
    protection("webServicePortTls", Asks::Set, TLS),
    protection("tlsEnabled", Asks::True, TLS),
    protection("tlsEnabledWithKeyStore", Asks::True, TLS),
    protection("tlsRequireTrustedClientCertOnConnect", Asks::True, "certificates of clients"),
    protection("brokerClientTlsEnabled", Asks::True, TLS),
    protection("brokerClientTlsEnabledWithKeyStore", Asks::True, TLS),
    protection("authenticationEnabled", Asks::True, "authentication"),
    protection("authorizationEnabled", Asks::True, "authorization"),
    protection("authenticateMetricsEndpoint", Asks::True, "authentication"),
    protection("encryptionRequireOnProducer", Asks::True, "refusing messages that are not encrypted"),
    protection("isSchemaValidationEnforced", Asks::True, "refusing producers without a schema"),
    protection("brokerDeduplicationEnabled", Asks::True, "deduplication"),
    protection("defaultRetentionTimeInMinutes", Asks::Not("0"), KEPT),
    protection("defaultRetentionSizeInMB", Asks::Not("0"), KEPT),
    protection("managedLedgerDefaultEnsembleSize", Asks::Above(1), COPIES),
    protection("managedLedgerDefaultWriteQuorum", Asks::Above(1), COPIES),
    protection("managedLedgerDefaultAckQuorum", Asks::Above(1), COPIES),
    protection("managedLedgerDigestType", Asks::Not("CRC32C"), "another checksum of entries than CRC32C"),
    protection("managedLedgerPassword", Asks::Set, "a password of ledgers"),
    protection("bookkeeperTLSClientAuthentication", Asks::True, TLS),
    protection("bookkeeperClientEnforceMinNumRacksPerWriteQuorum", Asks::True, COPIES),
];

impl Protection {
    /// Which values ask, in words.
    #[cfg(test)]
    pub(crate) fn values(&self) -> String {
        match self.asks {
            Asks::True => "`true`".to_owned(),
            Asks::Set => "any".to_owned(),
            Asks::Above(most) => format!("above {most}"),
            Asks::Not(harmless) => format!("any but `{harmless}`"),
        }
    }

    /// Whether this value, which is not empty, asks for it. One that is not understood does.
    pub(crate) fn asked_by(&self, value: &str) -> bool {
        match self.asks {
            Asks::True => !value.eq_ignore_ascii_case("false"),
            Asks::Set => true,
            Asks::Above(most) => value.parse::<u64>().map_or(true, |number| number > most),
            Asks::Not(harmless) => value != harmless,
        }
    }
}
