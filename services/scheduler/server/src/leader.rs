//! The leading scheduler: looks, decides, and keeps every node's assignment what the ledger says.

use crate::desk::Desk;
use crate::measures::{Measures, Tally};
use crate::trials::Trials;
use footplate_es::Decision;
use footplate_eventlog::{Broker, Decider, Live, Look, Verdict};
use footplate_scheduler_core::{Facts, Memory, Policy, State, Timeline, decide};
use footplate_service::continue_trace;
use footplate_types::Millis;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often every assignment is compared with what stands in the stream.
const COMPARE_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Lead {
    policy: Policy,
    /// Absent until the first look of the term.
    timeline: Option<Timeline>,
    /// What is kept from look to look of the term.
    memory: Memory,
    desk: Desk,
    trials: Trials,
    /// When to compare all assignments again, in time of the looks; at once while absent.
    compare_at: Option<Duration>,
    connections: tokio::sync::watch::Receiver<u64>,
    measures: Measures,
    /// What the last look has decided, while it is not counted.
    tally: Tally,
}

impl Lead {
    pub(crate) fn new(broker: Arc<dyn Broker>, policy: Policy, trials: Trials, measures: Measures) -> Self {
        let connections = broker.connections();
        let desk = Desk::new(broker, measures.clone());
        Self {
            policy,
            timeline: None,
            memory: Memory::default(),
            desk,
            trials,
            compare_at: None,
            connections,
            measures,
            tally: Tally::default(),
        }
    }
}

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// One span a decision, inside the trace of what it answers.
fn tell(decision: &Decision, look: &Look) {
    let event = decision.event.event_type();
    let span = tracing::info_span!("decide", otel.name = %event, service = "scheduler", subject = %decision.subject, view = look.view, term = look.term);
    if let Some(trace) = decision.cause.as_ref().and_then(|cause| cause.trace.as_ref()) {
        continue_trace(&span, trace.as_str());
    }
    span.in_scope(|| tracing::debug!(subject = %decision.subject, %event, "decided"));
}

impl Decider for Lead {
    type State = State;

    fn term_began(&mut self, _look: &Look) {
        self.timeline = None;
        self.memory = Memory::default();
        self.compare_at = None;
        self.desk.forget();
    }

    fn decide(&mut self, state: &State, look: &Look) -> Verdict {
        let elapsed = millis(look.elapsed);
        let timeline =
            self.timeline.get_or_insert_with(|| state.term().map_or_else(Timeline::default, |term| Timeline::begin(term, elapsed)));
        timeline.observe(look.view, elapsed);
        let began = Instant::now();
        let facts = Facts { view: look.view, now: look.now, elapsed, seed: look.view, policy: &self.policy, timeline };
        let ruling = decide(state, &facts, &mut self.memory);
        self.measures.looked(began.elapsed());
        self.tally = Tally::of(state, &ruling.decisions);
        ruling.decisions.iter().for_each(|decision| tell(decision, look));
        Verdict { decisions: ruling.decisions, wake_in: ruling.wake_in.map(Millis::duration) }
    }

    fn act<'a>(&'a mut self, live: &'a Live<State>, look: &'a Look) -> BoxFuture<'a, Result<(), String>> {
        // Effects follow what stands in the ledger; what was refused there comes to nothing.
        self.measures.stands(&std::mem::take(&mut self.tally));
        Box::pin(async move {
            // The broker was away: it may have lost assignments that it had acknowledged.
            let reconnected = self.connections.has_changed().unwrap_or(false);
            if reconnected {
                self.connections.mark_unchanged();
                self.compare_at = None;
            }
            if self.compare_at.is_none_or(|at| look.elapsed >= at) {
                self.compare_at = None;
                self.desk.compare(live).await?;
                self.compare_at = Some(look.elapsed + COMPARE_EVERY);
            } else {
                self.desk.write_changed(live).await?;
            }
            // Last: what is to be stopped must not wait for what is to begin.
            self.trials.submit_wanted(live).await
        })
    }
}
