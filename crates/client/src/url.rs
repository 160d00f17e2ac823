//! Service URLs.

use std::fmt;
use std::str::FromStr;

use crate::error::ClientError;

/// The port of brokers unless the URL says another.
const DEFAULT_PORT: u16 = 6650;

/// `pulsar://<host>:<port>` with one or more hosts, any of which can tell where topics are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceUrl {
    hosts: Vec<String>,
}

impl ServiceUrl {
    /// The hosts with their ports.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// `<host>:<port>` of each host, with commas between.
    #[must_use]
    pub fn authority(&self) -> String {
        self.hosts.join(",")
    }
}

impl FromStr for ServiceUrl {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<ServiceUrl, ClientError> {
        let invalid = |reason| ClientError::InvalidUrl { url: text.to_owned(), reason };
        let rest = match text.trim().split_once("://") {
            Some(("pulsar", rest)) => rest.trim_end_matches('/'),
            Some(("pulsar+ssl", _)) => return Err(invalid("TLS is not in this version")),
            Some(("http" | "https", _)) => return Err(invalid("look-up over HTTP is not in this version")),
            Some(_) => return Err(invalid("unknown scheme")),
            None => return Err(invalid("the scheme is missing")),
        };
        let hosts: Option<Vec<String>> = rest.split(',').map(host).collect();
        hosts.map(|hosts| ServiceUrl { hosts }).ok_or_else(|| invalid("a host or port is missing or wrong"))
    }
}

/// A host with its port; an IPv6 address stands in brackets.
fn host(text: &str) -> Option<String> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
        _ => (text, DEFAULT_PORT),
    };
    let bracketed = name.starts_with('[') && name.ends_with(']');
    let legal = !name.is_empty() && !name.contains(['/', '@', ' ']) && (bracketed || !name.contains(':'));
    legal.then(|| format!("{name}:{port}"))
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pulsar://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (text, printed) in [
            ("pulsar://localhost", "pulsar://localhost:6650"),
            ("pulsar://a:1,b:2/", "pulsar://a:1,b:2"),
            ("pulsar://[::1]:7", "pulsar://[::1]:7"),
            ("pulsar://[::1]", "pulsar://[::1]:6650"),
        ] {
            assert_eq!(text.parse::<ServiceUrl>().unwrap().to_string(), printed);
        }
        for bad in [
            "",
            "localhost:6650",
            "pulsar://",
            "pulsar://a:x",
            "pulsar://a,,b",
            "http://a",
            "pulsar+ssl://a",
            "pulsar://::1",
        ] {
            let error = bad.parse::<ServiceUrl>().unwrap_err();
            assert!(matches!(error, ClientError::InvalidUrl { .. }), "{bad}");
        }
        let error = "pulsar+ssl://a".parse::<ServiceUrl>().unwrap_err();
        assert!(error.to_string().contains("TLS is not in this version"));
    }
}
