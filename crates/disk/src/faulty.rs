//! A disk that breaks its promises on purpose, round any other: for tests of the real process.
//!
//! Compiled with the cargo feature `canary` alone, so that nobody can choose it by mistake.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{DiskError, DiskErrorKind};
use crate::seam::{DirLock, Disk, DiskFile, OpenMode, Space};

/// What a [`FaultyDisk`] does wrong. As text `no-sync`, `sync-delay=<milliseconds>` or `sync-failure=<path>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Syncs do nothing and claim success.
    NoSync,
    /// Every sync takes this much longer.
    SyncDelay(Duration),
    /// While there is a file of this path, the next sync of a file or directory whose own path contains the text in it
    /// fails without having been done. As on Linux, which drops what it could not write, later syncs of anything do
    /// nothing and claim success.
    SyncFailure(PathBuf),
}

impl FromStr for DiskFault {
    type Err = String;

    fn from_str(text: &str) -> Result<DiskFault, String> {
        match text.split_once('=') {
            None if text == "no-sync" => Ok(DiskFault::NoSync),
            Some(("sync-delay", millis)) => {
                let millis = millis.parse().map_err(|_| format!("'{millis}' is no number of milliseconds"))?;
                Ok(DiskFault::SyncDelay(Duration::from_millis(millis)))
            }
            Some(("sync-failure", path)) if !path.is_empty() => Ok(DiskFault::SyncFailure(path.into())),
            _ => Err("expected no-sync, sync-delay=MILLISECONDS or sync-failure=PATH".to_owned()),
        }
    }
}

/// Another disk with a [`DiskFault`]. Clones fail together.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    disk: Arc<dyn Disk>,
    fault: Arc<Fault>,
}

#[derive(Debug)]
struct Fault {
    fault: DiskFault,
    /// A sync has failed.
    failed: AtomicBool,
}

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn DiskFile>,
    fault: Arc<Fault>,
}

impl FaultyDisk {
    /// Does everything that `disk` does, and `fault`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, fault: DiskFault) -> FaultyDisk {
        FaultyDisk { disk, fault: Arc::new(Fault { fault, failed: AtomicBool::new(false) }) }
    }
}

impl Fault {
    fn sync(
        &self,
        action: &'static str,
        path: &Path,
        sync: impl Fn() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        match &self.fault {
            DiskFault::NoSync => Ok(()),
            DiskFault::SyncDelay(delay) => {
                #[expect(clippy::disallowed_methods, reason = "a slow device blocks whoever syncs")]
                std::thread::sleep(*delay);
                sync()
            }
            DiskFault::SyncFailure(_) if self.failed.load(Ordering::Acquire) => Ok(()),
            DiskFault::SyncFailure(trigger) => match std::fs::read_to_string(trigger) {
                Ok(part) if path.to_string_lossy().contains(part.trim()) => {
                    self.failed.store(true, Ordering::Release);
                    Err(DiskError::new(DiskErrorKind::Io, action, path, "an injected failure"))
                }
                _ => sync(),
            },
        }
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>, DiskError> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(FaultyFile { file, fault: Arc::clone(&self.fault) }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        self.disk.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.disk.create_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn unlink(&self, path: &Path) -> Result<(), DiskError> {
        self.disk.unlink(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.fault.sync("sync directory", dir, || self.disk.sync_dir(dir))
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        self.disk.lock_dir(dir)
    }

    fn space(&self, dir: &Path) -> Result<Space, DiskError> {
        self.disk.space(dir)
    }
}

impl DiskFile for FaultyFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.file.write_at(offset, bytes)
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<(), DiskError> {
        self.file.write_vectored_at(offset, slices)
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.fault.sync("sync", self.path(), || self.file.sync_data())
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        self.file.allocate(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RealDisk, SimDisk};

    #[test]
    fn faults_are_read() {
        assert_eq!("no-sync".parse(), Ok(DiskFault::NoSync));
        assert_eq!("sync-delay=50".parse(), Ok(DiskFault::SyncDelay(Duration::from_millis(50))));
        assert_eq!("sync-failure=a=b".parse(), Ok(DiskFault::SyncFailure("a=b".into())));
        for bad in ["", "no-sync=1", "sync-delay", "sync-delay=", "sync-delay=-1", "sync-failure=", "x=1"] {
            assert!(bad.parse::<DiskFault>().is_err(), "{bad}");
        }
    }

    #[test]
    fn without_syncs_a_power_cut_takes_what_was_written() {
        let dir = Path::new("d");
        for (fault, kept) in [(DiskFault::NoSync, false), (DiskFault::SyncDelay(Duration::ZERO), true)] {
            let simulated = SimDisk::new(7);
            let disk = FaultyDisk::new(Arc::new(simulated.clone()), fault);
            disk.create_dir(dir).unwrap();
            disk.sync_dir(Path::new("")).unwrap();
            let file = disk.open(&dir.join("f"), OpenMode::Create).unwrap();
            file.write_at(0, &[1; 8192]).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(dir).unwrap();
            simulated.power_cycle();
            let mut bytes = [0; 8192];
            let found =
                simulated.open(&dir.join("f"), OpenMode::Read).and_then(|file| file.read_exact_at(0, &mut bytes));
            assert_eq!(found.is_ok() && bytes == [1; 8192], kept);
        }
    }

    #[test]
    fn a_sync_of_what_is_named_fails_once_and_then_nothing_is_synced() {
        let root = tempfile::tempdir().unwrap();
        let trigger = root.path().join("trigger");
        let disk = FaultyDisk::new(Arc::new(RealDisk), DiskFault::SyncFailure(trigger.clone()));
        let file = disk.open(&root.path().join("log"), OpenMode::Create).unwrap();
        file.sync_data().unwrap();
        std::fs::write(&trigger, "log\n").unwrap();
        disk.sync_dir(root.path()).unwrap();
        let error = file.sync_data().unwrap_err();
        assert_eq!((error.kind, error.action), (DiskErrorKind::Io, "sync"));
        file.sync_data().unwrap();
    }
}
