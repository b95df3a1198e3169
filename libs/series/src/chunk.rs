//! A chunk: a checked header that says what is inside, then encoded blocks.

use crate::{Point, SeriesKey, codec};

/// Stored bytes that no writer made, or that changed since: what is wrong with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub(crate) String);

impl Damaged {
    /// Says where the damage is, so that a person knows what is lost.
    pub(crate) fn of_chunk(self, key: &SeriesKey, sequence: u64) -> Self {
        Self(format!(
            "{}: the chunk of {}, attempt {}, rank {}, metric {:?} that starts at METRICS sequence {sequence}",
            self.0,
            key.source,
            key.attempt,
            key.rank,
            key.name.as_str(),
        ))
    }
}

const CHUNK: u8 = 1;
const SEALED: u8 = 1;
/// How many of a chunk's bytes are its header.
pub(crate) const HEADER_BYTES: usize = 44;
const CRC_AT: usize = HEADER_BYTES - 4;

/// An open chunk made of more blocks than this is encoded anew as one.
const MAX_BLOCKS: u16 = 32;

/// What a chunk holds, known without decoding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sealed: bool,
    pub(crate) blocks: u16,
    pub(crate) count: u32,
    pub(crate) steps: (i64, i64),
    pub(crate) times: (i64, i64),
}

impl Header {
    pub(crate) fn empty() -> Self {
        Self { sealed: false, blocks: 0, count: 0, steps: (i64::MAX, i64::MIN), times: (i64::MAX, i64::MIN) }
    }

    fn add(&mut self, point: &Point) {
        self.count += 1;
        self.steps = (self.steps.0.min(point.step), self.steps.1.max(point.step));
        self.times = (self.times.0.min(point.time_ms), self.times.1.max(point.time_ms));
    }

    /// Whether an equal point could be inside.
    pub(crate) fn may_hold(&self, point: &Point) -> bool {
        within(point, self.steps, self.times)
    }

    /// Whether a point with a step in the range could be inside.
    pub(crate) fn meets(&self, from_step: i64, to_step: i64) -> bool {
        self.steps.0 <= to_step && from_step <= self.steps.1
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&[CHUNK, u8::from(self.sealed) * SEALED]);
        out.extend_from_slice(&self.blocks.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        for number in [self.steps.0, self.steps.1, self.times.0, self.times.1] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let sum = crc32fast::hash(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// The header and the blocks behind it.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Damaged> {
        let damaged = |what: &str| Damaged(what.to_owned());
        if bytes.len() < HEADER_BYTES || bytes[0] != CHUNK {
            return Err(damaged("a chunk's header is malformed"));
        }
        let (head, blocks) = bytes.split_at(HEADER_BYTES);
        if crc32fast::hash(&head[..CRC_AT]).to_le_bytes() != head[CRC_AT..] {
            return Err(damaged("a chunk's header is damaged: its check sum does not fit"));
        }
        let mut numbers =
            head[8..CRC_AT].chunks_exact(8).map(|bytes| bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte)));
        let mut next = || numbers.next().unwrap_or_default() as i64;
        let header = Self {
            sealed: head[1] & SEALED != 0,
            blocks: u16::from_le_bytes([head[2], head[3]]),
            count: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            steps: (next(), next()),
            times: (next(), next()),
        };
        Ok((header, blocks))
    }
}

/// Whether a point lies within bounds, for chunks and series alike.
pub(crate) fn within(point: &Point, steps: (i64, i64), times: (i64, i64)) -> bool {
    (steps.0..=steps.1).contains(&point.step) && (times.0..=times.1).contains(&point.time_ms)
}

/// The points of a stored chunk.
pub(crate) fn points(header: &Header, blocks: &[u8]) -> Result<Vec<Point>, Damaged> {
    let points = codec::decode(blocks).map_err(|error| Damaged(error.to_string()))?;
    if points.len() == header.count as usize {
        Ok(points)
    } else {
        Err(Damaged("a chunk does not hold as many points as it says".to_owned()))
    }
}

/// The last chunk of a series while it grows.
pub(crate) struct Growing {
    header: Header,
    stored: Vec<u8>,
    decoded: Option<Vec<Point>>,
    fresh: Vec<Point>,
}

impl Growing {
    pub(crate) fn new() -> Self {
        Self { header: Header::empty(), stored: Vec::new(), decoded: Some(Vec::new()), fresh: Vec::new() }
    }

