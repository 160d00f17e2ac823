//! The simulated disk: a handle that behaves as a disk, and the switches that make it misbehave.

mod crash;
mod medium;
mod seeded;

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{DiskError, DiskErrorKind};
use crate::seam::{DirLock, Disk, DiskFile, OpenMode, Space};
pub use crash::CrashImages;
use medium::{DirOp, FileOp, Medium, Node};
pub use seeded::Seeded;

/// How often each thing happened to a simulated disk: a simulation checks with it that its faults fired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Writes done.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// File syncs that succeeded.
    pub syncs: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// Syncs that failed because of [`SimDisk::fail_sync_after`].
    pub failed_syncs: u64,
    /// Writes that failed because of [`SimDisk::fail_write_after`].
    pub failed_writes: u64,
    /// Operations refused because the disk was full.
    pub full: u64,
    /// Reads that failed because of [`SimDisk::fail_reads`].
    pub failed_reads: u64,
}

/// A disk in memory that forgets at a power cut what was not synced. Clones are handles of the same disk.
///
/// A power cut has two halves: [`SimDisk::cut_power_after`] turns the power off in the middle of the program's work, so
/// that everything it tries from then on fails with [`DiskErrorKind::PowerOff`]; [`SimDisk::power_cycle`] decides by seed
/// what survived and turns the power on. Files and locks from before stay dead.
#[derive(Clone, Debug)]
pub struct SimDisk {
    machine: Arc<Mutex<Machine>>,
}

#[derive(Debug)]
struct Machine {
    medium: Medium,
    seeded: Seeded,
    /// Counts power cycles; handles of an earlier one are dead.
    cycle: u64,
    on: bool,
    fuse: Option<u64>,
    sync_fault: Option<u64>,
    write_fault: Option<u64>,
    capacity: u64,
    syncs_lie: bool,
    locks: BTreeSet<PathBuf>,
    stats: SimStats,
}

#[derive(Debug)]
struct SimFile {
    machine: Arc<Mutex<Machine>>,
    cycle: u64,
    inode: u64,
    path: PathBuf,
}

#[derive(Debug)]
struct SimLock {
    machine: Arc<Mutex<Machine>>,
    cycle: u64,
    dir: PathBuf,
}

impl SimDisk {
    /// An empty disk without a bound on its size, whose misfortunes follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::holding(Medium::default(), Seeded::new(seed))
    }

    fn holding(medium: Medium, seeded: Seeded) -> SimDisk {
        let machine = Machine {
            medium,
            seeded,
            cycle: 0,
            on: true,
            fuse: None,
            sync_fault: None,
            write_fault: None,
            capacity: u64::MAX,
            syncs_lie: false,
            locks: BTreeSet::new(),
            stats: SimStats::default(),
        };
        SimDisk { machine: Arc::new(Mutex::new(machine)) }
    }

    /// Turns the power off in the middle of the change that follows `changes` more (writes, syncs, renames, …): it may
    /// or may not have happened.
    pub fn cut_power_after(&self, changes: u64) {
        self.machine.lock().fuse = Some(changes);
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        !self.machine.lock().on
    }

    /// Cuts the power if it is still on, decides what survived, and turns it on again. Injected read errors stay.
    pub fn power_cycle(&self) {
        let mut machine = self.machine.lock();
        let machine = &mut *machine;
        crash::cut_power(&mut machine.medium, &mut machine.seeded);
        machine.cycle += 1;
        machine.on = true;
        machine.fuse = None;
        machine.sync_fault = None;
        machine.write_fault = None;
        machine.locks.clear();
        machine.stats.power_cuts += 1;
    }

    /// Ends the process without cutting the power: unsynced data stays visible and is still unsynced.
    pub fn kill_process(&self) {
        let mut machine = self.machine.lock();
        machine.cycle += 1;
        machine.on = true;
        machine.fuse = None;
        machine.locks.clear();
    }

    /// All disks that a power cut at this moment could leave, or `None` if more than `max_units` (at most 20)
    /// operations are not synced. Writes are taken apart at sector boundaries as finely as the bound allows.
    #[must_use]
    pub fn crash_images(&self, max_units: usize) -> Option<CrashImages> {
        CrashImages::of(&self.machine.lock().medium, max_units)
    }

    /// Lets the sync after `syncs` more fail once with [`DiskErrorKind::Io`]. As on Linux, the data it should have
    /// written is then partly lost, readers still see it, and later syncs succeed without it.
    pub fn fail_sync_after(&self, syncs: u64) {
        self.machine.lock().sync_fault = Some(syncs);
    }

    /// Lets the write after `writes` more fail once with [`DiskErrorKind::Io`].
    pub fn fail_write_after(&self, writes: u64) {
        self.machine.lock().write_fault = Some(writes);
    }

    /// Bounds the disk: growing any file past `bytes` in all fails with [`DiskErrorKind::NoSpace`].
    pub fn set_capacity(&self, bytes: u64) {
        self.machine.lock().capacity = bytes;
    }

    /// Makes syncs succeed without doing anything, as a disk with a volatile cache that ignores flushes would.
    pub fn set_syncs_lie(&self, lie: bool) {
        self.machine.lock().syncs_lie = lie;
    }

    /// Lets reads of this range of a file fail with [`DiskErrorKind::Io`] from now on.
    pub fn fail_reads(&self, path: &Path, range: Range<u64>) {
        self.change(path, |inode| inode.unreadable.push(range));
    }

    /// Flips one bit of a file, on the medium and in the cache. Nothing happens beyond its end.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) {
        self.change(path, |inode| {
            for image in [&mut inode.durable, &mut inode.current] {
                if let Some(byte) = image.get_mut(offset as usize) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        });
    }

    /// The bytes of a file as readers see them, or `None` if there is no such file.
    #[must_use]
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let machine = self.machine.lock();
        let inode = machine.medium.file(path)?;
        machine.medium.inodes.get(&inode).map(|inode| inode.current.clone())
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> SimStats {
        self.machine.lock().stats
    }

    fn change(&self, path: &Path, change: impl FnOnce(&mut medium::Inode)) {
        let mut machine = self.machine.lock();
        if let Some(inode) = machine.medium.file(path)
            && let Some(inode) = machine.medium.inodes.get_mut(&inode)
        {
            change(inode);
        }
    }
}

