//! Just enough of protobuf to read a message field by field, keep what is unknown, and write it back.
//!
//! Generated codecs drop unknown fields; these records must not.

use crate::RecordError;

/// The value of a field as it stands in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A fixed-width number, which no record of ours has.
    Fixed,
}

/// One field: its number, its value, and all its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    pub(crate) raw: &'a [u8],
}

impl<'a> Field<'a> {
    pub(crate) fn int(&self) -> Result<i64, RecordError> {
        match self.value {
            // Protobuf writes a negative int64 as its two's complement.
            Value::Varint(value) => Ok(value.cast_signed()),
            Value::Bytes(_) | Value::Fixed => Err(RecordError::Malformed),
        }
    }

    pub(crate) fn int32(&self, name: &'static str) -> Result<i32, RecordError> {
        i32::try_from(self.int()?).map_err(|_| RecordError::Impossible(name))
    }

    pub(crate) fn bytes(&self) -> Result<&'a [u8], RecordError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Varint(_) | Value::Fixed => Err(RecordError::Malformed),
        }
    }

    pub(crate) fn text(&self) -> Result<String, RecordError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| RecordError::Malformed)
    }

    /// The numbers of a repeated field, in either encoding.
    pub(crate) fn ints(&self, into: &mut Vec<i64>) -> Result<(), RecordError> {
        match self.value {
            Value::Varint(value) => into.push(value.cast_signed()),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    into.push(take_varint(&mut packed)?.cast_signed());
                }
            }
            Value::Fixed => return Err(RecordError::Malformed),
        }
        Ok(())
    }
}

/// Calls `each` for every field of `message`, in order.
pub(crate) fn read<'a>(
    message: &'a [u8],
    mut each: impl FnMut(Field<'a>) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest;
        let tag = take_varint(&mut rest)?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or(RecordError::Malformed)?;
        let value = match tag & 7 {
            0 => Value::Varint(take_varint(&mut rest)?),
            1 => skip(&mut rest, 8)?,
            2 => {
                let len = usize::try_from(take_varint(&mut rest)?).map_err(|_| RecordError::CutShort)?;
                let (bytes, after) = rest.split_at_checked(len).ok_or(RecordError::CutShort)?;
                rest = after;
                Value::Bytes(bytes)
            }
            5 => skip(&mut rest, 4)?,
            _ => return Err(RecordError::Malformed),
        };
        let raw = start.get(..start.len() - rest.len()).unwrap_or_default();
        each(Field { number, value, raw })?;
    }
    Ok(())
}

fn skip<'a>(rest: &mut &'a [u8], len: usize) -> Result<Value<'a>, RecordError> {
    *rest = rest.split_at_checked(len).ok_or(RecordError::CutShort)?.1;
    Ok(Value::Fixed)
}

pub(crate) fn take_varint(rest: &mut &[u8]) -> Result<u64, RecordError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(RecordError::CutShort)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(RecordError::Malformed)
}

pub(crate) fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Bytes of a field below 16 that is a message of `len` bytes.
pub(crate) fn message_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Writes a message field by field.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or(0));
    }

    pub(crate) fn int(&mut self, number: u32, value: i64) {
        self.varint(u64::from(number) << 3);
        self.varint(value.cast_unsigned());
    }

    pub(crate) fn some_int(&mut self, number: u32, value: Option<i64>) {
        if let Some(value) = value {
            self.int(number, value);
        }
    }

    pub(crate) fn bytes(&mut self, number: u32, value: &[u8]) {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(crate) fn message(&mut self, number: u32, write: impl FnOnce(&mut Writer)) {
        let mut nested = Writer::default();
        write(&mut nested);
        self.bytes(number, &nested.0);
    }

    /// Fields as they were read.
    pub(crate) fn raw(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| u8::try_from(d).unwrap()).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[test]
    fn minus_one_takes_ten_bytes() {
        let mut writer = Writer::default();
        writer.int(1, -1);
        assert_eq!(hex(&writer.0), "08ffffffffffffffffff01");
        let mut values = Vec::new();
        read(&writer.0, |field| field.ints(&mut values)).unwrap();
        assert_eq!(values, [-1]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut raw = Vec::new();
            let whole = read(&bytes, |field| { raw.extend_from_slice(field.raw); Ok(()) });
            if whole.is_ok() {
                prop_assert_eq!(raw, bytes);
            }
        }
    }
}
