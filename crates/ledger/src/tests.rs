//! Ledgers on bookies in memory.

use std::time::Duration;

use super::*;
use crate::{CreateLedger, LedgerClient, LedgerError, LedgerEvent, LedgerSink, Writer};
use geminga_env::{Env, Inbox, Mailbox, mailbox};
use geminga_metastore::memory;
use geminga_model::DigestType;
use geminga_quorum::{ChangeFailed, WriterState};
use geminga_records::Quorum;

struct Sink(Mailbox<LedgerEvent>);

impl LedgerSink for Sink {
    fn deliver(&self, event: LedgerEvent) {
        drop(self.0.push(event));
    }
}

struct Bench {
    bookies: MemoryBookies,
    client: LedgerClient,
    create: CreateLedger,
}

fn bench(count: usize, ensemble: usize, write: usize, ack: usize) -> Bench {
    let env = Env::simulated(1);
    let bookies = MemoryBookies::new(count);
    let client = LedgerClient::new(env.clone(), memory(env.clock), Arc::new(bookies.clone()));
    let quorum = Quorum::new(ensemble, write, ack).unwrap();
    Bench {
        bookies,
        client,
        create: CreateLedger { quorum, digest: DigestType::Crc32c, password: Bytes::new(), custom: vec![] },
    }
}

struct Writing {
    writer: Writer,
    inbox: Inbox<LedgerEvent>,
}

impl Bench {
    async fn start(&self) -> Writing {
        let (mailbox, inbox) = mailbox();
        let created = self.client.create(&self.create).await.unwrap();
        Writing { writer: self.client.writer(created, Arc::new(Sink(mailbox))), inbox }
    }
}

impl Writing {
    fn add(&mut self, count: usize) {
        for i in 0..count {
            self.writer.add(Bytes::from(format!("payload {i}"))).unwrap();
        }
        self.writer.flush();
    }

    async fn until(&mut self, done: impl Fn(&Writer) -> bool) {
        let mut batch = Vec::new();
        while !done(&self.writer) {
            self.inbox.wait().await;
            self.inbox.take(&mut batch);
            for event in batch.drain(..) {
                self.writer.handle_event(Default::default(), event);
            }
            self.writer.flush();
        }
    }