impl Iterator for CrashImages {
    type Item = SimDisk;

    fn next(&mut self) -> Option<SimDisk> {
        self.next_medium().map(|medium| SimDisk::holding(medium, Seeded::new(0)))
    }
}

impl Machine {
    fn check_power(&self, cycle: u64, action: &'static str, path: &Path) -> Result<(), DiskError> {
        if self.on && self.cycle == cycle {
            return Ok(());
        }
        Err(DiskError::new(DiskErrorKind::PowerOff, action, path, "the power is off"))
    }

    /// Burns the fuse by one change; true if the power goes off in the middle of this one.
    fn burn(&mut self) -> bool {
        match &mut self.fuse {
            Some(0) => {
                self.on = false;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn change_names(&mut self, op: DirOp, action: &'static str, path: &Path) -> Result<(), DiskError> {
        let off = self.burn();
        self.medium.change_names(op);
        if off { self.check_power(self.cycle, action, path) } else { Ok(()) }
    }

    fn has_room(&mut self, inode: u64, end: u64) -> bool {
        let len = self.medium.inodes.get(&inode).map_or(0, |i| i.current.len() as u64);
        let fits = end <= len || self.medium.used().saturating_add(end - len) <= self.capacity;
        self.stats.full += u64::from(!fits);
        fits
    }

    fn due(fault: &mut Option<u64>) -> bool {
        match fault {
            Some(0) => {
                *fault = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

fn missing(action: &'static str, path: &Path) -> DiskError {
    DiskError::new(DiskErrorKind::NotFound, action, path, "no such file or directory")
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>, DiskError> {
        let mut machine = self.machine.lock();
        let cycle = machine.cycle;
        machine.check_power(cycle, "open", path)?;
        let parent_is_there = path.parent().is_some_and(|parent| machine.medium.is_dir(parent));
        let inode = match (machine.medium.file(path), mode) {
            (Some(_), OpenMode::Create) => {
                return Err(DiskError::new(DiskErrorKind::Exists, "create", path, "the file exists"));
            }
            (Some(inode), _) => inode,
            (None, OpenMode::Create | OpenMode::OpenOrCreate) if parent_is_there => {
                let inode = machine.medium.new_file();
                let op = DirOp::Link { path: path.to_owned(), node: Node::File(inode) };
                machine.change_names(op, "create", path)?;
                inode
            }
            (None, _) => return Err(missing("open", path)),
        };
        Ok(Arc::new(SimFile { machine: Arc::clone(&self.machine), cycle, inode, path: path.to_owned() }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        let machine = self.machine.lock();
        machine.check_power(machine.cycle, "list", dir)?;
        if !machine.medium.is_dir(dir) {
            return Err(missing("list", dir));
        }
        let files = machine.medium.names.iter().filter(|(_, node)| **node != Node::Dir);
        let names = files.filter(|(path, _)| path.parent() == Some(dir)).filter_map(|(path, _)| path.file_name());
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let mut machine = self.machine.lock();
        machine.check_power(machine.cycle, "create directory", dir)?;
        let mut above: Vec<&Path> = dir.ancestors().collect();
        above.reverse();
        for path in above {
            if !machine.medium.is_dir(path) {
                let op = DirOp::Link { path: path.to_owned(), node: Node::Dir };
                machine.change_names(op, "create directory", dir)?;
            }
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let mut machine = self.machine.lock();
        machine.check_power(machine.cycle, "rename", from)?;
        let inode = machine.medium.file(from).ok_or_else(|| missing("rename", from))?;
        let op = DirOp::Rename { from: from.to_owned(), to: to.to_owned(), node: Node::File(inode) };
        machine.change_names(op, "rename", from)
    }

    fn unlink(&self, path: &Path) -> Result<(), DiskError> {
        let mut machine = self.machine.lock();
        machine.check_power(machine.cycle, "remove", path)?;
        machine.medium.file(path).ok_or_else(|| missing("remove", path))?;
        machine.change_names(DirOp::Unlink { path: path.to_owned() }, "remove", path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let mut machine = self.machine.lock();
        machine.check_power(machine.cycle, "sync directory", dir)?;
        if !machine.medium.is_dir(dir) {
            return Err(missing("sync directory", dir));
        }
        if machine.burn() {
            return machine.check_power(machine.cycle, "sync directory", dir);
        }
        if !machine.syncs_lie {
            machine.medium.sync_names(dir);
        }
        Ok(())
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        let mut machine = self.machine.lock();
        let cycle = machine.cycle;
        machine.check_power(cycle, "lock", dir)?;
        if !machine.medium.is_dir(dir) {
            return Err(missing("lock", dir));
        }
        if !machine.locks.insert(dir.to_owned()) {
            return Err(DiskError::new(DiskErrorKind::Locked, "lock", dir, "another process holds this directory"));
        }
        Ok(Box::new(SimLock { machine: Arc::clone(&self.machine), cycle, dir: dir.to_owned() }))
    }

    fn space(&self, _dir: &Path) -> Result<Space, DiskError> {
        let machine = self.machine.lock();
        Ok(Space { total: machine.capacity, free: machine.capacity.saturating_sub(machine.medium.used()) })
    }
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut machine = self.machine.lock();
        if machine.cycle == self.cycle {
            machine.locks.remove(&self.dir);
        }
    }
}

impl SimFile {
    /// Does one change of the file, unless there is no room for it or the power goes off in its middle.
    fn change(&self, action: &'static str, end: u64, op: FileOp) -> Result<(), DiskError> {
        let mut machine = self.machine.lock();
        machine.check_power(self.cycle, action, &self.path)?;
        if !machine.has_room(self.inode, end) {
            return Err(DiskError::new(DiskErrorKind::NoSpace, action, &self.path, "no space left on device"));
        }
        if let FileOp::Write { data, .. } = &op {
            machine.stats.writes += 1;
            machine.stats.bytes += data.len() as u64;
            if Machine::due(&mut machine.write_fault) {
                machine.stats.failed_writes += 1;
                return Err(DiskError::new(DiskErrorKind::Io, action, &self.path, "input/output error (injected)"));
            }
        }
        let off = machine.burn();
        machine.medium.change_file(self.inode, op);
        if off { machine.check_power(self.cycle, action, &self.path) } else { Ok(()) }
    }
}

impl DiskFile for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let mut machine = self.machine.lock();
        machine.check_power(self.cycle, "read", &self.path)?;
        let Some(inode) = machine.medium.inodes.get(&self.inode) else { return Err(missing("read", &self.path)) };
        let end = offset.saturating_add(buffer.len() as u64);
        if inode.unreadable.iter().any(|bad| bad.start < end && offset < bad.end) {
            machine.stats.failed_reads += 1;
            return Err(DiskError::new(DiskErrorKind::Io, "read", &self.path, "input/output error (injected)"));
        }
        let image = inode.current.get(offset as usize..).unwrap_or_default();
        let len = image.len().min(buffer.len());
        buffer[..len].copy_from_slice(&image[..len]);
        Ok(len)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let op = FileOp::Write { offset, data: bytes.to_vec() };
        self.change("write", offset + bytes.len() as u64, op)
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<(), DiskError> {
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.write_at(offset, &all)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        let mut machine = self.machine.lock();
        machine.check_power(self.cycle, "sync", &self.path)?;
        if machine.burn() {
            return machine.check_power(self.cycle, "sync", &self.path);
        }
        let machine = &mut *machine;
        if Machine::due(&mut machine.sync_fault) {
            machine.stats.failed_syncs += 1;
            if let Some(inode) = machine.medium.inodes.get_mut(&self.inode) {
                let pending = std::mem::take(&mut inode.pending);
                crash::settle(&mut inode.durable, pending, &mut machine.seeded);
            }
            return Err(DiskError::new(DiskErrorKind::Io, "sync", &self.path, "input/output error (injected)"));
        }
        machine.stats.syncs += 1;
        if !machine.syncs_lie {
            machine.medium.sync_file(self.inode);
        }
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        let machine = self.machine.lock();
        machine.check_power(self.cycle, "measure", &self.path)?;
        Ok(machine.medium.inodes.get(&self.inode).map_or(0, |inode| inode.current.len() as u64))
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.change("resize", len, FileOp::SetLen(len))
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        if self.len()? >= len {
            return Ok(());
        }
        self.change("allocate space for", len, FileOp::SetLen(len))
    }
}
