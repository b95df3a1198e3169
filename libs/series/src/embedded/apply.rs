//! One group of ingest calls inside one transaction: who is let in, then series by series, then the sessions and floors.

use super::{
    CHUNK_POINTS, CUT_EVERY_SEQUENCES,
    chunk::{self, Growing, Header},
    fault::Fault,
    rows::{SeriesRow, read_session, session_bytes},
    tables::{self, ChunkKey, META_NEXT_SERIES, Tables, open_key, series_key},
};
use crate::{IngestBatch, Ingested, Noted, Point, RefusedBatch, SeriesKey, SeriesStats, SessionKey, SessionProgress};
use redb::ReadableTable;
use std::collections::{BTreeMap, BTreeSet};

/// Chunks past their cut that one commit seals besides its own work, so that a cut costs many commits a little each.
const SEALS_PER_COMMIT: usize = 64;

/// Sealed chunks kept decoded while one series is searched for repeats.
const DECODED_CHUNKS: usize = 8;

/// Points of one series in one message, and the call that brought them.
struct Arrival<'b> {
    call: usize,
    sequence: u64,
    points: &'b [Point],
}

/// What a group changes, gathered before a series is touched.
#[derive(Default)]
struct Admitted<'b> {
    outcomes: Vec<Ingested>,
    floors: BTreeMap<u8, u64>,
    raised: BTreeSet<u8>,
    sessions: BTreeMap<SessionKey, SessionProgress>,
    noted: BTreeSet<SessionKey>,
    series: BTreeMap<SeriesKey, Vec<Arrival<'b>>>,
}

/// Applies the calls in order. The answers stand once the transaction is committed; `false` says that there is nothing to commit.
pub(super) fn ingest(tables: &mut Tables<'_>, calls: &[&[IngestBatch]]) -> Result<(Vec<Ingested>, bool), Fault> {
    let mut admitted = Admitted::default();
    for (call, batches) in calls.iter().enumerate() {
        admit(tables, &mut admitted, call, batches)?;
    }
    let Admitted { mut outcomes, floors, raised, sessions, noted, series } = admitted;
    for (key, arrivals) in &series {
        store_series(tables, key, arrivals, &mut outcomes)?;
    }
    for key in &noted {
        let source = tables.source(&key.source.to_string())?;
        tables.sessions.insert(&tables::session_key(source, key), session_bytes(&sessions[key]).as_slice())?;
    }
    for shard in &raised {
        tables.floors.insert(shard, floors[shard])?;
        seal_cut(tables, *shard, floors[shard])?;
    }
    Ok((outcomes, !raised.is_empty()))
}

fn admit<'b>(tables: &mut Tables<'_>, admitted: &mut Admitted<'b>, call: usize, batches: &'b [IngestBatch]) -> Result<(), Fault> {
    let mut outcome = Ingested::default();
    let mut ordered: Vec<&IngestBatch> = batches.iter().collect();
    ordered.sort_by_key(|batch| batch.sequence);
    let mut raised = BTreeMap::new();
    for batch in ordered {
        let shard = batch.source.shard();
        let floor = match admitted.floors.get(&shard) {
            Some(floor) => *floor,
            None => tables.floors.get(shard)?.map_or(0, |floor| floor.value()),
        };
        admitted.floors.insert(shard, floor);
        if batch.sequence <= floor {
            outcome.duplicate_batches += 1;
            continue;
        }
        raised.insert(shard, batch.sequence);
        match note(tables, admitted, batch)? {
            Ok(Noted::Duplicate) => outcome.duplicate_batches += 1,
            Err(reason) => {
                outcome.refused.push(RefusedBatch { sequence: batch.sequence, session: batch.session_key(), n: batch.n, reason });
            }
            Ok(Noted::New) => {
                for (name, points) in batch.series.iter().filter(|(_, points)| !points.is_empty()) {
                    let key = SeriesKey { source: batch.source.clone(), attempt: batch.attempt, rank: batch.rank, name: name.clone() };
                    admitted.series.entry(key).or_default().push(Arrival { call, sequence: batch.sequence, points });
                }
            }
        }
    }
    admitted.raised.extend(raised.keys());
    admitted.floors.extend(raised);
    admitted.outcomes.push(outcome);
    Ok(())
}

/// Notes the batch in its session, which is read at its first batch of the group.
fn note(tables: &mut Tables<'_>, admitted: &mut Admitted<'_>, batch: &IngestBatch) -> Result<Result<Noted, &'static str>, Fault> {
    let key = batch.session_key();
    if !admitted.sessions.contains_key(&key) {
        let source = tables.source(&key.source.to_string())?;
        let stored = tables.sessions.get(&tables::session_key(source, &key))?;
        let progress = match stored {
            Some(row) => read_session(key.clone(), row.value())?,
            None => SessionProgress::new(key.clone()),
        };
        admitted.sessions.insert(key.clone(), progress);
    }
    let progress = admitted.sessions.entry(key.clone()).or_insert_with_key(|key| SessionProgress::new(key.clone()));
    let noted = progress.note(batch.n);
    if noted == Ok(Noted::New) {
        admitted.noted.insert(key);
    }
    Ok(noted)
}

