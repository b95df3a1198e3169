//! Clients' requests, answered in ledger order: granted by the event that does it, or refused with what to do instead.

use super::pass::Pass;
use crate::state::{Ask, EndedJob, Job, Request};
use footplate_events::Subject;
use footplate_events::facts::{
    Cause, JobEnded, JobHeld, JobRefused, JobReleased, JobReprioritized, JobStopRequested, Outcome, StopCause, cut_text,
};

/// The most the priority may be, either way; as in a job's specification.
const PRIORITY_MAX: u32 = 1_000_000;

/// Answers every request that has no answer, of jobs about which this look has not spoken yet.
pub(super) fn answer(pass: &mut Pass<'_>) {
    for run in pass.state.asking() {
        if pass.is_full() {
            return;
        }
        if pass.is_touched(run) {
            continue;
        }
        if let Some(job) = pass.state.jobs().get(run) {
            answer_living(pass, job);
        } else if let Some(job) = pass.state.ended().get(run) {
            answer_ended(pass, job);
        }
    }
}

/// A cancel ends what can be said of a job in this look; the rest is answered once it is folded.
fn answer_living(pass: &mut Pass<'_>, job: &Job) {
    for request in &job.requests {
        match request.ask {
            Ask::Cancel => return cancel(pass, job, request),
            Ask::Hold => hold(pass, job, request),
            Ask::Release => pass.answer(job, JobReleased { request: request.id }, request.cause.clone()),
            Ask::Reprioritize(priority) if priority.unsigned_abs() <= PRIORITY_MAX => {
                pass.answer(job, JobReprioritized { request: request.id, priority }, request.cause.clone());
            }
            Ask::Reprioritize(_) => {
                refuse(pass, job, request, format!("a priority is at most {PRIORITY_MAX} either way"));
            }
        }
    }
}

fn cancel(pass: &mut Pass<'_>, job: &Job, request: &Request) {
    match job.attempt() {
        // Every member is released: the verdict comes first, and heeds the cancel.
        Some(attempt) if attempt.is_released() => {}
        Some(attempt) => {
            let stop = JobStopRequested {
                attempt: attempt.number,
                cause: StopCause::Cancelled,
                grace: job.spec.stop.grace,
                request: Some(request.id),
                message: cut_text(&request.reason),
            };
            pass.answer(job, stop, request.cause.clone());
        }
        None => {
            let ended = JobEnded {
                outcome: Outcome::Cancelled,
                cause: Cause::Cancelled,
                attempt: job.last_attempt,
                root: None,
                request: Some(request.id),
                message: cut_text(&request.reason),
            };
            pass.answer(job, ended, request.cause.clone());
        }
    }
}

fn hold(pass: &mut Pass<'_>, job: &Job, request: &Request) {
    match job.attempt() {
        None => pass.answer(job, JobHeld { request: request.id }, request.cause.clone()),
        Some(attempt) => {
            let reason = format!("attempt {} is placed; only a pending job can be held: cancel it instead", attempt.number);
            refuse(pass, job, request, reason);
        }
    }
}

fn refuse(pass: &mut Pass<'_>, job: &Job, request: &Request, reason: String) {
    pass.answer(job, JobRefused { request: request.id, reason }, request.cause.clone());
}

fn answer_ended(pass: &mut Pass<'_>, job: &EndedJob) {
    for request in &job.requests {
        let how = match job.fact.outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "was cancelled",
        };
        let reason = format!("the job has ended already: it {how}; submit it again to run it again");
        let refused = JobRefused { request: request.id, reason };
        pass.say_of(Subject::job(&job.project, job.run), refused, request.cause.clone());
    }
}
