//! Bits and varints, written and read with bounds checked.

use super::CodecError;

/// Writes an unsigned number, seven bits a byte, low ones first.
pub(crate) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint off the front.
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Result<u64, CodecError> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(CodecError::CutOff)?;
        *bytes = rest;
        if shift == 63 && byte > 1 {
            return Err(CodecError::Malformed);
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(CodecError::Malformed)
}

/// Maps small numbers of either sign to small unsigned ones.
pub(super) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A string of bits, high ones first; the last byte is filled with zeros.
#[derive(Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    held: u64,
    held_bits: u32,
}

impl BitWriter {
    /// Writes the low `count` bits of `value`; `count` is at most 64.
    pub(super) fn write(&mut self, value: u64, count: u32) {
        if count > 32 {
            self.write_short(value >> 32, count - 32);
            self.write_short(value, 32);
        } else {
            self.write_short(value, count);
        }
    }

    fn write_short(&mut self, value: u64, count: u32) {
        let mask = (1u64 << count) - 1;
        self.held = self.held << count | (value & mask);
        self.held_bits += count;
        while self.held_bits >= 8 {
            self.held_bits -= 8;
            self.bytes.push((self.held >> self.held_bits) as u8);
        }
    }

    /// The bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.held_bits > 0 {
            self.bytes.push((self.held << (8 - self.held_bits)) as u8);
        }
        self.bytes
    }
}

/// Reads a string of bits.
pub(super) struct BitReader<'a> {
    rest: &'a [u8],
    held: u64,
    held_bits: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, held: 0, held_bits: 0 }
    }

    /// Reads `count` bits, at most 64.
    pub(super) fn read(&mut self, count: u32) -> Result<u64, CodecError> {
        if count > 32 {
            let high = self.read_short(count - 32)?;
            return Ok(high << 32 | self.read_short(32)?);
        }
        self.read_short(count)
    }

    fn read_short(&mut self, count: u32) -> Result<u64, CodecError> {
        while self.held_bits < count {
            let (&byte, rest) = self.rest.split_first().ok_or(CodecError::CutOff)?;
            self.rest = rest;
            self.held = self.held << 8 | u64::from(byte);
            self.held_bits += 8;
        }
        self.held_bits -= count;
        Ok(self.held >> self.held_bits & ((1u64 << count) - 1))
    }

    /// How many ones stand before the next zero; after `most` ones no zero is read.
    pub(super) fn ones(&mut self, most: u32) -> Result<u32, CodecError> {
        let mut count = 0;
        while count < most && self.read_short(1)? == 1 {
            count += 1;
        }
        Ok(count)
    }

    /// Whether nothing but the zeros that fill the last byte is left.
    pub(super) fn is_spent(&self) -> bool {
        self.rest.is_empty() && self.held_bits < 8 && self.held & ((1u64 << self.held_bits) - 1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_of_any_width_come_back(numbers in proptest::collection::vec((any::<u64>(), 1u32..=64), 0..50)) {
            let mut writer = BitWriter::default();
            for (value, count) in &numbers {
                writer.write(*value, *count);
            }
            let bytes = writer.finish();
            let mut reader = BitReader::new(&bytes);
            for (value, count) in &numbers {
                prop_assert_eq!(reader.read(*count).unwrap(), value & (u64::MAX >> (64 - count)));
            }
            prop_assert!(reader.is_spent());
        }

        #[test]
        fn varints_and_zigzag_come_back(value in any::<i64>()) {
            let mut out = Vec::new();
            write_varint(&mut out, zigzag(value));
            let mut rest = out.as_slice();
            prop_assert_eq!(unzigzag(read_varint(&mut rest).unwrap()), value);
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn an_endless_varint_is_refused() {
        assert_eq!(read_varint(&mut [0xffu8; 20].as_slice()), Err(CodecError::Malformed));
        assert_eq!(read_varint(&mut [0xffu8; 3].as_slice()), Err(CodecError::CutOff));
    }
}
