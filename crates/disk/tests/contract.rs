//! What every disk keeps, run on the real and the simulated one; then what only the simulated one does.
#![expect(clippy::unwrap_used, reason = "the lint's exemption for tests does not reach their helper functions")]

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::path::Path;

use geminga_disk::{AlignedBuffer, Disk, DiskErrorKind, OpenMode, RealDisk, SimDisk};
use proptest::prelude::*;

fn contract(disk: &dyn Disk, root: &Path) {
    let dir = root.join("a/b");
    disk.create_dir(&dir).unwrap();
    disk.create_dir(&dir).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), Vec::<String>::new());
    names(disk, &dir);
    bytes(disk, &dir);
    direct(disk, &dir);
    locks(disk, &dir);
    let space = disk.space(&dir).unwrap();
    assert!(space.free > 0 && space.free <= space.total);
}

fn names(disk: &dyn Disk, dir: &Path) {
    let kind = |result: Result<_, geminga_disk::DiskError>| result.map(|_: ()| ()).unwrap_err().kind;
    let one = dir.join("one");
    assert_eq!(kind(disk.open(&one, OpenMode::Read).map(drop)), DiskErrorKind::NotFound);
    assert_eq!(kind(disk.open(&one, OpenMode::Write).map(drop)), DiskErrorKind::NotFound);
    let file = disk.open(&one, OpenMode::Create).unwrap();
    let taken = disk.open(&one, OpenMode::Create).unwrap_err();
    assert_eq!(taken.kind, DiskErrorKind::Exists);
    assert!(taken.to_string().contains(&one.display().to_string()), "{taken}");
    disk.open(&dir.join("two"), OpenMode::OpenOrCreate).unwrap().write_at(0, b"old").unwrap();
    disk.create_dir(&dir.join("sub")).unwrap();
    disk.sync_dir(dir).unwrap();
    assert_eq!(disk.list(dir).unwrap(), ["one", "two"]);

    file.write_at(0, b"kept").unwrap();
    disk.rename(&one, &dir.join("two")).unwrap();
    assert_eq!(disk.list(dir).unwrap(), ["two"]);
    let mut read = [0; 4];
    disk.open(&dir.join("two"), OpenMode::Read).unwrap().read_exact_at(0, &mut read).unwrap();
    assert_eq!(&read, b"kept");
    disk.unlink(&dir.join("two")).unwrap();
    file.read_exact_at(0, &mut read).unwrap();
    assert_eq!(kind(disk.unlink(&dir.join("two"))), DiskErrorKind::NotFound);
    assert_eq!(kind(disk.rename(&one, &dir.join("x"))), DiskErrorKind::NotFound);
    assert_eq!(kind(disk.list(&dir.join("nowhere")).map(drop)), DiskErrorKind::NotFound);
    assert_eq!(kind(disk.sync_dir(&dir.join("nowhere"))), DiskErrorKind::NotFound);
    assert_eq!(kind(disk.open(&dir.join("nowhere/file"), OpenMode::Create).map(drop)), DiskErrorKind::NotFound);
    assert_eq!(disk.list(dir).unwrap(), Vec::<String>::new());
}

/// Direct writes and others are seen by readers of every kind, in whatever order they come.
fn direct(disk: &dyn Disk, dir: &Path) {
    let path = dir.join("direct");
    disk.open(&path, OpenMode::Create).unwrap().allocate(16 << 10).unwrap();
    let direct = disk.open(&path, OpenMode::WriteDirect).unwrap();
    let reader = disk.open(&path, OpenMode::Read).unwrap();
    let mut expected = vec![0; 16 << 10];
    let mut read = vec![0; 16 << 10];
    for (round, (offset, len)) in [(512, 512), (0, 8192), (1024, 1536), (700, 100), (512, 4096)].into_iter().enumerate()
    {
        let mut buffer = AlignedBuffer::new();
        buffer.extend_from_slice(&vec![round as u8 + 1; len]);
        direct.write_at(offset as u64, &buffer).unwrap();
        // Bytes at another address take the usual way.
        buffer.extend_from_slice(&[99; 513]);
        direct.write_at(12_288, &buffer[len + 1..]).unwrap();
        expected[offset..offset + len].fill(round as u8 + 1);
        expected[12_288..12_800].fill(99);
        reader.read_exact_at(0, &mut read).unwrap();
        assert_eq!(read, expected, "round {round}");
        direct.read_exact_at(0, &mut read).unwrap();
        assert_eq!(read, expected, "round {round}");
    }
    direct.sync_data().unwrap();
    disk.unlink(&path).unwrap();
}

