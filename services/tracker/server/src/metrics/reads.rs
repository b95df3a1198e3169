//! Reading metrics: everything in METRICS that was there when the question came.

use super::Consumer;
use crate::error::series_failed;
use crate::view::View;
use footplate_api::{Refusal, reason};
use footplate_eventlog::StreamName;
use footplate_series::{
    HistoryQuery, MAX_PAGE_POINTS, PageToken, Point, SeriesKey, SeriesSource, SeriesStats, SeriesSummary, merge_attempts, reduce,
};
use footplate_shell::away;
use footplate_tracker_core::Run;
use footplate_tracker_core::search::{MetricFigures, Metrics};
use footplate_types::{AttemptNumber, MetricName, Rank, RunId, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs whose figures are read at the same time.
const READS_AT_ONCE: usize = 16;

/// How long figures that are only shown beside a run wait for the end of METRICS.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// Points of a page when nothing is asked.
const PAGE_DEFAULT: usize = 10_000;

/// Which points of a metric are wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The run.
    pub run: RunId,
    /// The metric.
    pub name: MetricName,
    /// The worker.
    pub rank: Rank,
    /// One attempt alone; 0 for the merged view.
    pub attempt: AttemptNumber,
    /// The lowest step.
    pub from_step: i64,
    /// The highest step.
    pub to_step: i64,
    /// Reduce to at most this many; 0 for all, paged.
    pub max_points: usize,
    /// The most points of a page; 0 for the default.
    pub page_size: usize,
    /// The token of the answer before; empty for the first page.
    pub page_token: String,
}

/// Points of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The points.
    pub points: Vec<Point>,
    /// Whether points were left out.
    pub reduced: bool,
    /// How many there are.
    pub count: u64,
    /// Where to read on; empty at the end.
    pub next: String,
}

/// The reading side of metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reads {
    view: View,
    consumer: Consumer,
}

impl Reads {
    /// Reads through a consumer's store and tail.
    pub(crate) fn new(view: View, consumer: Consumer) -> Self {
        Self { view, consumer }
    }

