//! Requests as the clients of Pulsar send them, to a broker on metadata and bookies in memory.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use geminga_broker::{Broker, BrokerOptions, Limits, Memory};
use geminga_env::{Budget, Env, Mailbox, mailbox};
use geminga_ledger::LedgerClient;
use geminga_ledger::memory::MemoryBookies;
use geminga_managed_ledger::{
    AppenderEvent, AppenderSink, ManagedLedgers, ManagedLedgersConfig, Rollover, TailCache, open,
};
use geminga_metastore::{Expected, memory};
use geminga_model::Position;
use geminga_records::{ClusterData, Quorum, paths};
use geminga_session::SessionConfig;
use geminga_topic::{ProducerNames, TopicOptions};
use geminga_wire::encode_entry;
use geminga_wire::proto::MessageMetadata;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

struct Rest(Router, ManagedLedgers);

async fn rest() -> Rest {
    let env = Env::simulated(1);
    let metadata = memory(env.clock);
    let cluster = ClusterData { service_url: Some("http://localhost:8080".into()), ..ClusterData::default() };
    for name in ["standalone", "other"] {
        metadata.put(&paths::cluster(name), cluster.encode(), Expected::Absent).await.unwrap();
    }
    let ledgers = ManagedLedgers::from(ManagedLedgersConfig {
        ledgers: LedgerClient::new(env.clone(), metadata.clone(), Arc::new(MemoryBookies::new(1))),
        metadata: metadata.clone(),
        env: env.clone(),
        quorum: Quorum::new(1, 1, 1).unwrap(),
        rollover: Rollover::default(),
        cache: TailCache::new(1 << 20),
    });
    let stored = ledgers.clone();
    let topics = TopicOptions {
        ledgers,
        producer_names: Arc::new(ProducerNames::new("standalone-0".into())),
        max_unacked_per_consumer: 50_000,
        read_ahead: Budget::new("read-ahead", 8 << 20),
    };
    let options = BrokerOptions {
        session: SessionConfig::default(),
        topics,
        cluster: "standalone".into(),
        service_url: "pulsar://localhost:6650".into(),
        web_service_url: "http://localhost:8080".into(),
        through_service_url: true,
        limits: Limits::default(),
        memory: Memory::new(4 << 20, 4 << 20),
    };
    let broker = Broker::new(env.clone(), metadata, options);
    let rest =
        Rest(routes::routes(Api { started: env.clock.wall(), env, broker, scrapes: Scrapes::default() }), stored);
    rest.is("PUT", "tenants/t", r#"{"adminRoles":null,"allowedClusters":["standalone"]}"#, 204).await;
    rest.is("PUT", "namespaces/t/n", "", 204).await;
    rest
}

impl Rest {
    /// The status, and the body as JSON or as text.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/admin/v2/{path}") };
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let (status, ends) = (response.status(), response.headers().contains_key(header::CONNECTION));
        assert_eq!(ends, method == Method::DELETE);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.is_empty() || status != StatusCode::NO_CONTENT, "{text}");
        (status.as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Asks, and expects a status; of a refusal gives the reason.
    async fn is(&self, method: &str, path: &str, body: &str, expected: u16) -> String {
        let (status, answer) = self.ask(method, path, body).await;
        assert_eq!(status, expected, "{method} {path} {body}: {answer}");
        let reason = answer.get("reason").and_then(Value::as_str).unwrap_or_default();
        assert_eq!(reason.is_empty(), status < 300, "{method} {path}: {answer}");
        reason.to_owned()
    }

    /// Stores messages `m0`, `m1` and so on, a second apart, in a topic that is not open.
    async fn store(&self, topic: &str, count: u64) -> Vec<Position> {
        let (mailbox, mut inbox) = mailbox();
        let name = topic.parse().unwrap();
        let opened = open(&self.1, &name, true).await.unwrap();
        let mut appender = opened.appender(Arc::new(ToInbox(mailbox)));
        let now = self.1.env.clock.now();
        for i in 0..count {
            let metadata = MessageMetadata {
                producer_name: "p".into(),
                sequence_id: i,
                publish_time: 1_700_000_000_000 + 1000 * i,
                ..Default::default()
            };
            appender.append(now, encode_entry(&metadata, format!("m{i}").as_bytes())).unwrap();
        }
        let (mut stored, mut events) = (vec![], vec![]);
        while stored.len() < usize::try_from(count).unwrap() {
            appender.flush();
            inbox.wait().await;
            inbox.take(&mut events);
            events.drain(..).for_each(|event| appender.handle_event(now, event));
            appender.take_completed(&mut stored);
        }
        appender.close().await.unwrap();
        stored
    }

    async fn backlog(&self, topic: &str) -> Value {
        self.get(&format!("{topic}/stats")).await["subscriptions"]["s"]["msgBacklog"].clone()
    }

    async fn get(&self, path: &str) -> Value {
        self.answer("GET", path, "").await
    }

    async fn answer(&self, method: &str, path: &str, body: &str) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert_eq!(status, 200, "{method} {path} {body}: {answer}");
        answer
    }
}

