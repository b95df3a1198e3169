//! The points of one series on their way into its chunks: repeats are dropped, full chunks sealed.

use super::{
    CHUNK_POINTS, CUT_EVERY_SEQUENCES,
    fault::Fault,
    tables::{ChunkKey, Tables, open_key},
};
use crate::{
    Point, SeriesKey, SeriesStats,
    chunk::{self, Damaged, Growing, Header},
};
use redb::ReadableTable;
use std::collections::BTreeMap;

/// Sealed chunks kept decoded while one series is searched for repeats.
const DECODED_CHUNKS: usize = 8;

/// Packs the points of one series into its chunks.
pub(super) struct Packer<'k> {
    key: &'k SeriesKey,
    series: u64,
    /// The figures with every point added; none while there is no point.
    pub(super) stats: Option<SeriesStats>,
    open: Option<Open>,
    /// What the other chunks hold; read when the first point comes that could repeat one of theirs.
    others: Option<Vec<(ChunkKey, Header)>>,
    decoded: BTreeMap<ChunkKey, Vec<Point>>,
}

struct Open {
    chunk: Growing,
    at: ChunkKey,
    /// Where the first point stands that is not stored yet.
    fresh_from: Option<(u64, u32)>,
}

impl<'k> Packer<'k> {
    pub(super) fn resume(tables: &Tables<'_>, key: &'k SeriesKey, series: u64, stats: Option<SeriesStats>) -> Result<Self, Fault> {
        let mut packer = Self { key, series, stats, open: None, others: None, decoded: BTreeMap::new() };
        if stats.is_some()
            && let Some((at, bytes)) = last_chunk(tables, series)?
        {
            match Growing::resume(&bytes) {
                Ok(chunk) => packer.open = chunk.map(|chunk| Open { chunk, at, fresh_from: None }),
                Err(damaged) => packer.report(at, &damaged),
            }
        }
        Ok(packer)
    }

    /// A damaged chunk stays as it is: reading its series says so, writing goes on behind it.
    fn report(&self, at: ChunkKey, Damaged(what): &Damaged) {
        tracing::error!(
            source = %self.key.source, attempt = %self.key.attempt, rank = %self.key.rank, metric = %self.key.name,
            sequence = at.sequence, what, "a chunk is damaged; new points go into another one"
        );
    }

    /// Adds a point that stands at `place` (sequence, offset) of the stream; `false` when it repeats a stored one.
    pub(super) fn add(&mut self, tables: &mut Tables<'_>, point: Point, place: (u64, u32)) -> Result<bool, Fault> {
        if self.stats.is_some_and(|stats| stats.may_hold(&point)) && self.holds(tables, &point)? {
            return Ok(false);
        }
        let is_due = |open: &Open| open.chunk.count() >= CHUNK_POINTS || cut_of(open.at.sequence) != cut_of(place.0);
        if self.open.as_ref().is_some_and(is_due) {
            self.seal(tables)?;
        }
        let series = self.series;
        let open = self.open.get_or_insert_with(|| Open {
            chunk: Growing::new(),
            at: ChunkKey { series, sequence: place.0, offset: place.1 },
            fresh_from: None,
        });
        open.fresh_from.get_or_insert(place);
        open.chunk.push(point);
        match &mut self.stats {
            Some(stats) => stats.add(point),
            none => *none = Some(SeriesStats::first(point)),
        }
        Ok(true)
    }

    /// Whether an equal point is stored or waiting. Only points that lie within the series' bounds of both step and time come here, so a
    /// program that goes forward never pays for this.
    fn holds(&mut self, tables: &Tables<'_>, point: &Point) -> Result<bool, Fault> {
        if let Some(open) = &mut self.open
            && open.chunk.contains(point) == Ok(true)
        {
            return Ok(true);
        }
        let others = match self.others.take() {
            Some(others) => others,
            None => self.read_others(tables)?,
        };
        let mut found = false;
        for (at, header) in others.iter().filter(|(_, header)| header.may_hold(point)) {
            if self.decoded(tables, *at, header)?.contains(point) {
                found = true;
                break;
            }
        }
        self.others = Some(others);
        Ok(found)
    }

