//! The port: what a series store does. Back ends: [`crate::embedded`]; the suite in `conformance` says what each must do.

use crate::{
    IngestBatch, Ingested, MergedPoint, Point, Sample, SeriesError, SeriesKey, SeriesSource, SeriesSummary, SessionProgress, merge_attempts,
};
use footplate_types::{Invalid, MetricName, Rank, RunId, Timestamp};
use std::{fmt, future::Future, pin::Pin};

/// An answer on its way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, SeriesError>> + Send + 'a>>;

/// The most points in one page of history.
pub const MAX_PAGE_POINTS: usize = 65_536;

/// Which part of a series to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The lowest step wanted.
    pub from_step: i64,
    /// The highest step wanted, itself included.
    pub to_step: i64,
    /// The most points in the page; 0 or more than 65,536 means 65,536.
    pub limit: usize,
    /// Where to go on; absent for the first page.
    pub after: Option<PageToken>,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self { from_step: i64::MIN, to_step: i64::MAX, limit: MAX_PAGE_POINTS, after: None }
    }
}

impl HistoryQuery {
    /// The limit that applies.
    pub fn page_points(&self) -> usize {
        if self.limit == 0 { MAX_PAGE_POINTS } else { self.limit.min(MAX_PAGE_POINTS) }
    }

    pub(crate) fn wants(&self, point: &Point) -> bool {
        (self.from_step..=self.to_step).contains(&point.step)
    }
}

/// A place in a series: the chunk (by the sequence and offset it starts from) and the next point in it. It stays valid while points arrive
/// and chunks are sealed; as text it is `<sequence>-<offset>-<index>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageToken {
    /// The METRICS sequence that the chunk starts from.
    pub sequence: u64,
    /// Which of that message's points of the series the chunk starts from.
    pub offset: u32,
    /// The next point of the chunk, from 0.
    pub index: u32,
}

impl PageToken {
    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let read = || {
            let mut parts = text.split('-');
            let token =
                Self { sequence: parts.next()?.parse().ok()?, offset: parts.next()?.parse().ok()?, index: parts.next()?.parse().ok()? };
            parts.next().is_none().then_some(token)
        };
        read().ok_or_else(|| Invalid::new("page_token", text, "a token from the answer before"))
    }
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.sequence, self.offset, self.index)
    }
}

/// A part of a series, in the order of arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryPage {
    /// The points.
    pub points: Vec<Point>,
    /// Where the next page starts; absent when this was the last.
    pub next: Option<PageToken>,
    /// The floor of the source's shard at the moment of the read: everything in METRICS up to it is in the store.
    pub floor: u64,
}

/// What is known of a source, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceState {
    /// The floor of the source's shard.
    pub floor: u64,
    /// The figures of every series, by attempt, rank, name.
    pub series: Vec<SeriesSummary>,
    /// Which batches of each session are stored, by attempt, rank, session.
    pub sessions: Vec<SessionProgress>,
}

/// The METRICS stream that feeds a store. One that was made anew counts from 1 again, while a store's floors only rise: so the store keeps
/// the sequences of each stream counted on from where the one before it ended. "METRICS sequence" means that count throughout this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feed {
    /// When the stream was made, which tells it from an earlier one.
    pub created: Timestamp,
    /// What is added to its own sequences.
    pub base: u64,
}

impl Feed {
    /// What the store calls the message that stands at `sequence` of the stream.
    pub const fn sequence(&self, sequence: u64) -> u64 {
        self.base.saturating_add(sequence)
    }
}

