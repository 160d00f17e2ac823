//! The simulations at a size that every build runs, and their proof: every canary is found.
#![expect(clippy::unwrap_used, reason = "the lint's exemption for tests does not reach their helper functions")]

use std::process::Command;

fn simulate(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_geminga-sim")).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn four_hundred_crash_seeds_pass_and_every_fault_fires() {
    let (passed, text) = simulate(&["crash", "--seeds", "400"]);
    assert!(passed, "{text}");
}

/// Each with what was wrong when it failed.
#[test]
fn crash_seeds_that_failed_once_pass() {
    let seeds = [
        (15, "a carried state lay in the tail, behind entries of its ledger"),
        (676, "a sealed segment was taken for durable though its last sync never ended"),
        (2426, "a segment of which all was copied is empty after the next crash"),
        (4678, "the block that made a copy count was not durable when the old segment was sealed"),
        (5281, "the only block that made a copy count was garbled, and the copy was given away"),
        (22544, "cleaning wrote after the idle log had announced its end"),
        (5_051_908, "a segment sealed by the start after the one that copied its tail did not say so"),
    ];
    for (seed, once) in seeds {
        let (passed, text) = simulate(&["crash", "--seed", &seed.to_string()]);
        assert!(passed, "{once}: {text}");
    }
}

#[test]
fn every_image_of_short_traces_opens() {
    let (passed, text) = simulate(&["crash", "--exhaustive", "60"]);
    assert!(passed, "{text}");
}

#[cfg(feature = "canary")]
#[test]
fn every_canary_is_found() {
    for canary in geminga_sim::ledger::CANARIES {
        let (found, text) = simulate(&["ledger", "--seconds", "60", "--canary", canary]);
        assert!(found, "{text}");
    }
    for canary in geminga_sim::crash::CANARIES {
        let (found, text) = simulate(&["crash", "--seconds", "60", "--canary", canary]);
        assert!(found, "{text}");
    }
}

#[test]
fn a_canary_that_is_not_there_is_refused() {
    let (accepted, text) = simulate(&["crash", "--canary", "no-such-bug"]);
    assert!(!accepted, "{text}");
}

#[test]
fn six_hundred_ledger_seeds_pass_and_every_fault_fires() {
    let (passed, text) = simulate(&["ledger", "--seeds", "600"]);
    assert!(passed, "{text}");
}

#[test]
fn equal_ledger_seeds_do_equal_things() {
    let run = |seed| geminga_sim::ledger::run_seed(seed, &mut geminga_sim::ledger::Tally::default()).unwrap();
    let hashes: Vec<u64> = (0..20).map(run).collect();
    assert_eq!(hashes, (0..20).map(run).collect::<Vec<_>>());
    assert_ne!(hashes[0], hashes[1]);
}

#[test]
fn equal_ledger_seeds_have_equal_traces() {
    let trace = geminga_sim::ledger::trace_seed(7);
    assert!(trace.len() > 20, "{trace:?}");
    assert_eq!(trace, geminga_sim::ledger::trace_seed(7));
}
