//! The real disk: std::fs and, for what std does not offer, rustix.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FallocateFlags;

use crate::error::{DiskError, DiskErrorKind};
use crate::seam::{DirLock, Disk, DiskFile, OpenMode, Space};

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

/// What a name in a directory stands for; a link is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A plain file.
    File,
    /// A directory.
    Dir,
    /// A link, or something that is neither.
    Other,
}

impl RealDisk {
    /// Everything in a directory, in no order. A simulated disk has files alone, so this is not part of [`Disk`].
    ///
    /// # Errors
    /// [`DiskErrorKind::NotFound`] if there is no such directory, or what the system reports.
    pub fn entries(&self, dir: &Path) -> Result<Vec<(PathBuf, EntryKind)>, DiskError> {
        let fail = |e: io::Error| DiskError::from_io("list", dir, &e);
        let kind = |entry: &fs::DirEntry| {
            let kind = entry.file_type().map_err(fail)?;
            Ok(if kind.is_file() {
                EntryKind::File
            } else if kind.is_dir() {
                EntryKind::Dir
            } else {
                EntryKind::Other
            })
        };
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.map_err(fail)?;
            Ok((entry.path(), kind(&entry)?))
        };
        fs::read_dir(dir).map_err(fail)?.map(entry).collect()
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
    direct: Option<Direct>,
}

/// The same file, past the page cache.
#[derive(Debug)]
struct Direct {
    file: File,
    /// It turned out that the device wants other sectors than ours.
    refused: AtomicBool,
}

/// Bytes of a sector: addresses, offsets and lengths of direct writes are multiples of it.
const SECTOR: usize = 512;

impl Direct {
    #[cfg(target_os = "linux")]
    fn open(path: &Path) -> Option<Direct> {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).ok()?;
        // A file system that cannot says so here, or at the first write.
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        Some(Direct { file, refused: AtomicBool::new(false) })
    }

    #[cfg(not(target_os = "linux"))]
    fn open(_path: &Path) -> Option<Direct> {
        None
    }

    /// Writes, or says that it is to be done in the usual way.
    fn write(&self, offset: u64, bytes: &[u8]) -> Option<io::Result<()>> {
        let whole = offset.is_multiple_of(SECTOR as u64) && bytes.len().is_multiple_of(SECTOR);
        if !whole || bytes.as_ptr().align_offset(SECTOR) != 0 || self.refused.load(Ordering::Relaxed) {
            return None;
        }
        match self.file.write_all_at(bytes, offset) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                self.refused.store(true, Ordering::Relaxed);
                None
            }
            written => Some(written),
        }
    }
}

/// The lock is the kernel's, on the open directory: no lock file is left behind, and the end of the process frees it.
#[derive(Debug)]
struct RealLock(#[expect(dead_code, reason = "held open for its lock alone")] File);

impl DirLock for RealLock {}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>, DiskError> {
        let mut options = OpenOptions::new();
        options.read(true);
        let (action, options) = match mode {
            OpenMode::Read => ("open", &mut options),
            OpenMode::Write | OpenMode::WriteDirect => ("open", options.write(true)),
            OpenMode::Create => ("create", options.write(true).create_new(true)),
            OpenMode::OpenOrCreate => ("open", options.write(true).create(true)),
        };
        let file = options.open(path).map_err(|e| DiskError::from_io(action, path, &e))?;
        let direct = if mode == OpenMode::WriteDirect { Direct::open(path) } else { None };
        Ok(Arc::new(RealFile { file, path: path.to_owned(), direct }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError> {
        let fail = |e: io::Error| DiskError::from_io("list", dir, &e);
        let mut names = Vec::new();
        for entry in fs::read_dir(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            if entry.file_type().map_err(fail)?.is_dir() {
                continue;
            }
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        fs::create_dir_all(dir).map_err(|e| DiskError::from_io("create directory", dir, &e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        fs::rename(from, to).map_err(|e| DiskError::from_io("rename", from, &e))
    }

    fn unlink(&self, path: &Path) -> Result<(), DiskError> {
        fs::remove_file(path).map_err(|e| DiskError::from_io("remove", path, &e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let fail = |e: io::Error| DiskError::from_io("sync directory", dir, &e);
        File::open(dir).map_err(fail)?.sync_all().map_err(fail)
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        let file = File::open(dir).map_err(|e| DiskError::from_io("lock", dir, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock(file))),
            Err(TryLockError::WouldBlock) => {
                Err(DiskError::new(DiskErrorKind::Locked, "lock", dir, "another process holds this directory"))
            }
            Err(TryLockError::Error(e)) => Err(DiskError::from_io("lock", dir, &e)),
        }
    }

    fn space(&self, dir: &Path) -> Result<Space, DiskError> {
        let stat = rustix::fs::statvfs(dir).map_err(|e| DiskError::from_io("measure", dir, &e.into()))?;
        let unit = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
        Ok(Space { total: stat.f_blocks.saturating_mul(unit), free: stat.f_bavail.saturating_mul(unit) })
    }
}

impl RealFile {
    fn fail(&self, action: &'static str) -> impl Fn(io::Error) -> DiskError + '_ {
        move |e| DiskError::from_io(action, &self.path, &e)
    }
}

impl DiskFile for RealFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.fail("read")(e)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let direct = self.direct.as_ref().and_then(|direct| direct.write(offset, bytes));
        direct.unwrap_or_else(|| self.file.write_all_at(bytes, offset)).map_err(self.fail("write"))
    }

    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<(), DiskError> {
        let mut rest = slices.to_vec();
        let mut rest = rest.as_mut_slice();
        let mut at = offset;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            // The kernel takes at most 1024 slices a call (IOV_MAX).
            let some = rest.get(..1024).unwrap_or(rest);
            match rustix::io::pwritev(&self.file, some, at) {
                Ok(0) => return Err(self.fail("write")(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    at += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.fail("write")(e.into())),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(self.fail("sync"))
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.file.metadata().map_err(self.fail("measure"))?.len())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file.set_len(len).map_err(self.fail("resize"))
    }

    fn allocate(&self, len: u64) -> Result<(), DiskError> {
        if len == 0 {
            return Ok(());
        }
        loop {
            return match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
                Ok(()) => Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) if self.len()? < len => self.set_len(len),
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
                Err(e) => Err(self.fail("allocate space for")(e.into())),
            };
        }
    }
}
