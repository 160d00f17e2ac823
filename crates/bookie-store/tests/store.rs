//! The store from outside: rules of requests, restarts, refusals, full and failing disks, damage, and the format's corpus.
#![expect(clippy::unwrap_used, reason = "the lint's exemption for tests does not reach their helper functions")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use geminga_bookie_store::{
    BookieStore, LogWriter, MasterKey, OpenError, ReadError, StoreOptions, WriteOutcome, WriteRequest,
};
use geminga_disk::{Disk, OpenMode, RealDisk, SimDisk};
use geminga_model::{BookieId, EntryId, LedgerId, UnixMillis};

const DAY: i64 = 24 * 3600 * 1000;
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

fn options() -> StoreOptions {
    let bookie = BookieId::parse("10.0.0.1:3181").unwrap();
    StoreOptions { segment_bytes: 16 << 10, block_bytes: 4096, ..StoreOptions::new(bookie, "instance-1") }
}

fn try_open(disk: &SimDisk) -> Result<(Arc<BookieStore>, LogWriter), OpenError> {
    BookieStore::open(Arc::new(disk.clone()), Path::new("/b"), &options(), NOW)
}

fn open(disk: &SimDisk) -> (Arc<BookieStore>, LogWriter) {
    try_open(disk).unwrap()
}

fn key(byte: u8) -> MasterKey {
    MasterKey::new(&[byte; 20]).unwrap()
}

fn body(ledger: i64, entry: i64, payload: &[u8]) -> Bytes {
    let mut body = Vec::new();
    for number in [ledger, entry, entry - 1, payload.len() as i64] {
        body.extend_from_slice(&number.to_be_bytes());
    }
    body.extend_from_slice(payload);
    body.into()
}

fn add(ledger: i64, entry: i64, payload: &[u8]) -> WriteRequest {
    WriteRequest::Add {
        ledger: LedgerId(ledger),
        entry: EntryId(entry),
        body: body(ledger, entry, payload),
        master_key: key(1),
        recovery: false,
        high_priority: false,
    }
}

fn recovery_add(ledger: i64, entry: i64, payload: &[u8]) -> WriteRequest {
    let mut request = add(ledger, entry, payload);
    if let WriteRequest::Add { recovery, .. } = &mut request {
        *recovery = true;
    }
    request
}

fn fence(ledger: i64) -> WriteRequest {
    WriteRequest::Fence { ledger: LedgerId(ledger), master_key: key(1) }
}

fn explicit_lac(ledger: i64, body: &'static [u8]) -> WriteRequest {
    WriteRequest::SetExplicitLac { ledger: LedgerId(ledger), master_key: key(1), body: Bytes::from_static(body) }
}

fn delete(ledger: i64) -> WriteRequest {
    WriteRequest::Delete { ledger: LedgerId(ledger) }
}

fn commit(log: &mut LogWriter, requests: impl IntoIterator<Item = WriteRequest>) -> Vec<WriteOutcome> {
    log.commit(&mut requests.into_iter().collect(), NOW).unwrap()
}

fn read(store: &BookieStore, ledger: i64, entry: i64) -> Result<Bytes, ReadError> {
    store.read(LedgerId(ledger), EntryId(entry))
}

/// Adds entries of 1,000 bytes to a ledger until the log has gone on to `segments` more segments.
fn fill(store: &BookieStore, log: &mut LogWriter, ledger: i64, segments: usize) -> i64 {
    let wanted = store.stats().segments + segments;
    let mut next = 0;
    while store.stats().segments < wanted {
        assert_eq!(commit(log, [add(ledger, next, &[ledger as u8; 1000])]), [WriteOutcome::Ok]);
        next += 1;
    }
    next
}

