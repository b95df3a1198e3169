//! The fold: every event that the scheduler reads, in ledger order. Total: what does not fit changes nothing.

mod attempts;
mod jobs;
mod nodes;
mod trials;

use super::index::Filing;
use super::{Stamp, State};
use footplate_es::Evolve;
use footplate_events::{Event, Recorded};

impl Evolve for State {
    fn evolve(&mut self, recorded: &Recorded) {
        if recorded.sequence <= self.position {
            return;
        }
        self.position = recorded.sequence;
        let envelope = &recorded.envelope;
        if changes_placing(&envelope.event) {
            self.revision = recorded.sequence;
        }
        let stamp = Stamp { sequence: recorded.sequence, at: recorded.recorded_at, id: envelope.id };
        let run = envelope.subject.run_id();
        let filing = |state: &Self| run.and_then(|run| state.jobs.get(&run)).map(Filing::of);
        let before = filing(self);
        self.fold(recorded, stamp);
        let after = filing(self);
        self.refile(before, after);
    }
}

impl State {
    fn fold(&mut self, recorded: &Recorded, stamp: Stamp) {
        let envelope = &recorded.envelope;
        match &envelope.event {
            Event::TermBegan(term) if term.service.as_str() == crate::SERVICE => self.term = Some(stamp),
            Event::QueueConfigured(settings) => {
                let Some(name) = envelope.subject.queue_name() else { return };
                let queue = self.queues.entry(name.clone()).or_default();
                let same_order = queue.settings.small_first == settings.small_first;
                queue.settings = settings.clone();
                queue.sequence = stamp.sequence;
                if !same_order {
                    self.reorder(&name);
                }
            }

            Event::JobSubmitted(fact) => self.job_submitted(envelope, stamp, fact),
            Event::JobCancelRequested(fact) => self.job_asked(envelope, fact.request, super::Ask::Cancel, &fact.reason),
            Event::JobHoldRequested(fact) => self.job_asked(envelope, fact.request, super::Ask::Hold, &fact.reason),
            Event::JobReleaseRequested(fact) => self.job_asked(envelope, fact.request, super::Ask::Release, ""),
            Event::JobReprioritizeRequested(fact) => {
                self.job_asked(envelope, fact.request, super::Ask::Reprioritize(fact.priority), "");
            }
            Event::JobRefused(fact) => self.job_refused(envelope, stamp, fact),
            Event::JobWaiting(fact) => self.job_waiting(envelope, stamp, fact),
            Event::JobDeadlineNeared(_) => self.job_deadline(envelope, stamp, super::Urgency::Near),
            Event::JobDeadlineMissed(_) => self.job_deadline(envelope, stamp, super::Urgency::Missed),
            Event::JobHeld(fact) => self.job_held(envelope, stamp, fact.request, true),
            Event::JobReleased(fact) => self.job_held(envelope, stamp, fact.request, false),
            Event::JobReprioritized(fact) => self.job_reprioritized(envelope, stamp, fact),
            Event::JobPlaced(fact) => self.job_placed(envelope, stamp, fact),
            Event::JobLaunched(fact) => self.job_launched(envelope, stamp, fact),
            Event::JobStopRequested(fact) => self.job_stopped(envelope, stamp, fact),
            Event::JobRequeued(fact) => self.job_requeued(envelope, stamp, fact),
            Event::JobEnded(fact) => self.job_ended(envelope, stamp, fact),

            Event::AttemptReady(fact) => self.attempt_ready(envelope, stamp, fact),
            Event::AttemptStarted(fact) => self.attempt_started(envelope, stamp, fact),
            Event::AttemptCheckpointed(fact) => self.attempt_checkpointed(envelope, stamp, fact),
            Event::AttemptExited(fact) => self.attempt_exited(envelope, stamp, fact),
            Event::AttemptLost(fact) => self.attempt_lost(envelope, stamp, fact),

            Event::NodeRegistered(fact) => self.node_registered(envelope, stamp, fact),
            Event::NodeHealthChanged(fact) => self.node_health_changed(envelope, stamp, fact),
            Event::NodeCordoned(fact) => self.node_marked(envelope, |node, mark| node.cordoned = Some(mark), stamp, &fact.reason),
            Event::NodeDrained(fact) => self.node_marked(envelope, |node, mark| node.drained = Some(mark), stamp, &fact.reason),
            Event::NodeUncordoned(_) => self.node_uncordoned(envelope, stamp),
            Event::NodeTainted(fact) => self.node_tainted(envelope, stamp, fact),
            Event::NodeUntainted(fact) => self.node_untainted(envelope, stamp, fact),
            Event::NodeLost(fact) => self.node_lost(envelope, stamp, fact),
            Event::TrialSuggested(fact) => self.trial_suggested(envelope, fact),
            Event::TrialPruned(fact) => self.trial_pruned(envelope, &fact.message),
            // Facts that the scheduler decides nothing upon.
            _ => {}
        }
    }
}

/// Whether an event may change what can be placed. When in doubt it does: the events that do not are the frequent ones.
fn changes_placing(event: &Event) -> bool {
    !matches!(
        event,
        Event::AttemptReady(_)
            | Event::AttemptStarted(_)
            | Event::AttemptCheckpointed(_)
            | Event::AttemptLogsArchived(_)
            | Event::JobLaunched(_)
            | Event::JobWaiting(_)
            | Event::JobRefused(_)
    )
}
