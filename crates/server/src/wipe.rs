//! `--wipe-data`: a data directory becomes an empty one.
//!
//! Nothing is removed unless everything there is known for what a standalone makes: its metadata, and the store of its
//! bookie. Links are refused, not followed. A wipe that was cut off can be repeated.

use std::path::{Path, PathBuf};

use geminga_disk::{Disk, DiskError, DiskErrorKind, EntryKind, RealDisk};

/// Why a directory is not wiped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WipeRefused {
    #[error("{} is not wiped: {} is nothing that geminga standalone made. Move it away, or choose another --data-dir", dir.display(), path.display())]
    Foreign { dir: PathBuf, path: PathBuf },
    #[error("{} is not wiped: {why}. Move it away, or choose another --data-dir", dir.display())]
    Store { dir: PathBuf, why: geminga_bookie_store::OpenError },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Removes the files of the standalone whose directory, which the caller holds, this is. Tells how many there were.
pub(crate) fn wipe(disk: RealDisk, dir: &Path) -> Result<usize, WipeRefused> {
    let foreign = |path: &Path| WipeRefused::Foreign { dir: dir.to_owned(), path: path.to_owned() };
    let (metadata, store) = (dir.join("metadata"), dir.join("bookie"));
    // Metadata first: what is left after a cut is refused by a start that does not wipe, because its store is another's.
    let mut doomed = Vec::new();
    for (path, kind) in disk.entries(dir)? {
        match kind {
            EntryKind::File if path == metadata && geminga_metastore::is_redb(&disk, &path)? => doomed.push(path),
            EntryKind::Dir if path == store => {}
            _ => return Err(foreign(&path)),
        }
    }
    match disk.entries(&store) {
        Err(error) if error.kind == DiskErrorKind::NotFound => {}
        entries => {
            if let Some((path, _)) = entries?.iter().find(|(_, kind)| *kind != EntryKind::File) {
                return Err(foreign(path));
            }
        }
    }
    let files = geminga_bookie_store::files_to_wipe(&disk, &store);
    doomed.extend(files.map_err(|why| WipeRefused::Store { dir: dir.to_owned(), why })?);
    for path in &doomed {
        disk.unlink(path)?;
    }
    disk.sync_dir(dir)?;
    Ok(doomed.len())
}