#[test]
fn what_is_added_is_read_before_and_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let open = || BookieStore::open(Arc::new(RealDisk), root.path(), &options(), NOW).unwrap();
    let (store, mut log) = open();
    let requests = [add(7, 0, b"zero"), add(7, 1, b"one"), add(9, 5, b"five"), add(7, 1, b"one again"), fence(8)];
    assert_eq!(commit(&mut log, requests), [WriteOutcome::Ok; 5]);
    assert_eq!(commit(&mut log, [explicit_lac(9, b"lac")]), [WriteOutcome::Ok]);
    let check = |store: &BookieStore| {
        assert_eq!(read(store, 7, 1).unwrap(), body(7, 1, b"one again"));
        assert_eq!(store.read_last(LedgerId(7)).unwrap(), body(7, 1, b"one again"));
        assert_eq!(read(store, 7, 2), Err(ReadError::NoEntry));
        assert_eq!(read(store, 6, 0), Err(ReadError::NoLedger));
        assert_eq!(store.read_last(LedgerId(8)), Err(ReadError::NoEntry));
        assert_eq!(store.read_last(LedgerId(6)), Err(ReadError::NoLedger));
        assert_eq!(store.entries_of(LedgerId(9)).unwrap(), [(EntryId(5), EntryId(5))]);
        assert_eq!(store.entries_of(LedgerId(7)).unwrap(), [(EntryId(0), EntryId(1))]);
        assert_eq!((store.lac(LedgerId(9)), store.lac(LedgerId(8))), (Some(EntryId(4)), Some(EntryId(-1))));
        assert_eq!(store.explicit_lac(LedgerId(9)).unwrap(), "lac");
        assert_eq!(store.is_fenced(LedgerId(8)), Some(true));
        assert_eq!(store.master_key(LedgerId(7)), Some(key(1)));
        assert_eq!(store.ledgers(), [7, 8, 9].map(LedgerId));
    };
    check(&store);
    // Without a word to the log, as a crash of the process would; then after a clean end.
    drop((store, log));
    let (store, log) = open();
    check(&store);
    drop(store);
    log.close(NOW).unwrap();
    let (store, mut log) = open();
    check(&store);
    log.idle(NOW).unwrap();
    assert_eq!(store.stats().unsealed, 0);
    assert!(store.space().unwrap().free > 0);
}

