//! A cap on the memory of a process: by the kernel where it lets us, else by measuring.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::blow::Failure;

/// What keeps a process below its cap.
#[derive(Debug)]
pub(crate) enum Cap {
    /// A control group of ours with `memory.max`, without swap: the kernel kills what goes beyond.
    Group(PathBuf),
    /// The kernel's own record of the most that was resident, `VmHWM`. Unlike a sample it misses nothing, but it counts
    /// no memory of the kernel, such as what sockets hold.
    Peak,
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cap::Group(group) => write!(f, "memory.max of {}", group.display()),
            Cap::Peak => f.write_str("the most that was resident (VmHWM), as no control group can be made here"),
        }
    }
}

impl Cap {
    /// The best there is, for so many bytes.
    pub(crate) fn new(bytes: u64) -> Cap {
        let group = own_group().map(|own| own.join(format!("geminga-chaos-{}", std::process::id())));
        match group {
            Some(group) if make_group(&group, bytes).is_ok() => Cap::Group(group),
            Some(group) => {
                // It may not be there at all.
                drop(fs::remove_dir(group));
                Cap::Peak
            }
            None => Cap::Peak,
        }
    }

    /// Puts a process under the cap.
    pub(crate) fn admit(&self, pid: u32) -> Result<(), Failure> {
        let Cap::Group(group) = self else { return Ok(()) };
        let put = fs::write(group.join("cgroup.procs"), pid.to_string());
        put.map_err(|error| Failure::Run(format!("{}: {error}", group.display())))
    }
}

impl Drop for Cap {
    fn drop(&mut self) {
        if let Cap::Group(group) = self {
            drop(fs::remove_dir(group));
        }
    }
}

fn make_group(group: &Path, bytes: u64) -> std::io::Result<()> {
    fs::create_dir(group)?;
    fs::write(group.join("memory.max"), bytes.to_string())?;
    // Systems without swap have no such file.
    drop(fs::write(group.join("memory.swap.max"), "0"));
    Ok(())
}

/// The control group of this process. Fact: in the unified hierarchy it is the line that begins with `0::`.
fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find_map(|mount| match *mount {
        [_, place, "cgroup2", ..] => Some(place.to_owned()),
        _ => None,
    })?;
    Some(Path::new(&mount).join(own))
}

/// A figure of `/proc/<pid>/status`, in bytes.
pub(crate) fn status_bytes(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
