//! Every target stands its seeds: needs no fuzzer, and no C++.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use geminga_fuzz::TARGETS;
use geminga_fuzz::memory::within;

#[test]
fn every_target_stands_its_seeds() {
    for (name, target) in TARGETS {
        target(&[]);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
        let mut seeds = 0;
        for seed in fs::read_dir(&folder).unwrap() {
            let path = seed.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            assert!(catch_unwind(|| target(&bytes)).is_ok(), "{}", path.display());
            seeds += 1;
        }
        assert!(seeds > 0, "{} is empty", folder.display());
    }
}

#[test]
fn memory_is_counted() {
    assert_eq!(within(2000, || vec![0_u8; 1000].len()), 1000);
    assert!(catch_unwind(|| within(999, || vec![0_u8; 1000].len())).is_err());
}
