//! What the scheduler tells of itself, in Prometheus form; `docs/reference/scheduler-metrics.md` has each by name.
//!
//! What an instance sees every instance tells, of its own view. What follows from leading the leader alone tells, of what it did and what stands in the
//! ledger: an instance that leads no more shows none of it, rather than numbers that stand still.

mod census;
mod show;

use census::Census;
use footplate_clock::SharedClock;
use footplate_es::Decision;
use footplate_eventlog::{Live, Standing};
use footplate_events::Event;
use footplate_events::facts::{Cause, StopCause};
use footplate_scheduler_core::{Preemption, State, preemptions};
use footplate_service::Metrics;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use show::Board;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often the view is counted at most.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// How many times as long as a count took it rests after it: counting takes 2 % of a core at most, however much there is.
const REST: u32 = 50;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByType {
    r#type: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

fn leads(standing: &watch::Receiver<Standing>) -> bool {
    matches!(*standing.borrow(), Standing::Leads { .. })
}

/// A metric that is there while this instance leads.
#[derive(Clone, Debug)]
struct Led<M> {
    metric: M,
    standing: watch::Receiver<Standing>,
}

impl<M: EncodeMetric> EncodeMetric for Led<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.metric.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.metric.metric_type()
    }

    fn is_empty(&self) -> bool {
        !leads(&self.standing) || self.metric.is_empty()
    }
}

/// What a look has decided, to be counted once it stands in the ledger.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    types: BTreeMap<String, u64>,
    placements: u64,
    members: u64,
    stops: BTreeMap<&'static str, u64>,
    requeues: BTreeMap<&'static str, u64>,
    preemptions: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Of what a look at `state` has decided.
    pub(crate) fn of(state: &State, decisions: &[Decision]) -> Self {
        let mut tally = Self::default();
        for decision in decisions {
            *tally.types.entry(decision.event.event_type().to_string()).or_default() += 1;
            match &decision.event {
                Event::JobPlaced(placed) => {
                    tally.placements += 1;
                    tally.members += placed.members.len() as u64;
                }
                Event::JobStopRequested(stop) => *tally.stops.entry(stop_word(stop.cause)).or_default() += 1,
                Event::JobRequeued(requeued) => *tally.requeues.entry(cause_word(requeued.cause)).or_default() += 1,
                _ => {}
            }
        }
        for preemption in preemptions(state, decisions) {
            let cause = match preemption {
                Preemption::Priority => "priority",
                Preemption::Reclaim => "reclaim",
            };
            *tally.preemptions.entry(cause).or_default() += 1;
        }
        tally
    }
}

/// The scheduler's metrics. A cheap handle.
#[derive(Clone)]
pub(crate) struct Measures {
    board: Board,
    decisions: Family<ByType, Counter>,
    placements: Counter,
    members: Counter,
    stops: Family<ByCause, Counter>,
    preemptions: Family<ByCause, Counter>,
    requeues: Family<ByCause, Counter>,
    cycle: Histogram,
    assignments: Counter,
    assignment_conflicts: Counter,
}

impl Measures {
    pub(crate) fn register(metrics: &Metrics, clock: &SharedClock, standing: &watch::Receiver<Standing>) -> Self {
        let measures = Self {
            board: Board::new(clock.clone(), standing.clone()),
            decisions: Family::default(),
            placements: Counter::default(),
            members: Counter::default(),
            stops: Family::default(),
            preemptions: Family::default(),
            requeues: Family::default(),
            // 50 µs to 1.6 s.
            cycle: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            assignments: Counter::default(),
            assignment_conflicts: Counter::default(),
        };
        let Self { board, decisions, placements, members, stops, preemptions, requeues, cycle, assignments, assignment_conflicts } =
            measures.clone();
        metrics.register(|registry| {
            registry.register_collector(Box::new(board));
            registry.register("decisions", "Events decided and in the ledger, by type", led(decisions, standing));
            registry.register("placements", "Gangs placed", led(placements, standing));
            registry.register("members_placed", "Members of the gangs placed", led(members, standing));
            registry.register("stops", "Stops requested, by cause", led(stops, standing));
            let told = "Gangs stopped for others, by whether a priority inside their queue or another queue's own asks it";
            registry.register("preemptions", told, led(preemptions, standing));
            registry.register("requeues", "Attempts requeued, by cause", led(requeues, standing));
            registry.register("cycle_seconds", "How long one look at the state took", led(cycle, standing));
            registry.register("assignments_written", "Assignments written", led(assignments, standing));
            let told = "Assignments that another leader had written first";
            registry.register("assignment_conflicts", told, led(assignment_conflicts, standing));
        });
        measures
    }

    /// A look took so long.
    pub(crate) fn looked(&self, took: Duration) {
        self.cycle.observe(took.as_secs_f64());
    }

    /// What was decided stands in the ledger.
    pub(crate) fn stands(&self, tally: &Tally) {
        for (name, count) in &tally.types {
            self.decisions.get_or_create(&ByType { r#type: name.clone() }).inc_by(*count);
        }
        self.placements.inc_by(tally.placements);
        self.members.inc_by(tally.members);
        let by_cause = [(&self.stops, &tally.stops), (&self.requeues, &tally.requeues), (&self.preemptions, &tally.preemptions)];
        for (family, counts) in by_cause {
            for (cause, count) in counts {
                family.get_or_create(&ByCause { cause }).inc_by(*count);
            }
        }
    }

    pub(crate) fn wrote_assignment(&self) {
        self.assignments.inc();
    }

    pub(crate) fn lost_assignment(&self) {
        self.assignment_conflicts.inc();
    }
}

fn led<M>(metric: M, standing: &watch::Receiver<Standing>) -> Led<M> {
    Led { metric, standing: standing.clone() }
}

/// Keeps what is counted of the view in step with it: beside the leader, never within its look.
pub(crate) async fn keep_counting(live: Live<State>, measures: Measures, shutdown: CancellationToken) {
    let mut changes = live.changes();
    loop {
        changes.mark_unchanged();
        let began = Instant::now();
        measures.board.put(Census::take(&live).await);
        let rest = COUNT_EVERY.max(began.elapsed().saturating_mul(REST));
        let changed = async {
            tokio::time::sleep(rest).await;
            changes.changed().await
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = changed => if changed.is_err() { return },
        }
    }
}

/// A stop's cause as the API writes it.
pub(crate) const fn stop_word(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Cancelled => "cancelled",
        StopCause::Preempted => "preempted",
        StopCause::Drained => "drained",
        StopCause::NodeLost => "node_lost",
        StopCause::NotReady => "not_ready",
        StopCause::TimedOut => "timed_out",
        StopCause::MemberFailed => "member_failed",
        StopCause::Shutdown => "shutdown",
        StopCause::Fenced => "fenced",
    }
}

/// An attempt's cause as the API writes it.
pub(crate) const fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Success => "success",
        Cause::UserCode => "user_code",
        Cause::Retryable => "retryable",
        Cause::OutOfMemory => "out_of_memory",
        Cause::Cancelled => "cancelled",
        Cause::Preempted => "preempted",
        Cause::Drained => "drained",
        Cause::Lost => "lost",
        Cause::Infrastructure => "infrastructure",
        Cause::TimedOut => "timed_out",
        Cause::PendingTooLong => "pending_too_long",
        Cause::Void => "void",
        Cause::Dependency => "dependency",
        Cause::DeadlineMissed => "deadline_missed",
    }
}
