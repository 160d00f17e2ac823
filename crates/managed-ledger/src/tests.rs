//! Topics' logs on bookies and metadata in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use geminga_cursor::{Cursor, Extents, UnackedSet};
use geminga_env::{Env, Inbox, Mailbox, mailbox};
use geminga_ledger::LedgerClient;
use geminga_ledger::memory::MemoryBookies;
use geminga_metastore::memory;
use geminga_model::{Position, TopicName};
use geminga_quorum::BookieError;
use geminga_records::{
    AckedRange, CursorEntry, LedgerState, ManagedCursorInfo, ManagedLedgerInfo, PositionInfo, Quorum, paths,
};

use super::*;

struct ToInbox<T>(Mailbox<T>);

impl AppenderSink for ToInbox<AppenderEvent> {
    fn deliver(&self, event: AppenderEvent) {
        drop(self.0.push(event));
    }
}

impl CursorSink for ToInbox<CursorEvent> {
    fn deliver(&self, event: CursorEvent) {
        drop(self.0.push(event));
    }
}

struct Bench {
    ledgers: ManagedLedgers,
    bookies: MemoryBookies,
    topic: TopicName,
}

fn bench(max_entries: i64) -> Bench {
    bench_with_cache(max_entries, 1 << 20)
}

fn bench_with_cache(max_entries: i64, cache: usize) -> Bench {
    let env = Env::simulated(1);
    let bookies = MemoryBookies::new(3);
    let metadata = memory(env.clock);
    let ledgers = ManagedLedgers::from(ManagedLedgersConfig {
        ledgers: LedgerClient::new(env.clone(), metadata.clone(), Arc::new(bookies.clone())),
        metadata,
        env,
        quorum: Quorum::new(2, 2, 2).unwrap(),
        rollover: Rollover { max_entries, min_age: Duration::ZERO, ..Rollover::default() },
        cache: TailCache::new(cache),
    });
    Bench { ledgers, bookies, topic: "persistent://t/n/topic".parse().unwrap() }
}

struct Topic {
    appender: Appender,
    inbox: Inbox<AppenderEvent>,
    completed: Vec<Position>,
    env: Env,
}

impl Bench {
    async fn open(&self) -> Topic {
        let (mailbox, inbox) = mailbox();
        let opened = open(&self.ledgers, &self.topic, true).await.unwrap();
        let appender = opened.appender(Arc::new(ToInbox(mailbox)));
        Topic { appender, inbox, completed: vec![], env: self.ledgers.env.clone() }
    }

    async fn list(&self) -> ManagedLedgerInfo {
        let node = self.ledgers.metadata.get(&paths::managed_ledger(&self.topic)).await.unwrap().unwrap();
        ManagedLedgerInfo::decode(&node.value).unwrap()
    }

    /// Every payload of the topic, read without the cache.
    async fn read_all(&self, log: &Log) -> Vec<Bytes> {
        let mut payloads = vec![];
        let mut at = log.with_extents(Extents::start);
        while let Some(next) = log.with_extents(|extents| extents.next(at)) {
            for entry in log.read(next, 100, 1 << 20).await.unwrap() {
                at = entry.position;
                payloads.push(entry.payload);
            }
        }
        payloads
    }
}

fn payloads(range: std::ops::Range<usize>) -> Vec<Bytes> {
    range.map(|i| Bytes::from(format!("message {i}"))).collect()
}

impl Topic {
    fn append(&mut self, payloads: Vec<Bytes>) {
        for payload in payloads {
            self.appender.append(self.env.clock.now(), payload).unwrap();
        }
        self.appender.flush();
    }

    async fn until(&mut self, done: impl Fn(&Topic) -> bool) {
        let mut batch = vec![];
        while !done(self) {
            self.inbox.wait().await;
            self.inbox.take(&mut batch);
            for event in batch.drain(..) {
                self.appender.handle_event(self.env.clock.now(), event);
            }
            self.appender.flush();
            self.appender.take_completed(&mut self.completed);
        }
    }

    /// Waits until entries go to another ledger than the last one completed.
    async fn rolled(&mut self) {
        let full = self.completed.last().unwrap().ledger;
        self.until(|topic| matches!(topic.appender.state(), AppenderState::Writing(ledger) if ledger != full)).await;
    }

