//! Topic and namespace names.
//!
//! Facts: full form `<domain>://<tenant>/<namespace>/<local>`; `<local>` alone means `persistent://public/default/…`,
//! three segments without a scheme mean the persistent domain. The local part may contain further slashes. A suffix
//! `-partition-<n>` without leading zeros names a partition.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::encoding::{decode_local_name, encode_local_name};

const PARTITION_SUFFIX: &str = "-partition-";

/// Whether a topic's messages are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// Stored in ledgers.
    Persistent,
    /// Handed from producer to consumers and kept nowhere.
    NonPersistent,
}

impl Domain {
    /// The domain as names and paths spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Domain::Persistent => "persistent",
            Domain::NonPersistent => "non-persistent",
        }
    }

    fn parse(text: &str) -> Option<Domain> {
        [Domain::Persistent, Domain::NonPersistent].into_iter().find(|domain| domain.as_str() == text)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a text is not a name; the message is fit for the person who typed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// Not `<domain>://<tenant>/<namespace>/<topic>` or one of its short forms.
    #[error(
        "invalid topic name '{0}': expected <domain>://<tenant>/<namespace>/<topic>, <tenant>/<namespace>/<topic> or <topic>"
    )]
    TopicShape(String),
    /// A domain other than `persistent` and `non-persistent`.
    #[error("invalid topic name '{0}': the domain must be persistent or non-persistent")]
    Domain(String),
    /// Not `<tenant>/<namespace>`.
    #[error("invalid namespace name '{0}': expected <tenant>/<namespace>")]
    NamespaceShape(String),
    /// A tenant or namespace with a character that is not allowed.
    #[error("invalid name '{0}': tenants, namespaces and clusters take letters, digits and the characters _ - = : .")]
    Characters(String),
}

fn check_segment(segment: &str) -> Result<(), InvalidName> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '=' | ':' | '.');
    if segment.is_empty() || !segment.chars().all(legal) {
        return Err(InvalidName::Characters(segment.to_owned()));
    }
    Ok(())
}

/// `<tenant>/<namespace>`: the unit of policies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceName {
    text: Arc<str>,
    tenant_len: usize,
}

impl NamespaceName {
    /// The namespace `namespace` of `tenant`.
    ///
    /// # Errors
    /// [`InvalidName::Characters`] if either part is empty or has a character that Pulsar refuses.
    pub fn new(tenant: &str, namespace: &str) -> Result<NamespaceName, InvalidName> {
        check_segment(tenant)?;
        check_segment(namespace)?;
        Ok(NamespaceName { text: format!("{tenant}/{namespace}").into(), tenant_len: tenant.len() })
    }

    /// `public/default`, where short topic names live.
    #[must_use]
    pub fn public_default() -> NamespaceName {
        NamespaceName { text: "public/default".into(), tenant_len: "public".len() }
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.text[..self.tenant_len]
    }

    /// The part after the tenant.
    #[must_use]
    pub fn local(&self) -> &str {
        &self.text[self.tenant_len + 1..]
    }

    /// `<tenant>/<namespace>`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for NamespaceName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<NamespaceName, InvalidName> {
        match text.split_once('/') {
            Some((tenant, namespace)) if !namespace.contains('/') => NamespaceName::new(tenant, namespace),
            _ => Err(InvalidName::NamespaceShape(text.to_owned())),
        }
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A topic, or one partition of a partitioned topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    domain: Domain,
    namespace: NamespaceName,
    local: Arc<str>,
}

impl TopicName {
    /// The topic `local` of `namespace`.
    ///
    /// # Errors
    /// [`InvalidName::TopicShape`] if the local name is blank.
    pub fn new(domain: Domain, namespace: NamespaceName, local: &str) -> Result<TopicName, InvalidName> {
        if local.trim().is_empty() {
            return Err(InvalidName::TopicShape(format!("{domain}://{namespace}/{local}")));
        }
        Ok(TopicName { domain, namespace, local: local.into() })
    }

    /// The topic of a REST or lookup path, whose local name is URL-encoded.
    ///
    /// # Errors
    /// [`InvalidName`] as for [`TopicName::new`], also for a local name with broken escapes.
    pub fn from_encoded(domain: &str, tenant: &str, namespace: &str, encoded: &str) -> Result<TopicName, InvalidName> {
        let domain = Domain::parse(domain).ok_or_else(|| InvalidName::Domain(domain.to_owned()))?;
        let local = decode_local_name(encoded).ok_or_else(|| InvalidName::TopicShape(encoded.to_owned()))?;
        TopicName::new(domain, NamespaceName::new(tenant, namespace)?, &local)
    }

