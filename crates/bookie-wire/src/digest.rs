//! The four kinds of digest that protect an entry between its writer and its readers.

use geminga_model::DigestType;
use hmac::{Hmac, Mac};
use sha1::Sha1;

use crate::key::digest_with_pad;

/// Computes and checks the digests of one ledger.
#[derive(Clone, Debug)]
pub struct Digester {
    kind: DigestType,
    hmac: Option<Hmac<Sha1>>,
}

impl Digester {
    /// The digester of a ledger with this digest type and password; only HMAC uses the password.
    #[must_use]
    pub fn new(kind: DigestType, password: &[u8]) -> Digester {
        let hmac = match kind {
            // An HMAC takes a key of any length, so the error cannot occur.
            DigestType::Hmac => Hmac::<Sha1>::new_from_slice(&digest_with_pad(b"mac", password)).ok(),
            DigestType::Crc32 | DigestType::Crc32c | DigestType::Dummy => None,
        };
        Digester { kind, hmac }
    }

    /// The digest type.
    #[must_use]
    pub fn kind(&self) -> DigestType {
        self.kind
    }

    /// Appends the digest of `header` and `payload` to `out`.
    pub(crate) fn write(&self, header: &[u8], payload: &[u8], out: &mut Vec<u8>) {
        match self.kind {
            DigestType::Crc32 => {
                let mut crc = crc32fast::Hasher::new();
                crc.update(header);
                crc.update(payload);
                out.extend_from_slice(&u64::from(crc.finalize()).to_be_bytes());
            }
            DigestType::Crc32c => {
                let crc = crc32c::crc32c_append(crc32c::crc32c(header), payload);
                out.extend_from_slice(&crc.to_be_bytes());
            }
            DigestType::Hmac => {
                if let Some(hmac) = &self.hmac {
                    let mac = hmac.clone().chain_update(header).chain_update(payload).finalize().into_bytes();
                    out.extend_from_slice(&mac);
                }
            }
            DigestType::Dummy => {}
        }
    }
}
