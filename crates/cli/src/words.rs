//! The command line as it was meant: by the name that the binary was called by, and with the original's options.

use std::ffi::OsString;
use std::path::Path;

/// Options that are one letter to the parser and several to the original.
const OF_ADMIN: [(&str, &str); 3] = [
    ("-gpb", "--get-precise-backlog"),
    ("-sbs", "--get-subscription-backlog-size"),
    ("-ist", "--include-system-topic"),
];
const OF_PERF: [(&str, &str); 9] = [
    ("-bb", "--batch-max-bytes"),
    ("-bm", "--batch-max-messages"),
    ("-db", "--disable-batching"),
    ("-ef", "--exit-on-failure"),
    ("-ml", "--memory-limit"),
    ("-ns", "--num-subscriptions"),
    ("-sp", "--subscription-position"),
    ("-st", "--subscription-type"),
    ("-time", "--test-duration"),
];

/// What was called, as words of `geminga`. Links named `pulsar-admin`, `pulsar-client` and `pulsar-perf` stand for the
/// sub-commands of these tools, one named `pulsar` for `geminga` itself.
#[must_use]
pub fn words(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = given.into_iter().collect();
    let name = words.first().and_then(|name| Path::new(name).file_name()?.to_str()).unwrap_or_default();
    let tool = match name {
        "pulsar-admin" => Some("admin"),
        "pulsar-client" => Some("client"),
        "pulsar-perf" => Some("perf"),
        _ => None,
    };
    if let Some(tool) = tool {
        words.insert(1, tool.into());
    }
    let short: &[(&str, &str)] = match words.get(1).and_then(|word| word.to_str()) {
        Some("admin") => &OF_ADMIN,
        Some("perf") => &OF_PERF,
        _ => &[],
    };
    for word in words.iter_mut().skip(2) {
        if let Some((_, long)) = short.iter().find(|(short, _)| word == short) {
            *word = long.into();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(given: &str) -> String {
        let words = words(given.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn links_and_short_options() {
        for (given, meant) in [
            ("geminga version", "geminga version"),
            ("/usr/bin/pulsar standalone", "/usr/bin/pulsar standalone"),
            ("bin/pulsar-admin topics stats -gpb t", "bin/pulsar-admin admin topics stats --get-precise-backlog t"),
            ("pulsar-client produce t -db", "pulsar-client client produce t -db"),
            ("pulsar-perf produce -time 5 -db t", "pulsar-perf perf produce --test-duration 5 --disable-batching t"),
            ("geminga client produce t -ist", "geminga client produce t -ist"),
        ] {
            assert_eq!(words_of(given), meant);
        }
    }
}
