//! Golden bytes of the stored form, and what is refused or left aside.

use super::*;
use crate::ManagedCursorInfo;
use crate::protobuf::tests::{hex, unhex};
use proptest::prelude::*;

fn run(first: u32, last: u32) -> Run {
    Run { first, last }
}

fn added() -> Added {
    Added {
        acked: vec![(LedgerId(5), vec![run(9, 9), run(11, 300)]), (LedgerId(7), vec![run(0, u32::MAX)])],
        batch_sets: vec![BatchSet { position: Position::new(7, 2), unacked: vec![0b1010, -1] }],
        redeliveries: vec![(Position::new(5, 10), 3), (Position::new(5, 400), 1), (Position::new(7, 0), 70_000)],
    }
}

const BODY: &str = "0a0908051205 09000 1a102 0a0a08071206 00ffffffff0f 12130a0408071002100a10ffffffffffffffffff01 \
                    1a0908051205 0a03850301 1a0808071204 00f0a204";

/// What was written must be read for ever; what is written now must not change unnoticed.
#[test]
fn golden_bytes() {
    assert_eq!(hex(&added().encode()), hex(&unhex(BODY)));
    assert_eq!(Added::decode(&unhex(BODY)), Ok(added()));
    let part = Part::Last { chunks: 0 };
    let delta = Extension { sequence: 9, base: 7, base_entry: EntryId(4), part, body: unhex("0a0708051203 040001") };
    let chunk = Extension { part: Part::Chunk { index: 1, previous: EntryId(-1) }, body: vec![7], ..delta.clone() };
    let info = PositionInfo::at(Position::new(5, 3));
    for (extension, bytes) in [
        (&delta, "08051003 8ab518 15 0801 1009 1807 2004 3800 4209 0a0708051203040001"),
        (&chunk, "08051003 8ab518 18 0801 1009 1807 2004 2801 30ffffffffffffffffff01 420107"),
    ] {
        assert_eq!(hex(&info.encode_with(Some(extension))), hex(&unhex(bytes)));
        let read = CursorEntry { info: info.clone(), extension: Some(extension.clone()), is_newer: false };
        assert_eq!(CursorEntry::decode(&unhex(bytes)), Ok(read));
    }
    let counted = ManagedCursorInfo {
        redeliveries: vec![(Position::new(5, 4), 2)],
        ..ManagedCursorInfo::at(Position::new(5, 3))
    };
    let bytes =
        "08ffffffffffffffffff01 10051803 8ab518 1d 0801 1000 1800 20ffffffffffffffffff01 3800 4208 1a06080512020402";
    assert_eq!(hex(&counted.encode()), hex(&unhex(bytes)));
    assert_eq!(ManagedCursorInfo::decode(&unhex(bytes)), Ok(counted));
}

/// Java's entries, and those that this project wrote before it had an extension.
#[test]
fn entries_without_extension_are_read() {
    for bytes in ["08091029", "080510031a0c0a040805100912040805100c", "08051003220a0a0673657175656e1005"] {
        let entry = CursorEntry::decode(&unhex(bytes)).unwrap();
        assert_eq!((entry.info.encode(), entry.extension, entry.is_newer), (unhex(bytes), None, false));
    }
}

#[test]
fn other_versions_are_left_aside() {
    for extension in ["0802", "08", "", "0801 1009 1807 2004", "0801 1009 1807 2004 2801 3800 420107"] {
        let mut bytes = unhex("08051003 8ab518");
        let extension = unhex(extension);
        bytes.push(u8::try_from(extension.len()).unwrap());
        bytes.extend_from_slice(&extension);
        let entry = CursorEntry::decode(&bytes).unwrap();
        assert_eq!((entry.info, entry.extension, entry.is_newer), (PositionInfo::at(Position::new(5, 3)), None, true));
    }
    assert!(CursorEntry::decode(&unhex("8ab518 02 0801")).is_err(), "no position at all");
    for body in [
        "0a0508051201 04",
        "0a0a08051206 00ffffffff1f",
        "1a0808051204 0080808010",
        "0a021200",
        "1a0d0805120b ffffffffffffffff7f0101",
    ] {
        assert!(Added::decode(&unhex(body)).is_err(), "{body}");
    }
}

fn entry() -> impl Strategy<Value = Vec<u8>> {
    let ledgers = proptest::collection::vec(proptest::collection::vec((0u32..50, 0u32..50), 0..6), 0..3);
    let counts = proptest::collection::btree_map((0i64..3, 0i64..1000), 1u32..9, 0..6);
    let part = prop_oneof![
        (0u32..3, -1i64..9).prop_map(|(index, previous)| Part::Chunk { index, previous: EntryId(previous) }),
        (0u32..3).prop_map(|chunks| Part::Last { chunks }),
    ];
    (ledgers, counts, part, any::<(u64, u64)>()).prop_map(|(ledgers, counts, part, (sequence, base))| {
        let runs = |pairs: Vec<(u32, u32)>| {
            let mut next = 0;
            let run = |(gap, more)| {
                let run = run(next + gap, next + gap + more);
                next = run.last + 1;
                run
            };
            pairs.into_iter().map(run).collect::<Vec<_>>()
        };
        let added = Added {
            acked: ledgers.into_iter().enumerate().map(|(l, pairs)| (LedgerId(l as i64), runs(pairs))).collect(),
            batch_sets: vec![],
            redeliveries: counts.into_iter().map(|((l, e), count)| (Position::new(l, e), count)).collect(),
        };
        assert_eq!(Added::decode(&added.encode()), Ok(added.clone()));
        let extension = Extension { sequence, base, base_entry: EntryId(3), part, body: added.encode() };
        let info = PositionInfo::at(Position::new(1, 2));
        let bytes = info.encode_with(Some(&extension));
        assert_eq!(CursorEntry::decode(&bytes).unwrap().extension, Some(extension));
        bytes
    })
}

proptest! {
    /// Nothing panics, and nothing is larger than the bytes can say.
    #[test]
    fn mutated_bytes(mut bytes in entry(), at in any::<proptest::sample::Index>(), to in any::<u8>(), cut in any::<proptest::sample::Index>()) {
        let at = at.index(bytes.len());
        bytes[at] = to;
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(CursorEntry { extension: Some(extension), .. }) = CursorEntry::decode(&bytes)
            && let Ok(added) = Added::decode(&extension.body)
        {
            let runs: usize = added.acked.iter().map(|(_, runs)| runs.len()).sum();
            prop_assert!(runs + added.redeliveries.len() <= bytes.len());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        drop(CursorEntry::decode(&bytes));
        drop(Added::decode(&bytes));
        drop(Extension::read(&bytes));
    }
}
