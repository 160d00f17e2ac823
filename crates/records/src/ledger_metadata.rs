//! The metadata of a ledger: who stores which entries, and whether it is still written.
//!
//! Fact: a node holds `BookieMetadataFormatVersion`, a tab, the version, a line feed; in version 3 then a varint length
//! and the protobuf `LedgerMetadataFormat`. Java preserves the version of each ledger.

use bytes::Bytes;
use geminga_model::{BookieId, DigestType, EntryId, UnixMillis};

use crate::RecordError;
use crate::protobuf::{Writer, read, take_varint};

const VERSION_KEY: &[u8] = b"BookieMetadataFormatVersion\t";

/// How many bookies serve a ledger, store an entry, and must have it before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// E: bookies over which entries are striped.
    pub ensemble: usize,
    /// Qw: copies of each entry.
    pub write: usize,
    /// Qa: durable copies before an entry counts as stored.
    pub ack: usize,
}

/// Bookies an ensemble can have.
const MAX_ENSEMBLE: usize = 64;

/// The three sizes do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ensemble size {ensemble}, write quorum {write}, ack quorum {ack}: each must be at least the next, and the last at least 1"
)]
pub struct InvalidQuorum {
    /// E.
    pub ensemble: i64,
    /// Qw.
    pub write: i64,
    /// Qa.
    pub ack: i64,
}

impl Quorum {
    /// Checks 64 ≥ E ≥ Qw ≥ Qa ≥ 1.
    ///
    /// # Errors
    /// [`InvalidQuorum`] otherwise.
    pub fn new(ensemble: usize, write: usize, ack: usize) -> Result<Quorum, InvalidQuorum> {
        if MAX_ENSEMBLE >= ensemble && ensemble >= write && write >= ack && ack >= 1 {
            Ok(Quorum { ensemble, write, ack })
        } else {
            let number = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
            Err(InvalidQuorum { ensemble: number(ensemble), write: number(write), ack: number(ack) })
        }
    }

    /// The indexes into the ensemble of the bookies that store `entry`, in the order in which they are asked.
    ///
    /// Fact: (entry + i) mod E for i in 0..Qw.
    pub fn write_set(self, entry: EntryId) -> impl Iterator<Item = usize> + Clone {
        let first = usize::try_from(entry.0.rem_euclid(i64::try_from(self.ensemble).unwrap_or(i64::MAX))).unwrap_or(0);
        (0..self.write).map(move |i| (first + i) % self.ensemble)
    }

    /// Whether the bookie at `index` of the ensemble stores `entry`.
    #[must_use]
    pub fn stores(self, entry: EntryId, index: usize) -> bool {
        self.write_set(entry).any(|i| i == index)
    }
}

/// Whether a ledger is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerState {
    /// Its writer may add.
    Open,
    /// Somebody is finding its end; its writer is being fenced.
    InRecovery,
    /// It ends for ever at `last_entry` (−1 if it is empty).
    Closed {
        /// The last entry.
        last_entry: EntryId,
        /// Bytes of all payloads; advisory after a recovery.
        length: i64,
    },
}

/// The bookies that store the entries from `first_entry` on, up to the next segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first entry.
    pub first_entry: EntryId,
    /// Exactly E bookies, each once.
    pub ensemble: Vec<BookieId>,
}

/// A ledger's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerMetadata {
    /// E, Qw, Qa.
    pub quorum: Quorum,
    /// Open, in recovery or closed.
    pub state: LedgerState,
    /// Ascending, the first from entry 0.
    pub segments: Vec<Segment>,
    /// How entries are protected.
    pub digest: DigestType,
    /// The password, as BookKeeper stores it: readable.
    pub password: Bytes,
    /// When it was created, if recorded.
    pub created: Option<UnixMillis>,
    /// Facts for operators, such as which topic the ledger belongs to.
    pub custom: Vec<(String, Bytes)>,
    /// Tells a creator whose reply was lost that the node is its own.
    pub creation_token: Option<i64>,
    /// Fields this version does not know, kept as they are.
    pub unknown: Vec<u8>,
}

impl LedgerMetadata {
    /// A new ledger, open, with one ensemble.
    #[must_use]
    pub fn open(quorum: Quorum, ensemble: Vec<BookieId>, digest: DigestType, password: Bytes) -> LedgerMetadata {
        LedgerMetadata {
            quorum,
            state: LedgerState::Open,
            segments: vec![Segment { first_entry: EntryId(0), ensemble }],
            digest,
            password,
            created: None,
            custom: Vec::new(),
            creation_token: None,
            unknown: Vec::new(),
        }
    }

    /// The last segment, where new entries go.
    ///
    /// # Panics
    /// Never on metadata that was decoded or made by [`LedgerMetadata::open`].
    #[must_use]
    #[allow(clippy::expect_used)] // both constructors see to it that there is one
    pub fn last_segment(&self) -> &Segment {
        self.segments.last().expect("a ledger has at least one segment")
    }

