//! The topics of a namespace as clients ask for them that subscribe to a pattern.

use geminga_model::{NamespaceName, TopicName};
use geminga_session::{Answer, Refusal};
use geminga_wire::proto::command_get_topics_of_namespace::Mode;
use geminga_wire::topics_hash;
use regex::{Regex, RegexBuilder};

use crate::admin_error::AdminError;
use crate::broker::Broker;

/// What a compiled pattern may take; clients filter by themselves where it is not enough.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A pattern of topic names.
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// `None` if it is none, or in a dialect that only its client knows.
    ///
    /// Fact: it is about the name without scheme, though it may be written with one, and covers all of it.
    pub(crate) fn parse(text: &str) -> Option<Pattern> {
        let path = text.split_once("://").map_or(text, |(_, path)| path);
        let whole = RegexBuilder::new(&format!(r"\A(?:{path})\z")).size_limit(MAX_PATTERN_BYTES).build();
        whole.ok().map(Pattern)
    }

    /// Fact: a partition matches as its topic does.
    pub(crate) fn matches(&self, topic: &TopicName) -> bool {
        self.0.is_match(&format!("{}/{}", topic.namespace(), topic.base().local()))
    }
}

impl Broker {
    /// Answers GET_TOPICS_OF_NAMESPACE. Fact: those of a namespace that does not exist are none.
    pub(crate) async fn topic_list(
        &self,
        namespace: &NamespaceName,
        mode: Mode,
        pattern: Option<&str>,
        known_hash: Option<&str>,
    ) -> Result<Answer, Refusal> {
        let mut topics = match (mode, self.topics_of(namespace, false).await) {
            (Mode::NonPersistent, _) | (_, Err(AdminError::NamespaceNotFound(_))) => Vec::new(),
            (_, topics) => topics?,
        };
        let pattern = pattern.and_then(Pattern::parse);
        if let Some(pattern) = &pattern {
            topics.retain(|topic| pattern.matches(topic));
        }
        let topics: Vec<String> = topics.iter().map(TopicName::to_string).collect();
        let hash = topics_hash(topics.iter().map(String::as_str));
        let changed = known_hash != Some(hash.as_str());
        let topics = if changed { topics } else { Vec::new() };
        Ok(Answer::Topics { topics, hash, filtered: pattern.is_some(), changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_the_whole_name() {
        for (pattern, topic, matches) in [
            ("public/default/a.*", "abc", true),
            ("persistent://public/default/a.*", "abc", true),
            ("public/default/a", "abc", false),
            ("default/abc", "abc", false),
            ("public/default/abc|x", "abc", true),
            ("public/default/abc", "abc-partition-3", true),
            ("public/default/abc-partition-3", "abc-partition-3", false),
            (".*", "abc", true),
        ] {
            let found = Pattern::parse(pattern).unwrap().matches(&topic.parse().unwrap());
            assert_eq!(found, matches, "{pattern} {topic}");
        }
    }

    #[test]
    fn patterns_of_another_dialect_are_left_to_the_client() {
        for pattern in ["a(?!b)", "(", "(x{1000}){1000}"] {
            assert!(Pattern::parse(pattern).is_none(), "{pattern}");
        }
    }
}
