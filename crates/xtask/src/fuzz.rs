//! `cargo xtask fuzz`: arbitrary bytes for everything that reads what it was sent or what is stored.
//!
//! The targets are in `fuzz/`, a workspace of its own. They run under libFuzzer, whose coverage the stable compiler can
//! give; building it takes a C++ compiler, which is why this is no part of `cargo xtask test`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Outcome, root, run, target};

/// What cargo-fuzz passes, but for the address sanitizer, which the stable compiler does not have.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Clink-dead-code --cfg=fuzzing";
/// An input that takes longer, in seconds, or more memory, in MiB, is a finding.
const LIMITS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=1024"];

/// What a run of a target came to.
struct Figures {
    /// Inputs tried.
    runs: String,
    /// Edges of the code that were reached.
    coverage: String,
    /// Inputs that reach something that no other does.
    corpus: String,
}

/// Builds the targets and runs the named ones, or all, one after the other.
pub(crate) fn fuzz(options: &[&str]) -> Outcome {
    let (seconds, chosen) = match options {
        ["--seconds", seconds, chosen @ ..] => (*seconds, chosen),
        chosen => ("60", chosen),
    };
    seconds.parse::<u32>().map_err(|_| format!("--seconds {seconds}: not a number of seconds"))?;
    let targets = targets()?;
    if let Some(unknown) = chosen.iter().find(|name| !targets.iter().any(|known| known == *name)) {
        return Err(format!("{unknown} is no target: there are {}", targets.join(", ")));
    }
    let fuzzer = build()?;
    let (mut table, mut found) = (Vec::new(), Vec::new());
    for name in targets.iter().filter(|name| chosen.is_empty() || chosen.contains(&name.as_str())) {
        println!("== {name}, {seconds} s");
        let log = folder().join(format!("{name}.log"));
        let passed = run_target(&fuzzer, name, seconds, &log)?;
        let Figures { runs, coverage, corpus } = figures(&log)?;
        let outcome = if passed { "nothing found" } else { "FOUND" };
        table.push(format!("{name:<16} {runs:>12} {coverage:>8} {corpus:>8}  {outcome}"));
        if !passed {
            tell(name, &fuzzer, &log)?;
            found.push(name.as_str());
        }
    }
    println!("{:<16} {:>12} {:>8} {:>8}", "target", "inputs", "edges", "corpus");
    println!("{}", table.join("\n"));
    if found.is_empty() { Ok(()) } else { Err(format!("something was found by {}", found.join(", "))) }
}

/// Where corpora, findings and logs are kept.
fn folder() -> PathBuf {
    target().join("fuzz")
}

/// Each has its folder of seeds.
fn targets() -> Result<Vec<String>, String> {
    let seeds = root().join("fuzz/seeds");
    let entries = fs::read_dir(&seeds).map_err(|error| format!("{}: {error}", seeds.display()))?;
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf, String> {
    let host = host()?;
    let (manifest, built) = (root().join("fuzz/Cargo.toml"), folder());
    // With a target named, cargo keeps the flags from build scripts and macros.
    let status = Command::new("cargo")
        .args(["build", "--locked", "--release", "--features", "libfuzzer", "--target", &host, "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&built)
        .env("RUSTFLAGS", INSTRUMENTED)
        .current_dir(root())
        .status()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build: libFuzzer takes a C++ compiler (the package g++)".to_owned());
    }
    Ok(built.join(host).join("release/geminga-fuzz"))
}

fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| format!("cannot run rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say for which machine it compiles".to_owned())
}

/// Whether it found nothing.
fn run_target(fuzzer: &Path, name: &str, seconds: &str, log: &Path) -> Result<bool, String> {
    let corpus = folder().join("corpus").join(name);
    let findings = folder().join("findings");
    for folder in [&corpus, &findings] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let output = fs::File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let status = Command::new(fuzzer)
        .arg(format!("-max_total_time={seconds}"))
        .args(LIMITS)
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}/{name}-", findings.display()))
        .arg(corpus)
        .arg(root().join("fuzz/seeds").join(name))
        .env("GEMINGA_FUZZ_TARGET", name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .status()
        .map_err(|error| format!("cannot run {}: {error}", fuzzer.display()))?;
    Ok(status.success())
}

fn read(log: &Path) -> Result<String, String> {
    let bytes = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// From the last line that libFuzzer wrote of its progress: `#runs … cov: edges … corp: inputs/bytes …`.
fn figures(log: &Path) -> Result<Figures, String> {
    let text = read(log)?;
    let last = text.lines().rev().find(|line| line.starts_with('#') && line.contains(" cov: ")).unwrap_or_default();
    let after = |mark: &str| last.split_once(mark).and_then(|(_, rest)| rest.split([' ', '/']).next()).unwrap_or("?");
    let runs = last.split_whitespace().next().unwrap_or("#?").trim_start_matches('#').to_owned();
    Ok(Figures { runs, coverage: after("cov: ").to_owned(), corpus: after("corp: ").to_owned() })
}

/// What was found, and how to see it again.
fn tell(name: &str, fuzzer: &Path, log: &Path) -> Outcome {
    let text = read(log)?;
    let from = text.lines().position(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
    for line in text.lines().skip(from.unwrap_or(0)).take(6) {
        println!("   {line}");
    }
    let saved = text.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path);
    match saved {
        Some(input) => {
            println!("   the input is {input}; it alone:");
            println!("   GEMINGA_FUZZ_TARGET={name} {} {input}", fuzzer.display());
        }
        None => println!("   no input was saved"),
    }
    println!("   all of the output is in {}", log.display());
    Ok(())
}

/// Keeps the sources of the targets in form; this needs no compiler.
pub(crate) fn format() -> Outcome {
    run("cargo", &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])
}