    /// Waits until everything that METRICS holds now can be read.
    async fn caught_up(&self) -> Result<(), Refusal> {
        let broker = self.view.ledger().broker();
        let bounds = broker.bounds(StreamName::Metrics).await.map_err(away)?;
        let mut received = self.consumer.received();
        if received.borrow().covers(&bounds) {
            return Ok(());
        }
        broker.nudge(StreamName::Metrics);
        match tokio::time::timeout(self.view.wait(), received.wait_for(|at| at.covers(&bounds))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Refusal::new(&reason::VIEW_BEHIND, format!("METRICS is not read up to {} yet", bounds.last))),
        }
    }

    /// The figures of every series of a run.
    pub(crate) async fn latest(&self, run: RunId) -> Result<Vec<SeriesSummary>, Refusal> {
        self.caught_up().await?;
        self.latest_now(run).await
    }

    async fn latest_now(&self, run: RunId) -> Result<Vec<SeriesSummary>, Refusal> {
        self.consumer.series().latest(&SeriesSource::Run(run)).await.map_err(series_failed)
    }

    /// The figures of a run beside its other facts: as of now, or of shortly before while the broker is away.
    pub(crate) async fn shown(&self, run: RunId) -> Result<Vec<SeriesSummary>, Refusal> {
        self.caught_up_or_not().await;
        self.latest_now(run).await
    }

    /// [`Reads::shown`] of many runs.
    pub(crate) async fn shown_of(&self, runs: Vec<RunId>) -> Result<BTreeMap<RunId, Vec<SeriesSummary>>, Refusal> {
        self.caught_up_or_not().await;
        self.latest_of_now(runs).await
    }

    async fn caught_up_or_not(&self) {
        match tokio::time::timeout(SHOWN_WITHIN, self.caught_up()).await {
            Ok(Ok(())) => {}
            Ok(Err(refusal)) => tracing::debug!(%refusal, "figures are shown as they were last read"),
            Err(_) => tracing::debug!("figures are shown as they were last read: METRICS did not answer in time"),
        }
    }

    /// The figures of many runs.
    pub(crate) async fn latest_of(&self, runs: Vec<RunId>) -> Result<BTreeMap<RunId, Vec<SeriesSummary>>, Refusal> {
        self.caught_up().await?;
        self.latest_of_now(runs).await
    }

    async fn latest_of_now(&self, runs: Vec<RunId>) -> Result<BTreeMap<RunId, Vec<SeriesSummary>>, Refusal> {
        let reads = runs.into_iter().map(|run| async move { self.latest_now(run).await.map(|latest| (run, latest)) });
        stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await
    }

    /// The store's own figures and sessions of a run, without the tail: what is durable.
    pub(crate) async fn stored(&self, run: RunId) -> Result<footplate_series::SourceState, Refusal> {
        self.consumer.series().store().state(&SeriesSource::Run(run)).await.map_err(series_failed)
    }

    /// Figures for searching.
    pub(crate) fn searchable(&self, latest: BTreeMap<RunId, Vec<SeriesSummary>>) -> Searchable {
        Searchable { consumer: self.consumer.clone(), latest }
    }

    /// The points of one metric.
    pub(crate) async fn history(&self, wanted: &Wanted) -> Result<Answer, Refusal> {
        let latest = self.latest(wanted.run).await?;
        let of_metric = |summary: &&SeriesSummary| summary.key.rank == wanted.rank && summary.key.name == wanted.name;
        let of_attempt = |summary: &&SeriesSummary| wanted.attempt == AttemptNumber(0) || summary.key.attempt == wanted.attempt;
        let series: Vec<&SeriesSummary> = latest.iter().filter(of_metric).filter(of_attempt).collect();
        match series.as_slice() {
            [] => Err(self.not_found(wanted, &latest)),
            [one] if wanted.max_points == 0 => self.page(wanted, one).await,
            several => self.whole(wanted, several).await,
        }
    }

    fn not_found(&self, wanted: &Wanted, latest: &[SeriesSummary]) -> Refusal {
        let names: std::collections::BTreeSet<&str> = latest.iter().map(|summary| summary.key.name.as_str()).collect();
        let shown: Vec<&str> = names.into_iter().take(20).collect();
        let attempt = if wanted.attempt == AttemptNumber(0) { String::new() } else { format!(" in attempt {}", wanted.attempt) };
        let message = format!("run {} has no metric {:?} of rank {}{attempt}", wanted.run, wanted.name.as_str(), wanted.rank);
        let refusal = Refusal::new(&reason::SERIES_NOT_FOUND, message).field("name").value(&wanted.name);
        if shown.is_empty() { refusal } else { refusal.allowed(shown.join(", ")) }
    }

    /// One page of one series, as the store pages it.
    async fn page(&self, wanted: &Wanted, series: &SeriesSummary) -> Result<Answer, Refusal> {
        let after = if wanted.page_token.is_empty() { None } else { Some(PageToken::parse(&wanted.page_token).map_err(bad_token)?) };
        let limit = page_points(wanted.page_size);
        let query = HistoryQuery { from_step: wanted.from_step, to_step: wanted.to_step, limit, after };
        let page = self.consumer.series().history(&series.key, query).await.map_err(series_failed)?;
        let next = page.next.map_or_else(String::new, |next| next.to_string());
        Ok(Answer { points: page.points, reduced: false, count: series.stats.count, next })
    }

    /// All attempts laid over each other, or a reduced answer: read whole.
    async fn whole(&self, wanted: &Wanted, series: &[&SeriesSummary]) -> Result<Answer, Refusal> {
        let mut attempts = Vec::new();
        for one in series {
            attempts.push((one.key.attempt, self.consumer.series().points(&one.key).await.map_err(series_failed)?));
        }
        let merged = merge_attempts(&attempts).into_iter().map(|merged| merged.point);
        let points: Vec<Point> = merged.filter(|point| (wanted.from_step..=wanted.to_step).contains(&point.step)).collect();
        let count = points.len() as u64;
        if wanted.max_points > 0 {
            let sample = reduce(&points, wanted.max_points);
            return Ok(Answer { points: sample.points, reduced: sample.reduced, count, next: String::new() });
        }
        let from = merged_offset(&wanted.page_token)?;
        let to = points.len().min(from + page_points(wanted.page_size));
        let next = if to < points.len() { format!("merged-{to}") } else { String::new() };
        let points = points.get(from..to).unwrap_or_default().to_vec();
        Ok(Answer { points, reduced: false, count, next })
    }
}

