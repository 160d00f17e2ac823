//! The master key, by which a bookie knows that two requests come from holders of the same ledger password.

use std::fmt;

use sha1::{Digest, Sha1};

/// Bytes of a master key.
pub const MASTER_KEY_LEN: usize = 20;

/// SHA-1 of "ledger" and the ledger's password.
///
/// Fact: BookKeeper's `DigestManager.generateMasterKey`; an empty password gives the all-known key of Pulsar's ledgers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MasterKey(pub [u8; MASTER_KEY_LEN]);

impl MasterKey {
    /// The key of a password.
    #[must_use]
    pub fn of_password(password: &[u8]) -> MasterKey {
        MasterKey(digest_with_pad(b"ledger", password))
    }
}

impl fmt::Debug for MasterKey {
    /// Never prints the key: whoever has it may write to the ledger.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey")
    }
}

pub(crate) fn digest_with_pad(pad: &[u8], password: &[u8]) -> [u8; MASTER_KEY_LEN] {
    Sha1::new().chain_update(pad).chain_update(password).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_bookkeeper_makes_it() {
        let key: String = MasterKey::of_password(b"pw").0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(key, "2aa226ba095b6969a64871977693b14671710d76");
        assert_eq!(format!("{:?}", MasterKey::of_password(b"pw")), "MasterKey");
    }
}