#[tokio::test(start_paused = true)]
async fn clusters_and_tenants() {
    let rest = rest().await;
    assert_eq!(rest.get("clusters").await, json!(["other", "standalone"]));
    assert_eq!(rest.get("clusters/standalone").await, json!({"serviceUrl": "http://localhost:8080"}));
    assert_eq!(rest.is("GET", "clusters/none", "", 404).await, "Cluster does not exist");
    assert_eq!(rest.get("tenants").await, json!(["t"]));
    assert_eq!(rest.get("tenants/t").await, json!({"adminRoles": [], "allowedClusters": ["standalone"]}));

    let info = r#"{"adminRoles":["a"],"allowedClusters":["standalone"],"more":1}"#;
    assert_eq!(rest.is("PUT", "tenants/t", info, 409).await, "Tenant already exist");
    for (name, body, status) in [
        ("u", "", 412),
        ("u", "null", 412),
        ("u", "[]", 400),
        ("u", "{", 400),
        ("u", r#"{"allowedClusters":["nowhere"]}"#, 412),
        ("u", r#"{"adminRoles":[" a"],"allowedClusters":["standalone"]}"#, 412),
        ("%20", info, 412),
        ("a%2Fb", info, 412),
    ] {
        rest.is("PUT", &format!("tenants/{name}"), body, status).await;
    }
    assert_eq!(rest.is("POST", "tenants/u", info, 404).await, "Tenant does not exist");
    rest.is("PUT", "tenants/u", info, 204).await;
    let both = r#"{"adminRoles":["b"],"allowedClusters":["standalone","other"]}"#;
    rest.is("POST", "tenants/u", both, 204).await;
    assert_eq!(rest.get("tenants/u").await, serde_json::from_str::<Value>(both).unwrap());
    let moved = r#"{"allowedClusters":["other"]}"#;
    assert!(rest.is("POST", "tenants/t", moved, 412).await.contains("standalone"));

    assert_eq!(rest.is("DELETE", "tenants/t", "", 409).await, "The tenant still has active namespaces");
    rest.is("DELETE", "tenants/u?force=true", "", 405).await;
    rest.is("DELETE", "tenants/u?force=false", "{}", 204).await;
    rest.is("DELETE", "tenants/u", "", 404).await;
}

#[tokio::test(start_paused = true)]
async fn namespaces() {
    let rest = rest().await;
    assert_eq!(rest.get("namespaces/t").await, json!(["t/n"]));
    rest.is("GET", "namespaces/u", "", 404).await;
    assert_eq!(rest.is("PUT", "namespaces/t/n", "{}", 409).await, "Namespace already exists");
    let policies = rest.get("namespaces/t/n").await;
    assert_eq!((&policies["replication_clusters"], &policies["deleted"]), (&json!(["standalone"]), &json!(false)));
    assert_eq!(policies["bundles"]["numBundles"], 4);

    for (name, body, status) in [
        ("u/n", "", 404),
        ("t/a%20b", "", 412),
        ("t/m", "7", 400),
        ("t/m", r#"{"replication_clusters":["other"]}"#, 403),
        ("t/m", r#"{"replication_clusters":["nowhere"]}"#, 412),
        ("t/m", r#"{"bundles":{"numBundles":-3}}"#, 400),
        ("t/m", r#"{"encryption_required":true}"#, 501),
    ] {
        rest.is("PUT", &format!("namespaces/{name}"), body, status).await;
    }
    let body = r#"{"replication_clusters":["standalone"],"bundles":{"numBundles":2},"message_ttl_in_seconds":null}"#;
    rest.is("PUT", "namespaces/t/m", body, 204).await;
    assert_eq!(rest.get("namespaces/t/m").await["bundles"]["boundaries"][1], "0x80000000");
    for body in ["null", "{}"] {
        rest.is("DELETE", "namespaces/t/m", "", 204).await;
        assert_eq!(rest.is("GET", "namespaces/t/m", "", 404).await, "Namespace does not exist");
        rest.is("PUT", "namespaces/t/m", body, 204).await;
    }

    rest.is("PUT", "persistent/t/n/a", "", 204).await;
    assert_eq!(rest.is("DELETE", "namespaces/t/n", "", 409).await, "Cannot delete non empty namespace");
    rest.is("DELETE", "namespaces/t/n?force=true", "", 204).await;
    rest.is("DELETE", "namespaces/t/n", "", 404).await;
    assert_eq!(rest.get("namespaces/t").await, json!(["t/m"]));
}

#[tokio::test(start_paused = true)]
async fn topics_without_partitions() {
    let rest = rest().await;
    for (name, body) in [("a", "null"), ("b", "{}"), ("c", r#"{"k":"v"}"#), ("d%2Fe+f", "")] {
        rest.is("PUT", &format!("persistent/t/n/{name}"), body, 204).await;
        assert_eq!(rest.is("PUT", &format!("persistent/t/n/{name}"), body, 409).await, "This topic already exists");
    }
    let all = json!(["persistent://t/n/a", "persistent://t/n/b", "persistent://t/n/c", "persistent://t/n/d/e f"]);
    assert_eq!(rest.get("persistent/t/n").await, all);
    assert_eq!(rest.get("namespaces/t/n/topics?mode=ALL").await, all);
    assert_eq!(rest.get("non-persistent/t/n").await, json!([]));
    assert_eq!(rest.get("namespaces/t/n/topics?mode=NON_PERSISTENT").await, json!([]));
    rest.is("GET", "persistent/t/m", "", 404).await;
    assert_eq!(rest.get("persistent/t/n/a/partitions").await, json!({"partitions": 0, "deleted": false}));
    rest.is("GET", "persistent/t/n/new/partitions", "", 404).await;
    let would_be = rest.get("persistent/t/n/new/partitions?checkAllowAutoCreation=true").await;
    assert_eq!(would_be["partitions"], 0);

    rest.is("PUT", "persistent/t/n/x-partition-0", "", 412).await;
    rest.is("PUT", "persistent/t/n/__change_events", "", 400).await;
    rest.is("PUT", "persistent/t/n/%20", "", 412).await;
    rest.is("PUT", "persistent/t/n/%zz", "", 412).await;
    rest.is("PUT", "persistent/t/m/a", "", 404).await;
    rest.is("PUT", "non-persistent/t/n/a", "", 501).await;

    assert!(rest.is("DELETE", "persistent/t/n/a/partitions", "", 409).await.contains("non-partitioned topic"));
    rest.is("DELETE", "persistent/t/n/a?force=true&deleteSchema=true", "{}", 204).await;
    rest.is("DELETE", "persistent/t/n/d%2Fe+f", "", 204).await;
    let gone = rest.is("DELETE", "persistent/t/n/a", "", 404).await;
    assert_eq!(gone, "Topic persistent://t/n/a not found");
}

#[tokio::test(start_paused = true)]
async fn partitioned_topics() {
    let rest = rest().await;
    let bodies = ["3", "\"3\"", "3\n", r#"{"partitions":3,"properties":{"k":"v"}}"#];
    for (name, body) in ["a", "b", "c", "d"].iter().zip(bodies) {
        let path = format!("persistent/t/n/{name}/partitions");
        rest.is("PUT", &path, body, 204).await;
        assert_eq!(rest.is("PUT", &path, body, 409).await, "Partitioned topic already exists");
        assert_eq!(rest.get(&path).await["partitions"], 3);
    }
    assert_eq!(rest.get("persistent/t/n/d/partitions").await["properties"], json!({"k": "v"}));
    assert_eq!(rest.get("persistent/t/n/partitioned").await.as_array().unwrap().len(), 4);
    assert_eq!(rest.get("persistent/t/n/partitioned").await[0], "persistent://t/n/a");
    assert_eq!(rest.get("non-persistent/t/n/partitioned").await, json!([]));
    assert_eq!(rest.get("persistent/t/n").await[2], "persistent://t/n/a-partition-2");

    for (body, status) in [("0", 406), ("-1", 406), ("1000000", 406), ("", 400), ("many", 400)] {
        rest.is("PUT", "persistent/t/n/e/partitions", body, status).await;
    }
    rest.is("PUT", "persistent/t/n/e-partition-1/partitions", "2", 412).await;
    rest.is("PUT", "persistent/t/n/plain", "", 204).await;
    assert_eq!(rest.is("PUT", "persistent/t/n/plain/partitions", "2", 409).await, "This topic already exists");
    rest.is("POST", "persistent/t/n/plain/partitions", "2", 409).await;
    rest.is("POST", "persistent/t/n/none/partitions", "2", 404).await;
    rest.is("PUT", "persistent/t/n/a", "", 409).await;

    rest.is("POST", "persistent/t/n/a/partitions", "2", 409).await;
    rest.is("POST", "persistent/t/n/a/partitions", "5", 204).await;
    assert_eq!(rest.get("persistent/t/n/a/partitions").await["partitions"], 5);
    assert_eq!(rest.get("persistent/t/n").await[4], "persistent://t/n/a-partition-4");

    assert!(rest.is("DELETE", "persistent/t/n/a", "", 409).await.contains("delete-partitioned-topic"));
    rest.is("DELETE", "persistent/t/n/a/partitions", "", 204).await;
    rest.is("DELETE", "persistent/t/n/a/partitions", "", 404).await;
    assert_eq!(rest.get("persistent/t/n").await[0], "persistent://t/n/b-partition-0");
    // A single partition may go, and come back.
    rest.is("DELETE", "persistent/t/n/b-partition-2", "", 204).await;
    rest.is("PUT", "persistent/t/n/b-partition-2", "", 204).await;
    rest.is("PUT", "persistent/t/n/b-partition-3", "", 412).await;
    rest.is("DELETE", "persistent/t/n/c/partitions?force=true", "", 204).await;
    rest.is("PUT", "persistent/t/n/c/partitions", "1", 204).await;
}

struct ToInbox(Mailbox<AppenderEvent>);

impl AppenderSink for ToInbox {
    fn deliver(&self, event: AppenderEvent) {
        drop(self.0.push(event));
    }
}

#[tokio::test(start_paused = true)]
async fn subscriptions_of_a_topic() {
    let rest = rest().await;
    let stored = rest.store("persistent://t/n/a", 10).await;
    let topic = "persistent/t/n/a";
    assert_eq!(rest.get(&format!("{topic}/subscriptions")).await, json!([]));
    let of = |what: &str| format!("{topic}/subscription/s{what}");
    assert!(rest.is("POST", &of("/skip/1"), "", 404).await.contains("Subscription s not found"));
    rest.is("PUT", &of(""), "\"earliest\"", 204).await;
    assert_eq!(rest.is("PUT", &of(""), "", 409).await, "Subscription already exists for topic");
    assert_eq!(rest.get(&format!("{topic}/subscriptions")).await, json!(["s"]));
    assert_eq!(rest.backlog(topic).await, 10);
    let explained = rest.get("/geminga/v1/explain/persistent/t/n/a/subscription/s").await;
    assert_eq!((&explained["backlog"], &explained["why"]), (&json!(10), &json!("no consumer is connected")));
    rest.is("GET", "/geminga/v1/explain/persistent/t/n/a/subscription/none", "", 404).await;
    rest.is("GET", "/geminga/v1/explain/persistent/t/n/b/subscription/s", "", 404).await;
    rest.is("GET", "/geminga/v1/explain/persistent/t/n/a/subscription/s/consumer/c", "", 404).await;
    rest.is("POST", &of("/skip/3"), "", 204).await;
    assert_eq!((rest.backlog(topic).await, rest.get(&of("/position/1")).await), (json!(7), json!("m3")));
    assert_eq!(rest.get(&of("/position/7")).await, json!("m9"));
    assert_eq!(rest.is("GET", &of("/position/8"), "", 404).await, "Message not found");
    rest.is("GET", &of("/position/x"), "", 400).await;
    rest.is("POST", &of("/skip_all"), "", 204).await;
    assert_eq!(rest.backlog(topic).await, 0);
    for (path, body, first) in [
        ("/resetcursor/1700000000000".to_owned(), String::new(), "m0"),
        ("/resetcursor/1700000004500".to_owned(), String::new(), "m5"),
        ("/resetcursor".to_owned(), format!(r#"{{"ledgerId":{},"entryId":2}}"#, stored[2].ledger), "m2"),
        (
            "/resetcursor".to_owned(),
            format!(r#"{{"ledgerId":{},"entryId":2,"excluded":true}}"#, stored[2].ledger),
            "m3",
        ),
        ("/resetcursor".to_owned(), "\"earliest\"".to_owned(), "m0"),
    ] {
        rest.is("POST", &of(&path), &body, 204).await;
        assert_eq!(rest.get(&of("/position/1")).await, first, "{path} {body}");
    }
    rest.is("POST", &of("/resetcursor"), "", 400).await;
    rest.is("POST", &of("/resetcursor"), "{}", 400).await;

    // What was done is stored: the topic opened anew knows it.
    rest.is("POST", &of("/skip/4"), "", 204).await;
    rest.is("PUT", &format!("{topic}/unload"), "", 204).await;
    let report = rest.get("/geminga/v1/explain/persistent/t/n/a").await;
    assert!(report["state"].as_str().unwrap().starts_with("not open"), "{report}");
    let closed = rest.get(&format!("{topic}/stats")).await;
    assert_eq!(closed["storageSize"].as_u64().map(|size| size > 200), Some(true), "{closed}");
    assert!(closed["subscriptions"]["s"].is_object(), "{closed}");
    assert_eq!(rest.get(&of("/position/1")).await, "m4");
    assert_eq!(rest.backlog(topic).await, 6);
    rest.is("DELETE", &of(""), "", 204).await;
    rest.is("DELETE", &of(""), "", 404).await;
    assert_eq!(rest.get(&format!("{topic}/subscriptions")).await, json!([]));
    rest.is("PUT", &of("?replicated=true"), "", 501).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_topic_tells() {
    let rest = rest().await;
    let stored = rest.store("persistent://t/n/a", 3).await;
    let topic = "persistent/t/n/a";
    rest.is("GET", "persistent/t/n/none/stats", "", 404).await;
    rest.is("GET", "persistent/t/n/none/lastMessageId", "", 404).await;
    let ledger = stored[2].ledger.0;
    let id = |entry: i64| json!({"ledgerId": ledger, "entryId": entry, "partitionIndex": -1});
    assert_eq!(rest.get(&format!("{topic}/lastMessageId")).await, id(2));
    assert_eq!(rest.get(&format!("{topic}/messageid/1700000000001")).await, id(1));
    assert_eq!(rest.get(&format!("{topic}/messageid/1800000000000")).await, "");
    assert_eq!(rest.get(&format!("{topic}/ledger/{ledger}/entry/1")).await, "m1");
    rest.is("GET", &format!("{topic}/ledger/{ledger}/entry/3"), "", 404).await;
    let stats = rest.get(&format!("{topic}/stats")).await;
    assert_eq!((&stats["msgInCounter"], &stats["deduplicationStatus"]), (&json!(0), &json!("Disabled")), "{stats}");
    let internal = rest.get(&format!("{topic}/internalStats")).await;
    assert_eq!((&internal["numberOfEntries"], &internal["state"]), (&json!(3), &json!("ClosedLedger")), "{internal}");
    let info = rest.get(&format!("{topic}/internal-info")).await;
    assert_eq!(info["ledgers"][0]["entries"], 3, "{info}");
    let metrics = rest.get("/metrics").await;
    let line = "pulsar_storage_size{cluster=\"standalone\",namespace=\"t/n\",topic=\"persistent://t/n/a\"} ";
    assert!(metrics.as_str().unwrap().contains(line), "{metrics}");

    let (status, end) = rest.ask("POST", &format!("{topic}/terminate"), "").await;
    assert_eq!((status, end), (200, id(2)));
    let (status, end) = rest.ask("POST", &format!("{topic}/terminate"), "").await;
    assert_eq!((status, end), (200, id(2)));
    assert_eq!(rest.get(&format!("{topic}/internalStats")).await["state"], "Terminated");
    assert_eq!(rest.get(&format!("{topic}/internal-info")).await["terminatedPosition"]["entryId"], 2);
    rest.is("PUT", &format!("{topic}/unload"), "", 204).await;
    assert_eq!(rest.get(&format!("{topic}/internalStats")).await["state"], "Terminated");
    rest.is("PUT", "persistent/t/n/none/unload", "", 404).await;
}

#[tokio::test(start_paused = true)]
async fn operations_reach_every_partition() {
    let rest = rest().await;
    rest.is("PUT", "persistent/t/n/p/partitions", "2", 204).await;
    for index in 0..2 {
        rest.store(&format!("persistent://t/n/p-partition-{index}"), 2 + index).await;
    }
    let of = |what: &str| format!("persistent/t/n/p/subscription/s{what}");
    rest.is("PUT", &of(""), "\"earliest\"", 204).await;
    rest.is("PUT", &of(""), "\"earliest\"", 409).await;
    assert_eq!(rest.get("persistent/t/n/p/subscriptions").await, json!(["s"]));
    let stats = rest.get("persistent/t/n/p/partitioned-stats").await;
    assert_eq!((&stats["subscriptions"]["s"]["msgBacklog"], &stats["metadata"]["partitions"]), (&json!(5), &json!(2)));
    assert_eq!(stats["partitions"].as_object().unwrap().len(), 2);
    assert_eq!(rest.get("persistent/t/n/p/partitioned-stats?perPartition=false").await["partitions"], json!({}));
    rest.is("POST", &of("/skip_all"), "", 204).await;
    let backlog = |stats: Value| stats["subscriptions"]["s"]["msgBacklog"].clone();
    assert_eq!(backlog(rest.get("persistent/t/n/p/partitioned-stats").await), 0);
    rest.is("POST", &of("/resetcursor/0"), "", 204).await;
    assert_eq!(backlog(rest.get("persistent/t/n/p/partitioned-stats").await), 5);
    for (method, path) in [
        ("POST", of("/skip/1")),
        ("GET", of("/position/1")),
        ("GET", "persistent/t/n/p/lastMessageId".to_owned()),
        ("POST", "persistent/t/n/p/terminate".to_owned()),
    ] {
        rest.is(method, &path, "", 405).await;
    }
    rest.is("PUT", "persistent/t/n/p/unload", "", 204).await;
    let (status, ends) = rest.ask("POST", "persistent/t/n/p/terminate/partitions", "").await;
    assert_eq!((status, &ends["1"]["entryId"], &ends["1"]["partitionIndex"]), (200, &json!(2), &json!(1)));
    rest.is("DELETE", &of(""), "", 204).await;
    rest.is("DELETE", &of(""), "", 404).await;
    rest.is("GET", "persistent/t/n/p/stats", "", 404).await;
}

#[tokio::test(start_paused = true)]
async fn schemas() {
    let rest = rest().await;
    let definition = r#"{"type":"record","name":"R","fields":[]}"#;
    let payload = json!({"type": "AVRO", "schema": definition, "properties": {"k": "v"}}).to_string();
    let other = payload.replace("\\\"R\\\"", "\\\"S\\\"");
    let path = "schemas/t/n/a/schema";
    assert_eq!(rest.is("GET", path, "", 404).await, "Schema not found");
    assert_eq!(rest.is("DELETE", path, "", 404).await, "Schema not found");
    rest.is("POST", "schemas/t/m/a/schema", &payload, 404).await;
    let first = rest.answer("POST", path, &payload).await;
    assert_eq!(first, json!({"version": {"version": 0}}));
    assert_eq!(rest.answer("POST", "schemas/t/n/a-partition-7/schema", &payload).await, first);
    let stored = rest.get(path).await;
    let timestamp = stored["timestamp"].as_i64().unwrap();
    assert!(timestamp >= 1_700_000_000_000);
    let expected = json!({"version": 0, "type": "AVRO", "timestamp": timestamp, "data": definition,
        "properties": {"k": "v"}});
    assert_eq!(stored, expected);
    assert_eq!(rest.get("schemas/t/n/a/schema/0").await, expected);
    assert_eq!(rest.get("schemas/t/n/a/schemas").await, json!({"getSchemaResponses": [expected]}));
    assert_eq!(rest.is("GET", "schemas/t/n/a/schema/1", "", 404).await, "Schema not found");
    rest.is("GET", "schemas/t/n/a/schema/x", "", 400).await;
    assert_eq!(rest.answer("POST", "schemas/t/n/a/version", &payload).await, json!({"version": 0}));
    assert_eq!(rest.answer("POST", "schemas/t/n/a/version", &other).await, json!({"version": -1}));

    assert!(rest.is("POST", path, &other, 409).await.contains("does not compare"));
    let text = r#"{"type":"STRING","schema":"","properties":{}}"#;
    assert!(rest.is("POST", path, text, 409).await.contains("exists schema type AVRO, new schema type STRING"));
    rest.is("POST", "schemas/t/n/a/compatibility", &other, 501).await;
    for (body, status) in [
        ("", 400),
        (r#"{"type":"AVRO","schema":"{"}"#, 422),
        (r#"{"type":"AUTO_CONSUME","schema":""}"#, 422),
        (r#"{"type":"KEY_VALUE","schema":"{}"}"#, 422),
    ] {
        rest.is("POST", path, body, status).await;
    }

    assert_eq!(rest.answer("DELETE", path, "").await, json!({"version": 1}));
    for (method, path) in [("GET", path), ("DELETE", path), ("GET", "schemas/t/n/a/schemas")] {
        assert_eq!(rest.is(method, path, "", 404).await, "Schema is deleted");
    }
    assert_eq!(rest.answer("POST", path, &other).await, json!({"version": {"version": 2}}));
    rest.is("GET", "schemas/t/n/a/schema/0", "", 404).await;
    assert_eq!(rest.answer("DELETE", "schemas/t/n/a/schema?force=true", "").await, json!({"version": 2}));
    assert_eq!(rest.is("GET", path, "", 404).await, "Schema not found");
    assert_eq!(rest.answer("POST", path, text).await, json!({"version": {"version": 0}}));

    let pair = json!({"type": "KEY_VALUE", "schema": r#"{"key":"","value":{"type":"record"}}"#}).to_string();
    rest.answer("POST", "schemas/t/n/pair/schema", &pair).await;
    assert_eq!(rest.get("schemas/t/n/pair/schema").await["data"], r#"{"key":"","value":{"type":"record"}}"#);
    rest.answer("POST", "schemas/t/n/bytes/schema", r#"{"type":"BYTES","schema":""}"#).await;
    assert_eq!(rest.get("schemas/t/n/bytes/schema").await["type"], "NONE");
    rest.is("GET", "schemas/t/n/a/metadata", "", 404).await;
}

#[tokio::test(start_paused = true)]
async fn the_broker_itself() {
    let rest = rest().await;
    assert_eq!(rest.get("brokers/health").await, "ok");
    assert_eq!(rest.get("brokers/ready").await, "ok");
    assert_eq!(rest.get("brokers/version").await, env!("CARGO_PKG_VERSION"));
    assert_eq!(rest.get("brokers").await, json!(["localhost:8080"]));
    assert_eq!(rest.get("brokers/standalone").await, json!(["localhost:8080"]));
    rest.is("GET", "brokers/nowhere", "", 404).await;
    assert_eq!(rest.get("brokers/leaderBroker").await["brokerId"], "localhost:8080");
    assert_eq!(rest.get("namespaces/t/n/bundles").await["numBundles"], 4);
    assert_eq!(rest.get("brokers/configuration/runtime").await, json!({"clusterName": "standalone"}));
    let (pulsar, http) = ("pulsar://localhost:6650", "http://localhost:8080");
    let found = rest.get("/lookup/v2/topic/persistent/t/n/a?authoritative=false").await;
    let urls = json!({"brokerUrl": pulsar, "brokerUrlTls": "", "httpUrl": http, "httpUrlTls": "", "nativeUrl": pulsar});
    assert_eq!(found, urls);
    assert!(rest.is("GET", "/lookup/v2/topic/persistent/t/m/a", "", 404).await.contains("t/m"));
    rest.is("GET", "/lookup/v2/topic/non-persistent/t/n/a", "", 501).await;
    rest.is("GET", "/lookup/v2/topic/persistent/t/n/a?listenerName=x", "", 503).await;
    let metrics = rest.get("/metrics").await;
    assert!(metrics.as_str().unwrap().contains("pulsar_broker_topics_count{cluster=\"standalone\"} 0\n"), "{metrics}");
    let report = rest.get("/geminga/v1/explain/persistent/t/n/a").await;
    assert!(report["state"].as_str().unwrap().starts_with("not open"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn all_else_is_not_there() {
    let rest = rest().await;
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/admin/v3/functions/t/n"),
        ("GET", "namespaces/t/n/retention"),
        ("POST", "namespaces/t/n/retention"),
        ("GET", "segments/t/n"),
        ("DELETE", "clusters/standalone"),
        ("GET", "persistent/t/n/a/examinemessage"),
        ("PUT", "persistent/t/n/a/compaction"),
    ] {
        let reason = rest.is(method, path, "", 404).await;
        assert!(reason.contains("not in this version"), "{reason}");
    }
}
