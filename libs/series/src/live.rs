//! Store and tail read as one: everything in METRICS that was received before the question.

use crate::{
    HistoryPage, HistoryQuery, IngestBatch, Ingested, MergedPoint, Point, Sample, SeriesError, SeriesKey, SeriesSource, SeriesStats,
    SeriesStore, SeriesSummary, SessionProgress, Tail, TailFull, merge_attempts, reduce,
};
use footplate_types::{MetricName, Rank, RunId};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::RwLock;

/// A store and the tail in front of it.
///
/// The tail is read first and the store after it, so that a batch that is stored in between is seen in both and counted once (by sequence
/// against the floor of the read, by session and number otherwise); it is never missed.
pub struct Live {
    store: Arc<dyn SeriesStore>,
    tail: Mutex<Tail>,
    /// Held by commits together; a read that commits have disturbed too often takes it alone.
    commits: RwLock<()>,
}

/// How often a read that a commit has disturbed begins anew before it holds commits up.
const TRIES: usize = 4;

/// What the tail adds to a series.
enum Fresh {
    /// These points.
    Points(Vec<Point>),
    /// The store took in more while it was being read: whether a point repeats one before it cannot be told any more.
    Disturbed,
}

impl Live {
    /// Reads `store` with an empty tail of at most `most_tail_points` points.
    pub fn new(store: Arc<dyn SeriesStore>, most_tail_points: u64) -> Self {
        Self { store, tail: Mutex::new(Tail::new(most_tail_points)), commits: RwLock::new(()) }
    }

    /// The store alone.
    pub fn store(&self) -> &Arc<dyn SeriesStore> {
        &self.store
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a received batch readable before it is stored; `false` when its (session, n) is in the tail already.
    pub fn push(&self, batch: Arc<IngestBatch>) -> Result<bool, TailFull> {
        self.tail().push(batch)
    }

    /// Stores batches and trims the tail up to the sequences that became durable.
    pub async fn ingest(&self, batches: &[IngestBatch]) -> Result<Ingested, SeriesError> {
        let _commit = self.commits.read().await;
        let ingested = self.store.ingest(batches).await?;
        let mut floors = BTreeMap::new();
        for batch in batches {
            let floor = floors.entry(batch.source.shard()).or_insert(batch.sequence);
            *floor = batch.sequence.max(*floor);
        }
        let mut tail = self.tail();
        floors.into_iter().for_each(|(shard, floor)| tail.trim(shard, floor));
        Ok(ingested)
    }

    /// Forgets what is in the tail at or below a floor that the store reached otherwise.
    pub fn trim(&self, shard: u8, floor: u64) {
        self.tail().trim(shard, floor);
    }

    /// A part of a series in the order of arrival. The points of the tail follow the store's last page whole, even beyond the limit.
    pub async fn history(&self, key: &SeriesKey, query: HistoryQuery) -> Result<HistoryPage, SeriesError> {
        for _ in 0..TRIES {
            if let Some(page) = self.history_undisturbed(key, query).await? {
                return Ok(page);
            }
        }
        let _alone = self.commits.write().await;
        let page = self.history_undisturbed(key, query).await?;
        page.ok_or_else(|| SeriesError::Invalid("the series store is written to by somebody else".to_owned()))
    }

    /// None when a commit came in between.
    async fn history_undisturbed(&self, key: &SeriesKey, query: HistoryQuery) -> Result<Option<HistoryPage>, SeriesError> {
        let tail = self.tail().of(&key.source);
        if tail.is_empty() {
            return self.store.history(key, query).await.map(Some);
        }
        let state = self.store.state(&key.source).await?;
        let mut page = self.store.history(key, query).await?;
        if page.next.is_none() {
            let stats = state.series.iter().find(|summary| summary.key == *key).map(|summary| summary.stats);
            let Fresh::Points(fresh) = self.fresh(key, stats, &state.sessions, &tail, page.floor).await? else { return Ok(None) };
            page.points.extend(fresh.into_iter().filter(|point| query.wants(point)));
        }
        Ok(Some(page))
    }

    /// The points of the tail that the store will add to a series, read when the store's floor was `floor`.
    async fn fresh(
        &self,
        key: &SeriesKey,
        mut stats: Option<SeriesStats>,
        sessions: &[SessionProgress],
        tail: &[Arc<IngestBatch>],
        floor: u64,
    ) -> Result<Fresh, SeriesError> {
        let mut fresh: Vec<Point> = Vec::new();
        for batch in tail.iter().filter(|batch| (batch.attempt, batch.rank) == (key.attempt, key.rank) && !is_stored(batch, sessions)) {
            for (_, points) in batch.series.iter().filter(|(name, _)| *name == key.name) {
                for point in points {
                    let is_new = batch.sequence > floor;
                    if is_new && stats.is_some_and(|stats| stats.may_hold(point)) {
                        match self.repeats(key, point, &fresh, floor).await? {
                            Some(true) => continue,
                            Some(false) => {}
                            None => return Ok(Fresh::Disturbed),
                        }
                    }
                    match &mut stats {
                        Some(stats) => stats.add(*point),
                        none => *none = Some(SeriesStats::first(*point)),
                    }
                    if is_new {
                        fresh.push(*point);
                    }
                }
            }
        }
        Ok(Fresh::Points(fresh))
    }

    /// Whether a point equals one of the tail or of the store as it stood at `floor`; none when the store stands further by now, for then
    /// the point itself may be in it. Asked only for points within the series' bounds, which is rare.
    async fn repeats(&self, key: &SeriesKey, point: &Point, fresh: &[Point], floor: u64) -> Result<Option<bool>, SeriesError> {
        if fresh.contains(point) {
            return Ok(Some(true));
        }
        let mut query = HistoryQuery { from_step: point.step, to_step: point.step, ..HistoryQuery::default() };
        loop {
            let page = self.store.history(key, query).await?;
            if page.floor != floor {
                return Ok(None);
            }
            if page.points.contains(point) {
                return Ok(Some(true));
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(Some(false)),
            }
        }
    }

    /// All points of a series, in the order of arrival.
    pub async fn points(&self, key: &SeriesKey) -> Result<Vec<Point>, SeriesError> {
        let mut query = HistoryQuery::default();
        let mut points = Vec::new();
        loop {
            let page = self.history(key, query).await?;
            points.extend(page.points);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(points),
            }
        }
    }

