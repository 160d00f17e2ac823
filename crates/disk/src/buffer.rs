//! Bytes that begin at an address which devices take without a copy.

use std::ops::{Deref, DerefMut};

/// No device wants more.
const ALIGN: usize = 4096;

/// A growing buffer whose first byte lies at a multiple of 4096, for [`OpenMode::WriteDirect`](crate::OpenMode).
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    /// Never grows beyond its capacity: its address stays.
    raw: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    /// An empty buffer, which takes no memory.
    #[must_use]
    pub fn new() -> AlignedBuffer {
        AlignedBuffer::default()
    }

    /// Adds bytes at the end.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.raw.extend_from_slice(bytes);
    }

    /// Cuts off bytes, or adds zeros, so that there are `len`.
    pub fn resize(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len()));
        self.raw.resize(self.start + len, 0);
    }

    /// Forgets the bytes, and keeps the memory.
    pub fn clear(&mut self) {
        self.raw.truncate(self.start);
    }

    fn reserve(&mut self, more: usize) {
        if self.raw.capacity() - self.raw.len() >= more && self.raw.capacity() > 0 {
            return;
        }
        let mut raw: Vec<u8> = Vec::with_capacity((self.len() + more).next_power_of_two() + ALIGN);
        let start = raw.as_ptr().align_offset(ALIGN).min(ALIGN);
        raw.resize(start, 0);
        raw.extend_from_slice(self);
        *self = AlignedBuffer { raw, start };
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.raw.get(self.start..).unwrap_or_default()
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.raw.get_mut(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn holds_what_a_vector_holds_at_an_aligned_address(steps in prop::collection::vec((0_u8..4, 0_usize..9000), 0..40)) {
            let (mut buffer, mut vector) = (AlignedBuffer::new(), Vec::new());
            for (step, size) in steps {
                match step {
                    0 => {
                        buffer.clear();
                        vector.clear();
                    }
                    1 => {
                        buffer.resize(size);
                        vector.resize(size, 0);
                    }
                    _ => {
                        let bytes = vec![step; size];
                        buffer.extend_from_slice(&bytes);
                        vector.extend_from_slice(&bytes);
                    }
                }
                prop_assert_eq!(&buffer[..], &vector[..]);
                prop_assert!(vector.is_empty() || buffer.as_ptr().align_offset(ALIGN) == 0);
            }
        }
    }
}
