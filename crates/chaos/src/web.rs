//! What the server says of itself: metrics over HTTP, and `geminga explain`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use geminga_env::{Clock, net};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The body of a page of the server's REST.
pub(crate) async fn get(clock: Clock, address: SocketAddr, path: &str) -> Result<String, String> {
    let ask = async {
        let mut stream = net::dial(address).await?;
        // With this version the answer ends with the connection, and is not cut into chunks.
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = tokio::select! {
        biased;
        answer = ask => answer.map_err(|error| format!("GET {path}: {error}"))?,
        () = clock.sleep_until(clock.now() + ANSWER_WITHIN) => return Err(format!("GET {path}: no answer after {ANSWER_WITHIN:?}")),
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer.as_str(), ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("GET {path} is answered with '{}'", head.lines().next().unwrap_or_default())),
    }
}

/// Bytes in use by class of memory, of a page of metrics.
pub(crate) fn memory_used(metrics: &str) -> Vec<(String, u64)> {
    let of_line = |line: &str| {
        let (labels, value) = line.strip_prefix("geminga_memory_used_bytes{")?.split_once("} ")?;
        let class = labels.split(',').find_map(|label| label.strip_prefix("class="))?;
        Some((class.trim_matches('"').to_owned(), value.trim().parse().ok()?))
    };
    metrics.lines().filter_map(of_line).collect()
}

/// What `geminga explain topic` says, without those of its clients that are there in hundreds.
pub(crate) fn explain(geminga: &Path, address: SocketAddr, topic: &str) -> String {
    let url = format!("http://{address}");
    match Command::new(geminga).args(["explain", "--admin-url", &url, "topic", topic]).output() {
        Ok(said) => {
            let text = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
            without_crowd(&text)
        }
        Err(error) => format!("cannot ask {} to explain: {error}", geminga.display()),
    }
}

/// Without producers and mute subscriptions, and what stands indented under these.
fn without_crowd(explained: &str) -> String {
    let mut crowd = false;
    let mut kept = String::new();
    for line in explained.lines() {
        if !line.starts_with(' ') {
            let words: Vec<&str> = line.split_whitespace().collect();
            crowd = matches!(*words, ["producer", ..]) || words.get(1).is_some_and(|name| name.starts_with("mute-"));
        }
        if !crowd {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crowd_is_left_out() {
        let told = "state     serving\nproducer  p from x\nsubscription   mute-3 (Exclusive)\n  backlog 1\nsubscription   healthy\n  b";
        assert_eq!(without_crowd(told), "state     serving\nsubscription   healthy\n  b\n");
    }

    #[test]
    fn memory_is_read_from_metrics() {
        let metrics = "# TYPE geminga_memory_used_bytes gauge\n\
                       geminga_memory_used_bytes{cluster=\"a\",class=\"ingress\"} 65536\n\
                       geminga_memory_limit_bytes{cluster=\"a\",class=\"ingress\"} 70000\n\
                       geminga_memory_used_bytes{cluster=\"a\",class=\"cache\"} 0\n";
        assert_eq!(memory_used(metrics), [("ingress".to_owned(), 65536), ("cache".to_owned(), 0)]);
    }
}