    async fn confirmed(&mut self, entry: i64) {
        self.until(|writer| writer.last_add_confirmed() >= EntryId(entry)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn write_close_read_delete() {
    let bench = bench(3, 3, 2, 2);
    let mut writing = bench.start().await;
    writing.add(10);
    writing.confirmed(9).await;
    let closed = writing.writer.close().await.unwrap();
    assert_eq!((closed.last_entry, closed.length), (EntryId(9), 90));
    let reader = bench.client.reader(closed.ledger, closed.metadata.clone());
    let mut next = EntryId(0);
    while next <= closed.last_entry {
        for entry in reader.read(next, closed.last_entry, 1000).await.unwrap() {
            assert_eq!((entry.header.entry, &entry.payload[..]), (next, format!("payload {next}").as_bytes()));
            next = next.next();
        }
    }
    let again = bench.client.recover(closed.ledger).await.unwrap();
    assert_eq!(again.last_entry, EntryId(9));
    bench.client.delete(closed.ledger).await.unwrap();
    bench.client.delete(closed.ledger).await.unwrap();
    assert_eq!(bench.client.get(closed.ledger).await.unwrap_err(), LedgerError::NoLedger(closed.ledger));
    assert!(bench.bookies.bookies.keys().all(|bookie| bench.bookies.entries(bookie, closed.ledger).is_empty()));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_what_is_confirmed() {
    let bench = bench(2, 2, 2, 2);
    let mut writing = bench.start().await;
    for kept in [false, true] {
        let payload = Bytes::from(b"payload".to_vec());
        writing.writer.add(payload.clone()).unwrap();
        writing.writer.flush();
        let mut stored = Vec::new();
        while writing.writer.pending() > 0 {
            writing.inbox.wait().await;
            let mut batch = Vec::new();
            writing.inbox.take(&mut batch);
            for event in batch {
                match kept {
                    true => writing.writer.handle_event_keeping(Default::default(), event, &mut stored),
                    false => writing.writer.handle_event(Default::default(), event),
                }
            }
        }
        assert_eq!(stored.len(), usize::from(kept));
        stored.clear();
        assert!(payload.is_unique());
    }
}

#[tokio::test(start_paused = true)]
async fn runs_of_entries_come_in_one_read() {
    let bench = bench(2, 2, 2, 1);
    let mut writing = bench.start().await;
    writing.add(10);
    writing.confirmed(9).await;
    let reader = bench.client.reader(writing.writer.ledger(), (**writing.writer.metadata()).clone());
    assert_eq!(reader.read(EntryId(0), EntryId(9), 1 << 20).await.unwrap().len(), 10);
    assert_eq!(reader.read(EntryId(3), EntryId(9), 100).await.unwrap().len(), 2);
    assert_eq!(reader.read(EntryId(9), EntryId(20), 1 << 20).await.unwrap().len(), 1);
    assert!(reader.read(EntryId(10), EntryId(20), 1 << 20).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn recovery_stops_the_writer_and_keeps_what_it_confirmed() {
    let bench = bench(3, 3, 3, 2);
    let mut writing = bench.start().await;
    writing.add(5);
    writing.confirmed(4).await;
    let closed = bench.client.recover(writing.writer.ledger()).await.unwrap();
    assert_eq!((closed.last_entry, closed.length), (EntryId(4), 45));
    writing.add(1);
    writing.until(|writer| writer.state() == WriterState::Lost(ChangeFailed::Fenced)).await;
    assert_eq!(writing.writer.take_pending().len(), 1);
    let (a, b) = tokio::join!(bench.client.recover(closed.ledger), bench.client.recover(closed.ledger));
    assert_eq!((a.unwrap().last_entry, b.unwrap().last_entry), (EntryId(4), EntryId(4)));
}

#[tokio::test(start_paused = true)]
async fn a_failed_bookie_is_replaced() {
    let bench = bench(4, 3, 3, 2);
    let mut writing = bench.start().await;
    writing.add(2);
    writing.confirmed(1).await;
    let failed = writing.writer.metadata().last_segment().ensemble[1].clone();
    bench.bookies.fail(&failed, Some(BookieError::Unreachable));
    writing.add(3);
    writing.confirmed(4).await;
    let metadata = Arc::clone(writing.writer.metadata());
    assert_eq!(metadata.segments.len(), 2);
    assert!(!metadata.last_segment().ensemble.contains(&failed));
    let closed = writing.writer.close().await.unwrap();
    assert_eq!(closed.metadata.segments, metadata.segments);
    let reader = bench.client.reader(closed.ledger, closed.metadata);
    for id in 0..5 {
        assert_eq!(reader.read(EntryId(id), EntryId(id), 0).await.unwrap()[0].header.entry, EntryId(id));
    }
}

#[tokio::test(start_paused = true)]
async fn without_enough_bookies_nothing_is_created() {
    let bench = bench(2, 3, 2, 2);
    let error = bench.client.create(&bench.create).await.unwrap_err();
    assert_eq!(error, LedgerError::NotEnoughBookies { needed: 3, available: 2 });
}

#[tokio::test(start_paused = true)]
async fn closing_where_somebody_else_closed_is_a_success() {
    let bench = bench(1, 1, 1, 1);
    let mut writing = bench.start().await;
    bench.bookies.hold_adds(true);
    writing.add(2);
    let closed = bench.client.recover(writing.writer.ledger()).await.unwrap();
    assert_eq!(closed.last_entry, EntryId::NONE);
    bench.bookies.hold_adds(false);
    writing.until(|writer| writer.state() != WriterState::Open).await;
    assert_eq!(writing.writer.close().await.unwrap().last_entry, EntryId::NONE);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_with_one_entry() {
    let bench = bench(3, 3, 3, 2);
    let deadline = bench.client.env().clock.now() + Duration::from_secs(5);
    let ledger = bench.client.create_single(&bench.create, Bytes::from_static(b"one"), deadline).await.unwrap();
    let closed = bench.client.recover(ledger).await.unwrap();
    assert_eq!(closed.last_entry, EntryId(0));
    let read = bench.client.reader(ledger, closed.metadata).read(EntryId(0), EntryId(0), 0).await.unwrap();
    assert_eq!(&read[0].payload[..], b"one");
}

#[tokio::test(start_paused = true)]
async fn a_ledger_whose_entry_nobody_takes_is_given_up() {
    let bench = bench(1, 1, 1, 1);
    bench.bookies.hold_adds(true);
    let deadline = bench.client.env().clock.now() + Duration::from_secs(5);
    let failed = bench.client.create_single(&bench.create, Bytes::from_static(b"one"), deadline).await.unwrap_err();
    let LedgerError::NotWritten(ledger) = failed else { panic!("{failed}") };
    assert_eq!(bench.client.env().clock.now(), deadline);
    assert_eq!(bench.client.get(ledger).await.unwrap_err(), LedgerError::NoLedger(ledger));
}
