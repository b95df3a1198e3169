//! Jobs that wait for others: told once for what, and ended when a condition can never be met any more. What waits for those is looked at when
//! their end is folded, so an end goes down the whole graph, look by look.

use super::pass::Pass;
use crate::after::{open, spoilt};
use footplate_events::facts::{Cause, JobEnded, JobWaiting, Outcome, WaitReason, cut_text};

/// Ends the jobs whose turn can never come. They were never started and nothing of them failed: they count as cancelled.
pub(super) fn end_hopeless(pass: &mut Pass<'_>) {
    let state = pass.state;
    for job in state.hopeless() {
        if pass.is_full() {
            return;
        }
        let Some(spoilt) = spoilt(state, job).filter(|_| !pass.is_touched(&job.run) && job.attempt().is_none()) else { continue };
        let ended = JobEnded {
            outcome: Outcome::Cancelled,
            cause: Cause::Dependency,
            attempt: job.last_attempt,
            root: None,
            request: None,
            message: cut_text(&spoilt.message),
        };
        pass.say(job, ended, spoilt.because.unwrap_or(job.submitted.id));
    }
}

/// Tells of jobs what they wait for.
pub(super) fn tell(pass: &mut Pass<'_>) {
    let state = pass.state;
    for job in state.untold() {
        if pass.is_full() {
            return;
        }
        if !pass.is_touched(&job.run) {
            let reason = WaitReason::Dependencies { detail: open(state, job) };
            pass.say(job, JobWaiting { reason }, job.latest.id);
        }
    }
}
