//! A disk whose power can be cut: file systems in files, mounted over loop devices.
//!
//! Two are stacked. The server's data is on the inner one, ext4 or XFS. Its image is a file on the outer one, whose page
//! cache stands for the volatile write cache of a device: what the inner file system writes, directly or not, is there
//! until the inner one flushes its device, upon which the loop driver syncs the image. Shutting the outer one down without
//! flushing anything takes all that was never flushed away, page by page, as a device without power does; what the kernel
//! happened to write back before stays. Shutting down the inner one alone is a machine that stops in front of a device
//! that does not: only the page cache is lost.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use geminga_env::Clock;

use crate::blow::Failure;

/// Bytes of the outer image, which takes space only where it is written.
const OUTER_BYTES: u64 = 6 << 30;
/// Bytes of the inner image.
const INNER_BYTES: u64 = 5 << 30;
/// How long an unmount may be refused because something is not let go of yet.
const UNMOUNT_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the server's data is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The page cache. The device keeps what reached it.
    Host,
    /// Also the write cache of the device.
    Device,
}

/// See the module. Unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Machine {
    folder: PathBuf,
    file_system: FileSystem,
    clock: Clock,
    /// How many of outer and inner are mounted.
    mounted: u8,
}

impl Machine {
    /// Makes the file systems in a folder, and mounts them.
    ///
    /// # Errors
    /// What this system lacks, in one line.
    pub(crate) fn new(folder: &Path, file_system: FileSystem, clock: Clock) -> Result<Machine, String> {
        check_able()?;
        let mut machine = Machine { folder: folder.to_owned(), file_system, clock, mounted: 0 };
        machine.make().map_err(|error| format!("{}: {error}", folder.display()))?;
        run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1,nodiscard", &machine.outer_image()])?;
        machine.mount_outer()?;
        let inner_image = machine.inner_image();
        run("fallocate", &["-l", &INNER_BYTES.to_string(), &inner_image])?;
        match file_system {
            FileSystem::Ext4 => run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=1,nodiscard", &inner_image])?,
            FileSystem::Xfs => run("mkfs.xfs", &["-q", "-K", &inner_image])?,
        }
        run("sync", &["-f", &machine.outer()])?;
        machine.mount_inner()?;
        Ok(machine)
    }

    fn make(&self) -> std::io::Result<()> {
        fs::create_dir(self.outer())?;
        fs::create_dir(self.inner())?;
        File::create(self.outer_image())?.set_len(OUTER_BYTES)
    }

    fn at(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn outer_image(&self) -> String {
        self.at("device.img")
    }

    fn outer(&self) -> String {
        self.at("device")
    }

    fn inner_image(&self) -> String {
        self.at("device/disk.img")
    }

    fn inner(&self) -> String {
        self.at("disk")
    }

    /// Where files are lost.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("disk")
    }

    fn mount_outer(&mut self) -> Result<(), String> {
        run("mount", &["-t", "ext4", "-o", "loop", &self.outer_image(), &self.outer()])?;
        self.mounted = 1;
        Ok(())
    }

    fn mount_inner(&mut self) -> Result<(), String> {
        run("mount", &["-t", self.file_system.name(), "-o", "loop", &self.inner_image(), &self.inner()])?;
        self.mounted = 2;
        Ok(())
    }

    /// From now on nothing that was not durable ever becomes so, and every write and sync fails.
    pub(crate) fn cut(&self, cut: Cut) -> Result<(), Failure> {
        // Without -f nothing is flushed, not even the log of the file system.
        let shut_down = |place: &str| run("xfs_io", &["-x", "-c", "shutdown", place]).map_err(Failure::Run);
        if cut == Cut::Host {
            return shut_down(&self.inner());
        }
        shut_down(&self.outer())?;
        // So that its unmount is quick. XFS refuses if it found out by itself, which is as good.
        drop(shut_down(&self.inner()));
        Ok(())
    }

    /// After a cut, when nobody uses the files any more: recovers and mounts what is left.
    pub(crate) async fn power_on(&mut self) -> Result<(), Failure> {
        self.unmount().await.map_err(Failure::Run)?;
        self.mount_outer().and_then(|()| self.mount_inner()).map_err(Failure::Run)
    }

    async fn unmount(&mut self) -> Result<(), String> {
        let deadline = self.clock.now() + UNMOUNT_WITHIN;
        while self.mounted > 0 {
            let place = if self.mounted == 2 { self.inner() } else { self.outer() };
            match run("umount", &[&place]) {
                Ok(()) => self.mounted -= 1,
                Err(why) if self.clock.now() > deadline => return Err(why),
                Err(_) => self.clock.sleep_until(self.clock.now() + LOOK_EVERY).await,
            }
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for (place, mounted) in [(self.inner(), self.mounted == 2), (self.outer(), self.mounted > 0)] {
            // Lazily: the images go away with their last user.
            if mounted && run("umount", &[&place]).is_err() {
                drop(run("umount", &["--lazy", &place]));
            }
        }
    }
}

/// Whether this system has what is needed.
fn check_able() -> Result<(), String> {
    let user = fs::metadata("/proc/self").map_err(|error| format!("/proc/self: {error}"))?.uid();
    if user != 0 {
        return Err("mounting needs root: run it as root".to_owned());
    }
    let missing =
        |program: &&str| Command::new(program).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err();
    let programs = ["mkfs.ext4", "mkfs.xfs", "xfs_io", "mount", "umount", "fallocate", "sync"];
    let missing: Vec<&str> = programs.into_iter().filter(missing).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("there is no {}: install the packages xfsprogs, e2fsprogs and mount", missing.join(", ")))
    }
}

/// Runs a program to its end; its last line of errors if it fails.
fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let done = done.map_err(|error| format!("cannot run {program}: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&done.stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why");
    Err(format!("{program} {} failed: {last}", arguments.join(" ")))
}