fn bytes(disk: &dyn Disk, dir: &Path) {
    let file = disk.open(&dir.join("bytes"), OpenMode::Create).unwrap();
    assert!(file.is_empty().unwrap());
    file.allocate(4096).unwrap();
    assert_eq!(file.len().unwrap(), 4096);
    file.allocate(100).unwrap();
    assert_eq!(file.len().unwrap(), 4096);
    file.write_at(4090, b"0123456789").unwrap();
    let parts: Vec<Vec<u8>> = (0..3000u32).map(|n| vec![n as u8; (n % 5) as usize]).collect();
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    file.write_vectored_at(5000, &slices).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.len().unwrap(), 5000 + 6000);
    let mut all = vec![1; 12000];
    assert_eq!(file.read_at(0, &mut all).unwrap(), 11000);
    assert!(all[..4090].iter().all(|byte| *byte == 0));
    assert_eq!(&all[4090..4100], b"0123456789");
    assert_eq!(&all[5000..11000], parts.concat());
    assert_eq!(file.read_exact_at(10_999, &mut [0; 2]).unwrap_err().kind, DiskErrorKind::EndOfFile);
    assert_eq!(file.read_at(50_000, &mut [0; 2]).unwrap(), 0);
    file.set_len(4093).unwrap();
    file.set_len(4096).unwrap();
    let mut tail = [9; 6];
    file.read_exact_at(4090, &mut tail).unwrap();
    assert_eq!(&tail, b"012\0\0\0");
    disk.unlink(&dir.join("bytes")).unwrap();
}

fn locks(disk: &dyn Disk, dir: &Path) {
    let lock = disk.lock_dir(dir).unwrap();
    assert_eq!(disk.lock_dir(dir).unwrap_err().kind, DiskErrorKind::Locked);
    drop(lock);
    drop(disk.lock_dir(dir).unwrap());
    assert_eq!(disk.lock_dir(&dir.join("nowhere")).unwrap_err().kind, DiskErrorKind::NotFound);
}

#[test]
fn the_real_disk_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    contract(&RealDisk, root.path());
}

#[test]
fn the_simulated_disk_keeps_the_contract() {
    contract(&SimDisk::new(1), Path::new("/"));
}

fn with_file(seed: u64) -> (SimDisk, std::sync::Arc<dyn geminga_disk::DiskFile>) {
    let disk = SimDisk::new(seed);
    disk.create_dir(Path::new("/d")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let file = disk.open(Path::new("/d/f"), OpenMode::Create).unwrap();
    (disk, file)
}

#[test]
fn synced_bytes_under_a_synced_name_survive_and_others_may_not() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let (disk, file) = with_file(seed);
        file.write_at(0, &[1; 1024]).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_at(1024, &[2; 1024]).unwrap();
        disk.open(Path::new("/d/other"), OpenMode::Create).unwrap();
        disk.power_cycle();
        assert_eq!(file.read_at(0, &mut [0]).unwrap_err().kind, DiskErrorKind::PowerOff);
        let found = disk.contents(Path::new("/d/f")).unwrap();
        assert_eq!(found[..1024], [1; 1024]);
        outcomes.insert((found[1024..].to_vec(), disk.contents(Path::new("/d/other")).is_some()));
    }
    // None, both, the first sector, the second behind a hole; each with and without the other name.
    assert_eq!(outcomes.len(), 8);
}

#[test]
fn a_name_that_was_not_synced_may_be_lost_with_synced_bytes() {
    let lost = (0..100).filter(|seed| {
        let (disk, file) = with_file(*seed);
        file.write_at(0, b"x").unwrap();
        file.sync_data().unwrap();
        disk.power_cycle();
        disk.contents(Path::new("/d/f")).is_none()
    });
    assert!((20..80).contains(&lost.count()));
}

#[test]
fn a_failed_sync_drops_the_data_and_the_next_one_lies() {
    let lost = (0..100).filter(|seed| {
        let (disk, file) = with_file(*seed);
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_at(0, b"data").unwrap();
        disk.fail_sync_after(0);
        assert_eq!(file.sync_data().unwrap_err().kind, DiskErrorKind::Io);
        assert_eq!(disk.contents(Path::new("/d/f")).unwrap(), b"data");
        file.sync_data().unwrap();
        disk.power_cycle();
        disk.contents(Path::new("/d/f")).unwrap() != b"data"
    });
    assert!(lost.count() > 20);
}

#[test]
fn the_power_goes_off_at_the_chosen_change() {
    let (disk, file) = with_file(3);
    disk.cut_power_after(2);
    file.write_at(0, b"a").unwrap();
    file.sync_data().unwrap();
    assert!(!disk.is_off());
    assert_eq!(file.write_at(1, b"b").unwrap_err().kind, DiskErrorKind::PowerOff);
    assert!(disk.is_off());
    assert_eq!(disk.list(Path::new("/d")).unwrap_err().kind, DiskErrorKind::PowerOff);
    disk.power_cycle();
    disk.list(Path::new("/d")).unwrap();
}

