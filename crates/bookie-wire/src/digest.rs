//! The four kinds of digest that protect an entry between its writer and its readers.

use geminga_model::DigestType;
use hmac::{Hmac, Mac};
use sha1::Sha1;

use crate::key::digest_with_pad;

/// Bytes of the longest digest, HMAC-SHA-1.
pub(crate) const MAX_DIGEST_LEN: usize = 20;

/// A digest.
#[derive(Clone, Copy)]
pub(crate) struct Digest {
    bytes: [u8; MAX_DIGEST_LEN],
    len: usize,
}

impl Digest {
    fn new(digest: &[u8]) -> Digest {
        let mut bytes = [0; MAX_DIGEST_LEN];
        let len = digest.len().min(MAX_DIGEST_LEN);
        bytes.iter_mut().zip(digest).for_each(|(place, byte)| *place = *byte);
        Digest { bytes, len }
    }
}

impl std::ops::Deref for Digest {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Computes and checks the digests of one ledger.
#[derive(Clone, Debug)]
pub struct Digester {
    kind: DigestType,
    hmac: Option<Box<Hmac<Sha1>>>,
}

impl Digester {
    /// The digester of a ledger with this digest type and password; only HMAC uses the password.
    #[must_use]
    pub fn new(kind: DigestType, password: &[u8]) -> Digester {
        let hmac = match kind {
            // An HMAC takes a key of any length, so the error cannot occur.
            DigestType::Hmac => Hmac::<Sha1>::new_from_slice(&digest_with_pad(b"mac", password)).ok().map(Box::new),
            DigestType::Crc32 | DigestType::Crc32c | DigestType::Dummy => None,
        };
        Digester { kind, hmac }
    }

    /// The digest type.
    #[must_use]
    pub fn kind(&self) -> DigestType {
        self.kind
    }

    /// The digest of `header` and `payload`.
    pub(crate) fn digest(&self, header: &[u8], payload: &[u8]) -> Digest {
        match self.kind {
            DigestType::Crc32 => {
                let mut crc = crc32fast::Hasher::new();
                crc.update(header);
                crc.update(payload);
                Digest::new(&u64::from(crc.finalize()).to_be_bytes())
            }
            DigestType::Crc32c => {
                let crc = crc32c::crc32c_append(crc32c::crc32c(header), payload);
                Digest::new(&crc.to_be_bytes())
            }
            DigestType::Hmac => match &self.hmac {
                Some(hmac) => {
                    Digest::new(&(**hmac).clone().chain_update(header).chain_update(payload).finalize().into_bytes())
                }
                None => Digest::new(&[]),
            },
            DigestType::Dummy => Digest::new(&[]),
        }
    }
}
