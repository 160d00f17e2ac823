//! What can go wrong at a disk, as a fact and as a sentence for an operator.

use std::io;
use std::path::{Path, PathBuf};

/// The class of a disk error: what a caller decides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskErrorKind {
    /// The file or directory does not exist.
    NotFound,
    /// The file exists, and was to be created.
    Exists,
    /// The file system is full, or a quota is reached. The write was not done.
    NoSpace,
    /// Another process holds the directory.
    Locked,
    /// The operating system denies access, or the file system is mounted read-only.
    Denied,
    /// Fewer bytes than asked for: the file ends before.
    EndOfFile,
    /// The device failed. After a failed sync the data must be taken for lost: a second sync may claim success.
    Io,
    /// The simulated power is off. Only a [`SimDisk`](crate::SimDisk) says so.
    PowerOff,
}

/// A failed disk operation: what was tried, on which path, and what the system said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {}: {detail}", path.display())]
pub struct DiskError {
    /// The class, to decide by.
    pub kind: DiskErrorKind,
    /// The operation as a verb, such as `sync`.
    pub action: &'static str,
    /// The file or directory it was done to.
    pub path: PathBuf,
    /// What the operating system said.
    pub detail: String,
}

impl DiskError {
    /// An error of `kind` while doing `action` to `path`.
    #[must_use]
    pub fn new(kind: DiskErrorKind, action: &'static str, path: &Path, detail: impl Into<String>) -> DiskError {
        DiskError { kind, action, path: path.to_owned(), detail: detail.into() }
    }

    /// Keeps the kind, path and text of an error of the operating system.
    #[must_use]
    pub fn from_io(action: &'static str, path: &Path, error: &io::Error) -> DiskError {
        let kind = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => DiskErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => DiskErrorKind::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskErrorKind::NoSpace,
            io::ErrorKind::WouldBlock => DiskErrorKind::Locked,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => DiskErrorKind::Denied,
            io::ErrorKind::UnexpectedEof => DiskErrorKind::EndOfFile,
            _ => DiskErrorKind::Io,
        };
        DiskError::new(kind, action, path, error.to_string())
    }
}
