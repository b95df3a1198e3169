//! Jobs in the book: each event of a job against what stands before it.

use super::book::{Book, JobBook};
use super::{Checked, Found};
use footplate_events::facts::{Cause, DeadlineMissed, JobEnded, JobRequeued, JobStopRequested, MemberExited, Outcome, StopCause};
use footplate_events::{Event, Recorded};
use footplate_types::RunId;

impl Book {
    pub(super) fn take_job(&mut self, recorded: &Recorded, run: RunId) -> Checked {
        match &recorded.envelope.event {
            Event::JobSubmitted(fact) => {
                if self.jobs.contains_key(&run) {
                    return Err(Found::new("submitted-twice", format!("{run} is submitted a second time"), &[&run]));
                }
                let (spec, priority) = (fact.spec.clone(), fact.spec.priority);
                let submitted = recorded.sequence;
                let told = (false, false);
                self.jobs.insert(run, JobBook { spec, submitted, priority, held: false, outcome: None, attempt: None, attempts: 0, told });
            }
            Event::JobCancelRequested(fact) => self.asked(fact.request, run, true),
            Event::JobHoldRequested(fact) => self.asked(fact.request, run, false),
            Event::JobReleaseRequested(fact) => self.asked(fact.request, run, false),
            Event::JobReprioritizeRequested(fact) => self.asked(fact.request, run, false),
            Event::JobRefused(fact) => self.answer(Some(fact.request)),
            event => {
                let Some(job) = self.jobs.get(&run) else {
                    return Err(Found::new("unknown-job", format!("{} of {run}, which was never submitted", event.event_type()), &[&run]));
                };
                let of_executor = recorded.envelope.subject.attempt_id().is_some();
                if job.outcome.is_some() && !of_executor {
                    return Err(Found::new("after-end", format!("{} of {run} after its end", event.event_type()), &[&run]));
                }
                self.take_living(recorded, run)?;
            }
        }
        Ok(())
    }

    fn take_living(&mut self, recorded: &Recorded, run: RunId) -> Checked {
        let number = recorded.envelope.subject.attempt_id().map_or(0, |id| id.attempt.0);
        match &recorded.envelope.event {
            Event::JobHeld(fact) => self.held(run, true, fact.request),
            Event::JobReleased(fact) => self.held(run, false, fact.request),
            Event::JobReprioritized(fact) => {
                self.answer(Some(fact.request));
                self.jobs.entry(run).and_modify(|job| job.priority = fact.priority);
            }
            Event::JobDeadlineNeared(_) => self.deadline(run, |told| !std::mem::replace(&mut told.0, true) && !told.1)?,
            Event::JobDeadlineMissed(_) => self.deadline(run, |told| !std::mem::replace(&mut told.1, true))?,
            Event::JobPlaced(fact) => self.placed(run, fact)?,
            Event::JobLaunched(fact) => self.launched(run, fact.attempt.0)?,
            Event::JobStopRequested(fact) => self.stopped(run, fact)?,
            Event::JobRequeued(fact) => self.requeued(run, fact)?,
            Event::JobEnded(fact) => self.ended(run, fact)?,
            Event::AttemptReady(fact) => {
                for ready in &fact.members {
                    self.member(run, number, ready.member.0, |member| member.ready = true);
                }
            }
            Event::AttemptExited(fact) => fact.members.iter().for_each(|exited| self.release(run, number, exited.member.0, Some(exited))),
            Event::AttemptLost(fact) => fact.members.iter().for_each(|lost| self.release(run, number, lost.member.0, None)),
            _ => {}
        }
        Ok(())
    }

    /// Of its deadline a job is told only what is new, and only while it waits.
    fn deadline(&mut self, run: RunId, is_new: impl Fn(&mut (bool, bool)) -> bool) -> Checked {
        let Some(job) = self.jobs.get_mut(&run) else { return Ok(()) };
        if job.is_pending() && job.spec.limits.deadline.is_some() && is_new(&mut job.told) {
            return Ok(());
        }
        Err(Found::new("deadline", format!("{run} is told of its deadline twice, without one, or while it runs: {:?}", job.told), &[&run]))
    }

    fn held(&mut self, run: RunId, held: bool, request: footplate_types::RequestId) {
        self.answer(Some(request));
        self.jobs.entry(run).and_modify(|job| job.held = held);
    }

    fn member(&mut self, run: RunId, number: u32, member: u32, change: impl FnOnce(&mut super::book::MemberBook)) {
        let attempt = self.jobs.get_mut(&run).and_then(|job| job.attempt.as_mut()).filter(|attempt| attempt.number == number);
        if let Some(member) = attempt.and_then(|attempt| attempt.members.get_mut(&member)) {
            change(member);
        }
    }