#[test]
fn a_killed_process_loses_its_locks_but_no_data() {
    let (disk, file) = with_file(3);
    let lock = disk.lock_dir(Path::new("/d")).unwrap();
    file.write_at(0, b"a").unwrap();
    disk.kill_process();
    assert_eq!(disk.contents(Path::new("/d/f")).unwrap(), b"a");
    assert_eq!(file.sync_data().unwrap_err().kind, DiskErrorKind::PowerOff);
    let again = disk.lock_dir(Path::new("/d")).unwrap();
    drop(lock);
    assert_eq!(disk.lock_dir(Path::new("/d")).unwrap_err().kind, DiskErrorKind::Locked);
    drop(again);
}

#[test]
fn faults_of_space_reads_bits_and_flushes() {
    let (disk, file) = with_file(5);
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.set_capacity(1000);
    assert_eq!(file.allocate(1001).unwrap_err().kind, DiskErrorKind::NoSpace);
    file.allocate(1000).unwrap();
    file.write_at(0, &[7; 1000]).unwrap();
    assert_eq!(file.write_at(999, b"ab").unwrap_err().kind, DiskErrorKind::NoSpace);
    assert_eq!(disk.space(Path::new("/d")).unwrap().free, 0);
    file.sync_data().unwrap();

    disk.fail_reads(Path::new("/d/f"), 100..200);
    file.read_exact_at(0, &mut [0; 100]).unwrap();
    assert_eq!(file.read_at(199, &mut [0]).unwrap_err().kind, DiskErrorKind::Io);
    disk.flip_bit(Path::new("/d/f"), 3, 0);
    let mut read = [0; 4];
    file.read_exact_at(0, &mut read).unwrap();
    assert_eq!(read, [7, 7, 7, 6]);
    disk.fail_write_after(0);
    assert_eq!(file.write_at(0, b"x").unwrap_err().kind, DiskErrorKind::Io);

    disk.set_syncs_lie(true);
    file.write_at(0, &[9; 1000]).unwrap();
    file.sync_data().unwrap();
    let images: Vec<_> = disk.crash_images(12).unwrap().collect();
    assert_eq!(images.len(), 4);
    let stats = disk.stats();
    assert_eq!((stats.full, stats.failed_reads, stats.failed_writes), (2, 1, 1));
}

#[test]
fn every_crash_image_is_enumerated_once() {
    let (disk, file) = with_file(5);
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_at(0, &[1; 600]).unwrap();
    disk.rename(Path::new("/d/f"), Path::new("/d/g")).unwrap();
    let images = disk.crash_images(12).unwrap();
    assert_eq!(images.count_images(), 8);
    let found: BTreeSet<_> =
        images.map(|image| (image.contents(Path::new("/d/f")), image.contents(Path::new("/d/g")))).collect();
    assert_eq!(found.len(), 8);
    assert!(disk.crash_images(1).is_none());
    assert_eq!(disk.crash_images(2).unwrap().count_images(), 4);
    let long = disk.open(Path::new("/d/g"), OpenMode::Write).unwrap();
    long.write_at(600, &[3; 100_000]).unwrap();
    assert_eq!(disk.crash_images(5).unwrap().count_images(), 32);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u16, Vec<u8>),
    SetLen(u16),
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3000u16, proptest::collection::vec(any::<u8>(), 0..1500)).prop_map(|(at, data)| Step::Write(at, data)),
        (0..4000u16).prop_map(Step::SetLen),
        Just(Step::Sync),
    ];
    proptest::collection::vec(step, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Without a crash the simulated file holds what a real one holds; after one, at least what was synced last.
    #[test]
    fn the_simulated_file_is_a_file(steps in steps(), seed: u64) {
        let root = tempfile::tempdir().unwrap();
        let real = RealDisk.open(&root.path().join("f"), OpenMode::Create).unwrap();
        let (disk, file) = with_file(seed);
        disk.sync_dir(Path::new("/d")).unwrap();
        let mut synced = None;
        for step in &steps {
            for file in [&real, &file] {
                match step {
                    Step::Write(at, data) => file.write_at(u64::from(*at), data).unwrap(),
                    Step::SetLen(len) => file.set_len(u64::from(*len)).unwrap(),
                    Step::Sync => file.sync_data().unwrap(),
                }
            }
            let mut bytes = vec![0; real.len().unwrap() as usize];
            real.read_exact_at(0, &mut bytes).unwrap();
            prop_assert_eq!(disk.contents(Path::new("/d/f")).unwrap(), bytes.clone());
            synced = matches!(step, Step::Sync).then_some(bytes);
        }
        disk.power_cycle();
        if let Some(synced) = synced {
            prop_assert_eq!(disk.contents(Path::new("/d/f")).unwrap(), synced);
        }
    }
}
