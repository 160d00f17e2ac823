//! The traits that the rest of the house sees.

use std::fmt::Debug;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use crate::error::{DiskError, DiskErrorKind};

/// How to open a file. Files are always opened for reading; all but [`OpenMode::Read`] also for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// As [`OpenMode::Write`]; writes of whole sectors from an [`AlignedBuffer`](crate::AlignedBuffer) go to the device
    /// without a copy in the page cache, where the file system can. Syncing is wanted all the same.
    WriteDirect,
    /// A new file; [`DiskErrorKind::Exists`] if the name is taken.
    Create,
    /// An existing file or, if there is none, a new one.
    OpenOrCreate,
}

/// The size of the file system that holds a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that this process may still use.
    pub free: u64,
}

/// An exclusive hold of a directory; dropping it releases the directory, and so does the end of the process.
pub trait DirLock: Send + Sync + Debug {}

/// A place that holds files: the real file system or a simulated one.
///
/// Errors keep the path; none of the calls retries anything.
pub trait Disk: Send + Sync + Debug {
    /// Opens or creates a file. A created name is durable after [`Disk::sync_dir`] of its directory.
    ///
    /// # Errors
    /// [`DiskErrorKind::NotFound`] or [`DiskErrorKind::Exists`] as `mode` says, or what the system reports.
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// The names of the plain files in a directory, sorted. Sub-directories are left out.
    ///
    /// # Errors
    /// [`DiskErrorKind::NotFound`] if there is no such directory, or what the system reports.
    fn list(&self, dir: &Path) -> Result<Vec<String>, DiskError>;

    /// Makes a directory with all its parents; an existing one is fine. Durable after a sync of the parent.
    ///
    /// # Errors
    /// What the system reports.
    fn create_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Renames a file, replacing the target if there is one. Durable after a sync of the directory.
    ///
    /// # Errors
    /// [`DiskErrorKind::NotFound`], or what the system reports.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;

    /// Removes a name. Open handles stay usable. Durable after a sync of the directory.
    ///
    /// # Errors
    /// [`DiskErrorKind::NotFound`], or what the system reports.
    fn unlink(&self, path: &Path) -> Result<(), DiskError>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the system reports; the names must then be taken for uncertain.
    fn sync_dir(&self, dir: &Path) -> Result<(), DiskError>;

    /// Takes a directory for this holder alone.
    ///
    /// # Errors
    /// [`DiskErrorKind::Locked`] if somebody else holds it.
    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, DiskError>;

    /// The space of the file system that holds `dir`.
    ///
    /// # Errors
    /// What the system reports.
    fn space(&self, dir: &Path) -> Result<Space, DiskError>;
}

/// An open file. All offsets and lengths are bytes; calls may come from several threads at once.
pub trait DiskFile: Send + Sync + Debug {
    /// The path under which the file was opened, for messages; a later rename does not change it.
    fn path(&self) -> &Path;

    /// Reads at `offset` into `buffer` and returns how many bytes there were: fewer than asked for only at the end of
    /// the file.
    ///
    /// # Errors
    /// What the system reports.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, DiskError>;

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// [`DiskErrorKind::EndOfFile`] if the file ends before, or what the system reports.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let wanted = buffer.len();
        let got = self.read_at(offset, buffer)?;
        if got < wanted {
            let detail = format!("the file ends {} bytes short of {}", wanted - got, offset + wanted as u64);
            return Err(DiskError::new(DiskErrorKind::EndOfFile, "read", self.path(), detail));
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`, extending the file if needed. After an error any part may have been written.
    ///
    /// # Errors
    /// [`DiskErrorKind::NoSpace`], or what the system reports.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// Writes all of `slices` one behind the other, as [`DiskFile::write_at`] would their concatenation.
    ///
    /// # Errors
    /// As [`DiskFile::write_at`].
    fn write_vectored_at(&self, offset: u64, slices: &[IoSlice<'_>]) -> Result<(), DiskError>;

    /// Makes everything written to the file so far, and its length, durable.
    ///
    /// # Errors
    /// What the system reports. Do not call it again for the same data: the system may have dropped it and would
    /// claim success.
    fn sync_data(&self) -> Result<(), DiskError>;

    /// The length of the file in bytes.
    ///
    /// # Errors
    /// What the system reports.
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// What the system reports.
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it with zeros that occupy no space.
    ///
    /// # Errors
    /// What the system reports.
    fn set_len(&self, len: u64) -> Result<(), DiskError>;

    /// Claims space for the first `len` bytes and extends the file to that length if it is shorter, without writing
    /// zeros. On a file system that cannot claim space it only extends the file.
    ///
    /// # Errors
    /// [`DiskErrorKind::NoSpace`], or what the system reports.
    fn allocate(&self, len: u64) -> Result<(), DiskError>;
}