    fn release(&mut self, run: RunId, number: u32, member: u32, exited: Option<&MemberExited>) {
        let mut pieces = Vec::new();
        self.member(run, number, member, |member| {
            if !member.released {
                member.released = true;
                member.succeeded = exited.is_some_and(MemberExited::is_success);
                pieces = std::mem::take(&mut member.pieces);
            }
        });
        pieces.iter().for_each(|(unit, _)| self.units.release(unit, (run, number)));
    }

    fn launched(&mut self, run: RunId, number: u32) -> Checked {
        let attempt = self.jobs.get_mut(&run).and_then(|job| job.attempt.as_mut()).filter(|attempt| attempt.number == number);
        let Some(attempt) = attempt else {
            return Err(Found::new("launch", format!("{run}/{number} is launched and was not placed"), &[&run]));
        };
        // A loss may have come between the decision and its event; nobody else than the scheduler writes a stop.
        let is_ready = attempt.members.values().all(|member| member.ready);
        if attempt.stopped || attempt.void || attempt.launched || !is_ready {
            return Err(Found::new(
                "gang",
                format!("{run}/{number} is launched before it is ready, or after its stop: {attempt:?}"),
                &[&run],
            ));
        }
        attempt.launched = true;
        Ok(())
    }

    /// Only what is preemptible is preempted, and only while somebody with a larger priority waits.
    fn stopped(&mut self, run: RunId, fact: &JobStopRequested) -> Checked {
        self.answer(fact.request);
        let Some(job) = self.jobs.get(&run) else { return Ok(()) };
        let waits_higher = || self.jobs.values().any(|other| other.is_pending() && other.priority > job.priority);
        if fact.cause == StopCause::Preempted && !(job.spec.preemptible && waits_higher()) {
            let detail =
                format!("{run} of priority {} (preemptible: {}) is preempted for nobody who may", job.priority, job.spec.preemptible);
            return Err(Found::new("victim", detail, &[&run]));
        }
        if let Some(attempt) = self.jobs.get_mut(&run).and_then(|job| job.attempt.as_mut()) {
            attempt.stopped = true;
        }
        Ok(())
    }

    fn requeued(&mut self, run: RunId, fact: &JobRequeued) -> Checked {
        let Some(job) = self.jobs.get_mut(&run) else { return Ok(()) };
        let attempt = job.attempt.as_mut().filter(|attempt| attempt.number == fact.attempt.0 && attempt.is_released() && !attempt.closed);
        let Some(attempt) = attempt else {
            return Err(Found::new("requeue", format!("{run}/{} is requeued while it lives, or twice", fact.attempt), &[&run]));
        };
        if attempt.void != (fact.cause == Cause::Void) {
            return Err(Found::new(
                "void",
                format!("{run}/{} is requeued as {:?}; void: {}", fact.attempt, fact.cause, attempt.void),
                &[&run],
            ));
        }
        let all_succeeded = !attempt.void && attempt.members.values().all(|member| member.succeeded);
        if all_succeeded || fact.spent > fact.allowed {
            return Err(Found::new("requeue", format!("{run}/{} had succeeded, or had no retry left: {fact:?}", fact.attempt), &[&run]));
        }
        attempt.closed = true;
        Ok(())
    }

    fn ended(&mut self, run: RunId, fact: &JobEnded) -> Checked {
        let for_others = fact.cause == Cause::Dependency;
        if self.jobs.get(&run).is_some_and(|job| for_others && (job.attempts > 0 || !self.never_comes(run, job))) {
            return Err(Found::new("dependency", format!("{run} is ended for others, and its turn came or may come: {fact:?}"), &[&run]));
        }
        let Some(job) = self.jobs.get_mut(&run) else { return Ok(()) };
        let ends_for_it = job.spec.limits.deadline.is_some() && job.spec.limits.deadline_missed == DeadlineMissed::End;
        if fact.cause == Cause::DeadlineMissed && !(ends_for_it && job.is_pending()) {
            return Err(Found::new("deadline", format!("{run} ends for its deadline, and was to go on: {fact:?}"), &[&run]));
        }
        let open = job.attempt.as_mut().filter(|attempt| !attempt.closed);
        let succeeded = open.as_ref().is_some_and(|attempt| !attempt.void && attempt.members.values().all(|member| member.succeeded));
        if let Some(attempt) = open {
            if !attempt.is_released() {
                return Err(Found::new("end", format!("{run} ends while members of {} live", attempt.number), &[&run]));
            }
            attempt.closed = true;
        }
        if succeeded != (fact.outcome == Outcome::Succeeded) {
            return Err(Found::new("outcome", format!("{run} ended as {:?}; every member succeeded: {succeeded}", fact.outcome), &[&run]));
        }
        job.outcome = Some(fact.outcome);
        self.answer(fact.request);
        if fact.outcome == Outcome::Cancelled {
            self.requests.retain(|_, request| !(request.is_cancel && request.run == Some(run)));
        }
        Ok(())
    }
}
