//! Records: an entry, the full state of a ledger, or the deletion of a ledger.

use bytes::Bytes;
use geminga_disk::AlignedBuffer;

use super::le;
use super::segment::Seed;
use crate::state::{LedgerState, MasterKey, Tombstone};

/// Bytes of a record before its body.
pub(crate) const RECORD_HEADER: usize = 40;

const ENTRY: u8 = 1;
const STATE: u8 = 2;
const DELETE: u8 = 3;
const STATE_BODY_VERSION: u8 = 1;
const DELETE_BODY_VERSION: u8 = 1;
const FENCED: u8 = 1;
const LIMBO: u8 = 2;

/// A record as found: where it lies is known to the finder.
#[derive(Clone, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) ledger: i64,
    pub(crate) sequence: u64,
    pub(crate) content: Content<'a>,
    /// Header and body.
    pub(crate) len: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum Content<'a> {
    Entry { entry: i64, body: &'a [u8] },
    State(LedgerState),
    Delete(Tombstone),
}

/// Bytes of a record with `body` bytes of body.
pub(crate) fn record_len(body: usize) -> u64 {
    (RECORD_HEADER + body) as u64
}

/// Appends an entry to `block`, which starts at `block_at` of the segment.
pub(crate) fn put_entry(
    block: &mut AlignedBuffer,
    seed: Seed,
    block_at: u64,
    ledger: i64,
    entry: i64,
    sequence: u64,
    body: &[&[u8]],
) {
    put(block, seed, block_at, ENTRY, ledger, entry, sequence, body);
}

/// Appends the state of a ledger; its sequence is the record's.
pub(crate) fn put_state(block: &mut AlignedBuffer, seed: Seed, block_at: u64, ledger: i64, state: &LedgerState) {
    let (fixed, lac) = state_body(state);
    put(block, seed, block_at, STATE, ledger, -1, state.sequence, &[&fixed, state.key.as_bytes(), lac]);
}

/// Appends the deletion of a ledger; the tombstone's sequence is the record's.
pub(crate) fn put_delete(block: &mut AlignedBuffer, seed: Seed, block_at: u64, ledger: i64, tombstone: &Tombstone) {
    let mut body = [0; 16];
    body[0] = DELETE_BODY_VERSION;
    body[1] = if tombstone.fenced { FENCED } else { 0 };
    body[8..].copy_from_slice(&tombstone.at.to_le_bytes());
    put(block, seed, block_at, DELETE, ledger, -1, tombstone.sequence, &[&body]);
}

/// The length of the body that [`put_delete`] writes.
pub(crate) const DELETE_BODY: usize = 16;

/// The length of the body that [`put_state`] writes.
pub(crate) fn state_body_len(state: &LedgerState) -> usize {
    8 + state.key.as_bytes().len() + state.explicit_lac.as_ref().map_or(0, Bytes::len)
}

/// The bytes of a state as its record and the index hold them, without the sequence.
pub(crate) fn encode_state(state: &LedgerState) -> Vec<u8> {
    let (fixed, lac) = state_body(state);
    [&fixed, state.key.as_bytes(), lac].concat()
}

fn state_body(state: &LedgerState) -> ([u8; 8], &[u8]) {
    let lac: &[u8] = state.explicit_lac.as_deref().unwrap_or_default();
    let mut fixed = [0; 8];
    fixed[0] = STATE_BODY_VERSION;
    fixed[1] = if state.fenced { FENCED } else { 0 } | if state.limbo { LIMBO } else { 0 };
    fixed[2] = state.key.as_bytes().len() as u8;
    fixed[4..].copy_from_slice(&(lac.len() as u32).to_le_bytes());
    (fixed, lac)
}

/// Reads what [`encode_state`] wrote.
pub(crate) fn decode_state(sequence: u64, body: &[u8]) -> Option<LedgerState> {
    let (fixed, rest) = body.split_at_checked(8)?;
    let [STATE_BODY_VERSION, flags, key_len, 0, ..] = *fixed else { return None };
    let (key, lac) = rest.split_at_checked(usize::from(key_len))?;
    if lac.len() != le!(u32, fixed, 4)? as usize {
        return None;
    }
    Some(LedgerState {
        sequence,
        fenced: flags & FENCED != 0,
        limbo: flags & LIMBO != 0,
        key: MasterKey::new(key)?,
        explicit_lac: (!lac.is_empty()).then(|| Bytes::copy_from_slice(lac)),
    })
}

