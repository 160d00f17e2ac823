//! `cargo xtask tidy`: the rules of the house that no lint knows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Outcome, root};

/// Lines above which a file is named, for someone to see whether it is two.
const LONG_FILE: usize = 600;
/// What crates below the tokio line may not reach, even through others.
const IMPURE: [&str; 6] = ["tokio", "socket2", "mio", "fastrand", "getrandom", "axum"];
/// Floors that are pure.
const LAST_PURE_FLOOR: u32 = 2;

struct Crate {
    /// Its floor; `None` for the crates of developers, which may stand on everything and on which nothing stands.
    floor: Option<u32>,
    dependencies: Vec<String>,
    manifest: String,
}

/// Checks and reports everything at once.
pub(crate) fn run() -> Outcome {
    let crates = read_crates()?;
    let mut wrong = Vec::new();
    check_floors(&crates, &mut wrong);
    check_purity(&crates, &mut wrong)?;
    check_manifests(&crates, &mut wrong);
    check_sources(&mut wrong)?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn read_crates() -> Result<BTreeMap<String, Crate>, String> {
    let mut crates = BTreeMap::new();
    let folders = fs::read_dir(root().join("crates")).map_err(|error| error.to_string())?;
    for folder in folders.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).map_err(|error| format!("{name}: {error}"))?;
        let floor = manifest.lines().find_map(|line| line.strip_prefix("floor = ")).unwrap_or_default();
        let normal = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let dependencies = normal
            .lines()
            .filter_map(|line| line.strip_prefix("geminga-")?.split(['.', ' ']).next())
            .map(str::to_owned)
            .collect();
        crates.insert(name, Crate { floor: floor.parse().ok(), dependencies, manifest });
    }
    Ok(crates)
}

/// Crates stand only on floors below their own.
fn check_floors(crates: &BTreeMap<String, Crate>, wrong: &mut Vec<String>) {
    for (name, Crate { floor, dependencies, manifest }) in crates {
        if floor.is_none() && !manifest.contains("floor = \"dev\"") {
            wrong.push(format!("crates/{name}/Cargo.toml: no floor in [package.metadata]"));
        }
        for below in dependencies {
            let other = crates.get(below).and_then(|other| other.floor);
            let stands = match (floor, other) {
                (None, Some(_)) => true,
                (Some(floor), Some(other)) => other < *floor,
                (_, None) => false,
            };
            if !stands {
                wrong.push(format!("crates/{name} may not depend on {below}: it is not on a floor below"));
            }
        }
    }
}

/// Crates below the tokio line reach no runtime, socket or randomness.
fn check_purity(crates: &BTreeMap<String, Crate>, wrong: &mut Vec<String>) -> Outcome {
    for (name, _) in crates.iter().filter(|(_, c)| c.floor.is_some_and(|floor| floor <= LAST_PURE_FLOOR)) {
        let package = format!("geminga-{name}");
        let output = Command::new("cargo")
            .args(["tree", "--package", &package, "--edges", "normal", "--prefix", "none", "--offline"])
            .current_dir(root())
            .output()
            .map_err(|error| error.to_string())?;
        let tree = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("cargo tree of {package}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        for impure in IMPURE {
            if tree.lines().any(|line| line.split(' ').next() == Some(impure)) {
                wrong.push(format!("crates/{name} is pure, and reaches {impure}"));
            }
        }
    }
    Ok(())
}

fn check_manifests(crates: &BTreeMap<String, Crate>, wrong: &mut Vec<String>) {
    for (name, Crate { manifest, .. }) in crates {
        for line in ["license.workspace = true", "[lints]\nworkspace = true", "description = "] {
            if !manifest.contains(line) {
                wrong.push(format!("crates/{name}/Cargo.toml lacks `{}`", line.replace('\n', " ")));
            }
        }
    }
}

/// Every source says at its top what it is for; long ones are named, no more.
fn check_sources(wrong: &mut Vec<String>) -> Outcome {
    let mut sources = Vec::new();
    collect(&root().join("crates"), &mut sources)?;
    for path in sources {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let shown = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        if !text.starts_with("//!") {
            wrong.push(format!("{shown}: the first line does not say what the file is for"));
        }
        let lines = text.lines().count();
        if lines > LONG_FILE {
            println!("{shown} has {lines} lines: would two files read better?");
        }
        // Without `biased`, a select takes a random ready branch, and a simulation would not repeat.
        let selects = text.matches(concat!("tokio::sel", "ect! {")).count();
        if selects != text.matches(concat!("bia", "sed;")).count() {
            wrong.push(format!("{shown}: a select that is not biased"));
        }
    }
    Ok(())
}

fn collect(folder: &Path, sources: &mut Vec<PathBuf>) -> Outcome {
    for entry in fs::read_dir(folder).map_err(|error| error.to_string())?.filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(())
}
