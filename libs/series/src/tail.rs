//! The newest batches, in memory, until the store has them.

use crate::{IngestBatch, SeriesSource, SessionKey};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// The tail holds as many points as it may: let the store catch up, then push the same batch again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tail of unstored points is full at {most_points} points")]
pub struct TailFull {
    /// Its bound.
    pub most_points: u64,
}

/// Batches of METRICS beyond the store's floor. A tracker pushes what it receives, hands it to the store, and trims up to the new floor; so
/// the tail holds what one or two commits have in flight. It is bounded in points: a full tail is back-pressure, nothing is dropped.
#[derive(Debug)]
pub struct Tail {
    most_points: u64,
    points: u64,
    shards: BTreeMap<u8, BTreeMap<SeriesSource, VecDeque<Arc<IngestBatch>>>>,
    held: BTreeSet<(SessionKey, u64)>,
}

impl Tail {
    /// An empty tail of at most `most_points` points; one batch is always let in, however large.
    pub fn new(most_points: u64) -> Self {
        Self { most_points, points: 0, shards: BTreeMap::new(), held: BTreeSet::new() }
    }

    /// Takes the next batch of its shard, in the order of the stream; `false` when the same (session, n) is held already.
    pub fn push(&mut self, batch: Arc<IngestBatch>) -> Result<bool, TailFull> {
        if self.points > 0 && self.points + batch.points() > self.most_points {
            return Err(TailFull { most_points: self.most_points });
        }
        if !self.held.insert((batch.session_key(), batch.n)) {
            return Ok(false);
        }
        self.points += batch.points();
        self.shards.entry(batch.source.shard()).or_default().entry(batch.source.clone()).or_default().push_back(batch);
        Ok(true)
    }

    /// Forgets what is at or below the floor of a shard.
    pub fn trim(&mut self, shard: u8, floor: u64) {
        let Some(sources) = self.shards.get_mut(&shard) else { return };
        for batches in sources.values_mut() {
            while let Some(batch) = batches.pop_front_if(|batch| batch.sequence <= floor) {
                self.points -= batch.points();
                self.held.remove(&(batch.session_key(), batch.n));
            }
        }
        sources.retain(|_, batches| !batches.is_empty());
    }

    /// The batches of a source, in the order of the stream.
    pub fn of(&self, source: &SeriesSource) -> Vec<Arc<IngestBatch>> {
        let batches = self.shards.get(&source.shard()).and_then(|sources| sources.get(source));
        batches.map_or_else(Vec::new, |batches| batches.iter().cloned().collect())
    }

    /// How many points are held.
    pub fn points(&self) -> u64 {
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Point;
    use footplate_types::{AttemptNumber, MetricName, Rank, RunId, SessionId};

    fn batch(sequence: u64, n: u64, points: i64) -> Arc<IngestBatch> {
        let points = (0..points).map(|step| Point { step, time_ms: 0, value: 0.0 }).collect();
        Arc::new(IngestBatch {
            sequence,
            source: SeriesSource::Run(RunId::from_bytes([1; 16])),
            attempt: AttemptNumber(1),
            rank: Rank(0),
            session: SessionId::from_bytes([2; 16]),
            n,
            series: vec![(MetricName::parse("loss").unwrap(), points)],
        })
    }

    #[test]
    fn a_full_tail_refuses_and_takes_the_batch_after_a_trim() {
        let mut tail = Tail::new(10);
        assert_eq!(tail.push(batch(5, 1, 8)), Ok(true));
        assert_eq!(tail.push(batch(6, 2, 3)), Err(TailFull { most_points: 10 }));
        tail.trim(batch(5, 1, 0).source.shard(), 5);
        assert_eq!(tail.points(), 0);
        assert_eq!(tail.push(batch(6, 2, 30)), Ok(true), "an empty tail takes any one batch");
        assert_eq!(tail.of(&batch(0, 0, 0).source).len(), 1);
    }

    #[test]
    fn the_same_batch_of_a_session_is_held_once_and_may_come_again_after_a_trim() {
        let mut tail = Tail::new(100);
        assert_eq!(tail.push(batch(5, 1, 2)), Ok(true));
        assert_eq!(tail.push(batch(7, 1, 2)), Ok(false));
        assert_eq!(tail.points(), 2);
        tail.trim(batch(0, 0, 0).source.shard(), 5);
        assert_eq!(tail.push(batch(9, 1, 2)), Ok(true), "whether it is stored is the store's to know");
    }
}