    async fn completed(&mut self, count: usize) {
        self.until(|topic| topic.completed.len() >= count).await;
        assert_eq!(self.completed.len(), count);
    }
}

#[tokio::test(start_paused = true)]
async fn appends_complete_in_order_over_many_ledgers() {
    let bench = bench(10);
    let mut topic = bench.open().await;
    assert_eq!(bench.list().await, ManagedLedgerInfo::default(), "no ledger before the first message");
    for round in 0..5 {
        topic.append(payloads(12 * round..12 * round + 4));
        topic.append(payloads(12 * round + 4..12 * round + 12));
        topic.completed(12 * (round + 1)).await;
        topic.rolled().await;
    }
    assert!(topic.completed.is_sorted_by(|a, b| a < b));
    let list = bench.list().await;
    assert_eq!(list.ledgers.len(), 6);
    let (last, stamped) = list.ledgers.split_last().unwrap();
    assert!(stamped.iter().all(|ledger| ledger.entries > Some(0)) && !last.is_stamped());
    assert_eq!(bench.read_all(topic.appender.log()).await, payloads(0..60));
    let CachedRead::Entries(cached) = topic.appender.log().read_cached(Position::EARLIEST, 100, 1 << 20) else {
        panic!("the tail is in memory")
    };
    assert_eq!(cached.into_iter().map(|entry| entry.payload).collect::<Vec<_>>(), payloads(0..60));
}

#[tokio::test(start_paused = true)]
async fn opening_takes_the_topic_away() {
    let bench = bench(1000);
    let mut first = bench.open().await;
    first.append(payloads(0..5));
    first.completed(5).await;
    let mut second = bench.open().await;
    assert_eq!(bench.list().await.ledgers[0].entries, Some(5));
    first.append(payloads(90..91));
    first.until(|topic| matches!(topic.appender.state(), AppenderState::Failed(_))).await;
    assert_eq!(first.appender.state(), AppenderState::Failed(ManagedLedgerError::Fenced));
    assert!(first.appender.append(first.env.clock.now(), Bytes::new()).is_err());
    second.append(payloads(5..8));
    second.completed(3).await;
    assert_eq!(bench.read_all(second.appender.log()).await, payloads(0..8));
}

/// Even if neither of them ever writes: the former owner must not be able to start a ledger afterwards.
#[tokio::test(start_paused = true)]
async fn opening_an_empty_topic_takes_it_away_too() {
    let bench = bench(1000);
    let mut first = bench.open().await;
    let _second = bench.open().await;
    first.append(payloads(0..1));
    first.until(|topic| matches!(topic.appender.state(), AppenderState::Failed(_))).await;
    assert!(bench.list().await.ledgers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_fence_is_a_roll_and_not_a_loss() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    topic.append(payloads(0..5));
    topic.completed(5).await;
    let ledger = topic.completed[0].ledger;
    // Auto-recovery closes the ledger while entries are under way.
    bench.bookies.hold_adds(true);
    topic.append(payloads(5..10));
    let closing = bench.ledgers.ledgers.clone();
    bench.bookies.hold_adds(false);
    closing.recover(ledger).await.unwrap();
    topic.append(payloads(10..15));
    topic.completed(15).await;
    assert_eq!(bench.read_all(topic.appender.log()).await, payloads(0..15));
    assert_ne!(topic.completed[14].ledger, ledger);
}

#[tokio::test(start_paused = true)]
async fn a_clean_close_leaves_nothing_to_recover() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    topic.append(payloads(0..3));
    topic.completed(3).await;
    topic.appender.close().await.unwrap();
    let list = bench.list().await;
    assert_eq!(list.ledgers[0].entries, Some(3));
    let (metadata, _) = bench.ledgers.ledgers.get(list.ledgers[0].ledger).await.unwrap();
    assert!(matches!(metadata.state, LedgerState::Closed { .. }));
    let again = bench.open().await;
    assert_eq!(bench.read_all(again.appender.log()).await, payloads(0..3));
}

