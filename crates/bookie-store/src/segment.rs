//! An open segment file and the names of files in a store's directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use geminga_disk::{DiskError, DiskFile};

use crate::format::block::{BLOCK_HEADER, BlockHeader};
use crate::format::segment::Seed;

/// The files of a store besides the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// A segment of the log.
    Log(u64),
    /// The index of a sealed segment.
    Index(u64),
    /// An allocated file that was never written: a future segment.
    Fresh(u64),
    /// A dropped segment: a future one.
    Old(u64),
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Name> {
        let (id, kind) = name.split_once('.')?;
        if id.len() != 16 {
            return None;
        }
        let id = u64::from_str_radix(id, 16).ok()?;
        match kind {
            "log" => Some(Name::Log(id)),
            "idx" => Some(Name::Index(id)),
            "new" => Some(Name::Fresh(id)),
            "old" => Some(Name::Old(id)),
            _ => None,
        }
    }

    pub(crate) fn id(self) -> u64 {
        let (Name::Log(id) | Name::Index(id) | Name::Fresh(id) | Name::Old(id)) = self;
        id
    }

    pub(crate) fn path(self, dir: &Path) -> PathBuf {
        let kind = match self {
            Name::Log(_) => "log",
            Name::Index(_) => "idx",
            Name::Fresh(_) => "new",
            Name::Old(_) => "old",
        };
        dir.join(format!("{:016x}.{kind}", self.id()))
    }
}

/// A segment of the log, open for reading by anyone and for writing by the log's writer alone.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) epoch: u64,
    pub(crate) seed: Seed,
    pub(crate) file: Arc<dyn DiskFile>,
    /// How long the file was when it was opened: blocks are written only before this.
    pub(crate) capacity: u64,
    /// Set before the file is given to the pool: what a reader then finds in it may belong to another segment.
    dropped: AtomicBool,
}

impl Segment {
    pub(crate) fn new(id: u64, epoch: u64, store: u64, file: Arc<dyn DiskFile>) -> Result<Segment, DiskError> {
        let capacity = file.len()?.min(u64::from(u32::MAX));
        Ok(Segment { id, epoch, seed: Seed::of(store, id, epoch), file, capacity, dropped: AtomicBool::new(false) })
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    pub(crate) fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// The block header at an offset; `None` if there is no sound one.
    pub(crate) fn block_at(&self, offset: u64) -> Result<Option<BlockHeader>, DiskError> {
        let mut bytes = [0; BLOCK_HEADER];
        let got = self.file.read_at(offset, &mut bytes)?;
        Ok(bytes.get(..got).and_then(|bytes| BlockHeader::decode(self.seed, offset, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for name in [Name::Log(1), Name::Index(u64::MAX), Name::Fresh(0x10), Name::Old(0)] {
            let path = name.path(Path::new("/d"));
            assert_eq!(Name::parse(path.file_name().unwrap().to_str().unwrap()), Some(name));
        }
        assert_eq!(Name::Log(0x1f).path(Path::new("/d")), Path::new("/d/000000000000001f.log"));
        for other in ["INSTANCE", "1.log", "000000000000001f.idx.tmp", "00000000000000zz.log", "lost+found"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