#[test]
fn rules_of_requests() {
    let disk = SimDisk::new(1);
    let (_, mut log) = open(&disk);
    use WriteOutcome::{Fenced, InvalidEntry, NoLedger, Ok, Unauthorized};
    let wrong_key = WriteRequest::Fence { ledger: LedgerId(1), master_key: key(2) };
    let mut wrong_entry = add(1, 0, b"x");
    if let WriteRequest::Add { entry, .. } = &mut wrong_entry {
        *entry = EntryId(1);
    }
    let cases = [
        (add(1, 0, b"a"), Ok),
        (wrong_key.clone(), Unauthorized),
        (wrong_entry, InvalidEntry),
        (add(-1, 0, b"a"), InvalidEntry),
        (add(1, -1, b"a"), InvalidEntry),
        (add(1, 1, &[0; 20_000]), InvalidEntry),
        (add(1, 1, &vec![0; options().max_entry_bytes() - 32]), Ok),
        (explicit_lac(1, b""), InvalidEntry),
        (fence(1), Ok),
        (fence(1), Ok),
        (add(1, 2, b"late"), Fenced),
        (recovery_add(1, 2, b"recovered"), Ok),
        (explicit_lac(1, b"lac"), Ok),
        (delete(1), Ok),
        (delete(1), NoLedger),
        // Fenced and deleted: remembered.
        (add(1, 0, b"a"), Fenced),
        (recovery_add(1, 0, b"a"), Fenced),
        (fence(1), NoLedger),
        (explicit_lac(1, b"lac"), NoLedger),
        // Deleted only: a new life, with a new key.
        (add(2, 0, b"a"), Ok),
        (delete(2), Ok),
        (WriteRequest::Fence { ledger: LedgerId(2), master_key: key(2) }, Ok),
        (add(2, 0, b"a"), Unauthorized),
        (WriteRequest::Force, Ok),
    ];
    let (requests, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(commit(&mut log, requests), expected);
}

#[test]
fn a_fenced_and_deleted_ledger_is_remembered_for_seven_days_across_restarts_and_cleaning() {
    let disk = SimDisk::new(1);
    let (store, mut log) = open(&disk);
    commit(&mut log, [add(1, 0, b"a"), fence(1), delete(1)]);
    fill(&store, &mut log, 2, 2);
    commit(&mut log, [delete(2)]);
    let segments = store.stats().segments;
    log.idle(NOW).unwrap();
    assert!(store.stats().segments < segments);
    drop((store, log));
    disk.power_cycle();
    let (_, mut log) = open(&disk);
    let later = |days| UnixMillis(NOW.0 + days * DAY);
    assert_eq!(log.commit(&mut vec![add(1, 0, b"b")], later(6)).unwrap(), [WriteOutcome::Fenced]);
    assert_eq!(log.commit(&mut vec![add(1, 0, b"b")], later(7)).unwrap(), [WriteOutcome::Ok]);
}

#[test]
fn wrong_directories_are_refused_with_advice() {
    let disk = SimDisk::new(1);
    let never = StoreOptions { create: false, ..options() };
    disk.create_dir(Path::new("/b")).unwrap();
    let refused = |options: &StoreOptions| {
        BookieStore::open(Arc::new(disk.clone()), Path::new("/b"), options, NOW).map(|_| ()).unwrap_err()
    };
    assert!(matches!(refused(&never), OpenError::Empty(_)));
    assert!(matches!(refused(&StoreOptions { segment_bytes: 100, ..options() }), OpenError::Options(_)));
    let opened = open(&disk);
    assert!(matches!(refused(&options()), OpenError::Locked(_)));
    drop(opened);
    let other = StoreOptions { bookie: BookieId::parse("other:1").unwrap(), ..options() };
    let error = refused(&other).to_string();
    assert_eq!(
        error,
        "/b/INSTANCE belongs to bookie '10.0.0.1:3181', not to 'other:1': \
         mount the right disk or correct the configuration"
    );
    let other = StoreOptions { instance: "instance-2".to_owned(), ..options() };
    assert!(matches!(refused(&other), OpenError::WrongOwner { what: "instance", .. }));

    // A segment of another store, and one of a later release.
    let foreign = SimDisk::new(2);
    drop(BookieStore::open(Arc::new(foreign.clone()), Path::new("/b"), &options(), UnixMillis(5)).unwrap());
    let log = foreign.list(Path::new("/b")).unwrap().into_iter().find(|name| name.ends_with(".log")).unwrap();
    let bytes = foreign.contents(&Path::new("/b").join(log)).unwrap();
    let path = Path::new("/b/00000000000000ff.log");
    disk.open(path, OpenMode::Create).unwrap().write_at(0, &bytes).unwrap();
    assert!(matches!(refused(&options()), OpenError::Foreign(found) if found == path));
    disk.unlink(path).unwrap();
    disk.rename(Path::new("/b/INSTANCE"), Path::new("/b/elsewhere")).unwrap();
    assert!(matches!(refused(&options()), OpenError::NoCookie(_)));
    let cookie = disk.open(Path::new("/b/INSTANCE"), OpenMode::Create).unwrap();
    cookie.write_at(0, b"geminga-bookie 2\n").unwrap();
    let error = refused(&options()).to_string();
    assert!(error.contains("format version 2; this release reads version 1"), "{error}");
}

#[test]
fn a_full_disk_makes_the_store_read_only_and_space_ends_it() {
    let disk = SimDisk::new(1);
    let (store, mut log) = open(&disk);
    commit(&mut log, [add(1, 0, b"a")]);
    use WriteOutcome::{Ok, ReadOnly};
    disk.set_capacity(5 * (16 << 10));
    log.idle(NOW).unwrap();
    let mut entry = 1;
    while commit(&mut log, [add(1, entry, &[0; 2000])]) == [Ok] {
        entry += 1;
        log.idle(NOW).unwrap();
        assert!(entry < 100);
    }
    assert!(store.is_read_only());
    let requests = [add(2, 0, b"a"), fence(1), recovery_add(1, entry, &[1; 2000]), explicit_lac(1, b"x")];
    assert_eq!(commit(&mut log, requests), [ReadOnly, Ok, Ok, Ok]);
    // The reserve has its end too; nothing is lost there.
    let mut last = entry;
    while commit(&mut log, [recovery_add(1, last + 1, &[1; 2000])]) == [Ok] {
        last += 1;
    }
    assert!(last >= entry + 6);
    drop((store, log));
    disk.power_cycle();
    // A start needs one segment of its own.
    assert!(matches!(try_open(&disk), Err(OpenError::Disk(_))));
    disk.set_capacity(u64::MAX);
    let (store, mut log) = open(&disk);
    assert_eq!(store.last_entry(LedgerId(1)), Some(EntryId(last)));
    log.idle(NOW).unwrap();
    assert!(!store.is_read_only());
    assert_eq!(commit(&mut log, [add(2, 0, b"a")]), [Ok]);
}

#[test]
fn a_failed_sync_or_write_ends_the_log_and_nothing_is_tried_again() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let (store, mut log) = open(&disk);
        commit(&mut log, [add(1, 0, b"kept")]);
        if seed % 2 == 0 {
            disk.fail_sync_after(0)
        } else {
            disk.fail_write_after(0)
        }
        let mut requests = vec![add(1, 1, b"not kept")];
        let fatal = log.commit(&mut requests, NOW).unwrap_err();
        assert!(fatal.to_string().contains("restart the bookie"), "{fatal}");
        let syncs = disk.stats().syncs;
        log.commit(&mut vec![WriteRequest::Force], NOW).unwrap_err();
        log.idle(NOW).unwrap_err();
        log.clean(NOW, 1).unwrap_err();
        log.close(NOW).unwrap_err();
        assert_eq!(disk.stats().syncs, syncs);
        drop(store);
        disk.power_cycle();
        assert_eq!(read(&open(&disk).0, 1, 0).unwrap(), body(1, 0, b"kept"));
    }
}

