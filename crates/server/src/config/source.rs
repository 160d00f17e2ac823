//! Where values come from, and who wins.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use geminga_disk::{Disk, OpenMode};

use crate::config::properties;

/// What the names of variables begin with that set any key, as in Pulsar's images.
const PREFIX: &str = "PULSAR_PREFIX_";
/// More than any such file has.
const MAX_FILE: u64 = 4 << 20;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File,
    Environment,
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Default => "default",
            Origin::File => "file",
            Origin::Environment => "environment",
            Origin::Flag => "flag",
        })
    }
}

/// All that was given.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// In the file's order: the last of a name counts.
    pub(crate) file: Vec<(String, String)>,
    /// All variables of the process.
    pub(crate) environment: Vec<(String, String)>,
    /// By the name of the key.
    pub(crate) flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// By name, what counts. An empty value is none, and takes away what a weaker source says.
    ///
    /// Fact: a variable of Pulsar's images is named as its key if the file has that key, and theirs has nearly all; so
    /// here, if the file has it or it `is_known`. With [`PREFIX`] any key can be set, and that wins.
    pub(crate) fn merged(&self, is_known: &dyn Fn(&str) -> bool) -> BTreeMap<String, (String, Origin)> {
        let mut merged = BTreeMap::new();
        let mut put = |name: &str, value: &str, origin| {
            merged.insert(name.to_owned(), (value.trim().to_owned(), origin));
        };
        self.file.iter().for_each(|(name, value)| put(name, value, Origin::File));
        let in_file = |name: &str| self.file.iter().any(|(known, _)| known == name);
        for (name, value) in self.environment.iter().filter(|(name, _)| in_file(name) || is_known(name)) {
            put(name, value, Origin::Environment);
        }
        for (name, value) in &self.environment {
            if let Some(name) = name.strip_prefix(PREFIX) {
                put(name, value, Origin::Environment);
            }
        }
        self.flags.iter().for_each(|(name, value)| put(name, value, Origin::Flag));
        merged.retain(|_, (value, _)| !value.is_empty());
        merged
    }
}

/// The keys and values of a file.
///
/// # Errors
/// One text for each thing that is wrong with it.
pub(crate) fn read_file(disk: &dyn Disk, path: &Path) -> Result<Vec<(String, String)>, Vec<String>> {
    let read = || -> Result<Vec<u8>, String> {
        let file = disk.open(path, OpenMode::Read).map_err(|error| error.to_string())?;
        let len = file.len().map_err(|error| error.to_string())?;
        if len > MAX_FILE {
            return Err(format!("{} has {len} bytes: is it a configuration file?", path.display()));
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(0, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| vec![error])?;
    let text = String::from_utf8(bytes).map_err(|_| vec![format!("{} is not UTF-8", path.display())])?;
    properties::parse(&text)
        .map_err(|wrong| wrong.into_iter().map(|what| format!("{}, {what}", path.display())).collect())
}
