//! The contract suite on the embedded backends, and what is particular to the one on disk.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use geminga_disk::{Disk, OpenMode, RealDisk, SimDisk};
use geminga_env::{Env, LaneStyle};
use geminga_metastore::{Expected, Kind, MetadataError, MetadataStore, OpenFailed, contract, memory, redb, redb_with};
use tokio::runtime::Handle;

fn env() -> Env {
    Env::real(Handle::current(), Handle::current())
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    contract::all(&memory(env().clock)).await;
}

#[tokio::test]
async fn redb_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    contract::all(&redb(&env(), &RealDisk, &dir.path().join("metadata")).unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn redb_keeps_the_contract_in_simulation() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("/d")).unwrap();
    let env = Env::simulated(1);
    assert_eq!(env.lanes, LaneStyle::Tasks);
    contract::all(&redb(&env, &disk, Path::new("/d/metadata")).unwrap()).await;
}

/// Every answered write outlives a power cut at any moment; ephemeral nodes do not.
#[tokio::test(start_paused = true)]
async fn what_was_answered_outlives_a_power_cut() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        disk.create_dir(Path::new("/d")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        let path = Path::new("/d/metadata");
        let mut written = 0;
        for life in 0..3 {
            let store = match redb(&Env::simulated(seed), &disk, path) {
                Ok(store) => store,
                Err(error) => panic!("seed {seed}, life {life}: {error}"),
            };
            assert_eq!(read_count(&store).await, written, "seed {seed}, life {life}");
            assert_eq!(store.get("/session").await.unwrap(), None);
            disk.cut_power_after(20 + seed);
            drop(store.create_ephemeral("/session", "", Kind::Ephemeral).await);
            let mut attempts = 0;
            while !disk.is_off() {
                let path = format!("/n/{:06}", written + attempts);
                attempts += 1;
                match store.put(&path, "x", Expected::Any).await {
                    Ok(_) => {
                        written += 1;
                        attempts = 0;
                    }
                    Err(error) => assert!(matches!(error, MetadataError::Unavailable(_)), "{error}"),
                }
            }
            drop(store);
            tokio::task::yield_now().await;
            disk.power_cycle();
            written = written.max(read_back(&disk, path, seed).await);
        }
    }
}

/// What is written after a failed sync may not be durable, whatever later syncs say.
#[tokio::test(start_paused = true)]
async fn a_failed_sync_is_told_once_and_nothing_is_answered_from_then_on() {
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new("/d")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let on_failure = move |_: &str| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    let store = redb_with(&Env::simulated(1), &disk, Path::new("/d/metadata"), on_failure).unwrap();
    store.put("/kept", "x", Expected::Absent).await.unwrap();
    disk.fail_sync_after(0);
    for path in ["/lost", "/other"] {
        let error = store.put(path, "x", Expected::Absent).await.unwrap_err();
        assert!(matches!(error, MetadataError::Unavailable(_)), "{error}");
    }
    assert!(store.get("/kept").await.is_err());
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

/// An unanswered write may be there or not; what counts from then on is what is found.
async fn read_back(disk: &SimDisk, path: &Path, seed: u64) -> u64 {
    let found = redb(&Env::simulated(seed), disk, path).unwrap();
    read_count(&found).await
}

async fn read_count(store: &MetadataStore) -> u64 {
    let names = store.children("/n").await.unwrap();
    for (i, name) in names.iter().enumerate() {
        assert_eq!(*name, format!("{i:06}"), "a write is missing among those that came after it");
    }
    names.len() as u64
}

#[tokio::test]
async fn ten_thousand_creations_at_once_take_less_than_three_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let env = env();
    let store = redb(&env, &RealDisk, &dir.path().join("metadata")).unwrap();
    let start = env.clock.now();
    let mut answers = Vec::new();
    for i in 0..10_000 {
        let (to, from) = geminga_env::reply();
        store.submit_put(&format!("/managed-ledgers/t/n/persistent/topic-{i}"), "".into(), Expected::Absent, to);
        answers.push(from);
    }
    for answer in &mut answers {
        answer.wait().await.unwrap().unwrap();
    }
    let took = env.clock.now().since(start);
    assert!(took.as_secs() < 3, "{took:?}");
    assert_eq!(store.children("/managed-ledgers/t/n/persistent").await.unwrap().len(), 10_000);
}

#[tokio::test]
async fn a_damaged_or_foreign_file_is_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metadata");
    let file = RealDisk.open(&path, OpenMode::Create).unwrap();
    file.write_at(0, &[7; 4096]).unwrap();
    let error = redb(&env(), &RealDisk, &path).unwrap_err();
    assert!(matches!(error, OpenFailed::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("data directory"), "{error}");
}
