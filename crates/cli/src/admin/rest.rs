//! The way to a server's REST.

use std::time::Duration;

use geminga_admin_model::Reason;
use ureq::http::{HeaderMap, Method, Request};

use super::plan::Call;

/// More than any answer of REST has.
const MAX_ANSWER: u64 = 512 << 20;

/// Asks a server.
#[derive(Debug)]
pub(super) struct Rest {
    /// One or more addresses, of which the first that can be reached is asked.
    urls: Vec<String>,
    agent: ureq::Agent,
}

/// A good answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

/// Why there is no good answer; the text is for the person who asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RestError {
    /// No server answers.
    #[error(
        "cannot ask {url}: {why}\n\nError connecting to Pulsar. Is the server running, and is this its REST address (--admin-url)?"
    )]
    Unreachable { url: String, why: String },
    /// The server answers, and refuses.
    #[error("{method} {url}: HTTP {status}\n\nReason: {reason}")]
    Refused { method: Method, url: String, status: u16, reason: String },
}

impl Rest {
    /// `urls` is what was given as `--admin-url`: `http://host:port`, or several with commas between.
    pub(super) fn new(urls: &str, timeout: Duration) -> Result<Rest, String> {
        let urls: Vec<String> = urls.split(',').map(|url| url.trim().trim_end_matches('/').to_owned()).collect();
        if let Some(bad) = urls.iter().find(|url| !url.starts_with("http://")) {
            let why =
                if bad.starts_with("https://") { "TLS is not in this version" } else { "expected http://host:port" };
            return Err(format!("--admin-url {bad}: {why}"));
        }
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(timeout))
            .build();
        Ok(Rest { urls, agent: agent.into() })
    }

    pub(super) fn ask(&self, call: &Call) -> Result<Answer, RestError> {
        let mut last = None;
        for url in &self.urls {
            match self.ask_at(url, call) {
                Err(error @ RestError::Unreachable { .. }) => last = Some(error),
                answered => return answered,
            }
        }
        Err(last.unwrap_or(RestError::Unreachable { url: String::new(), why: "no address".to_owned() }))
    }

    fn ask_at(&self, base: &str, call: &Call) -> Result<Answer, RestError> {
        let url = format!("{base}{}", call.path);
        let unreachable = |why: String| RestError::Unreachable { url: base.to_owned(), why };
        let mut request = Request::builder().method(call.method.clone()).uri(&url);
        if !call.body.is_empty() {
            request = request.header("Content-Type", "application/json");
        }
        let request = request.body(call.body.clone()).map_err(|error| unreachable(error.to_string()))?;
        let mut response = self.agent.run(request).map_err(|error| unreachable(error.to_string()))?;
        let read = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = read.map_err(|error| unreachable(error.to_string()))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Answer { headers: response.headers().clone(), body });
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        let reason = serde_json::from_slice::<Reason>(&body).map_or(text, |told| told.reason);
        Err(RestError::Refused { method: call.method.clone(), url, status: status.as_u16(), reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let minute = Duration::from_secs(60);
        assert_eq!(Rest::new("http://a:1/, http://b:2", minute).unwrap().urls, ["http://a:1", "http://b:2"]);
        assert!(Rest::new("https://a", minute).unwrap_err().contains("TLS"));
        assert!(Rest::new("a:8080", minute).unwrap_err().contains("http://host:port"));
    }
}
