//! One look in the making: what was said so far, and of whom.

use super::Ruling;
use crate::facts::{Facts, Settled};
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
    settled: Option<Settled>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(state: &'a State, facts: &'a Facts<'a>) -> Self {
        Self { state, facts, decisions: Vec::new(), touched: BTreeSet::new(), stopped: BTreeSet::new(), wake: None, settled: None }
    }

    /// Whether this look may say no more.
    pub(super) fn is_full(&self) -> bool {
        self.decisions.len() >= self.facts.policy.decisions_max
    }

    pub(super) fn is_touched(&self, run: &RunId) -> bool {
        self.touched.contains(run)
    }

    /// Jobs whose attempt this look has stopped.
    pub(super) fn stopped(&self) -> impl Iterator<Item = &RunId> {
        self.stopped.iter()
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
        self.wake_in((left > 0).then_some(left));
        left == 0
    }

    /// Looks again in so many milliseconds at the latest.
    pub(super) fn wake_in(&mut self, left: Option<u64>) {
        self.wake = [self.wake, left].into_iter().flatten().min();
    }

    /// The time until the next look so far, taken away.
    pub(super) fn take_wake(&mut self) -> Option<u64> {
        self.wake.take()
    }

    /// Whether nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }

    /// Nothing can be placed until then.
    pub(super) fn settle(&mut self, settled: Settled) {
        self.wake_in(settled.until.map(|until| until.0.saturating_sub(self.facts.elapsed.0)));
        self.settled = Some(settled);
    }

    /// What came of it, and what the next look may be told.
    pub(super) fn ruling(self) -> (Ruling, Option<Settled>) {
        (Ruling { decisions: self.decisions, wake_in: self.wake.map(Millis) }, self.settled)
    }
}
