//! One group of ingest calls inside one transaction: who is let in, then series by series, then the sessions and floors.

use super::{
    fault::Fault,
    packer::{Packer, cut_of, last_chunk},
    tables::{self, META_NEXT_SERIES, Tables, open_key, series_key},
};
use crate::{
    IngestBatch, Ingested, Noted, Point, RefusedBatch, SeriesKey, SessionKey, SessionProgress,
    chunk::Growing,
    rows::{SeriesRow, read_session, session_bytes},
};
use redb::ReadableTable;
use std::collections::{BTreeMap, BTreeSet};

/// Chunks past their cut that one commit seals besides its own work, so that a cut costs many commits a little each.
const SEALS_PER_COMMIT: usize = 64;

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
