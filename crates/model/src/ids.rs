//! Ids of ledgers, entries and bookies, and the position made of the first two.
//!
//! BookKeeper and Pulsar use signed 64-bit numbers in which −1 means "none" or "before the first"; so do we.

use std::fmt;

/// A ledger: a sequence of entries with one writer. Valid ids are ≥ 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerId(pub i64);

impl LedgerId {
    /// "No ledger": what Pulsar writes as −1.
    pub const NONE: LedgerId = LedgerId(-1);
}

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An entry within its ledger. Entries of a ledger are numbered from 0 without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub i64);

impl EntryId {
    /// Before the first entry; also "none", as in the last entry of an empty ledger.
    pub const NONE: EntryId = EntryId(-1);

    /// The entry after this one.
    #[must_use]
    pub fn next(self) -> EntryId {
        EntryId(self.0.saturating_add(1))
    }

    /// The entry before this one; [`EntryId::NONE`] before the first.
    #[must_use]
    pub fn previous(self) -> EntryId {
        EntryId((self.0 - 1).max(-1))
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in a topic: an entry, or the point before the first entry of a ledger (`entry` −1).
///
/// Positions order by ledger, then by entry, because a managed ledger lists its ledgers by ascending id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The ledger.
    pub ledger: LedgerId,
    /// The entry in it, or −1 for the point before its first entry.
    pub entry: EntryId,
}

impl Position {
    /// Before everything; what clients send as −1:−1 for "earliest".
    pub const EARLIEST: Position = Position { ledger: LedgerId::NONE, entry: EntryId::NONE };
    /// After everything; what clients send for "latest".
    pub const LATEST: Position = Position { ledger: LedgerId(i64::MAX), entry: EntryId(i64::MAX) };

    /// The position of entry `entry` of ledger `ledger`.
    #[must_use]
    pub const fn new(ledger: i64, entry: i64) -> Position {
        Position { ledger: LedgerId(ledger), entry: EntryId(entry) }
    }

    /// The next entry of the same ledger, whether or not it exists.
    #[must_use]
    pub fn next(self) -> Position {
        Position { ledger: self.ledger, entry: self.entry.next() }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ledger, self.entry)
    }
}

/// The name of a bookie: `host:port` or a free-form id.
///
/// Fact: BookKeeper allows letters, digits and `:_.-`, and forbids the word `readonly`, which is a node beside the ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BookieId(std::sync::Arc<str>);

/// Why a text is not a bookie id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a bookie id: use letters, digits and the characters : _ . - (and not the word 'readonly')")]
pub struct InvalidBookieId(pub String);

impl BookieId {
    /// Parses an id.
    ///
    /// # Errors
    /// [`InvalidBookieId`] if the text is empty, has a character that BookKeeper refuses, or is the reserved word.
    pub fn parse(text: &str) -> Result<BookieId, InvalidBookieId> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '_' | '.' | '-');
        if text.is_empty() || text == "readonly" || !text.chars().all(legal) {
            return Err(InvalidBookieId(text.to_owned()));
        }
        Ok(BookieId(text.into()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BookieId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_order_by_ledger_then_entry() {
        let sorted =
            [Position::EARLIEST, Position::new(3, -1), Position::new(3, 0), Position::new(4, -1), Position::LATEST];
        assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(Position::new(3, -1).next(), Position::new(3, 0));
        assert_eq!(EntryId(0).previous(), EntryId::NONE);
        assert_eq!(EntryId::NONE.previous(), EntryId::NONE);
    }

    #[test]
    fn bookie_ids() {
        for good in ["10.0.0.1:3181", "bookie-3.prod:3181", "9b1d_X", "readonly1"] {
            assert_eq!(BookieId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "readonly", "a/b", "a b", "bücher:1"] {
            assert!(BookieId::parse(bad).is_err(), "{bad}");
        }
    }
}
