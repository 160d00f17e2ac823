//! The life of a topic. What it does for clients is tested with clients, in `server` and in `interop`.

use std::sync::Arc;

use geminga_env::{Env, reply};
use geminga_ledger::LedgerClient;
use geminga_ledger::memory::MemoryBookies;
use geminga_managed_ledger::{ManagedLedgerError, ManagedLedgers, Rollover, TailCache};
use geminga_metastore::{Backend, MetadataStore, Request, memory};
use geminga_model::TopicName;
use geminga_records::Quorum;
use parking_lot::Mutex;

use crate::{ProducerNames, TopicEnd, TopicOptions, open_topic};

pub(crate) fn options(env: &Env, metadata: MetadataStore) -> TopicOptions {
    TopicOptions {
        ledgers: ManagedLedgers {
            env: env.clone(),
            ledgers: LedgerClient::new(env.clone(), metadata.clone(), Arc::new(MemoryBookies::new(1))),
            metadata,
            quorum: Quorum::new(1, 1, 1).unwrap(),
            rollover: Rollover::default(),
            cache: TailCache::new(1 << 20),
        },
        producer_names: Arc::new(ProducerNames::new("test-0".into())),
        max_unacked_per_consumer: 100,
    }
}

pub(crate) fn name() -> TopicName {
    "persistent://public/default/t".parse().unwrap()
}

/// Takes every request and answers none.
#[derive(Debug, Default)]
struct Silent(Mutex<Vec<Request>>);

impl Backend for Silent {
    fn submit(&self, request: Request) {
        self.0.lock().push(request);
    }

    fn url(&self) -> &'static str {
        "silent:"
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_cannot_open_in_time_answers_whoever_waits_and_is_gone() {
    let env = Env::simulated(1);
    let (ended, mut end) = reply();
    let store = MetadataStore::new(Arc::new(Silent::default()));
    let topic = open_topic(options(&env, store), name(), true, move |how| ended.send(how));
    let (done, mut closed) = reply();
    topic.close(done);
    let started = env.clock.now();
    assert_eq!(closed.wait().await, Ok(()));
    assert_eq!(env.clock.now().since(started).as_secs(), 60);
    assert!(matches!(end.wait().await, Ok(TopicEnd::Failed(ManagedLedgerError::Metadata(_)))));
    assert!(topic.is_gone());
}

#[tokio::test(start_paused = true)]
async fn a_topic_opens_explains_itself_and_closes() {
    let env = Env::simulated(1);
    let (ended, mut end) = reply();
    let topic = open_topic(options(&env, memory(env.clock)), name(), true, move |how| ended.send(how));
    let report = loop {
        let (ask, mut answer) = reply();
        topic.explain(ask);
        let report = answer.wait().await.unwrap();
        if report.state.starts_with("serving") {
            break report;
        }
    };
    assert_eq!((report.topic.as_str(), report.last_confirmed.as_str()), ("persistent://public/default/t", "-1:-1"));
    let (done, mut closed) = reply();
    topic.close(done);
    assert_eq!((closed.wait().await, end.wait().await), (Ok(()), Ok(TopicEnd::Closed)));
    // What comes too late is answered as well.
    let (done, mut again) = reply();
    topic.close(done);
    assert_eq!(again.wait().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_must_exist_and_does_not_is_not_made() {
    let env = Env::simulated(1);
    let (ended, mut end) = reply();
    let store = memory(env.clock);
    drop(open_topic(options(&env, store.clone()), name(), false, move |how| ended.send(how)));
    assert_eq!(end.wait().await, Ok(TopicEnd::Failed(ManagedLedgerError::NotFound)));
    assert_eq!(store.get("/managed-ledgers/public/default/persistent/t").await.unwrap(), None);
}
