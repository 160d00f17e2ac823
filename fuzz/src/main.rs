//! The fuzzer: libFuzzer around the target that the variable `GEMINGA_FUZZ_TARGET` names. `cargo xtask fuzz` runs it.
#![no_main]

use std::sync::OnceLock;

use geminga_fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var("GEMINGA_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("GEMINGA_FUZZ_TARGET={name} names no target")).1
}

fuzz_target!(|data: &[u8]| TARGET.get_or_init(chosen)(data));