fn put(
    block: &mut AlignedBuffer,
    seed: Seed,
    block_at: u64,
    kind: u8,
    ledger: i64,
    entry: i64,
    sequence: u64,
    body: &[&[u8]],
) {
    let start = block.len();
    let len: usize = body.iter().map(|part| part.len()).sum();
    let mut header = [0; RECORD_HEADER];
    header[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    header[8] = kind;
    header[16..24].copy_from_slice(&ledger.to_le_bytes());
    header[24..32].copy_from_slice(&entry.to_le_bytes());
    header[32..40].copy_from_slice(&sequence.to_le_bytes());
    block.extend_from_slice(&header);
    for part in body {
        block.extend_from_slice(part);
    }
    let crc = seed.checksum(block_at + start as u64, &block[start + 4..]);
    block[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the record at the start of `bytes`, which lies at `offset` of the segment. `None` if the bytes are not a record
/// that this segment wrote there.
pub(crate) fn decode(seed: Seed, offset: u64, bytes: &[u8]) -> Option<Record<'_>> {
    let len = RECORD_HEADER.checked_add(le!(u32, bytes, 4)? as usize)?;
    let bytes = bytes.get(..len)?;
    if seed.checksum(offset, bytes.get(4..)?) != le!(u32, bytes, 0)? {
        return None;
    }
    let body = bytes.get(RECORD_HEADER..)?;
    let (ledger, entry, sequence) = (le!(i64, bytes, 16)?, le!(i64, bytes, 24)?, le!(u64, bytes, 32)?);
    let content = match *bytes.get(8)? {
        ENTRY => Content::Entry { entry, body },
        STATE => Content::State(decode_state(sequence, body)?),
        DELETE => {
            let [DELETE_BODY_VERSION, flags, ..] = *body else { return None };
            Content::Delete(Tombstone { sequence, fenced: flags & FENCED != 0, at: le!(i64, body, 8)? })
        }
        _ => return None,
    };
    Some(Record { ledger, sequence, content, len })
}

/// The last confirmed entry that an entry's body names.
///
/// Fact: bytes 16..24 of a BookKeeper entry, big-endian, are the LAC as the writer knew it; −1 if none.
pub(crate) fn lac_of_entry(body: &[u8]) -> i64 {
    body.get(16..24).and_then(|b| b.try_into().ok()).map_or(-1, i64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> LedgerState {
        LedgerState {
            sequence: 5,
            fenced: true,
            limbo: false,
            key: MasterKey::new(&[7; 20]).unwrap(),
            explicit_lac: Some(Bytes::from_static(b"lac")),
        }
    }

    #[test]
    fn records_survive_and_every_flipped_bit_is_noticed() {
        let seed = Seed::of(1, 3, 4);
        let mut block = AlignedBuffer::new();
        block.resize(64);
        put_entry(&mut block, seed, 4096, 9, 2, 6, &[b"some", b" body"]);
        let second = block.len();
        put_state(&mut block, seed, 4096, 9, &state());
        let third = block.len();
        let tombstone = Tombstone { sequence: 8, fenced: true, at: 1234 };
        put_delete(&mut block, seed, 4096, -1, &tombstone);
        assert_eq!(third - second, RECORD_HEADER + state_body_len(&state()));
        assert_eq!(block.len() - third, RECORD_HEADER + DELETE_BODY);

        let at = |start: usize| decode(seed, 4096 + start as u64, &block[start..]);
        let entry = at(64).unwrap();
        assert_eq!((entry.ledger, entry.sequence, entry.len), (9, 6, second - 64));
        assert!(matches!(entry.content, Content::Entry { entry: 2, body: b"some body" }));
        assert!(matches!(at(second).unwrap().content, Content::State(found) if found == state()));
        assert!(matches!(at(third).unwrap().content, Content::Delete(found) if found == tombstone));
        assert!(decode(seed, 4097, &block[64..]).is_none());
        for bit in 64 * 8..block.len() * 8 {
            let mut bad = block.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let start = [third, second, 64].into_iter().find(|start| *start <= bit / 8).unwrap();
            assert!(decode(seed, 4096 + start as u64, &bad[start..]).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn golden_bytes() {
        let mut block = AlignedBuffer::new();
        put_entry(&mut block, Seed::of(1, 1, 1), 4160, 258, 3, 7, &[b"body"]);
        let hex: String = block.iter().map(|byte| format!("{byte:02x}")).collect();
        let rest = "040000000100000000000000020100000000000003000000000000000700000000000000626f6479";
        assert_eq!(&hex[8..], rest);
        assert_eq!(&hex[..8], format!("{:08x}", Seed::of(1, 1, 1).checksum(4160, &block[4..]).swap_bytes()));
    }

    proptest! {
        #[test]
        fn decoders_take_anything(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            decode(Seed::of(1, 1, 1), 0, &bytes);
            decode_state(1, &bytes);
            lac_of_entry(&bytes);
        }
    }
}
