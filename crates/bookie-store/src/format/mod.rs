//! The bytes on disk, without any file: encoders and decoders, all little-endian. `docs/bookie-format.md` is the
//! same in prose.

pub(crate) mod block;
pub(crate) mod cookie;
pub(crate) mod index;
pub(crate) mod record;
pub(crate) mod segment;

/// Reads a little-endian field at a fixed offset; `None` if the bytes end before.
macro_rules! le {
    ($type:ty, $bytes:expr, $at:expr) => {
        $bytes.get($at..$at + size_of::<$type>()).and_then(|b| b.try_into().ok()).map(<$type>::from_le_bytes)
    };
}
pub(crate) use le;