fn page_points(asked: usize) -> usize {
    if asked == 0 { PAGE_DEFAULT } else { asked.min(MAX_PAGE_POINTS) }
}

fn merged_offset(token: &str) -> Result<usize, Refusal> {
    if token.is_empty() {
        return Ok(0);
    }
    let offset = token.strip_prefix("merged-").and_then(|offset| offset.parse().ok());
    offset.ok_or_else(|| bad_token(footplate_types::Invalid::new("page_token", token, "a token from the answer before")))
}

fn bad_token(invalid: footplate_types::Invalid) -> Refusal {
    Refusal::new(&reason::INVALID_PAGE_TOKEN, invalid.to_string()).field("page_token").value(invalid.value)
}

/// The newest value of each metric and rank with figures over all attempts, by name and rank.
pub(crate) fn newest(latest: &[SeriesSummary], all_ranks: bool) -> Vec<(SeriesKey, SeriesStats)> {
    let mut found: BTreeMap<(MetricName, Rank), (SeriesKey, SeriesStats)> = BTreeMap::new();
    for summary in latest.iter().filter(|summary| all_ranks || summary.key.rank == Rank(0)) {
        let place = (summary.key.name.clone(), summary.key.rank);
        match found.get_mut(&place) {
            None => {
                found.insert(place, (summary.key.clone(), summary.stats));
            }
            Some((key, stats)) => {
                let newer = summary.key.attempt > key.attempt;
                let mut joined = if newer { summary.stats } else { *stats };
                let other = if newer { *stats } else { summary.stats };
                joined.count += other.count;
                joined.nan_count += other.nan_count;
                joined.inf_count += other.inf_count;
                joined.min = least(joined.min, other.min, f64::min);
                joined.max = least(joined.max, other.max, f64::max);
                if newer {
                    *key = summary.key.clone();
                }
                *stats = joined;
            }
        }
    }
    found.into_values().collect()
}

fn least(one: Option<f64>, other: Option<f64>, pick: fn(f64, f64) -> f64) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(pick(one, other)),
        (one, other) => one.or(other),
    }
}

/// Figures of runs in hand, for filters and orders.
pub(crate) struct Searchable {
    consumer: Consumer,
    latest: BTreeMap<RunId, Vec<SeriesSummary>>,
}

impl Searchable {
    /// The figures of a run.
    pub(crate) fn of(&self, run: RunId) -> &[SeriesSummary] {
        self.latest.get(&run).map_or(&[], Vec::as_slice)
    }

    /// The names of all metrics in hand.
    pub(crate) fn names(&self) -> std::collections::BTreeSet<String> {
        self.latest.values().flatten().map(|summary| summary.key.name.to_string()).collect()
    }
}

impl Metrics for Searchable {
    fn figures(&self, run: &Run, name: &str) -> Option<MetricFigures> {
        let of_name: Vec<SeriesSummary> = self.of(run.id).iter().filter(|summary| summary.key.name.as_str() == name).cloned().collect();
        let (_, stats) = newest(&of_name, false).into_iter().next()?;
        Some(MetricFigures { last: stats.latest.value, min: stats.min, max: stats.max, count: stats.count })
    }

    fn last_metric_at(&self, run: &Run) -> Option<Timestamp> {
        // Since the start the broker's clock is known; before it, the newest time that the run itself told.
        let told = || self.of(run.id).iter().map(|summary| Timestamp::from_millis(summary.stats.max_time_ms)).max();
        self.consumer.arrived(run.id).or_else(told)
    }
}
