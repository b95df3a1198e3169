//! The leading executor: reports into attempts, fences, losses, archived logs.

use crate::logs::Archive;
use bytes::Bytes;
use footplate_clock::SharedClock;
use footplate_es::Decision;
use footplate_eventlog::beats::SharedBeats;
use footplate_eventlog::inbox::{Inbox, Waiting};
use footplate_eventlog::port::BATCH_MAX;
use footplate_eventlog::{Broker, Decider, Expect, Headers, Live, Look, Message, PublishError, StreamName, Verdict};
use footplate_events::Subject;
use footplate_events::messages::{BeatMessage, Fence, ReportBody, beat_subject};
use footplate_executor_core::{Executor, Reported, due_fences, fold_reports, losses};
use footplate_service::continue_trace;
use footplate_types::{Epoch, NodeName};
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// The most reports folded at one look.
const REPORTS_PER_LOOK: usize = 512;

pub(crate) struct Lead {
    broker: Arc<dyn Broker>,
    inbox: Inbox,
    beats: SharedBeats,
    archive: Archive,
    margin: Duration,
    clock: SharedClock,
    taken: usize,
}

fn reported(waiting: Vec<Waiting>) -> Vec<Reported> {
    let to_executor = |waiting: Waiting| match waiting.report.body {
        ReportBody::Executor(report) => Some(Reported { node: waiting.node, report }),
        ReportBody::Inventory(_) | ReportBody::Tracker(_) => None,
    };
    waiting.into_iter().filter_map(to_executor).collect()
}

impl Lead {
    pub(crate) fn new(
        broker: Arc<dyn Broker>,
        inbox: Inbox,
        beats: SharedBeats,
        archive: Archive,
        margin: Duration,
        clock: SharedClock,
    ) -> Self {
        Self { broker, inbox, beats, archive, margin, clock, taken: 0 }
    }

    fn fold(&mut self, state: &Executor, view: u64) -> Vec<Decision> {
        let waiting = self.inbox.peek(view, REPORTS_PER_LOOK);
        self.taken = waiting.len();
        let (decisions, refused) = fold_reports(state, &reported(waiting));
        for refused in refused {
            tracing::warn!(node = %refused.node, run = %refused.of.run, attempt = %refused.of.attempt, reason = refused.reason, "report refused");
        }
        decisions
    }

    /// How many events the reports that were taken would still lead to.
    fn unfolded(&self, state: &Executor, view: u64) -> usize {
        fold_reports(state, &reported(self.inbox.peek(view, self.taken))).0.len()
    }

    fn archived(&self, state: &Executor) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for (id, index, attempt, _) in state.unarchived() {
            let Some(fact) = self.archive.finished(id, index) else { continue };
            let mut decision = Decision::new(Subject::attempt(&attempt.project, id), fact, Some(attempt.cause.clone()));
            decision.ordinal = index.0;
            decisions.push(decision);
        }
        decisions
    }

    async fn fence(&self, node: &NodeName, expected: u64, epoch: Epoch, reason: String) -> Result<(), String> {
        let lease_ms = self.beats.lock().watch.nodes.get(node).map_or(0, |known| known.seen.lease.as_millis() as u64);
        tracing::warn!(%node, %epoch, reason, "fencing a node");
        let fence = BeatMessage::Fence(Fence { node: node.clone(), epoch, reason, lease_ms });
        let payload = Bytes::from(serde_json::to_vec(&fence).map_err(|error| error.to_string())?);
        let message = Message { subject: beat_subject(node), headers: Headers::default(), payload };
        match self.broker.publish(StreamName::Beats, message, Expect::Subject(expected)).await {
            // On a conflict the node has beaten after all; an unknown outcome shows on the subject, or is tried again.
            Ok(_) | Err(PublishError::Conflict | PublishError::Unknown(_) | PublishError::Stuck(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// One span a decision, inside the trace of what it answers.
fn tell(decision: &Decision, look: &Look) {
    let event = decision.event.event_type();
    let span = tracing::info_span!("decide", otel.name = %event, service = "executor", subject = %decision.subject, view = look.view);
    if let Some(trace) = decision.cause.as_ref().and_then(|cause| cause.trace.as_ref()) {
        continue_trace(&span, trace.as_str());
    }
    span.in_scope(|| tracing::debug!(subject = %decision.subject, %event, "decided"));
}

impl Decider for Lead {
    type State = Executor;

    fn term_began(&mut self, look: &Look) {
        self.taken = 0;
        self.beats.lock().watch.begin_again(look.elapsed);
    }

    fn decide(&mut self, state: &Executor, look: &Look) -> Verdict {
        let mut decisions = self.fold(state, look.view);
        if decisions.is_empty() {
            decisions = losses(state, &self.beats.lock().watch);
        }
        decisions.extend(self.archived(state));
        // One look appends one batch; what does not fit is decided again at the next.
        if decisions.len() > BATCH_MAX {
            decisions.truncate(BATCH_MAX);
            self.taken = 0;
        }
        decisions.iter().for_each(|decision| tell(decision, look));
        let (due, wait) = due_fences(state, &self.beats.lock().watch, self.clock.elapsed(), self.margin);
        let again = self.inbox.len() > self.taken || !due.is_empty();
        let wake_in = if again { Some(Duration::from_millis(20)) } else { wait };
        Verdict { decisions, wake_in }
    }

    fn act<'a>(&'a mut self, live: &'a Live<Executor>, look: &'a Look) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.archive.leads(look.elapsed);
            if self.taken > 0 {
                // Settled is only what leads to nothing any more: a report whose event did not get into the ledger stays.
                let unfolded = self.unfolded(&live.read(), look.view);
                if unfolded > 0 {
                    return Err(format!("{unfolded} events of reports are not in the ledger; the reports stay"));
                }
                self.inbox.settle(self.broker.as_ref(), self.taken).await?;
                self.taken = 0;
            }
            let (due, _) = due_fences(&live.read(), &self.beats.lock().watch, self.clock.elapsed(), self.margin);
            for (node, expected, epoch, reason) in due {
                self.fence(&node, expected, epoch, reason).await?;
            }
            Ok(())
        })
    }
}
