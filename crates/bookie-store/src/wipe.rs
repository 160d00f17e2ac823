//! Taking a whole store away: which files that are.

use std::path::{Path, PathBuf};

use geminga_disk::{Disk, DiskErrorKind, OpenMode};

use crate::error::OpenError;
use crate::format::cookie::{BadCookie, COOKIE_FILE, Cookie};
use crate::segment::Name;

/// The files of the store in `dir`, in the order in which to remove them: as long as one is left, the next call still
/// knows it for a store. None if there is no such directory, or nothing in it.
///
/// # Errors
/// [`OpenError::NotAStore`] if anything else is in the directory, or nothing says that these files are a store's.
pub fn files_to_wipe(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let names = match disk.list(dir) {
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(Vec::new()),
        names => names?,
    };
    let draft = Path::new(COOKIE_FILE).with_extension("tmp");
    let is_own = |name: &str| name == COOKIE_FILE || Path::new(name) == draft || Name::parse(name).is_some();
    if let Some(foreign) = names.iter().find(|name| !is_own(name)) {
        return Err(OpenError::NotAStore(dir.join(foreign)));
    }
    let has_cookie = names.iter().any(|name| name == COOKIE_FILE);
    if has_cookie && !is_cookie(disk, &dir.join(COOKIE_FILE))? {
        return Err(OpenError::NotAStore(dir.join(COOKIE_FILE)));
    }
    if !has_cookie && let Some(segment) = names.iter().find(|name| Name::parse(name).is_some()) {
        return Err(OpenError::NotAStore(dir.join(segment)));
    }
    let (last, first): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| name == COOKIE_FILE);
    Ok(first.into_iter().chain(last).map(|name| dir.join(name)).collect())
}

fn is_cookie(disk: &dyn Disk, path: &Path) -> Result<bool, OpenError> {
    let file = disk.open(path, OpenMode::Read)?;
    let mut bytes = vec![0; file.len()?.min(4096) as usize];
    file.read_exact_at(0, &mut bytes)?;
    Ok(matches!(Cookie::decode(&bytes), Ok(_) | Err(BadCookie::Version(_))))
}
