//! The points of one series on their way into its chunks: repeats are dropped, full chunks sealed. It asks nobody.

use super::layout::{BUCKET_CHUNKS, Place, StoredChunk, Version};
use crate::{
    Point, SeriesStats,
    chunk::{self, Damaged, Growing, Header},
    embedded::{CHUNK_POINTS, CUT_EVERY_SEQUENCES},
};
use std::collections::HashSet;

/// A point's three fields, bit for bit.
type Bits = (i64, i64, u64);

pub(super) fn bits(point: &Point) -> Bits {
    (point.step, point.time_ms, point.value.to_bits())
}

/// The last chunk of a series, as it is kept between commits.
#[derive(Clone, Debug)]
pub(super) struct OpenChunk {
    pub(super) at: Place,
    pub(super) bytes: Vec<u8>,
    pub(super) places: Vec<(u64, u32)>,
}

impl OpenChunk {
    /// What of a stored chunk counts, to go on with; none where it is complete.
    pub(super) fn of(stored: StoredChunk) -> Result<Option<Self>, Damaged> {
        let (header, blocks) = Header::read(&stored.bytes)?;
        let points = chunk::points(&header, blocks)?;
        if stored.visible >= points.len() {
            let open = Self { at: stored.at, bytes: stored.bytes, places: stored.places };
            return Ok((!header.sealed).then_some(open));
        }
        // A writer before left more than counts: that part is as if it had never been.
        let mut growing = Growing::new();
        points.into_iter().take(stored.visible).for_each(|point| growing.push(point));
        let mut places = stored.places;
        let mut left = stored.visible;
        places.retain_mut(|(_, count)| {
            *count = (*count).min(u32::try_from(left).unwrap_or(u32::MAX));
            left -= *count as usize;
            *count > 0
        });
        Ok(Some(Self { at: stored.at, bytes: growing.grown()?, places }))
    }
}

/// A chunk to store.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) at: Place,
    /// Which chunk of its series it is, from 0.
    pub(super) ordinal: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) places: Vec<(u64, u32)>,
}

impl Written {
    pub(super) fn bucket(&self) -> u64 {
        self.ordinal / BUCKET_CHUNKS
    }

    /// Whether a bucket begins with it; the first bucket needs no telling.
    pub(super) fn begins_bucket(&self) -> bool {
        self.ordinal > 0 && self.ordinal.is_multiple_of(BUCKET_CHUNKS)
    }

    pub(super) fn last_sequence(&self) -> u64 {
        self.places.last().map_or(self.at.sequence, |(sequence, _)| *sequence)
    }
}

struct Open {
    at: Place,
    growing: Growing,
    places: Vec<(u64, u32)>,
}

/// What a fold leaves.
pub(super) struct Folded {
    pub(super) version: Version,
    pub(super) open: Option<OpenChunk>,
    pub(super) written: Vec<Written>,
}

/// Folds points of one series.
pub(super) struct Fold<'k> {
    born: u64,
    stats: Option<SeriesStats>,
    chunks: u64,
    last: Place,
    open: Option<Open>,
    written: Vec<Written>,
    /// Points among those that come of which an equal one is stored.
    known: &'k HashSet<Bits>,
    fresh: HashSet<Bits>,
}

impl<'k> Fold<'k> {
    pub(super) fn resume(born: u64, version: Option<&Version>, open: Option<OpenChunk>, known: &'k HashSet<Bits>) -> Result<Self, Damaged> {
        let mut fold = Self {
            born,
            stats: version.map(|version| version.stats),
            chunks: version.map_or(0, |version| version.chunks),
            last: version.map_or_else(Place::default, |version| version.last),
            open: None,
            written: Vec::new(),
            known,
            fresh: HashSet::new(),
        };
        if let Some(open) = open {
            fold.open = Growing::resume(&open.bytes)?.map(|growing| Open { at: open.at, growing, places: open.places });
        }
        Ok(fold)
    }

