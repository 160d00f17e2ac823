//! A store's directory in which files were changed: it is refused, or opens; and then it answers nothing that was not
//! written to it, and goes on taking entries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use geminga_bookie_store::{
    BookieStore, LogWriter, MasterKey, OpenError, StoreOptions, WriteOutcome, WriteRequest, files_to_wipe,
};
use geminga_disk::{Disk, OpenMode, SimDisk};
use geminga_model::{BookieId, EntryId, LedgerId, UnixMillis};

use crate::memory::within;

const DIR: &str = "/b";
const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// What a store held, and every body that any entry ever had.
struct Whole {
    files: Vec<(String, Vec<u8>)>,
    written: BTreeMap<(i64, i64), BTreeSet<Bytes>>,
}

/// The target.
pub fn run(data: &[u8]) {
    static WHOLE: OnceLock<Whole> = OnceLock::new();
    let Whole { files, written } = WHOLE.get_or_init(make);
    let mut files = files.clone();
    // Each change takes eight bytes, and none that follow eight others is worth the time.
    for change in data.as_chunks::<8>().0.iter().take(8) {
        apply(&mut files, *change);
    }
    let disk = SimDisk::new(1);
    disk.create_dir(Path::new(DIR)).unwrap();
    for (name, bytes) in &files {
        let path = Path::new(DIR).join(name);
        disk.open(&path, OpenMode::OpenOrCreate).unwrap().write_at(0, bytes).unwrap();
    }
    // The files are copied, and their tails read; a disk in memory keeps every write until it is synced.
    let opened = within(8 << 20, || open(&disk));
    match opened {
        Ok((store, mut log)) => {
            answers_are(&store, written);
            let added = commit(&mut log, vec![add(77, 0, b"afterwards")]);
            assert_eq!(added, [WriteOutcome::Ok]);
            assert_eq!(store.read(LedgerId(77), EntryId(0)).unwrap(), body(77, 0, b"afterwards"));
            store.maintain().unwrap();
            answers_are(&store, written);
        }
        // The disk does what it is told.
        Err(OpenError::Disk(error)) => panic!("{error}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = files_to_wipe(&disk, Path::new(DIR));
}

fn answers_are(store: &BookieStore, written: &BTreeMap<(i64, i64), BTreeSet<Bytes>>) {
    for ledger in store.ledgers().into_iter().filter(|ledger| ledger.0 != 77) {
        let last = store.last_entry(ledger).unwrap_or(EntryId::NONE).0;
        let entries = store.entries_of(ledger).unwrap_or_default();
        for (first, last) in entries.iter().map(|(first, last)| (first.0, last.0)).chain([(last, last)]) {
            for entry in first..=last {
                if let Ok(found) = store.read(ledger, EntryId(entry)) {
                    let bodies = written.get(&(ledger.0, entry));
                    assert!(bodies.is_some_and(|bodies| bodies.contains(&found)), "{ledger}:{entry} is {found:?}");
                }
            }
        }
        let _ = (store.explicit_lac(ledger), store.is_fenced(ledger), store.master_key(ledger), store.lac(ledger));
    }
}

/// A change: what, in which file, where, with which.
fn apply(files: &mut Vec<(String, Vec<u8>)>, [what, file, at1, at0, length, with, from, sector]: [u8; 8]) {
    let count = files.len();
    if count == 0 {
        return;
    }
    let (file, other) = (usize::from(file) % count, usize::from(from) % count);
    let source = files[other].1.clone();
    let (name, bytes) = &mut files[file];
    let at = usize::from(u16::from_be_bytes([at1, at0])) % (bytes.len() + 1);
    let end = (at + usize::from(length).max(1)).min(bytes.len());
    let sector_at = at / 512 * 512;
    match what % 8 {
        0 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= with),
        1 => bytes[at..end].fill(with),
        2 => bytes.truncate(at),
        3 => bytes.extend(std::iter::repeat_n(with, usize::from(length) * 64)),
        // Sectors of another file, or of another place, as a misdirected write leaves them.
        4 => {
            let from = usize::from(sector) * 512;
            let length = (usize::from(length) % 16 + 1) * 512;
            let found = source.get(from..source.len().min(from + length)).unwrap_or_default();
            let end = (sector_at + found.len()).min(bytes.len());
            if let Some(place) = bytes.get_mut(sector_at..end) {
                place.copy_from_slice(&found[..place.len()]);
            }
        }
        5 => {
            files.remove(file);
        }
        // Under another name: of a kind that a store has, or the name of another file.
        6 => {
            let ending = ["log", "idx", "new", "old", "tmp"][usize::from(with) % 5];
            *name = format!("{:016x}.{ending}", u64::from(sector));
        }
        _ => {
            let copy = bytes.clone();
            files[other].1 = copy;
        }
    }
}

/// A store with everything in it: sealed segments, a tail, fences, deletions, replaced entries, an unclean end.
fn make() -> Whole {
    let disk = SimDisk::new(1);
    let (store, mut log) = open(&disk).unwrap();
    let fence = |ledger| WriteRequest::Fence { ledger: LedgerId(ledger), master_key: key() };
    let lac = WriteRequest::SetExplicitLac { ledger: LedgerId(1), master_key: key(), body: "explicit".into() };
    let mut written: BTreeMap<(i64, i64), BTreeSet<Bytes>> = BTreeMap::new();
    let mut put = |log: &mut LogWriter, requests: Vec<WriteRequest>| {
        for request in &requests {
            if let WriteRequest::Add { ledger, entry, body, .. } = request {
                written.entry((ledger.0, entry.0)).or_default().insert(body.clone());
            }
        }
        commit(log, requests);
    };
    put(&mut log, vec![add(1, 0, b"one"), add(2, 0, b"two"), add(1, 1, b"three"), lac]);
    put(&mut log, vec![fence(1), add(3, 0, b"deleted later")]);
    put(&mut log, vec![WriteRequest::Delete { ledger: LedgerId(3) }, add(2, 0, b"two again")]);
    for entry in 0..24 {
        put(&mut log, vec![add(4, entry, &[4; 1000])]);
    }
    log.idle(NOW).unwrap();
    put(&mut log, vec![add(2, 1, b"in the tail"), fence(5)]);
    log.idle(NOW).unwrap();
    put(&mut log, vec![add(2, 2, b"not known to be durable")]);
    drop((store, log));
    let names = disk.list(Path::new(DIR)).unwrap();
    let files = names.into_iter().map(|name| {
        let bytes = disk.contents(&Path::new(DIR).join(&name)).unwrap();
        (name, bytes)
    });
    Whole { files: files.collect(), written }
}

fn open(disk: &SimDisk) -> Result<(Arc<BookieStore>, LogWriter), OpenError> {
    let bookie = BookieId::parse("10.0.0.1:3181").unwrap();
    let options =
        StoreOptions { segment_bytes: 16 << 10, block_bytes: 4096, ..StoreOptions::new(bookie, "instance-1") };
    BookieStore::open(Arc::new(disk.clone()), Path::new(DIR), &options, NOW)
}

fn commit(log: &mut LogWriter, mut requests: Vec<WriteRequest>) -> Vec<WriteOutcome> {
    log.commit(&mut requests, NOW).unwrap()
}

fn key() -> MasterKey {
    MasterKey::new(&[1; 20]).unwrap()
}

fn body(ledger: i64, entry: i64, payload: &[u8]) -> Bytes {
    let fields = [ledger, entry, entry - 1, payload.len() as i64].map(i64::to_be_bytes).concat();
    [&fields, payload].concat().into()
}

fn add(ledger: i64, entry: i64, payload: &[u8]) -> WriteRequest {
    let (body, master_key) = (body(ledger, entry, payload), key());
    let (ledger, entry) = (LedgerId(ledger), EntryId(entry));
    WriteRequest::Add { ledger, entry, body, master_key, recovery: false, high_priority: false }
}
