//! What a broker says of itself and of where topics are.

use serde::{Deserialize, Serialize};

/// Where a topic is served, as look-up over HTTP answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LookupData {
    /// Address of the binary protocol.
    pub broker_url: String,
    /// Address of the binary protocol over TLS; empty without. Fact: the C++ client refuses an answer that lacks it.
    pub broker_url_tls: String,
    /// Address of REST.
    pub http_url: String,
    /// Address of REST over TLS; empty without. Fact: as `broker_url_tls`.
    pub http_url_tls: String,
    /// What very old clients read: the same as `broker_url`.
    pub native_url: String,
}

/// A broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrokerInfo {
    /// Address of REST.
    pub service_url: String,
    /// Its name among brokers: host and port of REST.
    pub broker_id: String,
}

/// The part of a broker's configuration that tools ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeConfiguration {
    /// The cluster that it belongs to.
    pub cluster_name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_pulsars() {
        let found = LookupData { broker_url: "a".into(), http_url: "b".into(), ..LookupData::default() };
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(json, r#"{"brokerUrl":"a","brokerUrlTls":"","httpUrl":"b","httpUrlTls":"","nativeUrl":""}"#);
        let configuration = RuntimeConfiguration { cluster_name: "c".into() };
        assert_eq!(serde_json::to_string(&configuration).unwrap(), r#"{"clusterName":"c"}"#);
    }
}