#[test]
fn a_clean_end_leaves_nothing_to_copy_and_nothing_to_scan() {
    let disk = SimDisk::new(1);
    let (store, mut log) = open(&disk);
    let entries = fill(&store, &mut log, 1, 2);
    drop(store);
    log.close(NOW).unwrap();
    let names = disk.list(Path::new("/b")).unwrap();
    let count = |kind: &str| names.iter().filter(|name| name.ends_with(kind)).count();
    assert_eq!((count(".log"), count(".idx")), (3, 3));
    let before = disk.stats().writes;
    let (store, log) = open(&disk);
    // The header of the new open segment.
    assert_eq!(disk.stats().writes - before, 1);
    assert_eq!(store.entries_of(LedgerId(1)).unwrap(), [(EntryId(0), EntryId(entries - 1))]);
    drop(log);
}

#[test]
fn a_damaged_index_is_made_anew_while_reading() {
    let disk = SimDisk::new(1);
    let (store, mut log) = open(&disk);
    let entries = fill(&store, &mut log, 1, 1);
    log.idle(NOW).unwrap();
    let index = PathBuf::from("/b/0000000000000001.idx");
    let index = if disk.contents(&index).is_some() { index } else { PathBuf::from("/b/0000000000000002.idx") };
    disk.flip_bit(&index, 130, 1);
    for entry in 0..entries {
        assert_eq!(read(&store, 1, entry).unwrap(), body(1, entry, &[1; 1000]));
    }
    assert_eq!(store.stats().unsealed, 1);
    log.idle(NOW).unwrap();
    assert_eq!(store.stats().unsealed, 0);
    // An error of the device is no absence either.
    disk.fail_reads(&index.with_extension("log"), 0..1 << 20);
    assert!(matches!(read(&store, 1, 0), Err(ReadError::Io(_))));
    assert_eq!(read(&store, 1, entries), Err(ReadError::NoEntry));
}

