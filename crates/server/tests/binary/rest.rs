//! Topics that are made and deleted by REST while clients use them.

use crate::server::{Server, data_dir};

#[test]
fn a_topic_in_use_is_only_deleted_by_force() {
    let data = data_dir();
    let server = Server::start(data.path());
    let consumer = server.client(&["consume", "t", "-s", "s", "-n", "0"]).wait_for("Subscribed");
    let topic = "/admin/v2/persistent/public/default/t";
    let (status, reason) = server.rest("DELETE", topic, "");
    assert!(status == 412 && reason.contains("0 producers and 1 consumers"), "{status} {reason}");
    consumer.interrupt().succeeded();
    // The subscription alone does not keep it.
    server.client_ok(&["produce", "t", "-m", "old"]);
    assert_eq!(server.rest("DELETE", topic, ""), (204, String::new()));
    assert_eq!(server.rest("DELETE", topic, "").0, 404);
    assert_eq!(server.rest("GET", "/admin/v2/persistent/public/default", ""), (200, "[]".to_owned()));

    // By force, from under a consumer: it goes on with the topic that is made anew.
    let consumer = server.client(&["consume", "t", "-s", "s", "-n", "1", "-p", "Earliest"]).wait_for("Subscribed");
    assert_eq!(server.rest("DELETE", &format!("{topic}?force=true"), "").0, 204);
    server.client_ok(&["produce", "t", "-m", "new"]);
    let consumed = consumer.succeeded();
    assert!(consumed.stdout.contains("content:new"), "{consumed:?}");
}

#[test]
fn partitioned_topics_survive_a_restart_and_grow() {
    let data = data_dir();
    let server = Server::start(data.path());
    let partitions = "/admin/v2/persistent/public/default/p/partitions";
    assert_eq!(server.rest("PUT", partitions, "3").0, 204);
    server.client_ok(&["produce", "p", "-m", "0,1,2,3,4,5", "-db"]);
    let consumed = server.client_ok(&["consume", "p", "-s", "s", "-n", "2", "-p", "Earliest"]);
    assert_eq!(consumed.stdout.matches("content:").count(), 2, "{consumed:?}");
    server.kill();

    let server = Server::start(data.path());
    assert_eq!(server.rest("POST", partitions, "4").0, 204);
    assert_eq!(server.rest("GET", partitions, ""), (200, r#"{"partitions":4,"deleted":false}"#.to_owned()));
    // The subscription is on the new partition too, though no consumer has seen it yet.
    server.client_ok(&["produce", "p-partition-3", "-m", "6"]);
    let consumed = server.client_ok(&["consume", "p", "-s", "s", "-n", "5"]);
    assert!(consumed.stdout.contains("content:6"), "{consumed:?}");
    assert_eq!(server.rest("DELETE", partitions, "").0, 204);
    assert_eq!(server.rest("GET", "/admin/v2/namespaces/public/default/topics", ""), (200, "[]".to_owned()));
}

#[test]
fn tenants_and_namespaces_are_kept() {
    let data = data_dir();
    let server = Server::start(data.path());
    assert_eq!(server.rest("PUT", "/admin/v2/tenants/a", r#"{"allowedClusters":["standalone"]}"#).0, 204);
    assert_eq!(server.rest("PUT", "/admin/v2/namespaces/a/b", "").0, 204);
    let refused = server.client(&["produce", "a/c/t", "-m", "x"]).finish();
    assert!(!refused.status.success() && refused.stderr.contains("Namespace a/c not found"), "{refused:?}");
    server.client_ok(&["produce", "a/b/t", "-m", "x"]);
    assert!(server.stop().status.success());

    let server = Server::start(data.path());
    assert_eq!(server.rest("GET", "/admin/v2/tenants", ""), (200, r#"["a","public"]"#.to_owned()));
    let topics = server.rest("GET", "/admin/v2/namespaces/a/b/topics", "");
    assert_eq!(topics, (200, r#"["persistent://a/b/t"]"#.to_owned()));
    assert_eq!(server.rest("DELETE", "/admin/v2/namespaces/a/b?force=true", "").0, 204);
    assert_eq!(server.rest("DELETE", "/admin/v2/tenants/a", "").0, 204);
}