#[tokio::test(start_paused = true)]
async fn an_empty_ledger_leaves_the_list() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    let bookies: Vec<_> =
        (0..3).map(|i| geminga_model::BookieId::parse(&format!("bookie-{i}:3181")).unwrap()).collect();
    // The ledger is made, and nothing is ever stored in it.
    bench.bookies.hold_adds(true);
    topic.append(payloads(0..1));
    topic.until(|topic| matches!(topic.appender.state(), AppenderState::Writing(_))).await;
    drop(topic);
    assert_eq!(bench.list().await.ledgers.len(), 1);
    bench.bookies.hold_adds(false);
    for bookie in &bookies {
        bench.bookies.fail(bookie, None);
    }
    let mut topic = bench.open().await;
    topic.append(payloads(5..7));
    topic.completed(2).await;
    assert_eq!(bench.list().await.ledgers.iter().filter(|ledger| ledger.entries == Some(0)).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_bookies_appends_wait_and_go_on() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    let bookies: Vec<_> =
        (0..3).map(|i| geminga_model::BookieId::parse(&format!("bookie-{i}:3181")).unwrap()).collect();
    bookies.iter().for_each(|bookie| bench.bookies.fail(bookie, Some(BookieError::ReadOnly)));
    topic.append(payloads(0..3));
    bench.ledgers.env.clock.sleep_until(topic.env.clock.now() + Duration::from_secs(5)).await;
    assert!(topic.completed.is_empty());
    bookies.iter().for_each(|bookie| bench.bookies.fail(bookie, None));
    topic.completed(3).await;
    assert_eq!(bench.read_all(topic.appender.log()).await, payloads(0..3));
}

#[tokio::test(start_paused = true)]
async fn a_terminated_topic_stays_so() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    topic.append(payloads(0..3));
    let now = topic.env.clock.now();
    topic.appender.terminate(now);
    assert!(topic.appender.append(now, Bytes::from_static(b"late")).is_err());
    topic.until(|topic| topic.appender.terminated().is_some()).await;
    assert_eq!(topic.completed.len(), 3);
    let end = topic.completed.last().copied();
    assert_eq!((topic.appender.terminated(), bench.list().await.terminated), (end, end));
    topic.appender.close().await.unwrap();

    let mut topic = bench.open().await;
    assert_eq!(topic.appender.terminated(), end);
    assert!(topic.appender.append(now, Bytes::from_static(b"late")).is_err());
    assert_eq!(bench.read_all(topic.appender.log()).await, payloads(0..3));
    topic.appender.close().await.unwrap();
    assert_eq!(bench.list().await.ledgers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_topic_without_messages_can_be_terminated() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    let now = topic.env.clock.now();
    topic.appender.terminate(now);
    topic.until(|topic| topic.appender.terminated().is_some()).await;
    assert_eq!(bench.list().await.terminated, Some(Position::EARLIEST));
}

#[tokio::test(start_paused = true)]
async fn sizes_follow_appends_and_survive_an_open() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    topic.append(payloads(0..4));
    topic.completed(4).await;
    let (log, second) = (Arc::clone(topic.appender.log()), topic.completed[1]);
    // "message n" has nine bytes.
    assert_eq!((log.size(), log.size_after(Position::EARLIEST), log.size_after(second)), (36, 36, 18));
    topic.appender.close().await.unwrap();
    let topic = bench.open().await;
    assert_eq!((topic.appender.log().size(), topic.appender.log().size_after(second)), (36, 18));
    assert!(topic.appender.log().has(second) && !topic.appender.log().has(Position::EARLIEST));
}

