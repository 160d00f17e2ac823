//! `geminga admin` against a running server.

use crate::server::{Running, Server, data_dir};

impl Server {
    fn admin(&self, words: &str) -> Running {
        let words: Vec<&str> = ["admin", "--admin-url", &self.web_url].into_iter().chain(words.split(' ')).collect();
        Running::start(&words)
    }

    /// What it prints, of a command that must succeed.
    fn admin_ok(&self, words: &str) -> String {
        self.admin(words).succeeded().stdout
    }

    /// What it says, of a command that must fail.
    fn admin_fails(&self, words: &str) -> String {
        let output = self.admin(words).finish();
        assert_eq!((output.status.code(), output.stdout.as_str()), (Some(1), ""), "{words}");
        output.stderr
    }
}

#[test]
fn an_operator_at_a_shell() {
    let data = data_dir();
    let server = Server::start(data.path());
    assert_eq!(server.admin_ok("brokers healthcheck"), "ok\n");
    assert_eq!(server.admin_ok("clusters list"), "standalone\n");
    for command in [
        "tenants create acme -r ops -c standalone",
        "namespaces create acme/prod -b 8",
        "topics create acme/prod/plain",
        "topics create-partitioned-topic acme/prod/parts -p 2",
        "topics update-partitioned-topic acme/prod/parts -p 3",
    ] {
        assert_eq!(server.admin_ok(command), "", "{command}");
    }
    let metadata = server.admin_ok("topics get-partitioned-topic-metadata acme/prod/parts");
    assert!(metadata.contains("\"partitions\" : 3"), "{metadata}");
    assert_eq!(server.admin_ok("topics list acme/prod").lines().count(), 4);
    assert_eq!(server.admin_ok("topics list-partitioned-topics acme/prod"), "persistent://acme/prod/parts\n");
    assert!(server.admin_fails("topics create acme/prod/plain").contains("Reason: This topic already exists"));
    assert!(server.admin_fails("namespaces policies nowhere").contains("tenant/namespace"));
    assert_eq!(server.admin_ok("topics lookup acme/prod/plain"), format!("{}\n", server.service_url));

    let topic = "acme/prod/plain";
    server.admin_ok(&format!("topics create-subscription {topic} -s s -m earliest"));
    assert_eq!(server.admin_ok(&format!("topics subscriptions {topic}")), "s\n");
    server.client_ok(&["produce", topic, "-m", "one,two,three", "-db", "-p", "k=v"]);
    let stats = server.admin_ok(&format!("topics stats {topic} -gpb"));
    assert!(stats.contains("\"msgInCounter\" : 3") && stats.contains("\"msgBacklog\" : 3"), "{stats}");
    let peeked = server.admin_ok(&format!("topics peek-messages {topic} -s s -n 9"));
    assert!(peeked.matches("Message ID: ").count() == 3 && peeked.contains("k    v"), "{peeked}");
    server.admin_ok(&format!("topics skip {topic} -s s -n 2"));
    let consumed = server.client_ok(&["consume", topic, "-s", "s", "-n", "1"]);
    assert!(consumed.stdout.contains("content:three"), "{consumed:?}");
    server.admin_ok(&format!("topics reset-cursor {topic} -s s -t 1h"));
    let explained =
        Running::start(&["explain", "subscription", topic, "s", "--admin-url", &server.web_url]).succeeded();
    assert!(explained.stdout.contains("backlog 3 entries"), "{explained:?}");
    let (status, metrics) = server.rest("GET", "/metrics", "");
    let line = format!(
        "pulsar_subscription_back_log{{cluster=\"standalone\",namespace=\"acme/prod\",topic=\"persistent://{topic}\",subscription=\"s\"}} 3"
    );
    assert!(status == 200 && metrics.lines().any(|found| found == line), "{line} in {metrics}");

    server.admin_ok(&format!("topics unload {topic}"));
    assert!(server.admin_ok(&format!("topics terminate {topic}")).starts_with("Topic successfully terminated at "));
    let refused = server.client(&["produce", topic, "-m", "late"]).finish();
    assert!(!refused.status.success() && refused.stderr.contains("terminated"), "{refused:?}");
    server.admin_ok(&format!("topics clear-backlog {topic} -s s"));
    server.admin_ok(&format!("topics unsubscribe {topic} -s s"));
    for command in [
        "topics delete acme/prod/plain",
        "topics delete-partitioned-topic acme/prod/parts",
        "namespaces delete acme/prod",
        "tenants delete acme",
    ] {
        assert_eq!(server.admin_ok(command), "", "{command}");
    }
    assert!(!server.admin_ok("tenants list").contains("acme"));
}

#[test]
fn a_link_stands_for_its_tool() {
    let data = data_dir();
    let link = data.path().join("pulsar-admin");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_geminga"), &link).unwrap();
    let output =
        std::process::Command::new(&link).args(["--admin-url", "http://127.0.0.1:1", "tenants", "list"]).output();
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("cannot ask http://127.0.0.1:1"), "{said}");
}
