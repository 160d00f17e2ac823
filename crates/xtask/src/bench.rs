//! `cargo xtask bench`: what the server does on this machine, beside what the machine can, or beside another server.

use crate::{Outcome, peers, root, run, target};

/// Builds for speed and measures; options go to `geminga-bench`.
pub(crate) fn bench(options: &[&str]) -> Outcome {
    run("cargo", &["build", "--release", "--workspace", "--bins"])?;
    measure(options)
}

/// The same load on Geminga and on a peer in turn. It fetches the peer and needs Java, so no test runs it.
pub(crate) fn compare(options: &[&str]) -> Outcome {
    let options = match options {
        ["--peers", "pulsar", options @ ..] | [options @ .., "--peers", "pulsar"] => options,
        _ => return Err("bench compare needs --peers pulsar: no other peer is known".into()),
    };
    let pulsar = peers::pulsar()?.display().to_string();
    run("cargo", &["build", "--release", "-p", "geminga-cli", "-p", "geminga-bench", "--bins"])?;
    measure(&[&["--pulsar", pulsar.as_str()], options].concat())
}

fn measure(options: &[&str]) -> Outcome {
    let release = target().join("release");
    let (geminga, folder) = (release.join("geminga"), root());
    let (geminga, folder) = (geminga.display().to_string(), folder.display().to_string());
    // On the disk of the working copy, unless another folder is named.
    let defaults = if options.contains(&"--folder") { vec![] } else { vec!["--folder", folder.as_str()] };
    run(release.join("geminga-bench"), &[&["--geminga", geminga.as_str()], &defaults[..], options].concat())
}
