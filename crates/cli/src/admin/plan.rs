//! What a command asks of REST, and how it shows the answer. Pure: it asks nobody.

use geminga_model::{NamespaceName, TopicName};
use serde_json::{Map, Value};
use ureq::http::Method;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: String,
}

impl Call {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Call {
        Call { method, path: path.into(), body: String::new() }
    }

    pub(super) fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path)
    }

    pub(super) fn body(self, body: &Value) -> Call {
        Call { body: body.to_string(), ..self }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Ask, and print nothing.
    Do(Call),
    /// Ask, and print the answer: lists a line each, texts as they are, all else as JSON.
    Show(Call),
    /// Ask, and print the one field of the answer.
    Field(Call, &'static str),
    /// Ask each, and print the lists of all.
    Lists(Vec<Call>),
    /// Ask, and print a sentence with the position that is answered; `otherwise` if none is.
    Position { call: Call, sentence: &'static str, otherwise: String },
    /// Ask until there is no further message, and print each.
    Messages(Vec<Call>),
    /// Read what is there, change members of it, and put it back.
    Update { get: Call, change: Map<String, Value>, put: Call },
}

/// A topic, by its full or short name.
pub(super) fn topic(name: &str) -> Result<TopicName, String> {
    name.parse().map_err(|error| format!("{error}"))
}

/// `/admin/v2/persistent/t/n/topic` and what follows.
pub(super) fn of_topic(name: &str, rest: &str) -> Result<String, String> {
    Ok(format!("/admin/v2/{}{rest}", topic(name)?.rest_path()))
}

/// `/admin/v2/persistent/t/n/topic/subscription/s` and what follows.
pub(super) fn of_subscription(name: &str, subscription: &str, rest: &str) -> Result<String, String> {
    of_topic(name, &format!("/subscription/{}{rest}", encode(subscription)))
}

/// A namespace: `tenant/namespace`.
pub(super) fn namespace(name: &str) -> Result<NamespaceName, String> {
    let parts = name.split_once('/').ok_or_else(|| format!("{name}: expected tenant/namespace"))?;
    NamespaceName::new(parts.0, parts.1).map_err(|error| error.to_string())
}

/// One segment of a path.
pub(crate) fn encode(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// `?name=true`, or nothing.
pub(super) fn flag(name: &str, set: bool) -> String {
    if set { format!("?{name}=true") } else { String::new() }
}

/// A body with a position: `latest`, `earliest` or `ledger:entry`.
pub(super) fn position(text: &str) -> Result<Value, String> {
    let at = |ledger: i64, entry: i64| serde_json::json!({"ledgerId": ledger, "entryId": entry, "partitionIndex": -1});
    match text {
        "latest" => return Ok(at(i64::MAX, i64::MAX)),
        "earliest" => return Ok(at(-1, -1)),
        _ => {}
    }
    let bad = || format!("{text}: expected ledger:entry, earliest or latest");
    let mut parts = text.split(':').map(|part| part.parse::<i64>().ok());
    let (Some(Some(ledger)), Some(Some(entry)), true) = (parts.next(), parts.next(), parts.all(|part| part.is_some()))
    else {
        return Err(bad());
    };
    Ok(at(ledger, entry))
}

/// Milliseconds of a duration such as `90`, `10m` or `1h`. Fact: without a unit it is seconds.
pub(super) fn duration_millis(text: &str) -> Result<i64, String> {
    let bad = || format!("{text}: expected a number with s, m, h, d, w or y");
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, unit)) if unit.is_ascii_alphabetic() => (text.get(..at).unwrap_or_default(), unit),
        _ => (text, 's'),
    };
    let seconds: i64 = match unit.to_ascii_lowercase() {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        'y' => 365 * 86_400,
        _ => return Err(bad()),
    };
    let count: i64 = digits.parse().map_err(|_| bad())?;
    count.checked_mul(seconds * 1000).filter(|millis| *millis >= 0).ok_or_else(bad)
}

/// `key=value`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("{text}: expected key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Pairs as an object.
pub(super) fn object(pairs: &[(String, String)]) -> Value {
    Value::Object(pairs.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [("90", 90_000), ("10m", 600_000), ("1H", 3_600_000), ("2d", 172_800_000), ("0", 0)] {
            assert_eq!(duration_millis(text), Ok(millis), "{text}");
        }
        for bad in ["", "h", "1x", "-5m", "99999999999999999y", "1.5h"] {
            assert!(duration_millis(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn positions() {
        assert_eq!(position("3:4").unwrap()["entryId"], 4);
        assert_eq!(position("3:4:-1").unwrap()["ledgerId"], 3);
        assert_eq!(position("latest").unwrap()["ledgerId"], i64::MAX);
        for bad in ["", "3", "a:b", "3:4:x"] {
            assert!(position(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths() {
        assert_eq!(of_topic("a", "/stats").unwrap(), "/admin/v2/persistent/public/default/a/stats");
        let path = of_subscription("t/n/a", "s/1 ü", "/skip/1").unwrap();
        assert_eq!(path, "/admin/v2/persistent/t/n/a/subscription/s%2F1%20%C3%BC/skip/1");
        assert!(namespace("t").is_err() && namespace("t/n").is_ok());
    }
}