    /// At most `max_points` of a series, as [`reduce`] chooses them.
    pub async fn sample(&self, key: &SeriesKey, max_points: usize) -> Result<Sample, SeriesError> {
        Ok(reduce(&self.points(key).await?, max_points))
    }

    /// The figures of every series of a source, by attempt, rank, name.
    pub async fn latest(&self, source: &SeriesSource) -> Result<Vec<SeriesSummary>, SeriesError> {
        for _ in 0..TRIES {
            if let Some(latest) = self.latest_undisturbed(source).await? {
                return Ok(latest);
            }
        }
        let _alone = self.commits.write().await;
        let latest = self.latest_undisturbed(source).await?;
        latest.ok_or_else(|| SeriesError::Invalid("the series store is written to by somebody else".to_owned()))
    }

    /// None when a commit came in between.
    async fn latest_undisturbed(&self, source: &SeriesSource) -> Result<Option<Vec<SeriesSummary>>, SeriesError> {
        let tail = self.tail().of(source);
        let state = self.store.state(source).await?;
        let mut summaries: BTreeMap<SeriesKey, SeriesStats> =
            state.series.into_iter().map(|summary| (summary.key, summary.stats)).collect();
        for key in tail.iter().flat_map(|batch| keys_of(batch)).collect::<std::collections::BTreeSet<_>>() {
            let stored = summaries.get(&key).copied();
            let Fresh::Points(fresh) = self.fresh(&key, stored, &state.sessions, &tail, state.floor).await? else { return Ok(None) };
            let mut stats = stored;
            for point in fresh {
                match &mut stats {
                    Some(stats) => stats.add(point),
                    none => *none = Some(SeriesStats::first(point)),
                }
            }
            if let Some(stats) = stats {
                summaries.insert(key, stats);
            }
        }
        Ok(Some(summaries.into_iter().map(|(key, stats)| SeriesSummary { key, stats }).collect()))
    }

    /// A metric of a run over all its attempts: see [`merge_attempts`].
    pub async fn merged(&self, run: RunId, rank: Rank, name: &MetricName) -> Result<Vec<MergedPoint>, SeriesError> {
        let mut attempts = Vec::new();
        for summary in self.latest(&SeriesSource::Run(run)).await? {
            if summary.key.rank == rank && summary.key.name == *name {
                attempts.push((summary.key.attempt, self.points(&summary.key).await?));
            }
        }
        Ok(merge_attempts(&attempts))
    }
}

fn is_stored(batch: &IngestBatch, sessions: &[SessionProgress]) -> bool {
    let key = batch.session_key();
    sessions.iter().any(|progress| progress.key == key && progress.has(batch.n))
}

fn keys_of(batch: &IngestBatch) -> impl Iterator<Item = SeriesKey> {
    let written = batch.series.iter().filter(|(_, points)| !points.is_empty());
    written.map(|(name, _)| SeriesKey { source: batch.source.clone(), attempt: batch.attempt, rank: batch.rank, name: name.clone() })
}
