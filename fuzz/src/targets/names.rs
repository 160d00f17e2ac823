//! Names as people and clients type them: what is taken is printed so that it is read as the same, in every form.

use geminga_model::{BookieId, Domain, NamespaceName, TopicName, UnixMillis, decode_local_name, encode_local_name};

use crate::memory::within;

/// The target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    within(4096 + 16 * text.len(), || drop(text.parse::<TopicName>()));
    if let Ok(topic) = text.parse::<TopicName>() {
        check(&topic);
    }
    if let Ok(namespace) = text.parse::<NamespaceName>() {
        assert_eq!((namespace.to_string(), namespace.to_string().parse()), (text.to_owned(), Ok(namespace.clone())));
        assert_eq!(NamespaceName::new(namespace.tenant(), namespace.local()), Ok(namespace));
    }
    if let Ok(bookie) = BookieId::parse(text) {
        assert_eq!(BookieId::parse(bookie.as_str()), Ok(bookie));
    }
    if let Some(time) = UnixMillis::parse_iso8601(text) {
        assert_eq!(UnixMillis::parse_iso8601(&time.iso8601()), Some(time));
    }
    assert_eq!(decode_local_name(&encode_local_name(text)).as_deref(), Some(text));
    let _ = decode_local_name(text);
    let mut parts = text.splitn(4, '/');
    let mut next = || parts.next().unwrap_or_default();
    if let Ok(topic) = TopicName::from_encoded(next(), next(), next(), next()) {
        check(&topic);
    }
}

fn check(topic: &TopicName) {
    assert_eq!(topic.to_string().parse().as_ref(), Ok(topic));
    let path = topic.rest_path();
    let [domain, tenant, namespace, local] = path.split('/').collect::<Vec<_>>()[..] else { panic!("{path}") };
    assert_eq!(TopicName::from_encoded(domain, tenant, namespace, local).as_ref(), Ok(topic));
    assert_eq!(topic.persistence_name().split('/').count(), 4);
    assert_eq!(topic.partition().is_none(), topic.base() == *topic);
    if let Some(index) = topic.partition() {
        assert_eq!(topic.base().with_partition(index), *topic);
    }
    assert_eq!(topic.with_partition(7).partition(), Some(7));
    assert!(matches!(topic.domain(), Domain::Persistent | Domain::NonPersistent));
}
