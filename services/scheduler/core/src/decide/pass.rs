//! One look in the making: what was said so far, and of whom.

use super::Ruling;
use crate::facts::Facts;
use crate::state::{Job, State};
use footplate_es::{Cause as EventCause, Decision};
use footplate_events::{Event, Subject};
use footplate_types::{EventId, Millis, RunId};
use std::collections::BTreeSet;

/// One look in the making.
pub(super) struct Pass<'a> {
    pub(super) state: &'a State,
    pub(super) facts: &'a Facts<'a>,
    decisions: Vec<Decision>,
    /// Jobs about which something was said.
    touched: BTreeSet<RunId>,
    /// Jobs whose attempt was stopped by this look.
    stopped: BTreeSet<RunId>,
    wake: Option<u64>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(state: &'a State, facts: &'a Facts<'a>) -> Self {
        Self { state, facts, decisions: Vec::new(), touched: BTreeSet::new(), stopped: BTreeSet::new(), wake: None }
    }

    /// Whether this look may say no more.
    pub(super) fn is_full(&self) -> bool {
        self.decisions.len() >= self.facts.policy.decisions_max
    }

    pub(super) fn is_touched(&self, run: &RunId) -> bool {
        self.touched.contains(run)
    }

    pub(super) fn is_stopped(&self, run: &RunId) -> bool {
        self.stopped.contains(run)
    }

    /// Says something of a job because of the event `because`, inside the chain of the job's submission.
    pub(super) fn say(&mut self, job: &Job, event: impl Into<Event>, because: EventId) {
        self.answer(job, event, job.chain.cause(because));
    }

    /// Says something of a job because of `cause`. The attempt's number tells apart what one cause leads to in different attempts.
    pub(super) fn answer(&mut self, job: &Job, event: impl Into<Event>, cause: EventCause) {
        let event = event.into();
        if matches!(event, Event::JobStopRequested(_)) {
            self.stopped.insert(job.run);
        }
        self.touched.insert(job.run);
        let mut decision = Decision::new(Subject::job(&job.project, job.run), event, Some(cause));
        decision.ordinal = job.last_attempt.0;
        self.decisions.push(decision);
    }

    /// Says something of a job that has ended.
    pub(super) fn say_of(&mut self, subject: Subject, event: impl Into<Event>, cause: EventCause) {
        self.decisions.push(Decision::new(subject, event, Some(cause)));
    }

    /// Whether `limit` milliseconds are over at `age`; when not, looks again when they are.
    pub(super) fn is_over(&mut self, age: u64, limit: u64) -> bool {
        let left = limit.saturating_sub(age);
        if left > 0 {
            self.wake = Some(self.wake.map_or(left, |known| known.min(left)));
        }
        left == 0
    }

    pub(super) fn ruling(self) -> Ruling {
        Ruling { decisions: self.decisions, wake_in: self.wake.map(Millis) }
    }
}
