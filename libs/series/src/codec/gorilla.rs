//! The fast codec: deltas of deltas for the integers, exclusive-or for the values, one string of bits.

use super::{
    CodecError,
    bits::{BitReader, BitWriter, unzigzag, zigzag},
};
use crate::Point;

/// How many bits each class of a delta of deltas holds; the class is told in unary.
const CLASSES: [u32; 7] = [0, 6, 10, 16, 32, 48, 64];
const LEADING_BITS: u32 = 5;
const LENGTH_BITS: u32 = 6;
const MAX_LEADING: u32 = 31;

/// The state of one integer column. All sums wrap, so that any two 64-bit numbers have a difference.
#[derive(Default)]
struct Deltas {
    last: i64,
    delta: i64,
}

impl Deltas {
    fn write(&mut self, out: &mut BitWriter, value: i64) {
        let delta = value.wrapping_sub(self.last);
        let second = zigzag(delta.wrapping_sub(self.delta));
        let needed = 64 - second.leading_zeros();
        let class = CLASSES.iter().position(|bits| *bits >= needed).unwrap_or(CLASSES.len() - 1);
        let last_class = CLASSES.len() - 1;
        let (ones, length) = if class == last_class { ((1 << class) - 1, class) } else { (((1 << class) - 1) << 1, class + 1) };
        out.write(ones, length as u32);
        if CLASSES[class] > 0 {
            out.write(second, CLASSES[class]);
        }
        (self.last, self.delta) = (value, delta);
    }

    fn read(&mut self, bits: &mut BitReader<'_>) -> Result<i64, CodecError> {
        let class = bits.ones(CLASSES.len() as u32 - 1)? as usize;
        let second = if CLASSES[class] == 0 { 0 } else { bits.read(CLASSES[class])? };
        self.delta = self.delta.wrapping_add(unzigzag(second));
        self.last = self.last.wrapping_add(self.delta);
        Ok(self.last)
    }
}

/// The state of the value column: the bits of the last value, and the window that the last difference lay in.
#[derive(Default)]
struct Xor {
    last: u64,
    leading: u32,
    length: u32,
}

impl Xor {
    fn write(&mut self, out: &mut BitWriter, value: f64) {
        let bits = value.to_bits();
        let differs = bits ^ self.last;
        self.last = bits;
        if differs == 0 {
            out.write(0, 1);
            return;
        }
        let leading = differs.leading_zeros().min(MAX_LEADING);
        let trailing = differs.trailing_zeros();
        let fits = self.length > 0 && leading >= self.leading && trailing >= 64 - self.leading - self.length;
        if fits {
            out.write(0b10, 2);
        } else {
            self.leading = leading;
            self.length = 64 - leading - trailing;
            out.write(0b11, 2);
            out.write(u64::from(leading), LEADING_BITS);
            out.write(u64::from(self.length - 1), LENGTH_BITS);
        }
        out.write(differs >> (64 - self.leading - self.length), self.length);
    }

    fn read(&mut self, bits: &mut BitReader<'_>) -> Result<f64, CodecError> {
        if bits.read(1)? == 1 {
            if bits.read(1)? == 1 {
                self.leading = bits.read(LEADING_BITS)? as u32;
                self.length = bits.read(LENGTH_BITS)? as u32 + 1;
                if self.leading + self.length > 64 {
                    return Err(CodecError::Malformed);
                }
            } else if self.length == 0 {
                return Err(CodecError::Malformed);
            }
            self.last ^= bits.read(self.length)? << (64 - self.leading - self.length);
        }
        Ok(f64::from_bits(self.last))
    }
}

pub(super) fn encode(points: &[Point]) -> Vec<u8> {
    let mut out = BitWriter::default();
    let (mut steps, mut times, mut values) = (Deltas::default(), Deltas::default(), Xor::default());
    for point in points {
        steps.write(&mut out, point.step);
        times.write(&mut out, point.time_ms);
        values.write(&mut out, point.value);
    }
    out.finish()
}

pub(super) fn decode(body: &[u8], count: usize) -> Result<Vec<Point>, CodecError> {
    let mut bits = BitReader::new(body);
    let (mut steps, mut times, mut values) = (Deltas::default(), Deltas::default(), Xor::default());
    let mut points = Vec::with_capacity(count);
    for _ in 0..count {
        let (step, time_ms) = (steps.read(&mut bits)?, times.read(&mut bits)?);
        points.push(Point { step, time_ms, value: values.read(&mut bits)? });
    }
    if bits.is_spent() { Ok(points) } else { Err(CodecError::Malformed) }
}