/// A store of series. A call either did all of what it says, durably, or nothing.
///
/// Order within a series is that of arrival: by METRICS sequence, then by place in the message. A step may come twice, from later batches;
/// both points are kept, the later one wins in `latest` and in [`crate::last_by_step`]. A point that repeats a stored one in step, time and
/// value is dropped and costs nothing.
pub trait SeriesStore: Send + Sync {
    /// Stores batches. Those at or below the floor of their shard and those whose (session, n) is known are dropped; then the floor of each
    /// shard is raised to its highest sequence here, all in one commit. All batches of one METRICS message go in one call, and the batches
    /// of one shard come in the order of the stream from call to call.
    fn ingest<'a>(&'a self, batches: &'a [IngestBatch]) -> Pending<'a, Ingested>;

    /// Raises the floor of `shard` to `sequence` without storing anything: for messages that hold no batch (poison, parked elsewhere). A
    /// lower sequence than the floor changes nothing.
    fn raise_floor(&self, shard: u8, sequence: u64) -> Pending<'_, ()>;

    /// The highest METRICS sequence of the shard up to which everything is stored; 0 when nothing is.
    fn floor(&self, shard: u8) -> Pending<'_, u64>;

    /// The stream that feeds the store, as it was last noted; none before the first.
    fn feed(&self) -> Pending<'_, Option<Feed>>;

    /// Notes which stream feeds the store from now on.
    fn feed_from(&self, feed: Feed) -> Pending<'_, ()>;

    /// A part of one series, in the order of arrival. An unknown series is an empty page.
    fn history<'a>(&'a self, key: &'a SeriesKey, query: HistoryQuery) -> Pending<'a, HistoryPage>;

    /// At most `max_points` of a series, chosen as [`crate::reduce`] does; equal questions get equal answers.
    fn sample<'a>(&'a self, key: &'a SeriesKey, max_points: usize) -> Pending<'a, Sample>;

    /// What is known of a source, at one moment.
    fn state<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, SourceState>;

    /// Removes every series of a source. Its sessions and the floor stay, so that a batch sent again does not bring deleted points back.
    fn delete<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, ()>;

    /// The figures of every series of a source, by attempt, rank, name.
    fn latest<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, Vec<SeriesSummary>> {
        Box::pin(async move { Ok(self.state(source).await?.series) })
    }

    /// The series of a source, by attempt, rank, name.
    fn list<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, Vec<SeriesKey>> {
        Box::pin(async move { Ok(self.latest(source).await?.into_iter().map(|summary| summary.key).collect()) })
    }

    /// How many points of a source are stored, over all its series.
    fn points_count<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, u64> {
        Box::pin(async move { Ok(self.latest(source).await?.iter().map(|summary| summary.stats.count).sum()) })
    }

    /// Which batches of each session of a source are stored, by attempt, rank, session.
    fn sessions<'a>(&'a self, source: &'a SeriesSource) -> Pending<'a, Vec<SessionProgress>> {
        Box::pin(async move { Ok(self.state(source).await?.sessions) })
    }

    /// All points of one series, in the order of arrival.
    fn points<'a>(&'a self, key: &'a SeriesKey) -> Pending<'a, Vec<Point>> {
        Box::pin(async move {
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
        })
    }

    /// A metric of a run over all its attempts, as [`crate::merge_attempts`] does: a later attempt shadows what it repeats.
    fn merged<'a>(&'a self, run: RunId, rank: Rank, name: &'a MetricName) -> Pending<'a, Vec<MergedPoint>> {
        Box::pin(async move {
            let source = SeriesSource::Run(run);
            let mut attempts = Vec::new();
            for key in self.list(&source).await? {
                if key.rank == rank && key.name == *name {
                    attempts.push((key.attempt, self.points(&key).await?));
                }
            }
            Ok(merge_attempts(&attempts))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_reads_back_and_refuses_everything_else() {
        let token = PageToken { sequence: u64::MAX, offset: 7, index: 511 };
        assert_eq!(PageToken::parse(&token.to_string()), Ok(token));
        for text in ["", "1-2", "1-2-3-4", "-1-2-3", "a-b-c", "1-2-4294967296"] {
            assert!(PageToken::parse(text).is_err(), "{text}");
        }
    }
}
