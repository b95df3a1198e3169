//! The one thread that writes: takes what waits, makes one commit of it, answers.

use super::{
    apply,
    fault::{Fault, Slot},
    tables::{ChunkKey, META_FEED_BASE, META_FEED_CREATED, Tables},
};
use crate::{Feed, IngestBatch, Ingested, SeriesError, SeriesSource};
use redb::{Database, ReadableTable};
use tokio::sync::{mpsc, oneshot};

/// Points that one commit takes before the next begins; a single call larger than that is one commit all the same.
const GROUP_POINTS: u64 = 1 << 20;

/// Chunks that one commit of a deletion removes, so that ingest is never held up for long.
const REMOVED_PER_COMMIT: usize = 4_096;

type Answer<T> = oneshot::Sender<Result<T, SeriesError>>;

/// What the writer is asked.
pub(super) enum Job {
    Ingest { batches: Vec<IngestBatch>, answer: Answer<Ingested> },
    FeedFrom { feed: Feed, answer: Answer<()> },
    RaiseFloor { shard: u8, sequence: u64, answer: Answer<()> },
    Delete { source: SeriesSource, answer: Answer<()> },
}

/// Works until every sender is gone. A deletion cut short by the end of the process is finished first.
pub(super) fn run(slot: &Slot, mut queue: mpsc::Receiver<Job>) {
    if let Err(error) = remove_doomed(slot) {
        tracing::warn!(%error, "an earlier deletion could not be finished; the next one will");
    }
    let mut held = None;
    while let Some(job) = held.take().or_else(|| queue.blocking_recv()) {
        match job {
            Job::Ingest { batches, answer } => held = ingest_group(slot, &mut queue, batches, answer),
            Job::FeedFrom { feed, answer } => reply(answer, slot.write(|database| feed_from(database, feed))),
            Job::RaiseFloor { shard, sequence, answer } => reply(answer, slot.write(|database| raise_floor(database, shard, sequence))),
            Job::Delete { source, answer } => {
                let removed = slot.write(|database| doom(database, &source)).and_then(|()| remove_doomed(slot));
                reply(answer, removed);
            }
        }
    }
}

fn reply<T>(answer: Answer<T>, outcome: Result<T, SeriesError>) {
    // Whoever asked may have gone; what is stored stays stored.
    drop(answer.send(outcome));
}

/// Makes one commit of this call and the ingest calls that wait behind it; gives back a job of another kind that came between.
fn ingest_group(slot: &Slot, queue: &mut mpsc::Receiver<Job>, first: Vec<IngestBatch>, answer: Answer<Ingested>) -> Option<Job> {
    let mut points: u64 = first.iter().map(IngestBatch::points).sum();
    let (mut calls, mut answers) = (vec![first], vec![answer]);
    let mut other = None;
    while points < GROUP_POINTS {
        match queue.try_recv() {
            Ok(Job::Ingest { batches, answer }) => {
                points += batches.iter().map(IngestBatch::points).sum::<u64>();
                calls.push(batches);
                answers.push(answer);
            }
            Ok(job) => {
                other = Some(job);
                break;
            }
            Err(_) => break,
        }
    }
    let borrowed: Vec<&[IngestBatch]> = calls.iter().map(Vec::as_slice).collect();
    match slot.write(|database| ingest(database, &borrowed)) {
        Ok(outcomes) => answers.into_iter().zip(outcomes).for_each(|(answer, outcome)| reply(answer, Ok(outcome))),
        Err(error) => answers.into_iter().for_each(|answer| reply(answer, Err(error.clone()))),
    }
    other
}

fn ingest(database: &Database, calls: &[&[IngestBatch]]) -> Result<Vec<Ingested>, Fault> {
    let txn = database.begin_write()?;
    let (outcomes, changed) = apply::ingest(&mut Tables::of(&txn)?, calls)?;
    if changed {
        txn.commit()?;
    } else {
        txn.abort()?;
    }
    Ok(outcomes)
}

fn feed_from(database: &Database, feed: Feed) -> Result<(), Fault> {
    let txn = database.begin_write()?;
    {
        let mut tables = Tables::of(&txn)?;
        tables.meta.insert(META_FEED_CREATED, feed.created.as_nanos().cast_unsigned())?;
        tables.meta.insert(META_FEED_BASE, feed.base)?;
    }
    Ok(txn.commit()?)
}

fn raise_floor(database: &Database, shard: u8, sequence: u64) -> Result<(), Fault> {
    let txn = database.begin_write()?;
    let raised = {
        let mut tables = Tables::of(&txn)?;
        let floor = tables.floors.get(shard)?.map_or(0, |floor| floor.value());
        if sequence > floor {
            tables.floors.insert(shard, sequence)?;
        }
        sequence > floor
    };
    if raised { Ok(txn.commit()?) } else { Ok(txn.abort()?) }
}

/// Takes the rows of a source away, after which no reader sees its series, and notes the series whose chunks are to go.
pub(super) fn doom(database: &Database, source: &SeriesSource) -> Result<(), Fault> {
    let txn = database.begin_write()?;
    {
        let mut tables = Tables::of(&txn)?;
        let Some(number) = tables.sources.get(source.to_string().as_str())?.map(|number| number.value()) else {
            return Ok(());
        };
        let (from, to) = (number.to_be_bytes(), (number + 1).to_be_bytes());
        let mut rows = Vec::new();
        for entry in tables.series.range::<&[u8]>(from.as_slice()..to.as_slice())? {
            let (key, row) = entry?;
            rows.push((key.value().to_vec(), crate::rows::SeriesRow::read(row.value())?.series));
        }
        for (key, series) in rows {
            tables.series.remove(key.as_slice())?;
            tables.doomed.insert(series, ())?;
        }
    }
    Ok(txn.commit()?)
}

/// Removes the chunks of doomed series, a bounded number a commit.
fn remove_doomed(slot: &Slot) -> Result<(), SeriesError> {
    while slot.write(remove_some)? {}
    Ok(())
}

/// One commit's worth of removing; whether something is left to remove.
fn remove_some(database: &Database) -> Result<bool, Fault> {
    let txn = database.begin_write()?;
    {
        let mut tables = Tables::of(&txn)?;
        let Some(series) = tables.doomed.first()?.map(|(series, _)| series.value()) else {
            return Ok(false);
        };
        let (first, last) = ChunkKey::all_of(series);
        let mut keys = Vec::new();
        for entry in tables.chunks.range::<&[u8; 20]>(&first..=&last)?.take(REMOVED_PER_COMMIT) {
            keys.push(*entry?.0.value());
        }
        for key in &keys {
            tables.chunks.remove(key)?;
        }
        if keys.len() < REMOVED_PER_COMMIT {
            tables.doomed.remove(series)?;
        }
    }
    txn.commit()?;
    Ok(true)
}
