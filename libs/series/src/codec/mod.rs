//! How points become bytes.
//!
//! Bytes are a row of blocks, each complete in itself, so that appending to an open chunk is appending bytes:
//!
//! ```text
//! codec u8 | points varint | body length varint | body | CRC-32 of all before, 4 bytes little-endian
//! ```
//!
//! Codec 1 ([`encode`]) is fast: steps and times as deltas of deltas, values by exclusive-or with the one before (after Pelkonen et al.,
//! "Gorilla", VLDB 2015). Codec 2 ([`seal`]) is small: each of the three columns through `pco`. Both give back every bit.
//!
//! Measured with `examples/throughput.rs` (chunks of 512, times with 15 ms of jitter, each figure with steps and times), bytes a point,
//! open and sealed, where a plain point is 24: f32 losses 5.1 and 3.7; a smooth f64 learning rate 8.5 and 1.8; integer counts 4.1 and 1.4;
//! accuracies of four digits 8.3 and 2.5.
//!
//! [`decode`] takes any bytes at all: it answers with an error, never with a panic, and allocates for at most [`MAX_POINTS`] points.

mod bits;
mod gorilla;
mod packed;

pub(crate) use bits::{read_varint, write_varint};

use crate::Point;

/// The most points in one block.
pub const MAX_BLOCK_POINTS: usize = 4_096;

/// The most points that [`decode`] takes from one row of blocks.
pub const MAX_POINTS: usize = 1 << 20;

const GORILLA: u8 = 1;
const PACKED: u8 = 2;
const CRC_BYTES: usize = 4;

/// Why bytes are not points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end in the middle of a block.
    #[error("the block is cut off")]
    CutOff,
    /// The check sum does not fit.
    #[error("the block is damaged: its check sum does not fit")]
    CheckSum,
    /// A codec of a newer version, or no block at all.
    #[error("block codec {0} is unknown")]
    UnknownCodec(u8),
    /// More points than any writer puts in a block, or in a row of blocks.
    #[error("the block claims too many points")]
    TooManyPoints,
    /// The check sum fits, the content does not: no writer made this.
    #[error("the block's content is malformed")]
    Malformed,
}

/// Encodes fast, for chunks that still grow. No points, no bytes.
pub fn encode(points: &[Point]) -> Vec<u8> {
    let mut out = Vec::with_capacity(points.len() * 8 + 16);
    for block in points.chunks(MAX_BLOCK_POINTS) {
        write_block(&mut out, GORILLA, block.len(), &gorilla::encode(block));
    }
    out
}

/// Encodes small, for chunks that are complete. Each block takes whichever codec is smaller and reads back equal.
pub fn seal(points: &[Point]) -> Vec<u8> {
    let mut out = Vec::with_capacity(points.len() * 4 + 16);
    for block in points.chunks(MAX_BLOCK_POINTS) {
        let fast = gorilla::encode(block);
        match packed::encode(block)
            .filter(|body| body.len() < fast.len() && packed::decode(body, block.len()).is_ok_and(|back| back == block))
        {
            Some(body) => write_block(&mut out, PACKED, block.len(), &body),
            None => write_block(&mut out, GORILLA, block.len(), &fast),
        }
    }
    out
}

/// Decodes what [`encode`] and [`seal`] made, any number of blocks.
pub fn decode(bytes: &[u8]) -> Result<Vec<Point>, CodecError> {
    let mut rest = bytes;
    let mut points = Vec::new();
    while !rest.is_empty() {
        let (block, after) = read_block(rest)?;
        if points.len() + block.count > MAX_POINTS {
            return Err(CodecError::TooManyPoints);
        }
        let decoded = match block.codec {
            GORILLA => gorilla::decode(block.body, block.count)?,
            _ => packed::decode(block.body, block.count)?,
        };
        points.extend(decoded);
        rest = after;
    }
    Ok(points)
}

fn write_block(out: &mut Vec<u8>, codec: u8, count: usize, body: &[u8]) {
    let start = out.len();
    out.push(codec);
    bits::write_varint(out, count as u64);
    bits::write_varint(out, body.len() as u64);
    out.extend_from_slice(body);
    let sum = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

struct Block<'a> {
    codec: u8,
    count: usize,
    body: &'a [u8],
}

