//! How chunks, figures and sessions lie in rows, and which of a row's two versions counts.

use super::{db::Db, progress::Visible};
use crate::{
    SeriesError, SeriesKey, SeriesStats,
    chunk::{Damaged, HEADER_BYTES},
    codec,
    rows::SeriesRow,
};

/// Chunks in one partition: about half a million points, a few MiB.
pub(super) const BUCKET_CHUNKS: u64 = 1_024;

/// Where a chunk begins: the METRICS sequence of its first point, and which of that message's points of the series it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) sequence: u64,
    pub(super) start: u32,
}

/// The figures of a series at one commit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Version {
    /// Tells it from a deleted series of the same name.
    pub(super) born: u64,
    pub(super) stats: SeriesStats,
    /// How many chunks it has.
    pub(super) chunks: u64,
    /// Where the last one begins.
    pub(super) last: Place,
}

const VERSION_TAIL_BYTES: usize = 8 + 8 + 4;

impl Version {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = SeriesRow { series: self.born, stats: self.stats }.bytes();
        out.extend_from_slice(&self.chunks.to_le_bytes());
        out.extend_from_slice(&self.last.sequence.to_le_bytes());
        out.extend_from_slice(&self.last.start.to_le_bytes());
        out
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, Damaged> {
        let cut = bytes.len().checked_sub(VERSION_TAIL_BYTES).ok_or_else(|| Damaged("a series row is malformed".to_owned()))?;
        let (row, tail) = bytes.split_at(cut);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
        let SeriesRow { series: born, stats } = SeriesRow::read(row)?;
        let last = Place { sequence: number(&tail[8..16]), start: number(&tail[16..]) as u32 };
        Ok(Self { born, stats, chunks: number(&tail[..8]), last })
    }

    /// How many partitions its chunks lie in.
    pub(super) fn buckets(&self) -> u64 {
        self.chunks.div_ceil(BUCKET_CHUNKS)
    }
}

/// epoch, as_of, version, before_as_of, version before.
pub(super) type Versions = (Option<i64>, Option<i64>, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);

/// What a reader sees of a row with two versions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen<'v> {
    /// This one, as of that sequence.
    As(&'v [u8], u64),
    /// The row did not exist yet.
    Nothing,
    /// Two commits came since the reader's floor: look again.
    Passed,
}

/// Which of the two versions counts for a reader.
pub(super) fn seen<'v>(row: &'v Versions, visible: &Visible, shard: u8) -> Seen<'v> {
    let (epoch, as_of, version, before_as_of, before) = row;
    let limit = visible.limit(epoch.unwrap_or(0), shard);
    let as_of = as_of.and_then(|as_of| u64::try_from(as_of).ok());
    let before_as_of = before_as_of.and_then(|as_of| u64::try_from(as_of).ok());
    match (as_of, version, before_as_of, before) {
        (Some(as_of), Some(version), ..) if as_of <= limit => Seen::As(version, as_of),
        (_, _, Some(as_of), Some(before)) if as_of <= limit => Seen::As(before, as_of),
        (_, _, Some(_), _) => Seen::Passed,
        _ => Seen::Nothing,
    }
}

/// A chunk as its row holds it.
pub(super) struct StoredChunk {
    pub(super) at: Place,
    pub(super) bytes: Vec<u8>,
    pub(super) places: Vec<(u64, u32)>,
    /// How many of its points count.
    pub(super) visible: usize,
}

/// sequence, start, epoch, last_sequence, places, header, body.
pub(super) type ChunkRow = (i64, i64, Option<i64>, Option<i64>, Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>);

/// Reads a chunk; none where nothing of it counts.
pub(super) fn read_chunk(db: &Db, key: &SeriesKey, row: ChunkRow, visible: &Visible) -> Result<Option<StoredChunk>, SeriesError> {
    let (sequence, start, epoch, last, places, header, body) = row;
    let at = Place { sequence: sequence.cast_unsigned(), start: start as u32 };
    let limit = visible.limit(epoch.unwrap_or(0), key.source.shard());
    if at.sequence > limit {
        return Ok(None);
    }
    let damaged = |damaged: Damaged| db.damaged(damaged.of_chunk(key, at.sequence).0);
    let places = read_places(&places.unwrap_or_default()).map_err(damaged)?;
    let counts = |(sequence, count): &(u64, u32)| if *sequence <= limit { *count as usize } else { 0 };
    let visible = if last.is_some_and(|last| last.cast_unsigned() <= limit) { usize::MAX } else { places.iter().map(counts).sum() };
    let mut bytes = header.unwrap_or_default();
    bytes.extend_from_slice(&body.unwrap_or_default());
    Ok(Some(StoredChunk { at, bytes, places, visible }))
}

/// The header and the body of a chunk's bytes.
pub(super) fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(HEADER_BYTES.min(bytes.len()))
}

/// From which sequences a chunk's points come: (sequence, how many), in their order; each sequence as the distance to the one before.
pub(super) fn places_bytes(places: &[(u64, u32)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(places.len() * 3);
    let mut before = 0;
    for (sequence, count) in places {
        codec::write_varint(&mut out, sequence.wrapping_sub(before));
        codec::write_varint(&mut out, u64::from(*count));
        before = *sequence;
    }
    out
}

pub(super) fn read_places(mut bytes: &[u8]) -> Result<Vec<(u64, u32)>, Damaged> {
    let malformed = |_| Damaged("the places of a chunk are malformed".to_owned());
    let (mut places, mut before) = (Vec::new(), 0u64);
    while !bytes.is_empty() {
        before = before.wrapping_add(codec::read_varint(&mut bytes).map_err(malformed)?);
        places.push((before, codec::read_varint(&mut bytes).map_err(malformed)? as u32));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Point;

    #[test]
    fn versions_and_places_read_back_and_a_cut_row_is_noticed() {
        let stats = SeriesStats::first(Point { step: -3, time_ms: 9, value: f64::NAN });
        let version = Version { born: 1 << 40, stats, chunks: 7, last: Place { sequence: u64::MAX >> 1, start: u32::MAX } };
        let bytes = version.bytes();
        assert_eq!(Version::read(&bytes), Ok(version));
        for cut in 0..bytes.len() {
            assert!(Version::read(&bytes[..cut]).is_err(), "{cut}");
        }
        let places = vec![(1, 2), (1 << 50, u32::MAX), ((1 << 50) + 1, 1)];
        let bytes = places_bytes(&places);
        assert_eq!(read_places(&bytes), Ok(places));
        assert!(read_places(&bytes[..bytes.len() - 1]).is_err());
    }
}