    fn read_others(&self, tables: &Tables<'_>) -> Result<Vec<(ChunkKey, Header)>, Fault> {
        let open = self.open.as_ref().map(|open| open.at);
        let (first, last) = ChunkKey::all_of(self.series);
        let mut others = Vec::new();
        for entry in tables.chunks.range::<&[u8; 20]>(&first..=&last)? {
            let (at, bytes) = entry?;
            let at = ChunkKey::read(at.value());
            if Some(at) != open
                && let Ok((header, _)) = Header::read(bytes.value())
            {
                others.push((at, header));
            }
        }
        Ok(others)
    }

    fn decoded(&mut self, tables: &Tables<'_>, at: ChunkKey, header: &Header) -> Result<&[Point], Fault> {
        if !self.decoded.contains_key(&at) {
            if self.decoded.len() >= DECODED_CHUNKS {
                self.decoded.pop_first();
            }
            let bytes = tables.chunks.get(&at.bytes())?;
            let points = bytes.and_then(|bytes| Header::read(bytes.value()).and_then(|(_, blocks)| chunk::points(header, blocks)).ok());
            self.decoded.insert(at, points.unwrap_or_default());
        }
        Ok(self.decoded.get(&at).map_or(&[], Vec::as_slice))
    }

    fn seal(&mut self, tables: &mut Tables<'_>) -> Result<(), Fault> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        match open.chunk.sealed() {
            Ok(bytes) => {
                tables.chunks.insert(&open.at.bytes(), bytes.as_slice())?;
                tables.open.remove(&self.open_key(open.at))?;
                self.note_other(open.at, open.chunk.header());
                Ok(())
            }
            Err(damaged) => {
                self.report(open.at, &damaged);
                tables.open.remove(&self.open_key(open.at))?;
                self.seal_apart(tables, open)
            }
        }
    }

    /// Stores the fresh points of a chunk, whose stored part is damaged, as a sealed chunk of their own.
    fn seal_apart(&mut self, tables: &mut Tables<'_>, open: Open) -> Result<(), Fault> {
        let Some((sequence, offset)) = open.fresh_from else { return Ok(()) };
        let mut apart = Growing::new();
        open.chunk.into_fresh().into_iter().for_each(|point| apart.push(point));
        let at = ChunkKey { series: self.series, sequence, offset };
        tables.chunks.insert(&at.bytes(), apart.sealed()?.as_slice())?;
        self.note_other(at, apart.header());
        Ok(())
    }

    fn note_other(&mut self, at: ChunkKey, header: Header) {
        if let Some(others) = &mut self.others {
            others.push((at, header));
        }
    }

    /// Stores what is open and has grown.
    pub(super) fn store(&mut self, tables: &mut Tables<'_>) -> Result<(), Fault> {
        let Some(open) = self.open.as_mut().filter(|open| open.chunk.has_fresh()) else { return Ok(()) };
        if open.chunk.count() >= CHUNK_POINTS {
            return self.seal(tables);
        }
        match open.chunk.grown() {
            Ok(bytes) => {
                let at = open.at;
                tables.chunks.insert(&at.bytes(), bytes.as_slice())?;
                tables.open.insert(&self.open_key(at), ())?;
                Ok(())
            }
            Err(Damaged(_)) => self.seal(tables),
        }
    }

    fn open_key(&self, at: ChunkKey) -> [u8; 17] {
        open_key(self.key.source.shard(), cut_of(at.sequence), self.series)
    }
}

pub(super) fn cut_of(sequence: u64) -> u64 {
    sequence / CUT_EVERY_SEQUENCES
}

/// The last chunk of a series.
pub(super) fn last_chunk(tables: &Tables<'_>, series: u64) -> Result<Option<(ChunkKey, Vec<u8>)>, Fault> {
    let (first, last) = ChunkKey::all_of(series);
    let entry = tables.chunks.range::<&[u8; 20]>(&first..=&last)?.next_back().transpose()?;
    Ok(entry.map(|(at, bytes)| (ChunkKey::read(at.value()), bytes.value().to_vec())))
}
