//! Which messages of a batch are not acked.

/// A set of message indexes within a batch. Bit i of word i/64 is 1 if message i is not acked, as clients send it and
/// as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnackedSet(Vec<u64>);

impl UnackedSet {
    /// A batch of which nothing is acked.
    #[must_use]
    pub fn all(messages: u32) -> UnackedSet {
        let mut words = vec![u64::MAX; messages as usize / 64];
        if !messages.is_multiple_of(64) {
            words.push((1 << (messages % 64)) - 1);
        }
        UnackedSet(words)
    }

    /// From words as they are sent and stored.
    #[must_use]
    pub fn from_words(words: &[i64]) -> UnackedSet {
        UnackedSet(words.iter().map(|word| word.cast_unsigned()).collect()).trimmed()
    }

    /// As words, without trailing zeros.
    #[must_use]
    pub fn words(&self) -> Vec<i64> {
        self.0.iter().map(|word| word.cast_signed()).collect()
    }

    /// Keeps what both sets hold: what neither of two acks acked.
    #[must_use]
    pub fn and(&self, other: &UnackedSet) -> UnackedSet {
        UnackedSet(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect()).trimmed()
    }

    /// Whether everything is acked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many messages are not acked.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    fn trimmed(mut self) -> UnackedSet {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        for messages in [0, 1, 63, 64, 65, 130] {
            assert_eq!(UnackedSet::all(messages).count(), messages);
        }
        let odd = UnackedSet::from_words(&[0b1010, 0]);
        assert_eq!(odd.words(), [0b1010]);
        assert_eq!(odd.and(&UnackedSet::all(2)), UnackedSet::from_words(&[0b10]));
        assert!(odd.and(&UnackedSet::from_words(&[0b0101])).is_empty());
        assert_eq!(UnackedSet::from_words(&[-1]).count(), 64);
    }
}