    /// The bookies of the segment that holds `entry`.
    #[must_use]
    pub fn ensemble_of(&self, entry: EntryId) -> &[BookieId] {
        let after = self.segments.partition_point(|segment| segment.first_entry <= entry);
        self.segments.get(after.saturating_sub(1)).map_or(&[], |segment| &segment.ensemble)
    }

    /// Writes the node's bytes, in version 3.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        let number = |size: usize| i64::try_from(size).unwrap_or(i64::MAX);
        let (state, length, last_entry) = match self.state {
            LedgerState::Open => (1, 0, None),
            LedgerState::InRecovery => (2, 0, None),
            LedgerState::Closed { last_entry, length } => (3, length, Some(last_entry.0)),
        };
        body.int(1, number(self.quorum.write));
        body.int(2, number(self.quorum.ensemble));
        body.int(3, length);
        body.some_int(4, last_entry);
        body.int(5, state);
        for segment in &self.segments {
            body.message(6, |out| {
                for bookie in &segment.ensemble {
                    out.bytes(1, bookie.as_str().as_bytes());
                }
                out.int(2, segment.first_entry.0);
            });
        }
        body.int(7, i64::from(self.digest as i32));
        body.bytes(8, &self.password);
        body.int(9, number(self.quorum.ack));
        body.some_int(10, self.created.map(|at| at.0));
        for (key, value) in &self.custom {
            body.message(11, |out| {
                out.bytes(1, key.as_bytes());
                out.bytes(2, value);
            });
        }
        body.some_int(12, self.creation_token);
        body.raw(&self.unknown);

        let mut node = Writer([VERSION_KEY, b"3\n"].concat());
        node.varint(body.0.len() as u64);
        node.raw(&body.0);
        node.0
    }

    /// Reads a node's bytes.
    ///
    /// # Errors
    /// [`RecordError`] if they are not sound ledger metadata of version 3.
    pub fn decode(node: &[u8]) -> Result<LedgerMetadata, RecordError> {
        let rest = node.strip_prefix(VERSION_KEY).ok_or(RecordError::Malformed)?;
        let line_end = rest.iter().take(10).position(|byte| *byte == b'\n').ok_or(RecordError::Malformed)?;
        let (version, mut body) = rest.split_at_checked(line_end + 1).ok_or(RecordError::CutShort)?;
        let version: u32 =
            std::str::from_utf8(version).ok().and_then(|v| v.trim().parse().ok()).ok_or(RecordError::Malformed)?;
        if version != 3 {
            return Err(RecordError::LedgerMetadataVersion(version));
        }
        let len = usize::try_from(take_varint(&mut body)?).map_err(|_| RecordError::CutShort)?;
        decode_body(body.get(..len).ok_or(RecordError::CutShort)?)
    }
}

