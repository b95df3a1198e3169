//! A store against a plain list.

use super::{Writer, metric};
use crate::{IngestBatch, Point, SeriesKey, SeriesStats, SeriesStore};
use footplate_types::{AttemptNumber, Rank, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that look drawn and are always the same (xorshift64*, Vigna).
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// What a store should hold.
#[derive(Default)]
struct Model {
    floors: BTreeMap<u8, u64>,
    stored: BTreeSet<(u32, u32, SessionId, u64)>,
    series: BTreeMap<SeriesKey, Vec<Point>>,
}

impl Model {
    /// Takes one call; how many points and how many duplicates.
    fn ingest(&mut self, batches: &[IngestBatch]) -> (u64, u64) {
        let floors = self.floors.clone();
        let (mut added, mut duplicates) = (0, 0);
        for batch in batches {
            let shard = batch.source.shard();
            let known = batch.sequence <= floors.get(&shard).copied().unwrap_or(0);
            if known || !self.stored.insert((batch.attempt.0, batch.rank.0, batch.session, batch.n)) {
                duplicates += 1;
            } else {
                added += self.add(batch);
            }
            let floor = self.floors.entry(shard).or_default();
            *floor = batch.sequence.max(*floor);
        }
        (added, duplicates)
    }

    fn add(&mut self, batch: &IngestBatch) -> u64 {
        let mut added = 0;
        for (name, points) in &batch.series {
            let key = SeriesKey { source: batch.source.clone(), attempt: batch.attempt, rank: batch.rank, name: name.clone() };
            let list = self.series.entry(key).or_default();
            for point in points {
                if !list.contains(point) {
                    list.push(*point);
                    added += 1;
                }
            }
        }
        added
    }
}

/// A few hundred calls with redelivery, batches sent again and out of turn, repeats, steps that go back, and cuts; the same after each.
pub async fn any_history_of_batches_reads_as_a_plain_list_would(store: &dyn SeriesStore) {
    let mut drawn = Drawn(0x9E37_79B9_7F4A_7C15);
    let mut model = Model::default();
    let mut sent: Vec<IngestBatch> = Vec::new();
    let mut sequence = 0;
    for _ in 0..150 {
        let mut call = Vec::new();
        for _ in 0..=drawn.below(4) {
            sequence += 1 + if drawn.below(30) == 0 { crate::embedded::CUT_EVERY_SEQUENCES } else { drawn.below(3) };
            call.push(match drawn.below(8) {
                0 if !sent.is_empty() => IngestBatch { sequence, ..sent[drawn.below(sent.len() as u64) as usize].clone() },
                1 if !sent.is_empty() => sent[drawn.below(sent.len() as u64) as usize].clone(),
                _ => new_batch(&mut drawn, sequence, sent.len() as u64),
            });
        }
        call.sort_by_key(|batch| batch.sequence);
        let expected = model.ingest(&call);
        let ingested = store.ingest(&call).await.unwrap();
        assert_eq!((ingested.points, ingested.duplicate_batches, ingested.refused), (expected.0, expected.1, vec![]));
        sent.extend(call);
    }
    let source = Writer::of("model").source;
    let mut keys = BTreeSet::new();
    for (key, list) in &model.series {
        if list.is_empty() {
            continue;
        }
        keys.insert(key.clone());
        assert_eq!(&store.points(key).await.unwrap(), list, "{key:?}");
        assert_eq!(store.sample(key, 50).await.unwrap(), crate::reduce(list, 50));
    }
    let summaries = store.latest(&source).await.unwrap();
    assert_eq!(summaries.iter().map(|summary| summary.key.clone()).collect::<BTreeSet<_>>(), keys);
    for summary in summaries {
        assert_eq!(Some(summary.stats), SeriesStats::of(&model.series[&summary.key]));
    }
    assert!(model.series.values().any(|list| list.len() > 1_000), "the history is long enough to seal chunks");
}

fn new_batch(drawn: &mut Drawn, sequence: u64, n: u64) -> IngestBatch {
    let series = (0..=drawn.below(3)).map(|_| {
        let name = ["loss", "lr", "acc"][drawn.below(3) as usize];
        let from = drawn.below(400) as i64;
        let count = drawn.below(60) as i64;
        let values = drawn.below(3);
        let points = (from..from + count).map(|step| Point {
            step,
            time_ms: (drawn.below(2) * n) as i64,
            value: (drawn.below(3 + values) as f64) / 4.0,
        });
        (metric(name), points.collect())
    });
    let series = series.collect();
    IngestBatch {
        sequence,
        source: Writer::of("model").source,
        attempt: AttemptNumber(1 + drawn.below(2) as u32),
        rank: Rank(drawn.below(2) as u32),
        session: SessionId::derived(&[b"model"]),
        n: n + 1 + drawn.below(3),
        series,
    }
}