    /// Stored or not.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &NamespaceName {
        &self.namespace
    }

    /// The name within the namespace, partition suffix included, not encoded.
    #[must_use]
    pub fn local(&self) -> &str {
        &self.local
    }

    /// The partition number, if the name is that of a partition.
    #[must_use]
    pub fn partition(&self) -> Option<u32> {
        self.split_partition().map(|(_, index)| index)
    }

    fn split_partition(&self) -> Option<(&str, u32)> {
        let (base, digits) = self.local.rsplit_once(PARTITION_SUFFIX)?;
        let canonical = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
        let index = digits.parse().ok().filter(|index| canonical && *index <= i32::MAX as u32)?;
        (!base.trim().is_empty()).then_some((base, index))
    }

    /// The name of partition `index` of this topic.
    #[must_use]
    pub fn with_partition(&self, index: u32) -> TopicName {
        TopicName { local: format!("{}{PARTITION_SUFFIX}{index}", self.local).into(), ..self.clone() }
    }

    /// The topic without its partition suffix; itself if it has none.
    #[must_use]
    pub fn base(&self) -> TopicName {
        match self.split_partition() {
            Some((base, _)) => TopicName { local: base.into(), ..self.clone() },
            None => self.clone(),
        }
    }

    /// `<tenant>/<namespace>/<domain>/<encoded local>`: the managed ledger's name and its path below `/managed-ledgers`.
    #[must_use]
    pub fn persistence_name(&self) -> String {
        format!("{}/{}/{}", self.namespace, self.domain, encode_local_name(&self.local))
    }

    /// `<domain>/<tenant>/<namespace>/<encoded local>`: the form of lookup and REST paths.
    #[must_use]
    pub fn rest_path(&self) -> String {
        format!("{}/{}/{}", self.domain, self.namespace, encode_local_name(&self.local))
    }

    /// `<tenant>/<namespace>/<encoded base local>`: the id of the topic's schemas, one for all partitions.
    #[must_use]
    pub fn schema_id(&self) -> String {
        format!("{}/{}", self.namespace, encode_local_name(&self.base().local))
    }
}

impl FromStr for TopicName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<TopicName, InvalidName> {
        let shape = || InvalidName::TopicShape(text.to_owned());
        let (domain, path) = match text.split_once("://") {
            Some((domain, path)) => (Domain::parse(domain).ok_or_else(|| InvalidName::Domain(text.to_owned()))?, path),
            None => match text.matches('/').count() {
                0 => return TopicName::new(Domain::Persistent, NamespaceName::public_default(), text),
                2 => (Domain::Persistent, text),
                _ => return Err(shape()),
            },
        };
        let mut parts = path.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(tenant), Some(namespace), Some(local)) => {
                TopicName::new(domain, NamespaceName::new(tenant, namespace)?, local)
            }
            _ => Err(shape()),
        }
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.domain, self.namespace, self.local)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn topic(text: &str) -> TopicName {
        text.parse().unwrap()
    }

    #[test]
    fn short_and_full_forms() {
        assert_eq!(topic("t").to_string(), "persistent://public/default/t");
        assert_eq!(topic("a/b/c").to_string(), "persistent://a/b/c");
        assert_eq!(topic("non-persistent://a/b/c/d").local(), "c/d");
        assert_eq!(topic("persistent://a/b/c/d").persistence_name(), "a/b/persistent/c%2Fd");
        assert_eq!(topic("persistent://a/b/c d").rest_path(), "persistent/a/b/c+d");
    }

    #[test]
    fn refused_names() {
        for bad in [
            "",
            " ",
            "a/b",
            "a/b/c/d",
            "a/b/ ",
            "x://a/b/c",
            "persistent://a/b",
            "persistent://a/b/",
            "persistent:///b/c",
            "persistent://a b/c/d",
            "persistent://a//d",
            "topic://a/b/c",
        ] {
            assert!(bad.parse::<TopicName>().is_err(), "{bad:?}");
        }
        for bad in ["", "a", "a/", "/b", "a/b/c", "ä/b", "a/b c"] {
            assert!(bad.parse::<NamespaceName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn partitions() {
        let base = topic("my-topic");
        let third = base.with_partition(3);
        assert_eq!(third.to_string(), "persistent://public/default/my-topic-partition-3");
        assert_eq!((third.partition(), third.base()), (Some(3), base.clone()));
        assert_eq!(third.schema_id(), "public/default/my-topic");
        for not_a_partition in ["t-partition-", "t-partition-01", "t-partition--1", "t-partition-x", "t-partition-+1"] {
            assert_eq!(topic(not_a_partition).partition(), None, "{not_a_partition}");
            assert_eq!(topic(not_a_partition).base(), topic(not_a_partition));
        }
        assert_eq!(topic("t-partition-1-partition-2").base(), topic("t-partition-1"));
    }

    #[test]
    fn from_encoded_path() {
        assert_eq!(TopicName::from_encoded("persistent", "a", "b", "c%2Fd+e").unwrap().local(), "c/d e");
        assert!(TopicName::from_encoded("persistent", "a", "b", "%zz").is_err());
        assert!(TopicName::from_encoded("segment", "a", "b", "c").is_err());
    }

    proptest! {
        #[test]
        fn parse_never_panics_and_prints_what_it_parsed(text in ".*") {
            if let Ok(name) = text.parse::<TopicName>() {
                prop_assert_eq!(name.to_string().parse::<TopicName>().unwrap(), name.clone());
                prop_assert_eq!(name.partition().is_some(), name.base() != name);
            }
        }

        #[test]
        fn encoded_paths_round_trip(local in "\\PC*[^ ]") {
            prop_assume!(!local.trim().is_empty());
            let name = TopicName::new(Domain::Persistent, NamespaceName::public_default(), &local).unwrap();
            let path = name.rest_path();
            let parts: Vec<&str> = path.split('/').collect();
            prop_assert_eq!(TopicName::from_encoded(parts[0], parts[1], parts[2], parts[3]).unwrap(), name);
        }
    }
}