    /// The stored open chunk, or nothing where it is sealed.
    pub(crate) fn resume(bytes: &[u8]) -> Result<Option<Self>, Damaged> {
        let (header, blocks) = Header::read(bytes)?;
        if header.sealed {
            return Ok(None);
        }
        Ok(Some(Self { header, stored: blocks.to_vec(), decoded: None, fresh: Vec::new() }))
    }

    pub(crate) fn header(&self) -> Header {
        self.header
    }

    pub(crate) fn count(&self) -> u32 {
        self.header.count
    }

    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    pub(crate) fn push(&mut self, point: Point) {
        self.header.add(&point);
        self.fresh.push(point);
    }

    pub(crate) fn contains(&mut self, point: &Point) -> Result<bool, Damaged> {
        if !self.header.may_hold(point) {
            return Ok(false);
        }
        Ok(self.fresh.contains(point) || self.decode()?.contains(point))
    }

    /// The points not stored yet, where the stored ones turned out to be damaged.
    pub(crate) fn into_fresh(self) -> Vec<Point> {
        self.fresh
    }

    fn decode(&mut self) -> Result<&Vec<Point>, Damaged> {
        let before = Header { count: self.header.count - self.fresh.len() as u32, ..self.header };
        match &mut self.decoded {
            Some(_) => {}
            none => *none = Some(points(&before, &self.stored)?),
        }
        Ok(self.decoded.get_or_insert_default())
    }

    fn all(&mut self) -> Result<Vec<Point>, Damaged> {
        let mut all = self.decode()?.clone();
        all.extend_from_slice(&self.fresh);
        Ok(all)
    }

    /// The bytes to store while it stays open.
    pub(crate) fn grown(&mut self) -> Result<Vec<u8>, Damaged> {
        if self.header.blocks >= MAX_BLOCKS {
            self.stored = codec::encode(&self.all()?);
            self.header.blocks = 1;
        } else {
            self.stored.extend_from_slice(&codec::encode(&self.fresh));
            self.header.blocks += 1;
        }
        let mut bytes = self.header.bytes();
        bytes.extend_from_slice(&self.stored);
        Ok(bytes)
    }

    /// The bytes to store when it is complete.
    pub(crate) fn sealed(&mut self) -> Result<Vec<u8>, Damaged> {
        let blocks = codec::seal(&self.all()?);
        self.header.sealed = true;
        self.header.blocks = 1;
        let mut bytes = self.header.bytes();
        bytes.extend_from_slice(&blocks);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: i64) -> Point {
        Point { step, time_ms: step * 7, value: step as f64 / 3.0 }
    }

    #[test]
    fn a_chunk_grows_point_by_point_and_seals_to_the_same_points() {
        let mut bytes = Vec::new();
        for step in 0..200 {
            let mut chunk = if bytes.is_empty() { Growing::new() } else { Growing::resume(&bytes).unwrap().unwrap() };
            assert!(!chunk.contains(&point(step)).unwrap());
            chunk.push(point(step));
            assert!(chunk.contains(&point(step)).unwrap() && chunk.contains(&point(step / 2)).unwrap());
            bytes = chunk.grown().unwrap();
            let (header, blocks) = Header::read(&bytes).unwrap();
            assert!(header.blocks <= MAX_BLOCKS);
            assert_eq!(points(&header, blocks).unwrap(), (0..=step).map(point).collect::<Vec<_>>());
        }
        let sealed = Growing::resume(&bytes).unwrap().unwrap().sealed().unwrap();
        let (header, blocks) = Header::read(&sealed).unwrap();
        assert_eq!(points(&header, blocks).unwrap(), (0..200).map(point).collect::<Vec<_>>());
        assert_eq!((header.steps, header.times), ((0, 199), (0, 199 * 7)));
        assert!(Growing::resume(&sealed).unwrap().is_none());
    }

    #[test]
    fn a_damaged_header_or_body_is_noticed() {
        let mut chunk = Growing::new();
        (0..9).for_each(|step| chunk.push(point(step)));
        let bytes = chunk.grown().unwrap();
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 0x10;
            let read = Header::read(&bent).and_then(|(header, blocks)| points(&header, blocks));
            assert!(read.is_err(), "byte {at}");
        }
    }
}
