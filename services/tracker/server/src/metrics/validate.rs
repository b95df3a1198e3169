//! A client's batch, checked whole before anything of it is written.

use footplate_api::v1::IngestRequest;
use footplate_api::{Refusal, reason};
use footplate_series::{Point, codec};
use footplate_types::{AttemptNumber, Invalid, MetricName, ProjectName, Rank, RunId, SessionId, Timestamp};

/// The most points of one batch: packed they stay below a message's limit.
pub(crate) const BATCH_POINTS_MAX: usize = 20_000;

/// The most series of one batch.
const BATCH_SERIES_MAX: usize = 5_000;

/// A client time before this is implausible: 2000-01-01.
const EARLIEST_MS: i64 = 946_684_800_000;

/// A client time further ahead than this is implausible: a day.
const AHEAD_MS: i64 = 86_400_000;

/// A batch that may be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checked {
    /// The tenant.
    pub project: ProjectName,
    /// The run.
    pub run: RunId,
    /// The attempt; 0 for a run without a job.
    pub attempt: AttemptNumber,
    /// The worker.
    pub rank: Rank,
    /// The process.
    pub session: SessionId,
    /// Its number in the session.
    pub n: u64,
    /// The points, per metric.
    pub series: Vec<(MetricName, Vec<Point>)>,
    /// How many points have an implausible time; they are kept as they are.
    pub implausible: u64,
}

impl Checked {
    /// How many points it has.
    pub(crate) fn points(&self) -> u64 {
        self.series.iter().map(|(_, points)| points.len() as u64).sum()
    }

    /// As a message of METRICS.
    pub(crate) fn packed(&self) -> footplate_api::metrics::Batch {
        let block = |(name, points): &(MetricName, Vec<Point>)| footplate_api::metrics::Block {
            name: name.to_string(),
            points: codec::encode(points),
        };
        footplate_api::metrics::Batch {
            project: self.project.to_string(),
            run: self.run.to_string(),
            attempt: self.attempt.0,
            rank: self.rank.0,
            session: self.session.to_string(),
            n: self.n,
            series: self.series.iter().map(block).collect(),
        }
    }
}

/// Checks a batch at `now`. Every value is kept bit for bit, NaN and the infinities too; a time of 0 becomes `now`.
pub(crate) fn check(request: &IngestRequest, now: Timestamp) -> Result<Checked, Refusal> {
    let project = ProjectName::parse(&request.project).map_err(|invalid| invalid.of("project"))?;
    let run = RunId::parse(&request.run_id).map_err(|invalid| invalid.of("run_id"))?;
    let session = SessionId::parse(&request.session).map_err(|invalid| invalid.of("session"))?;
    if request.n == 0 {
        return Err(Invalid::new("n", 0, "1, 2, 3, ... in the session").into());
    }
    let count: usize = request.series.iter().map(|series| series.points.len()).sum();
    if count > BATCH_POINTS_MAX || request.series.len() > BATCH_SERIES_MAX {
        let message = format!("a batch of {count} points in {} series is too large", request.series.len());
        let allowed = format!("at most {BATCH_POINTS_MAX} points in {BATCH_SERIES_MAX} series");
        return Err(Refusal::new(&reason::TOO_LARGE, message).field("series").value(count).allowed(allowed));
    }
    let mut implausible = 0;
    let mut series = Vec::with_capacity(request.series.len());
    for (at, one) in request.series.iter().enumerate() {
        let name = MetricName::parse(&one.name).map_err(|invalid| invalid.of(format!("series[{at}].name")))?;
        let points = one.points.iter().map(|point| {
            let time_ms = if point.time_ms == 0 { now.as_millis() } else { point.time_ms };
            implausible += u64::from(time_ms < EARLIEST_MS || time_ms > now.as_millis().saturating_add(AHEAD_MS));
            Point { step: point.step, time_ms, value: point.value }
        });
        series.push((name, points.collect()));
    }
    Ok(Checked {
        project,
        run,
        attempt: AttemptNumber(request.attempt),
        rank: Rank(request.rank),
        session,
        n: request.n,
        series,
        implausible,
    })
}
