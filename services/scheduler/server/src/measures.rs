//! What the scheduler tells of itself, in Prometheus form. Only what this process did or sees: a deposed leader's numbers stand still.

use footplate_es::Decision;
use footplate_eventlog::Live;
use footplate_events::Event;
use footplate_events::facts::{Cause, StopCause};
use footplate_scheduler_core::{Stage, State};
use footplate_service::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the lengths of the queues are counted at most.
const COUNT_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

/// The scheduler's metrics. A cheap handle.
#[derive(Clone)]
pub(crate) struct Measures {
    jobs: Family<OfQueue, Gauge>,
    placements: Counter,
    decisions: Counter,
    stops: Family<ByCause, Counter>,
    requeues: Family<ByCause, Counter>,
    cycle: Histogram,
    assignments: Counter,
    assignment_conflicts: Counter,
}

impl Measures {
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let measures = Self {
            jobs: Family::default(),
            placements: Counter::default(),
            decisions: Counter::default(),
            stops: Family::default(),
            requeues: Family::default(),
            // 50 µs to 1.6 s.
            cycle: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            assignments: Counter::default(),
            assignment_conflicts: Counter::default(),
        };
        metrics.register(|registry| {
            registry.register("jobs", "Jobs that have not ended, by queue and state", measures.jobs.clone());
            registry.register("placements", "Gangs placed by this instance", measures.placements.clone());
            registry.register("decisions", "Events decided by this instance", measures.decisions.clone());
            registry.register("stops", "Stops requested by this instance, by cause", measures.stops.clone());
            registry.register("requeues", "Attempts requeued by this instance, by cause", measures.requeues.clone());
            registry.register("cycle_seconds", "How long one look at the state took", measures.cycle.clone());
            registry.register("assignments_written", "Assignments written by this instance", measures.assignments.clone());
            let told = "Assignments that another leader had written first";
            registry.register("assignment_conflicts", told, measures.assignment_conflicts.clone());
        });
        measures
    }

    pub(crate) fn looked(&self, took: Duration, decisions: &[Decision]) {
        self.cycle.observe(took.as_secs_f64());
        self.decisions.inc_by(decisions.len() as u64);
        for decision in decisions {
            match &decision.event {
                Event::JobPlaced(_) => {
                    self.placements.inc();
                }
                Event::JobStopRequested(stop) => {
                    self.stops.get_or_create(&ByCause { cause: stop_word(stop.cause) }).inc();
                }
                Event::JobRequeued(requeued) => {
                    self.requeues.get_or_create(&ByCause { cause: cause_word(requeued.cause) }).inc();
                }
                _ => {}
            }
        }
    }

    pub(crate) fn wrote_assignment(&self) {
        self.assignments.inc();
    }

    pub(crate) fn lost_assignment(&self) {
        self.assignment_conflicts.inc();
    }

    fn count(&self, state: &State) {
        let mut counts: BTreeMap<OfQueueKey<'_>, i64> = BTreeMap::new();
        for name in state.queues().keys() {
            counts.insert((name.as_str(), "pending"), 0);
            counts.insert((name.as_str(), "active"), 0);
        }
        for job in state.jobs().values() {
            let stage = match job.stage {
                Stage::Pending { .. } => "pending",
                Stage::Active(_) => "active",
            };
            *counts.entry((job.spec.queue.as_str(), stage)).or_default() += 1;
        }
        for ((queue, stage), count) in counts {
            self.jobs.get_or_create(&OfQueue { queue: queue.to_owned(), state: stage }).set(count);
        }
    }
}

type OfQueueKey<'a> = (&'a str, &'static str);

/// Keeps the lengths of the queues in step with the view.
pub(crate) async fn count_pending(live: Live<State>, measures: Measures, shutdown: CancellationToken) {
    let mut changes = live.changes();
    loop {
        measures.count(&live.read());
        let changed = async {
            tokio::time::sleep(COUNT_EVERY).await;
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
        Cause::Cancelled => "cancelled",
        Cause::Preempted => "preempted",
        Cause::Drained => "drained",
        Cause::Lost => "lost",
        Cause::Infrastructure => "infrastructure",
        Cause::TimedOut => "timed_out",
        Cause::PendingTooLong => "pending_too_long",
        Cause::Void => "void",
        Cause::Dependency => "dependency",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_es::harness::Story;
    use footplate_events::Subject;
    use footplate_events::facts::{JobEnded, JobSubmitted, Outcome};
    use footplate_types::{AttemptNumber, Digest, ProjectName, RunId};

    /// 26, armada#4904, volcano#4529, HAMi#2186, kueue#12171, #14050: gauges stayed after what they counted was gone, a sum of nothing was not a number.
    #[test]
    fn complaint_26_a_gauge_is_what_the_view_holds_exactly_nothing_included_and_every_value_is_a_number() {
        let metrics = Metrics::default();
        let measures = Measures::register(&metrics);
        let mut story = Story::new();
        measures.count(&story.folded());
        let of = |state: &'static str| measures.jobs.get(&OfQueue { queue: "default".to_owned(), state }).map(|gauge| gauge.get());
        assert_eq!(of("pending"), None, "of a queue that never was nothing is told");
        let subject = Subject::job(&ProjectName::parse("vision").unwrap(), RunId::from_bytes([1; 16]));
        let spec = footplate_wire::job_spec_from_wire(&footplate_api::types::JobSpec {
            name: "train".to_owned(),
            resources: Some(footplate_api::types::ResourceAsk { nodes: 1, per_node: Some(Default::default()) }),
            launch: Some(footplate_api::types::DocumentRef { digest: Digest::of(b"launch").to_string(), bytes: 6 }),
            ..Default::default()
        });
        story.record(subject.clone(), JobSubmitted { spec: spec.unwrap(), body: Digest::of(b"body") });
        measures.count(&story.folded());
        assert_eq!((of("pending"), of("active")), (Some(1), Some(0)));
        let ended = JobEnded {
            outcome: Outcome::Cancelled,
            cause: Cause::Cancelled,
            attempt: AttemptNumber(0),
            root: None,
            request: None,
            message: String::new(),
        };
        story.record(subject, ended);
        measures.count(&story.folded());
        assert_eq!((of("pending"), of("active")), (Some(0), Some(0)));
        // What this instance never did it does not tell of: a follower placed nothing.
        let shown = metrics.show();
        assert!(shown.contains("placements_total 0"), "{shown}");
        assert!(!shown.contains("NaN") && !shown.to_lowercase().contains(" inf"), "{shown}");
    }
}
