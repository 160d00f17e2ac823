//! Files for future segments: recycled ones, a reserve, and the next segment made ready.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use geminga_disk::{Disk, DiskError, DiskErrorKind, OpenMode};

use crate::format::segment::SegmentHeader;
use crate::segment::{Name, Segment};

/// Claims space and hands out segments. Whatever it fails to claim makes the store read-only, until it succeeds.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) segment_bytes: u64,
    /// Files never given to ordinary adds.
    pub(crate) reserve: usize,
    /// Files kept at most.
    pub(crate) most: usize,
    pub(crate) epoch: u64,
    pub(crate) store: u64,
    pub(crate) created: i64,
    pub(crate) next_id: u64,
    /// Recycled files last: they are taken first, because writing into written blocks is faster.
    pub(crate) free: Vec<Name>,
    pub(crate) prepared: Option<Arc<Segment>>,
    pub(crate) read_only: Arc<AtomicBool>,
}

impl Pool {
    /// The next segment, durable by name and header; its first record may be written. `None` if there is no space for
    /// one; `privileged` takes from the reserve then.
    pub(crate) fn next_segment(&mut self, privileged: bool) -> Result<Option<Arc<Segment>>, DiskError> {
        match self.prepared.take() {
            Some(segment) => Ok(Some(segment)),
            None => self.make(privileged, self.segment_bytes),
        }
    }

    /// Makes a segment of at least `bytes`.
    pub(crate) fn make(&mut self, privileged: bool, bytes: u64) -> Result<Option<Arc<Segment>>, DiskError> {
        if self.free.len() <= self.reserve {
            let added = self.add_fresh()?;
            self.set_read_only(!added);
            if !added && !privileged {
                return Ok(None);
            }
        }
        let Some(name) = self.free.pop() else { return Ok(None) };
        let from = name.path(&self.dir);
        let file = self.disk.open(&from, OpenMode::Write)?;
        if let Err(error) = file.allocate(bytes) {
            self.free.push(name);
            return if error.kind == DiskErrorKind::NoSpace { Ok(None) } else { Err(error) };
        }
        let id = self.new_id();
        let header = SegmentHeader { id, epoch: self.epoch, store: self.store, created: self.created };
        file.write_at(0, &header.encode())?;
        file.sync_data()?;
        let path = Name::Log(id).path(&self.dir);
        self.disk.rename(&from, &path)?;
        self.disk.sync_dir(&self.dir)?;
        let file = self.disk.open(&path, OpenMode::WriteDirect)?;
        Ok(Some(Arc::new(Segment::new(id, self.epoch, self.store, file)?)))
    }

    /// Fills the reserve and makes the next segment ready. Ends read-only state if there is space for all of it.
    pub(crate) fn refill(&mut self) -> Result<(), DiskError> {
        while self.free.len() < self.reserve {
            if !self.add_fresh()? {
                self.set_read_only(true);
                return Ok(());
            }
        }
        if self.prepared.is_none() {
            self.prepared = self.make(false, self.segment_bytes)?;
        }
        self.set_read_only(self.prepared.is_none());
        Ok(())
    }

    /// Fills the reserve alone, as a start does.
    pub(crate) fn fill_reserve(&mut self) -> Result<(), DiskError> {
        while self.free.len() < self.reserve {
            let added = self.add_fresh()?;
            self.set_read_only(!added);
            if !added {
                break;
            }
        }
        Ok(())
    }

    /// Takes a file found at the start, unless its space cannot be claimed.
    pub(crate) fn adopt(&mut self, name: Name) -> Result<(), DiskError> {
        let path = name.path(&self.dir);
        let claimed = self.disk.open(&path, OpenMode::Write)?.allocate(self.segment_bytes);
        match claimed {
            Ok(()) if self.free.len() < self.most => self.keep(name),
            Err(error) if error.kind != DiskErrorKind::NoSpace => return Err(error),
            _ => self.disk.unlink(&path)?,
        }
        Ok(())
    }

    /// Takes the file of a dropped segment, whose records nobody needs any more, and makes that durable.
    pub(crate) fn recycle(&mut self, segment: u64) -> Result<(), DiskError> {
        let path = Name::Log(segment).path(&self.dir);
        let claimed = self.disk.open(&path, OpenMode::Write)?.allocate(self.segment_bytes);
        match claimed {
            Ok(()) if self.free.len() < self.most => {
                self.disk.rename(&path, &Name::Old(segment).path(&self.dir))?;
                self.keep(Name::Old(segment));
            }
            Err(error) if error.kind != DiskErrorKind::NoSpace => return Err(error),
            _ => self.disk.unlink(&path)?,
        }
        match self.disk.unlink(&Name::Index(segment).path(&self.dir)) {
            Err(error) if error.kind != DiskErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.disk.sync_dir(&self.dir)
    }

    fn keep(&mut self, name: Name) {
        self.free.push(name);
        self.free.sort_unstable_by_key(|name| (matches!(name, Name::Old(_)), name.id()));
    }

    fn add_fresh(&mut self) -> Result<bool, DiskError> {
        let name = Name::Fresh(self.new_id());
        let path = name.path(&self.dir);
        let file = self.disk.open(&path, OpenMode::Create)?;
        match file.allocate(self.segment_bytes) {
            Ok(()) => {
                self.keep(name);
                Ok(true)
            }
            Err(error) if error.kind == DiskErrorKind::NoSpace => {
                self.disk.unlink(&path)?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Release);
    }
}