/// Every byte of every file of a small store is changed in turn: it is refused, or it does no harm.
#[test]
fn no_changed_byte_changes_an_answer() {
    let disk = SimDisk::new(1);
    script(&disk);
    let expected = everything(&open(&disk).0);
    let mut outcomes = [0, 0];
    disk.power_cycle();
    let files: Vec<_> = disk.list(Path::new("/b")).unwrap();
    for file in files.iter().filter(|file| !file.ends_with(".new") && !file.ends_with(".old")) {
        let path = Path::new("/b").join(file);
        for offset in 0..disk.contents(&path).unwrap().len() as u64 {
            let copy = disk.crash_images(0).unwrap().next().unwrap();
            copy.flip_bit(&path, offset, (offset % 8) as u8);
            match try_open(&copy) {
                Ok((store, _)) => {
                    outcomes[0] += 1;
                    for (ledger, entry, bytes) in &expected {
                        let found = read(&store, *ledger, *entry);
                        assert!(
                            found.as_ref() == Ok(bytes) || matches!(found, Err(ReadError::Damaged { .. })),
                            "{file}+{offset}: {ledger}:{entry} is {found:?}"
                        );
                    }
                    assert_eq!((store.is_fenced(LedgerId(1)), store.ledgers().len()), (Some(true), 3));
                }
                Err(OpenError::Disk(error)) => panic!("{error}"),
                Err(error) => {
                    outcomes[1] += 1;
                    assert!(error.to_string().contains(file), "{error}");
                }
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 1000), "{outcomes:?}");
}

/// Writes a small store with everything in it: sealed segments, a tail, a fence, a deletion, replaced entries.
fn script(disk: &SimDisk) {
    let (store, mut log) = open(disk);
    commit(&mut log, [add(1, 0, b"one"), add(2, 0, b"two"), add(1, 1, b"three"), explicit_lac(1, b"explicit")]);
    commit(&mut log, [fence(1), add(3, 0, b"deleted later"), recovery_add(1, 2, b"recovered")]);
    commit(&mut log, [delete(3), add(2, 0, b"two again")]);
    fill(&store, &mut log, 4, 1);
    log.idle(NOW).unwrap();
    commit(&mut log, [add(2, 1, b"in the tail")]);
    log.idle(NOW).unwrap();
}

fn everything(store: &BookieStore) -> Vec<(i64, i64, Bytes)> {
    let mut all = Vec::new();
    for ledger in store.ledgers() {
        for (first, last) in store.entries_of(ledger).unwrap() {
            all.extend((first.0..=last.0).map(|e| (ledger.0, e, store.read(ledger, EntryId(e)).unwrap())));
        }
    }
    all
}

/// The store in `corpus/v1` was written by `script` when version 1 was made. Every later build must open it; a build that
/// writes other bytes for the same script has another format, and needs another version and another corpus.
#[test]
fn version_1_is_what_it_was() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/v1");
    let kept = SimDisk::new(1);
    kept.create_dir(Path::new("/b")).unwrap();
    let is_kept = |name: &String| !name.ends_with(".new") && !name.ends_with(".old");
    for name in RealDisk.list(&corpus).unwrap() {
        let file = RealDisk.open(&corpus.join(&name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        kept.open(&Path::new("/b").join(name), OpenMode::Create).unwrap().write_at(0, &bytes).unwrap();
    }
    let made = SimDisk::new(1);
    script(&made);
    let names: Vec<_> = made.list(Path::new("/b")).unwrap().into_iter().filter(is_kept).collect();
    let draft = Path::new(env!("CARGO_TARGET_TMPDIR")).join("v1");
    RealDisk.create_dir(&draft).unwrap();
    for name in &names {
        let bytes = made.contents(&Path::new("/b").join(name)).unwrap();
        let file = RealDisk.open(&draft.join(name), OpenMode::OpenOrCreate).unwrap();
        file.set_len(0).unwrap();
        file.write_at(0, &bytes).unwrap();
    }
    assert_eq!(kept.list(Path::new("/b")).unwrap(), names, "what this build writes is in {}", draft.display());
    for name in &names {
        let path = Path::new("/b").join(name);
        assert!(kept.contents(&path) == made.contents(&path), "{name} differs from the one in {}", draft.display());
    }

    let (store, _log) = open(&kept);
    assert_eq!(store.ledgers(), [1, 2, 4].map(LedgerId));
    assert_eq!((store.is_fenced(LedgerId(1)), store.is_fenced(LedgerId(2))), (Some(true), Some(false)));
    assert_eq!(store.explicit_lac(LedgerId(1)).unwrap(), "explicit");
    let texts: [(i64, i64, &[u8]); 5] =
        [(1, 0, b"one"), (1, 1, b"three"), (1, 2, b"recovered"), (2, 0, b"two again"), (2, 1, b"in the tail")];
    for (ledger, entry, payload) in texts {
        assert_eq!(read(&store, ledger, entry).unwrap(), body(ledger, entry, payload));
    }
}

#[test]
fn readers_are_right_while_the_log_rolls_seals_deletes_and_recycles() {
    let disk = SimDisk::new(1);
    let (store, mut log) = open(&disk);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut found = 0u64;
            let mut round = 0i64;
            while !done.load(Ordering::Acquire) || found == 0 {
                round += 1;
                for ledger in store.ledgers() {
                    let Some(last) = store.last_entry(ledger) else { continue };
                    if last.0 < 0 {
                        continue;
                    }
                    let entry = EntryId(round % (last.0 + 1));
                    match store.read(ledger, entry) {
                        Ok(bytes) => {
                            assert_eq!(bytes, body(ledger.0, entry.0, &[ledger.0 as u8; 1000]));
                            found += 1;
                        }
                        // Deleted meanwhile.
                        Err(error) => assert_eq!(error, ReadError::NoLedger),
                    }
                }
            }
            found
        });
        for ledger in 0..200 {
            fill(&store, &mut log, ledger, 1);
            if ledger >= 3 {
                commit(&mut log, [delete(ledger - 3)]);
            }
            log.idle(NOW).unwrap();
        }
        done.store(true, Ordering::Release);
        assert!(reader.join().unwrap() > 0);
    });
    assert!(store.stats().segments < 10);
}
