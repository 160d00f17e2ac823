//! Other servers that Geminga is compared with. They are fetched by Maven into a cache of the user's, never into the
//! working copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The newest release of the 4.0 line whose server Maven's registry serves.
const PULSAR: &str = "4.0.8";
/// What Pulsar 4.0's server needs at least.
const JAVA: u32 = 17;
/// Unpacks an artefact without a project around it.
const UNPACK: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack";

/// The folder with Apache Pulsar's `bin`, `conf` and `lib`, fetched if it is not there yet.
pub(crate) fn pulsar() -> Result<PathBuf, String> {
    java()?;
    let home = std::env::var_os("HOME").ok_or("HOME is not set, so there is no folder to keep Apache Pulsar in")?;
    let cache = Path::new(&home).join(".cache/geminga-peers");
    let folder = cache.join(format!("pulsar-{PULSAR}"));
    let pulsar = folder.join(format!("apache-pulsar-{PULSAR}"));
    if pulsar.join("bin/pulsar").is_file() {
        return Ok(pulsar);
    }
    if !answers("mvn") {
        return Err(format!("there is no mvn, which fetches Apache Pulsar {PULSAR} for the comparison: install Maven"));
    }
    println!("Fetching Apache Pulsar {PULSAR} with Maven into {} (250 MB, once)", cache.display());
    // Renamed when it is whole, so that what was cut short is not taken for Pulsar.
    let partial = cache.join(format!("pulsar-{PULSAR}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(|error| format!("{}: {error}", partial.display()))?;
    }
    fs::create_dir_all(&partial).map_err(|error| format!("{}: {error}", partial.display()))?;
    let artefact = format!("-Dartifact=org.apache.pulsar:pulsar-server-distribution:{PULSAR}:tar.gz:bin");
    // In that folder, as the plugin leaves its marks in the current one.
    let status = Command::new("mvn")
        .args(["-q", "-B", UNPACK, &artefact, &format!("-DoutputDirectory={}", partial.display())])
        .current_dir(&partial)
        .status()
        .map_err(|error| format!("cannot run mvn: {error}"))?;
    if !status.success() {
        return Err(format!("Maven did not fetch Apache Pulsar {PULSAR}: {status}"));
    }
    fs::rename(&partial, &folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(pulsar)
}

fn answers(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Whether the Java that Pulsar's script will take is new enough.
fn java() -> Result<(), String> {
    let needed = |what: &str| format!("{what}, and Apache Pulsar {PULSAR} needs Java {JAVA} or newer: install a JDK");
    let java = std::env::var_os("JAVA_HOME").map_or_else(|| "java".into(), |home| Path::new(&home).join("bin/java"));
    let output = Command::new(&java)
        .arg("-version")
        .output()
        .map_err(|error| needed(&format!("cannot run {} ({error})", java.display())))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match major(&said) {
        Some(major) if major >= JAVA => Ok(()),
        Some(major) => Err(needed(&format!("{} is Java {major}", java.display()))),
        None => Err(needed(&format!("{} does not tell its version", java.display()))),
    }
}

/// The major version in what `java -version` says.
fn major(said: &str) -> Option<u32> {
    let version = said.split('"').nth(1)?;
    let mut numbers = version.split(|other: char| !other.is_ascii_digit());
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_of_java_are_read_in_both_styles() {
        for (said, major) in [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime", Some(17)),
            ("openjdk version \"21\" 2023-09-19", Some(21)),
            ("openjdk version \"22-ea\" 2024-03-19", Some(22)),
            ("java version \"1.8.0_402\"", Some(8)),
            ("java version \"\"", None),
            ("", None),
        ] {
            assert_eq!(super::major(said), major, "{said}");
        }
    }
}