    /// Adds a point that stands at `place` of the stream; `false` when it repeats another.
    pub(super) fn add(&mut self, point: Point, place: Place) -> Result<bool, Damaged> {
        let bits = bits(&point);
        let may_repeat = self.stats.is_some_and(|stats| stats.may_hold(&point));
        if may_repeat && (self.known.contains(&bits) || self.fresh.contains(&bits)) {
            return Ok(false);
        }
        self.fresh.insert(bits);
        let is_due = |open: &Open| open.growing.count() >= CHUNK_POINTS || cut_of(open.at.sequence) != cut_of(place.sequence);
        if self.open.as_ref().is_some_and(is_due) {
            self.seal()?;
        }
        if self.open.is_none() {
            self.chunks += 1;
            self.last = place;
        }
        let open = self.open.get_or_insert_with(|| Open { at: place, growing: Growing::new(), places: Vec::new() });
        open.growing.push(point);
        match open.places.last_mut() {
            Some((sequence, count)) if *sequence == place.sequence => *count += 1,
            _ => open.places.push((place.sequence, 1)),
        }
        match &mut self.stats {
            Some(stats) => stats.add(point),
            none => *none = Some(SeriesStats::first(point)),
        }
        Ok(true)
    }

    fn seal(&mut self) -> Result<(), Damaged> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let bytes = open.growing.sealed()?;
        self.written.push(Written { at: open.at, ordinal: self.chunks - 1, bytes, places: open.places });
        Ok(())
    }

    /// What is to be stored; none when no point was added.
    pub(super) fn finish(mut self) -> Result<Option<Folded>, Damaged> {
        let Some(stats) = self.stats.filter(|_| !self.fresh.is_empty()) else { return Ok(None) };
        let mut open = None;
        match &mut self.open {
            Some(full) if full.growing.count() >= CHUNK_POINTS => self.seal()?,
            Some(growing) if growing.growing.has_fresh() => {
                let bytes = growing.growing.grown()?;
                let (at, places) = (growing.at, growing.places.clone());
                self.written.push(Written { at, ordinal: self.chunks - 1, bytes: bytes.clone(), places: places.clone() });
                open = Some(OpenChunk { at, bytes, places });
            }
            _ => {}
        }
        let version = Version { born: self.born, stats, chunks: self.chunks, last: self.last };
        Ok(Some(Folded { version, open, written: self.written }))
    }
}

fn cut_of(sequence: u64) -> u64 {
    sequence / CUT_EVERY_SEQUENCES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: i64) -> Point {
        Point { step, time_ms: step * 7, value: step as f64 / 3.0 }
    }

    fn place(sequence: u64, start: u32) -> Place {
        Place { sequence, start }
    }

    #[test]
    fn what_does_not_count_of_a_chunk_is_cut_off_and_the_rest_goes_on() {
        let nothing = HashSet::new();
        let mut fold = Fold::resume(1, None, None, &nothing).unwrap();
        for step in 0..30 {
            assert!(fold.add(point(step), place(1 + step as u64 / 10, step as u32 % 10)).unwrap());
            assert!(!fold.add(point(step), place(9, 0)).unwrap());
        }
        let folded = fold.finish().unwrap().unwrap();
        let written = &folded.written[0];
        assert_eq!((written.places.as_slice(), written.last_sequence()), ([(1, 10), (2, 10), (3, 10)].as_slice(), 3));
        let stored = |visible| StoredChunk { at: written.at, bytes: written.bytes.clone(), places: written.places.clone(), visible };
        let open = OpenChunk::of(stored(20)).unwrap().unwrap();
        assert_eq!(open.places, [(1, 10), (2, 10)]);
        let (header, blocks) = Header::read(&open.bytes).unwrap();
        assert_eq!(chunk::points(&header, blocks).unwrap(), (0..20).map(point).collect::<Vec<_>>());
        assert_eq!(OpenChunk::of(stored(usize::MAX)).unwrap().unwrap().bytes, written.bytes);
    }

    #[test]
    fn the_same_stream_makes_the_same_chunks_whatever_was_stored_together() {
        let nothing = HashSet::new();
        let make = |per_commit: usize| {
            let (mut version, mut open, mut chunks) = (None, None, std::collections::BTreeMap::new());
            let all: Vec<(Point, Place)> =
                (0..3_000i64).map(|step| (point(step), place(1 + step as u64 / 100, step as u32 % 100))).collect();
            for part in all.chunks(per_commit) {
                let mut fold = Fold::resume(1, version.as_ref(), open.take(), &nothing).unwrap();
                part.iter().for_each(|(point, place)| assert!(fold.add(*point, *place).unwrap()));
                let folded = fold.finish().unwrap().unwrap();
                chunks.extend(folded.written.into_iter().map(|written| (written.ordinal, (written.at, written.places))));
                (version, open) = (Some(folded.version), folded.open);
            }
            (chunks, version)
        };
        let whole = make(3_000);
        assert_eq!(whole.0.len(), 6);
        for per_commit in [1, 7, 512, 1_300] {
            assert_eq!(make(per_commit), whole, "{per_commit}");
        }
    }
}
