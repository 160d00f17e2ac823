//! Protobuf's wire format: reading fields from a slice and writing them, without a schema.

use bytes::BufMut;

use crate::error::Malformed;

/// How many messages and groups may lie within each other. Fact: protobuf's own default, which prost shares.
pub(crate) const MAX_DEPTH: u32 = 100;

/// How a field's value is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint,
    Fixed64,
    Delimited,
    GroupStart,
    GroupEnd,
    Fixed32,
}

/// The number of a field and the layout of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) field: u32,
    pub(crate) wire: Wire,
}

/// Reads the fields of one message from front to back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    /// The key of the next field; `None` at the end of the message.
    #[inline]
    pub(crate) fn next_key(&mut self) -> Result<Option<Key>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let raw = self.raw_varint()?;
        let wire = match raw & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Delimited,
            3 => Wire::GroupStart,
            4 => Wire::GroupEnd,
            5 => Wire::Fixed32,
            _ => return Err(Malformed::Key(raw)),
        };
        match u32::try_from(raw) {
            Ok(key) if key >> 3 != 0 => Ok(Some(Key { field: key >> 3, wire })),
            _ => Err(Malformed::Key(raw)),
        }
    }

    #[inline]
    fn raw_varint(&mut self) -> Result<u64, Malformed> {
        if let Some((first, rest)) = self.rest.split_first()
            && *first < 0x80
        {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        let mut value = 0u64;
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            // The tenth byte has room for one bit.
            if index == 9 && *byte > 1 {
                return Err(Malformed::Varint);
            }
            value |= u64::from(byte & 0x7F) << (7 * index);
            if *byte < 0x80 {
                self.rest = self.rest.get(index + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(Malformed::Truncated)
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The value of a field of a varint type, not yet cut down to that type.
    #[inline]
    pub(crate) fn varint(&mut self, key: Key) -> Result<u64, Malformed> {
        if key.wire != Wire::Varint {
            return Err(Malformed::WireType(key.field));
        }
        self.raw_varint()
    }

    /// The value of a field of type `int32`, `uint32` or an enum: the low 32 bits, as protobuf has it.
    #[inline]
    pub(crate) fn int32(&mut self, key: Key) -> Result<i32, Malformed> {
        Ok(self.varint(key)? as i32)
    }

    /// The value of a field of type `bool`.
    #[inline]
    pub(crate) fn bool(&mut self, key: Key) -> Result<bool, Malformed> {
        Ok(self.varint(key)? != 0)
    }

    /// The value of a field that is text, bytes or a message.
    #[inline]
    pub(crate) fn delimited(&mut self, key: Key) -> Result<&'a [u8], Malformed> {
        if key.wire != Wire::Delimited {
            return Err(Malformed::WireType(key.field));
        }
        let length = self.raw_varint()?;
        self.take(length)
    }

    /// The values of a repeated `int64` field, packed or one at a time.
    pub(crate) fn int64s(&mut self, key: Key, into: &mut impl Extend<i64>) -> Result<(), Malformed> {
        if key.wire != Wire::Delimited {
            into.extend(Some(self.varint(key)?.cast_signed()));
            return Ok(());
        }
        let mut packed = Reader::new(self.delimited(key)?);
        while !packed.rest.is_empty() {
            into.extend(Some(packed.raw_varint()?.cast_signed()));
        }
        Ok(())
    }

    /// Steps over the value of a field; `depth` is how many levels may still be entered.
    pub(crate) fn skip(&mut self, key: Key, depth: u32) -> Result<(), Malformed> {
        let Some(depth_inside) = depth.checked_sub(1) else { return Err(Malformed::TooDeep) };
        match key.wire {
            Wire::Varint => self.raw_varint().map(drop),
            Wire::Fixed64 => self.take(8).map(drop),
            Wire::Fixed32 => self.take(4).map(drop),
            Wire::Delimited => self.delimited(key).map(drop),
            Wire::GroupEnd => Err(Malformed::GroupEnd),
            Wire::GroupStart => loop {
                let inner = self.next_key()?.ok_or(Malformed::Truncated)?;
                if inner.wire != Wire::GroupEnd {
                    self.skip(inner, depth_inside)?;
                } else if inner.field == key.field {
                    return Ok(());
                } else {
                    return Err(Malformed::GroupEnd);
                }
            },
        }
    }
}

/// How many bytes `value` takes as a varint.
#[inline]
pub(crate) const fn varint_len(value: u64) -> usize {
    // Seven bits a byte, and a byte for 0.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Writes `value` as a varint.
#[inline]
pub(crate) fn put_varint(out: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// The length of a varint field with a number below 16.
#[inline]
pub(crate) const fn field_len(value: u64) -> usize {
    1 + varint_len(value)
}

/// Writes a varint field. Its number must be below 16, as all are that are written by hand.
#[inline]
pub(crate) fn put_field(out: &mut impl BufMut, field: u8, value: u64) {
    debug_assert!((1..16).contains(&field));
    out.put_u8(field << 3);
    put_varint(out, value);
}

/// The length of a message field with a number below 16 whose value has `length` bytes.
#[inline]
pub(crate) const fn delimited_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// Writes the key and length of a message field with a number below 16; its value follows.
#[inline]
pub(crate) fn put_delimited(out: &mut impl BufMut, field: u8, length: usize) {
    debug_assert!((1..16).contains(&field));
    out.put_u8(field << 3 | 2);
    put_varint(out, length as u64);
}

/// An `int32` as protobuf writes it: negative numbers take all 64 bits.
#[inline]
pub(crate) const fn extend(value: i32) -> u64 {
    (value as i64).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Steps over every field, as a decoder does that knows none.
    fn skip_all(bytes: &[u8]) -> Result<(), Malformed> {
        let mut reader = Reader::new(bytes);
        while let Some(key) = reader.next_key()? {
            reader.skip(key, MAX_DEPTH)?;
        }
        Ok(())
    }

    fn nested_groups(levels: usize) -> Vec<u8> {
        [vec![0x0B; levels], vec![0x0C; levels]].concat()
    }

    #[test]
    fn lengths_at_the_edges() {
        for (value, length) in
            [(0, 1), (0x7F, 1), (0x80, 2), (0x3FFF, 2), (0x4000, 3), (u64::MAX >> 1, 9), (u64::MAX, 10)]
        {
            assert_eq!(varint_len(value), length, "{value}");
        }
    }

    #[test]
    fn depth_limit_is_that_of_prost() {
        for levels in [1, 98, 99, 100, 101, 500] {
            let bytes = nested_groups(levels);
            let prost_accepts = <() as prost::Message>::decode(bytes.as_slice()).is_ok();
            assert_eq!(skip_all(&bytes).is_ok(), prost_accepts, "{levels}");
        }
    }

    proptest! {
        #[test]
        fn varint_round_trip(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_field(&mut out, 3, value);
            prop_assert_eq!(out.len(), field_len(value));
            let mut reader = Reader::new(&out);
            let key = reader.next_key().unwrap().unwrap();
            prop_assert_eq!(key.field, 3);
            prop_assert_eq!(reader.varint(key), Ok(value));
            prop_assert!(reader.next_key().unwrap().is_none());
        }

        #[test]
        fn skipping_agrees_with_prost(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0u8..0x10], 0..48)) {
            let prost_accepts = <() as prost::Message>::decode(bytes.as_slice()).is_ok();
            prop_assert_eq!(skip_all(&bytes).is_ok(), prost_accepts);
        }
    }
}
