//! Trials of sweeps: each wants a job of its own, until that is submitted; one that is pruned wants it cancelled.

use crate::state::{Ask, Request, State, Wanted};
use footplate_es::Cause as EventCause;
use footplate_events::Envelope;
use footplate_events::facts::TrialSuggested;
use footplate_types::RequestId;
use std::sync::Arc;

impl State {
    pub(super) fn trial_suggested(&mut self, envelope: &Envelope, fact: &TrialSuggested) {
        let Some(run) = envelope.subject.run_id() else { return };
        if self.jobs.contains_key(&run) || self.ended.contains_key(&run) {
            return;
        }
        let project = envelope.subject.project.clone();
        let wanted = Wanted { project, spec: Arc::new(fact.job.clone()), cause: EventCause::of(envelope), cancel: None };
        self.wanted.entry(run).or_insert(wanted);
    }

    /// A trial that is pruned before its job is submitted gets its job all the same, so that it has an end.
    pub(super) fn trial_pruned(&mut self, envelope: &Envelope, message: &str) {
        let Some(run) = envelope.subject.run_id() else { return };
        let id = RequestId::derived(&[b"trial-pruned", envelope.id.as_bytes()]);
        if let Some(wanted) = self.wanted.get_mut(&run) {
            let request = Request { id, ask: Ask::Cancel, reason: message.to_owned(), cause: EventCause::of(envelope) };
            wanted.cancel.get_or_insert(request);
        } else {
            self.job_asked(envelope, id, Ask::Cancel, message);
        }
    }
}
