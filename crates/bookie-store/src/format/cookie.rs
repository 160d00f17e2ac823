//! The identity of a store: a small text file that an operator can read.

use geminga_model::BookieId;

/// The version of the whole directory layout that this code reads and writes.
pub(crate) const LAYOUT_VERSION: u32 = 1;
/// The name of the file in the store's directory.
pub(crate) const COOKIE_FILE: &str = "INSTANCE";

/// Whose store a directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) bookie: BookieId,
    /// The cluster's instance id.
    pub(crate) instance: String,
    /// A number that no other store has; every segment repeats it.
    pub(crate) store: u64,
}

/// Why a cookie is not usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadCookie {
    Version(String),
    Garbled,
}

impl Cookie {
    pub(crate) fn encode(&self) -> String {
        let body = format!(
            "geminga-bookie {LAYOUT_VERSION}\nbookie {}\ninstance {}\nstore {:016x}\n",
            self.bookie, self.instance, self.store
        );
        format!("{body}check {:08x}\n", crc32c::crc32c(body.as_bytes()))
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Cookie, BadCookie> {
        let text = std::str::from_utf8(bytes).map_err(|_| BadCookie::Garbled)?;
        let version = text.lines().next().and_then(|line| line.strip_prefix("geminga-bookie "));
        match version {
            Some("1") => {}
            Some(other) => return Err(BadCookie::Version(other.to_owned())),
            None => return Err(BadCookie::Garbled),
        }
        Cookie::decode_version_1(text).ok_or(BadCookie::Garbled)
    }

    fn decode_version_1(text: &str) -> Option<Cookie> {
        let at = text.find("check ")?;
        let (body, check) = text.split_at_checked(at)?;
        let check = u32::from_str_radix(check.strip_prefix("check ")?.trim_end(), 16).ok()?;
        if crc32c::crc32c(body.as_bytes()) != check {
            return None;
        }
        let mut lines = body.lines().skip(1);
        let bookie = BookieId::parse(lines.next()?.strip_prefix("bookie ")?).ok()?;
        let instance = lines.next()?.strip_prefix("instance ")?.to_owned();
        let store = u64::from_str_radix(lines.next()?.strip_prefix("store ")?, 16).ok()?;
        Some(Cookie { bookie, instance, store })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_survives_and_every_flipped_bit_is_noticed() {
        let bookie = BookieId::parse("10.0.0.1:3181").unwrap();
        let cookie = Cookie { bookie, instance: "8d-1".to_owned(), store: 0xfeed };
        let bytes = cookie.encode().into_bytes();
        assert_eq!(Cookie::decode(&bytes), Ok(cookie.clone()));
        for bit in 0..(bytes.len() - 1) * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // Hexadecimal digits may change their case and nothing else.
            assert!(Cookie::decode(&bad).is_err() || Cookie::decode(&bad) == Ok(cookie.clone()), "bit {bit}");
        }
        let newer = cookie.encode().replace("bookie 1\n", "bookie 2\n");
        assert_eq!(Cookie::decode(newer.as_bytes()), Err(BadCookie::Version("2".to_owned())));
    }
}
