//! The framing of one record on disk. Pure: bytes in, bytes out.
//!
//! A frame is `magic, length, crc, offset, durable` and the payload. `durable` is the highest offset that had been synced when the
//! frame was written: a bad frame below a later frame's `durable` is damage to an acknowledged record, anything else is a torn tail.

use bytes::Bytes;

const MAGIC: [u8; 4] = *b"FPs1";
/// Bytes of a frame before its payload.
pub(crate) const HEADER_BYTES: usize = 4 + 4 + 4 + 8 + 8;

/// One record as it stands in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) offset: u64,
    pub(crate) durable: u64,
    pub(crate) payload: Bytes,
}

/// What stands at a position of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A whole frame, and where the next one begins.
    Frame(Frame, usize),
    /// The bytes end in the middle of a frame that may be whole further on.
    Short,
    /// No frame.
    Bad,
}

/// Bytes a payload takes on disk.
pub(crate) const fn framed_bytes(payload: usize) -> u64 {
    (HEADER_BYTES + payload) as u64
}

/// Appends one frame to `out`.
pub(crate) fn encode(out: &mut Vec<u8>, offset: u64, durable: u64, payload: &[u8]) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum(payload.len() as u32, offset, durable, payload).to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    out.extend_from_slice(payload);
}

fn checksum(length: u32, offset: u64, durable: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(&durable.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0u8; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

/// Reads the frame at `at`. `longest` bounds a payload, so that a damaged length cannot ask for the whole disk.
pub(crate) fn parse(bytes: &[u8], at: usize, longest: usize) -> Parsed {
    let rest = bytes.len().saturating_sub(at);
    if rest < HEADER_BYTES {
        let could_be = rest < 4 || bytes[at..at + 4] == MAGIC;
        return if could_be { Parsed::Short } else { Parsed::Bad };
    }
    if bytes[at..at + 4] != MAGIC {
        return Parsed::Bad;
    }
    let length = u32::from_le_bytes(word(bytes, at + 4));
    if length as usize > longest {
        return Parsed::Bad;
    }
    let end = at + HEADER_BYTES + length as usize;
    if end > bytes.len() {
        return Parsed::Short;
    }
    let offset = u64::from_le_bytes(word(bytes, at + 12));
    let durable = u64::from_le_bytes(word(bytes, at + 20));
    let payload = &bytes[at + HEADER_BYTES..end];
    if u32::from_le_bytes(word(bytes, at + 8)) != checksum(length, offset, durable, payload) {
        return Parsed::Bad;
    }
    Parsed::Frame(Frame { offset, durable, payload: Bytes::copy_from_slice(payload) }, end)
}

/// The first whole frame after `at`, for going on behind damage: its position.
pub(crate) fn find_next(bytes: &[u8], at: usize, longest: usize) -> Option<usize> {
    (at + 1..bytes.len().saturating_sub(HEADER_BYTES - 1))
        .find(|start| bytes[*start..].starts_with(&MAGIC) && matches!(parse(bytes, *start, longest), Parsed::Frame(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_reads_back_and_any_flipped_bit_is_seen() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 7, 6, b"abc");
        assert_eq!(parse(&bytes, 0, 100), Parsed::Frame(Frame { offset: 7, durable: 6, payload: Bytes::from_static(b"abc") }, bytes.len()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(parse(&flipped, 0, 100), Parsed::Frame(..)), "bit {bit}");
        }
    }

    #[test]
    fn a_cut_frame_is_short_at_every_length() {
        let mut bytes = Vec::new();
        encode(&mut bytes, 1, 0, b"abc");
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length], 0, 100), Parsed::Short, "{length}");
        }
    }
}