fn store_series(tables: &mut Tables<'_>, key: &SeriesKey, arrivals: &[Arrival<'_>], outcomes: &mut [Ingested]) -> Result<(), Fault> {
    let source = tables.source(&key.source.to_string())?;
    let row_key = series_key(source, key);
    let stored = tables.series.get(row_key.as_slice())?.map(|row| SeriesRow::read(row.value())).transpose()?;
    let series = match stored {
        Some(row) => row.series,
        None => tables.number(META_NEXT_SERIES)?,
    };
    let mut packer = Packer::resume(tables, key, series, stored.map(|row| row.stats))?;
    let mut place = (0, 0);
    for arrival in arrivals {
        if place.0 != arrival.sequence {
            place = (arrival.sequence, 0);
        }
        for point in arrival.points {
            if packer.add(tables, *point, place)? {
                outcomes[arrival.call].points += 1;
            }
            place.1 += 1;
        }
    }
    packer.store(tables)?;
    if let Some(stats) = packer.stats
        && stored.is_none_or(|row| row.stats != stats)
    {
        tables.series.insert(row_key.as_slice(), SeriesRow { series, stats }.bytes().as_slice())?;
    }
    Ok(())
}

/// Packs the points of one series into its chunks.
struct Packer<'k> {
    key: &'k SeriesKey,
    series: u64,
    stats: Option<SeriesStats>,
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
    fn resume(tables: &Tables<'_>, key: &'k SeriesKey, series: u64, stats: Option<SeriesStats>) -> Result<Self, Fault> {
        let mut packer = Self { key, series, stats, open: None, others: None, decoded: BTreeMap::new() };
        if stats.is_some()
            && let Some((at, bytes)) = last_chunk(tables, series)?
        {
            match Growing::resume(&bytes) {
                Ok(chunk) => packer.open = chunk.map(|chunk| Open { chunk, at, fresh_from: None }),
                Err(fault) => packer.report(at, &fault),
            }
        }
        Ok(packer)
    }

    /// A damaged chunk stays as it is: reading its series says so, writing goes on behind it.
    fn report(&self, at: ChunkKey, fault: &Fault) {
        tracing::error!(
            source = %self.key.source, attempt = %self.key.attempt, rank = %self.key.rank, metric = %self.key.name,
            sequence = at.sequence, ?fault, "a chunk is damaged; new points go into another one"
        );
    }

    /// Adds a point that stands at `place` (sequence, offset) of the stream; `false` when it repeats a stored one.
    fn add(&mut self, tables: &mut Tables<'_>, point: Point, place: (u64, u32)) -> Result<bool, Fault> {
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
        if let Some(open) = &mut self.open {
            match open.chunk.contains(point) {
                Ok(true) => return Ok(true),
                Ok(false) | Err(Fault::Damaged(_)) => {}
                Err(fault) => return Err(fault),
            }
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
            Err(Fault::Damaged(what)) => {
                self.report(open.at, &Fault::Damaged(what));
                tables.open.remove(&self.open_key(open.at))?;
                self.seal_apart(tables, open)
            }
            Err(fault) => Err(fault),
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
    fn store(&mut self, tables: &mut Tables<'_>) -> Result<(), Fault> {
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
            Err(Fault::Damaged(_)) => self.seal(tables),
            Err(fault) => Err(fault),
        }
    }

    fn open_key(&self, at: ChunkKey) -> [u8; 17] {
        open_key(self.key.source.shard(), cut_of(at.sequence), self.series)
    }
}

fn cut_of(sequence: u64) -> u64 {
    sequence / CUT_EVERY_SEQUENCES
}

/// The last chunk of a series.
fn last_chunk(tables: &Tables<'_>, series: u64) -> Result<Option<(ChunkKey, Vec<u8>)>, Fault> {
    let (first, last) = ChunkKey::all_of(series);
    let entry = tables.chunks.range::<&[u8; 20]>(&first..=&last)?.next_back().transpose()?;
    Ok(entry.map(|(at, bytes)| (ChunkKey::read(at.value()), bytes.value().to_vec())))
}

/// Seals some of the shard's chunks whose cut lies before the floor.
fn seal_cut(tables: &mut Tables<'_>, shard: u8, floor: u64) -> Result<(), Fault> {
    let (from, to) = (open_key(shard, 0, 0), open_key(shard, cut_of(floor), 0));
    let mut due = Vec::new();
    for entry in tables.open.range::<&[u8; 17]>(&from..&to)?.take(SEALS_PER_COMMIT) {
        due.push(*entry?.0.value());
    }
    for key in due {
        if let Some((at, bytes)) = last_chunk(tables, tables::series_of_open(&key))? {
            match Growing::resume(&bytes).and_then(|chunk| chunk.map(|mut chunk| chunk.sealed()).transpose()) {
                Ok(Some(sealed)) => drop(tables.chunks.insert(&at.bytes(), sealed.as_slice())?),
                Ok(None) => {}
                Err(fault) => tracing::error!(series = at.series, sequence = at.sequence, ?fault, "a chunk is damaged; it stays as it is"),
            }
        }
        tables.open.remove(&key)?;
    }
    Ok(())
}