/// Takes one checked block off the front: the block, and what follows it.
fn read_block(bytes: &[u8]) -> Result<(Block<'_>, &[u8]), CodecError> {
    let (&codec, mut rest) = bytes.split_first().ok_or(CodecError::CutOff)?;
    if codec != GORILLA && codec != PACKED {
        return Err(CodecError::UnknownCodec(codec));
    }
    let count = bits::read_varint(&mut rest)?;
    let length = bits::read_varint(&mut rest)?;
    let length = usize::try_from(length).ok().filter(|length| rest.len() >= CRC_BYTES && *length <= rest.len() - CRC_BYTES);
    let length = length.ok_or(CodecError::CutOff)?;
    let (body, after) = rest.split_at(length);
    let (sum, after) = after.split_at(CRC_BYTES);
    let covered = bytes.len() - after.len() - CRC_BYTES;
    if crc32fast::hash(&bytes[..covered]).to_le_bytes() != sum {
        return Err(CodecError::CheckSum);
    }
    let count = usize::try_from(count).ok().filter(|count| (1..=MAX_BLOCK_POINTS).contains(count)).ok_or(CodecError::TooManyPoints)?;
    Ok((Block { codec, count, body }, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_point() -> impl Strategy<Value = Point> {
        let number = || prop_oneof![6 => 0i64..100_000, 2 => any::<i64>(), 1 => Just(i64::MIN), 1 => Just(i64::MAX)];
        let value = prop_oneof![
            4 => -1e3..1e3f64,
            2 => (-1000i64..1000).prop_map(|n| n as f64 / 100.0),
            2 => any::<u64>().prop_map(f64::from_bits),
            1 => Just(f64::NAN),
            1 => Just(-0.0),
        ];
        (number(), number(), value).prop_map(|(step, time_ms, value)| Point { step, time_ms, value })
    }

    /// Puts a fitting check sum on bytes that no writer made, so that the decoders behind it are reached.
    fn with_check_sum(codec: u8, count: usize, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_block(&mut out, codec, count, body);
        out
    }

    proptest! {
        #[test]
        fn every_bit_comes_back_from_both_codecs(points in proptest::collection::vec(any_point(), 0..300)) {
            prop_assert_eq!(&decode(&encode(&points)).unwrap(), &points);
            prop_assert_eq!(&decode(&seal(&points)).unwrap(), &points);
        }

        #[test]
        fn blocks_in_a_row_are_points_in_a_row(parts in proptest::collection::vec(proptest::collection::vec(any_point(), 0..20), 0..6)) {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| encode(part)).collect();
            prop_assert_eq!(decode(&bytes).unwrap(), parts.concat());
        }

        #[test]
        fn a_flipped_bit_or_a_missing_end_is_noticed(points in proptest::collection::vec(any_point(), 1..80), at in any::<usize>(), sealed: bool) {
            let bytes = if sealed { seal(&points) } else { encode(&points) };
            let mut flipped = bytes.clone();
            let bit = at % (bytes.len() * 8);
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(decode(&flipped).is_err());
            prop_assert!(decode(&bytes[..bytes.len() - 1 - at % (bytes.len() - 1)]).is_err());
        }

        #[test]
        fn hostile_bytes_are_an_error_or_points_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_hostile_body_with_a_fitting_check_sum_never_panics(
            codec in 1u8..=2, count in 0usize..5_000, body in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            if let Ok(points) = decode(&with_check_sum(codec, count, &body)) {
                prop_assert_eq!(points.len(), count);
            }
        }

        #[test]
        fn a_bent_body_with_a_fitting_check_sum_never_panics(
            points in proptest::collection::vec(any_point(), 1..100), codec in 1u8..=2, count in 1usize..200,
            edits in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        ) {
            let body = if codec == GORILLA { Some(gorilla::encode(&points)) } else { packed::encode(&points) };
            let Some(mut body) = body else { return Ok(()) };
            for (at, byte) in edits {
                let at = at % body.len();
                body[at] = byte;
            }
            if let Ok(points) = decode(&with_check_sum(codec, count, &body)) {
                prop_assert_eq!(points.len(), count);
            }
        }
    }

    #[test]
    fn more_points_than_a_block_holds_become_several() {
        let points: Vec<Point> = (0..10_000).map(|step| Point { step, time_ms: step * 3, value: step as f64 }).collect();
        assert_eq!(decode(&encode(&points)).unwrap(), points);
        assert_eq!(decode(&seal(&points)).unwrap(), points);
    }

    #[test]
    fn a_claim_of_more_points_than_allowed_allocates_nothing() {
        assert_eq!(decode(&with_check_sum(PACKED, usize::MAX, &[0; 8])), Err(CodecError::TooManyPoints));
        let many: Vec<u8> =
            std::iter::repeat_n(seal(&vec![Point { step: 0, time_ms: 0, value: 0.0 }; MAX_BLOCK_POINTS]), 257).flatten().collect();
        assert_eq!(decode(&many), Err(CodecError::TooManyPoints));
    }

    #[test]
    fn an_unknown_codec_is_named() {
        assert_eq!(decode(&[9, 1, 0]), Err(CodecError::UnknownCodec(9)));
    }
}
