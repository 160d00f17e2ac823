//! The file seam: every byte that Geminga keeps on a disk goes through the traits [`Disk`] and [`DiskFile`].
//!
//! There are two disks. [`RealDisk`] is the only user of `std::fs` in the house. [`SimDisk`] lives in memory and
//! does what real disks do to software that trusts them too much: at a power cut it forgets or tears whatever was not
//! synced, it fails a sync once and then claims success, it runs full, it returns flipped bits. With the cargo feature `canary`
//! there is also `FaultyDisk`, round another, whose syncs do nothing, are slow, or fail.
//!
//! Deliberately not here: caching, retries, paths and formats of anybody's files, threads. Calls are synchronous and
//! belong on a lane; a caller decides what an error means.
//!
//! Data enters by [`DiskFile::write_at`] and is durable when a later [`DiskFile::sync_data`] returned; a name is durable
//! when a later [`Disk::sync_dir`] of its directory returned. Start reading at [`Disk`], then [`SimDisk`].

mod buffer;
mod error;
#[cfg(feature = "canary")]
mod faulty;
mod real;
mod seam;
mod sim;

pub use buffer::AlignedBuffer;
pub use error::{DiskError, DiskErrorKind};
#[cfg(feature = "canary")]
pub use faulty::{DiskFault, FaultyDisk};
pub use real::{EntryKind, RealDisk};
pub use seam::{DirLock, Disk, DiskFile, OpenMode, Space};
pub use sim::{CrashImages, Seeded, SimDisk, SimStats};
