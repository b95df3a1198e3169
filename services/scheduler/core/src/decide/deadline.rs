//! Deadlines: what becomes of a pending job when its latest start comes near, and when its deadline has passed.
//!
//! Both are events, so that the order of a queue follows from the ledger alone. What runs is not looked at: an attempt that has started is bound by
//! its longest duration. The deadline itself decides what is missed, not the latest start: the longest duration is a bound, and who starts late
//! may be over in time.

use super::pass::Pass;
use crate::state::Job;
use footplate_events::facts::{Cause, DeadlineMissed, JobDeadlineMissed, JobDeadlineNeared, JobEnded, Outcome};
use footplate_types::{Millis, RunId, Timestamp};
use std::collections::BTreeSet;

/// Tells what has come near or has passed, and ends those that are to end then.
pub(super) fn look(pass: &mut Pass<'_>) {
    let Some(now) = pass.facts.time_of_day() else { return };
    let index = pass.state.index();
    each_due(pass, &index.missing, now, Millis(0), |job, deadline| match job.spec.limits.deadline_missed {
        DeadlineMissed::Run => JobDeadlineMissed { deadline }.into(),
        DeadlineMissed::End => JobEnded {
            outcome: Outcome::Failed,
            cause: Cause::DeadlineMissed,
            attempt: job.last_attempt,
            root: None,
            request: None,
            message: format!("did not run before its deadline, {deadline} (limits.deadline_missed: end)"),
        }
        .into(),
    });
    let near = pass.facts.policy.deadline_near;
    each_due(pass, &index.nearing, now, near, |_, latest_start| JobDeadlineNeared { latest_start }.into());
}

/// Says something of each job whose time is at most `ahead` away, and looks again when the next one's is.
fn each_due(
    pass: &mut Pass<'_>,
    times: &BTreeSet<(Timestamp, RunId)>,
    now: Timestamp,
    ahead: Millis,
    event: impl Fn(&Job, Timestamp) -> footplate_events::Event,
) {
    for (at, run) in times {
        let left = at.millis_since(now).saturating_sub(ahead.0);
        if left > 0 {
            return pass.wake_in(Some(left));
        }
        if pass.is_full() {
            return;
        }
        let Some(job) = pass.state.jobs().get(run).filter(|_| !pass.is_touched(run)) else { continue };
        pass.say(job, event(job, *at), job.latest.id);
    }
}
