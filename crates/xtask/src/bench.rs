//! `cargo xtask bench`: what the server does on this machine, beside what the machine can.

use crate::{Outcome, root, run, target};

/// Builds for speed and measures; options go to `geminga-bench`.
pub(crate) fn bench(options: &[&str]) -> Outcome {
    run("cargo", &["build", "--release", "--workspace", "--bins"])?;
    let release = target().join("release");
    let (geminga, folder) = (release.join("geminga"), root());
    let (geminga, folder) = (geminga.display().to_string(), folder.display().to_string());
    // On the disk of the working copy, unless another folder is named.
    let defaults = if options.contains(&"--folder") { vec![] } else { vec!["--folder", folder.as_str()] };
    run(release.join("geminga-bench"), &[&["--geminga", geminga.as_str()], &defaults[..], options].concat())
}