fn decode_body(body: &[u8]) -> Result<LedgerMetadata, RecordError> {
    let (mut write, mut ensemble, mut ack) = (None, None, None);
    let (mut length, mut last_entry, mut state) = (0, -1, 1);
    let (mut digest, mut password, mut created, mut token) = (None, Bytes::new(), None, None);
    let (mut segments, mut custom, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    read(body, |field| {
        match field.number {
            1 => write = Some(field.int()?),
            2 => ensemble = Some(field.int()?),
            3 => length = field.int()?,
            4 => last_entry = field.int()?,
            5 => state = field.int()?,
            6 => segments.push(decode_segment(field.bytes()?)?),
            7 => digest = Some(field.int32("digestType")?),
            8 => password = Bytes::copy_from_slice(field.bytes()?),
            9 => ack = Some(field.int()?),
            10 => created = Some(UnixMillis(field.int()?)),
            11 => custom.push(decode_custom(field.bytes()?)?),
            12 => token = Some(field.int()?),
            _ => unknown.extend_from_slice(field.raw),
        }
        Ok(())
    })?;
    let write = write.ok_or(RecordError::Missing("quorumSize"))?;
    let size = |size: i64| usize::try_from(size).map_err(|_| RecordError::Impossible("quorumSize"));
    let quorum = Quorum::new(
        size(ensemble.ok_or(RecordError::Missing("ensembleSize"))?)?,
        size(write)?,
        size(ack.unwrap_or(write))?,
    )
    .map_err(|_| RecordError::Impossible("quorumSize"))?;
    let state = match state {
        1 => LedgerState::Open,
        2 => LedgerState::InRecovery,
        3 => LedgerState::Closed { last_entry: EntryId(last_entry), length },
        _ => return Err(RecordError::Impossible("state")),
    };
    check_segments(&segments, quorum)?;
    let digest = DigestType::from_number(digest.unwrap_or(DigestType::Crc32 as i32))
        .ok_or(RecordError::Impossible("digestType"))?;
    Ok(LedgerMetadata { quorum, state, segments, digest, password, created, custom, creation_token: token, unknown })
}

fn decode_segment(bytes: &[u8]) -> Result<Segment, RecordError> {
    let (mut ensemble, mut first_entry) = (Vec::new(), None);
    read(bytes, |field| {
        match field.number {
            1 => ensemble.push(BookieId::parse(&field.text()?).map_err(|_| RecordError::Impossible("ensembleMember"))?),
            2 => first_entry = Some(EntryId(field.int()?)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(Segment { first_entry: first_entry.ok_or(RecordError::Missing("firstEntryId"))?, ensemble })
}

fn decode_custom(bytes: &[u8]) -> Result<(String, Bytes), RecordError> {
    let (mut key, mut value) = (String::new(), Bytes::new());
    read(bytes, |field| {
        match field.number {
            1 => key = field.text()?,
            2 => value = Bytes::copy_from_slice(field.bytes()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, value))
}

fn check_segments(segments: &[Segment], quorum: Quorum) -> Result<(), RecordError> {
    let sized = segments.iter().all(|segment| segment.ensemble.len() == quorum.ensemble);
    let ascending = segments.is_sorted_by(|a, b| a.first_entry < b.first_entry);
    let from_zero = segments.first().is_some_and(|segment| segment.first_entry == EntryId(0));
    if sized && ascending && from_zero { Ok(()) } else { Err(RecordError::Impossible("segment")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::tests::hex;
    use proptest::prelude::*;

    fn bookies(names: &[&str]) -> Vec<BookieId> {
        names.iter().map(|name| BookieId::parse(name).unwrap()).collect()
    }

    fn sample() -> LedgerMetadata {
        let quorum = Quorum::new(2, 2, 1).unwrap();
        LedgerMetadata::open(quorum, bookies(&["b1:3181", "b2:3181"]), DigestType::Crc32c, Bytes::new())
    }

    #[test]
    fn golden_bytes() {
        let expected = [
            hex(b"BookieMetadataFormatVersion\t3\n"),
            "24".into(),
            "0802100218002801".into(),
            "3214".into(),
            "0a07".to_owned() + &hex(b"b1:3181"),
            "0a07".to_owned() + &hex(b"b2:3181"),
            "1000".into(),
            "3803".into(),
            "4200".into(),
            "4801".into(),
        ]
        .concat();
        assert_eq!(hex(&sample().encode()), expected);
    }

    #[test]
    fn write_sets_stripe() {
        let quorum = Quorum::new(3, 2, 2).unwrap();
        let set = |entry| quorum.write_set(EntryId(entry)).collect::<Vec<_>>();
        assert_eq!((set(0), set(1), set(2), set(3)), (vec![0, 1], vec![1, 2], vec![2, 0], vec![0, 1]));
        assert!(quorum.stores(EntryId(2), 0) && !quorum.stores(EntryId(2), 1));
        assert!(Quorum::new(2, 3, 1).is_err() && Quorum::new(2, 2, 0).is_err());
    }

    #[test]
    fn the_segment_of_an_entry() {
        let mut metadata = sample();
        metadata.segments.push(Segment { first_entry: EntryId(10), ensemble: bookies(&["b1:3181", "b3:3181"]) });
        assert_eq!(metadata.ensemble_of(EntryId(9)), bookies(&["b1:3181", "b2:3181"]));
        assert_eq!(metadata.ensemble_of(EntryId(10)), bookies(&["b1:3181", "b3:3181"]));
        assert_eq!(LedgerMetadata::decode(&metadata.encode()), Ok(metadata));
    }

    #[test]
    fn other_versions_are_named() {
        assert_eq!(
            LedgerMetadata::decode(b"BookieMetadataFormatVersion\t2\nquorumSize: 1"),
            Err(RecordError::LedgerMetadataVersion(2))
        );
        assert_eq!(LedgerMetadata::decode(b""), Err(RecordError::Malformed));
    }

    #[test]
    fn unknown_fields_survive() {
        let mut metadata = sample();
        metadata.unknown = vec![0xa0, 0x06, 0x01];
        assert_eq!(LedgerMetadata::decode(&metadata.encode()), Ok(metadata));
    }

    proptest! {
        #[test]
        fn round_trip(last in -1i64..1000, length in 0i64..1_000_000, created in proptest::option::of(0i64..i64::MAX), token in proptest::option::of(any::<i64>())) {
            let mut metadata = sample();
            metadata.state = LedgerState::Closed { last_entry: EntryId(last), length };
            metadata.created = created.map(UnixMillis);
            metadata.creation_token = token;
            metadata.custom = vec![("application".into(), Bytes::from_static(b"pulsar"))];
            prop_assert_eq!(LedgerMetadata::decode(&metadata.encode()), Ok(metadata));
        }

        #[test]
        fn damage_never_panics(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut node = sample().encode();
            let at = at.index(node.len());
            node[at] = byte;
            drop(LedgerMetadata::decode(&node));
            drop(LedgerMetadata::decode(&node[..at]));
        }
    }
}
