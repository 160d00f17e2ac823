//! What messages say: who sent them, their number, and a filler that only this number has.

use bytes::Bytes;

/// The longest filler.
const MAX_FILLER: usize = 20 * 1024;
/// The longest filler of most messages, so that a run is many messages rather than many bytes.
const SHORT_FILLER: usize = 512;

/// The payload of a producer's message of this number. The same for the same seed, so that nobody has to remember it.
pub(crate) fn encode(seed: u64, producer: &str, number: u64) -> Bytes {
    let mut hash = seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for byte in producer.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    let mut rng = fastrand::Rng::with_seed(hash);
    let bound = if rng.u8(..10) == 0 { MAX_FILLER } else { SHORT_FILLER };
    let mut payload = format!("{producer} {number} ").into_bytes();
    let start = payload.len();
    payload.resize(start + rng.usize(..=bound), 0);
    rng.fill(payload.get_mut(start..).unwrap_or_default());
    payload.into()
}

/// The producer and number of a payload, if it is to the last byte what this producer says under this number.
pub(crate) fn decode(seed: u64, payload: &[u8]) -> Option<(&str, u64)> {
    let mut words = payload.splitn(3, |byte| *byte == b' ');
    let producer = std::str::from_utf8(words.next()?).ok()?;
    let number = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    (encode(seed, producer, number) == payload).then_some((producer, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_tells_whose_it_is_and_that_it_is_whole() {
        let payload = encode(7, "p", 3);
        assert_eq!(decode(7, &payload), Some(("p", 3)));
        assert_eq!(decode(8, &payload), None);
        assert_eq!(decode(7, &payload[..payload.len() - 1]), None);
        let mut flipped = payload.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        assert_eq!(decode(7, &flipped), None);
        for other in ["", "p", "p x ", "p 3"] {
            assert_eq!(decode(7, other.as_bytes()), None, "{other}");
        }
        assert!((0..500).any(|number| encode(7, "p", number).len() > SHORT_FILLER + 10));
    }
}