#[tokio::test(start_paused = true)]
async fn trim_drops_a_prefix() {
    let bench = bench(5);
    let mut topic = bench.open().await;
    topic.append(payloads(0..5));
    topic.completed(5).await;
    topic.rolled().await;
    topic.append(payloads(5..10));
    topic.completed(10).await;
    topic.rolled().await;
    topic.append(payloads(10..11));
    topic.completed(11).await;
    let (first, kept) = (topic.completed[0].ledger, topic.completed[10].ledger);
    topic.appender.trim(kept);
    topic.until(|topic| topic.appender.info().ledgers.first().is_some_and(|ledger| ledger.ledger == kept)).await;
    assert_eq!(bench.list().await, *topic.appender.info());
    assert!(bench.ledgers.ledgers.get(first).await.is_err());
    assert_eq!(bench.read_all(topic.appender.log()).await, payloads(10..11));
    topic.append(payloads(11..20));
    topic.completed(20).await;
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_and_reads_go_on_without_it() {
    let bench = bench_with_cache(1000, 292);
    let mut topic = bench.open().await;
    for i in 0..20 {
        topic.append(payloads(i..i + 1));
        topic.completed(i + 1).await;
    }
    assert!(bench.ledgers.cache.bytes() <= 292);
    let log = topic.appender.log();
    assert_eq!(log.read_cached(Position::EARLIEST, 10, 1 << 20), CachedRead::Cold(topic.completed[0]));
    let tail = log.read_cached(topic.completed[17], 10, 1 << 20);
    assert!(matches!(tail, CachedRead::Entries(entries) if entries.len() == 2));
    assert_eq!(log.read_cached(topic.completed[19], 10, 1 << 20), CachedRead::NothingNew);
    assert_eq!(bench.read_all(log).await, payloads(0..20));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_gone() {
    let bench = bench(1000);
    let mut topic = bench.open().await;
    topic.append(payloads(0..1));
    topic.completed(1).await;
    create_cursor(&bench.ledgers, &bench.topic, "s/1", Position::EARLIEST, &[]).await.unwrap();
    assert_eq!(list_cursors(&bench.ledgers, &bench.topic).await.unwrap(), ["s/1"]);
    topic.appender.close().await.unwrap();
    delete(&bench.ledgers, &bench.topic).await.unwrap();
    assert_eq!(delete(&bench.ledgers, &bench.topic).await, Err(ManagedLedgerError::NotFound));
    assert_eq!(open(&bench.ledgers, &bench.topic, false).await.unwrap_err(), ManagedLedgerError::NotFound);
    assert!(bench.ledgers.ledgers.get(topic.completed[0].ledger).await.is_err());
}

struct Subscription {
    store: CursorStore,
    inbox: Inbox<CursorEvent>,
    cursor: Cursor,
    env: Env,
}

impl Bench {
    async fn subscription(&self, extents: &Extents) -> Subscription {
        let (mailbox, inbox) = mailbox();
        let sink = Arc::new(ToInbox(mailbox));
        let (store, stored) = open_cursor(&self.ledgers, &self.topic, "s", sink).await.unwrap();
        let mut cursor = stored.restore(extents);
        cursor.keep_changes();
        Subscription { store, inbox, cursor, env: self.ledgers.env.clone() }
    }

    async fn cursor_node(&self) -> ManagedCursorInfo {
        let node = self.ledgers.metadata.get(&paths::cursor(&self.topic, "s")).await.unwrap().unwrap();
        ManagedCursorInfo::decode(&node.value).unwrap()
    }
}

impl Subscription {
    async fn save(&mut self) -> Saved {
        self.save_for(SaveFor::Time).await
    }

    async fn save_for(&mut self, why: SaveFor) -> Saved {
        self.store.save(self.env.clock.now(), &mut self.cursor, why);
        self.store.flush();
        let mut batch = vec![];
        loop {
            self.inbox.wait().await;
            self.inbox.take(&mut batch);
            let mut saved = None;
            for event in batch.drain(..) {
                saved = self.store.handle_event(self.env.clock.now(), event, &mut self.cursor).or(saved);
            }
            self.store.flush();
            if let Some(saved) = saved {
                return saved;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_is_saved_and_found_again() {
    let bench = bench(1000);
    let mut extents = Extents::default();
    extents.set(geminga_model::LedgerId(7), 1000);
    create_cursor(&bench.ledgers, &bench.topic, "s", extents.start(), &[("a".into(), "b".into())]).await.unwrap();
    let taken = create_cursor(&bench.ledgers, &bench.topic, "s", extents.start(), &[]).await;
    assert_eq!(taken, Err(ManagedLedgerError::Fenced));
    let mut subscription = bench.subscription(&extents).await;
    assert_eq!(subscription.store.properties(), [("a".to_owned(), "b".to_owned())]);
    for round in 0..5 {
        subscription.cursor.ack([Position::new(7, 3 * round), Position::new(7, 100 + 2 * round)], &extents);
        assert_eq!(subscription.save().await, Saved::Durable(subscription.cursor.revision()));
        // The first state goes into the node, the second makes a ledger.
        assert_eq!(bench.cursor_node().await.cursor_ledger.0 >= 0, round > 0);
        if round == 0 {
            assert!(!bench.cursor_node().await.acked.is_empty());
        }
    }
    let before = subscription.cursor.snapshot();
    let mut next = bench.subscription(&extents).await;
    assert_eq!(next.cursor.snapshot(), before);
    // The former owner has lost it.
    subscription.cursor.ack([Position::new(7, 500)], &extents);
    assert_eq!(subscription.save().await, Saved::Failed(ManagedLedgerError::Fenced));
    next.cursor.ack([Position::new(7, 501)], &extents);
    assert!(matches!(next.save().await, Saved::Durable(_)));
    delete_cursor(&bench.ledgers, &bench.topic, "s").await.unwrap();
    assert_eq!(delete_cursor(&bench.ledgers, &bench.topic, "s").await, Err(ManagedLedgerError::CursorNotFound));
}

#[tokio::test(start_paused = true)]
async fn a_cursor_ledger_that_cannot_be_written_folds_into_the_node() {
    let bench = bench(1000);
    let mut extents = Extents::default();
    extents.set(geminga_model::LedgerId(7), 1000);
    create_cursor(&bench.ledgers, &bench.topic, "s", extents.start(), &[]).await.unwrap();
    let mut subscription = bench.subscription(&extents).await;
    for entry in 0..3 {
        subscription.cursor.ack([Position::new(7, entry)], &extents);
        subscription.save().await;
    }
    bench.ledgers.ledgers.recover(bench.cursor_node().await.cursor_ledger).await.unwrap();
    subscription.cursor.ack([Position::new(7, 3), Position::new(7, 9)], &extents);
    assert_eq!(subscription.save().await, Saved::Durable(subscription.cursor.revision()));
    let node = bench.cursor_node().await;
    assert_eq!((node.cursor_ledger.0, node.mark_delete, node.acked.len()), (-1, Some(Position::new(7, 3)), 1));
    assert_eq!(bench.subscription(&extents).await.cursor.snapshot(), subscription.cursor.snapshot());
}

impl Bench {
    /// The last entry of the cursor's ledger, as Java reads it, after recovery.
    async fn last_entry(&self) -> CursorEntry {
        let closed = self.ledgers.ledgers.recover(self.cursor_node().await.cursor_ledger).await.unwrap();
        let reader = self.ledgers.ledgers.reader(closed.ledger, closed.metadata);
        let last = reader.read(closed.last_entry, closed.last_entry, 0).await.unwrap();
        CursorEntry::decode(&last[0].payload).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_ledger_is_made_for_the_first_receipt() {
    let bench = bench(1000);
    let mut extents = Extents::default();
    extents.set(geminga_model::LedgerId(7), 200_000);
    create_cursor(&bench.ledgers, &bench.topic, "s", extents.start(), &[]).await.unwrap();
    let mut subscription = bench.subscription(&extents).await;
    for round in 0..30 {
        // More than an entry of a delta has room for.
        subscription.cursor.ack((0..3000).map(|i| Position::new(7, round * 6000 + 2 * i + 1)), &extents);
        subscription.cursor.redelivered([Position::new(7, 4), Position::new(7, 2 * round)]);
        assert!(matches!(subscription.save_for(SaveFor::Receipt).await, Saved::Durable(_)));
    }
    let last = bench.last_entry().await;
    assert!(!last.extension.unwrap().is_snapshot() && last.info.acked_ranges().len() < 30 * 3000);
    let mut next = bench.subscription(&extents).await;
    assert_eq!(next.cursor.snapshot(), subscription.cursor.snapshot());
    assert_eq!(next.cursor.redeliveries(), subscription.cursor.redeliveries());
    assert_eq!(next.cursor.redelivery_count(Position::new(7, 4)), 31);
    // Nothing changed, and yet there is something to do before it is handed over.
    assert!(!next.store.is_exact());
    assert!(matches!(next.save_for(SaveFor::Close).await, Saved::Durable(_)));
    assert!(next.store.is_exact());
    assert_eq!(Cursor::restore(&bench.last_entry().await.info, &extents).snapshot(), next.cursor.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_large_state_gets_another_ledger_when_one_is_lost() {
    let bench = bench(1000);
    let mut extents = Extents::default();
    extents.set(geminga_model::LedgerId(7), 200_000);
    create_cursor(&bench.ledgers, &bench.topic, "s", extents.start(), &[]).await.unwrap();
    let mut subscription = bench.subscription(&extents).await;
    subscription.cursor.ack((0..50_000).map(|i| Position::new(7, 2 * i + 1)), &extents);
    subscription.save_for(SaveFor::Receipt).await;
    let lost = bench.cursor_node().await.cursor_ledger;
    bench.ledgers.ledgers.recover(lost).await.unwrap();
    subscription.cursor.ack([Position::new(7, 2)], &extents);
    assert_eq!(subscription.save().await, Saved::Durable(subscription.cursor.revision()));
    let node = bench.cursor_node().await;
    assert!(node.cursor_ledger.0 > lost.0 && node.acked.is_empty());
    assert_eq!(bench.subscription(&extents).await.cursor.snapshot(), subscription.cursor.snapshot());
}

#[tokio::test(start_paused = true)]
async fn closing_leaves_a_snapshot_behind() {
    let bench = bench(1000);
    let mut extents = Extents::default();
    extents.set(geminga_model::LedgerId(7), 1000);
    create_cursor(&bench.ledgers, &bench.topic, "s", extents.start(), &[]).await.unwrap();
    let mut subscription = bench.subscription(&extents).await;
    for round in 1..4 {
        subscription.cursor.redelivered([Position::new(7, 4)]);
        subscription.save_for(SaveFor::Receipt).await;
        assert_eq!(subscription.store.is_exact(), round == 1, "deltas follow the snapshot that the ledger begins with");
    }
    subscription.save_for(SaveFor::Close).await;
    assert!(bench.last_entry().await.extension.unwrap().is_snapshot());
    // Little state and no ledger: the node takes it, with the counts.
    let mut next = bench.subscription(&extents).await;
    next.cursor.ack([Position::new(7, 8)], &extents);
    next.save_for(SaveFor::Close).await;
    assert_eq!(bench.cursor_node().await.cursor_ledger.0, -1);
    let mut next = bench.subscription(&extents).await;
    assert_eq!((next.cursor.redelivery_count(Position::new(7, 4)), next.cursor.acked_beyond()), (3, 1));
    // Batches acked in part are not restored from a node by Java.
    next.cursor.ack_in_batch(Position::new(7, 9), &UnackedSet::from_words(&[5]), &extents);
    next.save_for(SaveFor::Close).await;
    assert_eq!(bench.last_entry().await.info.batch_sets.len(), 1);
    // Nor does such a state go there while the subscription goes on, though nobody waits.
    let mut next = bench.subscription(&extents).await;
    next.cursor.ack([Position::new(7, 30)], &extents);
    next.save().await;
    assert!(bench.cursor_node().await.cursor_ledger.0 > -1);
}

#[tokio::test(start_paused = true)]
async fn entries_of_java_are_opened() {
    let bench = bench(1000);
    let mut extents = Extents::default();
    extents.set(geminga_model::LedgerId(7), 1000);
    create_cursor(&bench.ledgers, &bench.topic, "s", extents.start(), &[]).await.unwrap();
    let created = bench.ledgers.ledgers.create(&bench.ledgers.cursor_ledger(&bench.topic, "s")).await.unwrap();
    let (mailbox, mut inbox) = mailbox();
    let mut writer = bench.ledgers.ledgers.writer(created, Arc::new(ToLedgerInbox(mailbox)));
    let mut info = PositionInfo::at(Position::new(7, 3));
    writer.add(info.encode().into());
    info.acked = vec![AckedRange { lower: Position::new(7, 8), upper: Position::new(7, 11) }];
    writer.add(info.encode().into());
    writer.flush();
    let mut events = vec![];
    while writer.last_add_confirmed() < writer.last_add_pushed() {
        inbox.wait().await;
        inbox.take(&mut events);
        events.drain(..).for_each(|event| writer.handle_event(bench.ledgers.env.clock.now(), event));
    }
    let node = ManagedCursorInfo { cursor_ledger: writer.ledger(), ..bench.cursor_node().await };
    let path = paths::cursor(&bench.topic, "s");
    bench.ledgers.metadata.put(&path, node.encode(), geminga_metastore::Expected::Any).await.unwrap();
    let subscription = bench.subscription(&extents).await;
    assert_eq!(subscription.cursor.snapshot(), info);
    assert!(subscription.store.is_exact());
}

struct ToLedgerInbox(Mailbox<geminga_ledger::LedgerEvent>);

impl geminga_ledger::LedgerSink for ToLedgerInbox {
    fn deliver(&self, event: geminga_ledger::LedgerEvent) {
        drop(self.0.push(event));
    }
}
