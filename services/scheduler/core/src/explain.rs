//! Why a job waits, told afresh: the recorded reason says only its kind for certain; the numbers are of this moment.

use crate::decide::{Board, Lack, lack};
use crate::state::{Job, Stage, State};
use footplate_events::facts::WaitReason;
use footplate_types::RunId;

/// Why a job waits and what would have to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The reason, with the numbers of this moment; `None` when nothing is known against it: it is placed at the next look.
    pub reason: Option<WaitReason>,
    /// Its place in the order of all pending jobs by priority and age, from 1.
    pub position: u64,
    /// How many jobs are pending.
    pub pending: u64,
    /// What would have to change, in words.
    pub change: String,
}

/// Why the pending job of a run waits; `None` when there is no such job or it does not wait.
pub fn explain(state: &State, run: &RunId) -> Option<Explanation> {
    let job = state.jobs().get(run)?;
    let Stage::Pending { reason, .. } = &job.stage else { return None };
    let ahead =
        state.pending().iter().filter(|key| (key.priority, key.submitted) < (std::cmp::Reverse(job.priority), job.submitted.sequence));
    let position = ahead.count() as u64 + 1;
    let reason = fresh(state, job, reason.as_ref());
    let change = reason.as_ref().map_or_else(|| "nothing: it is placed at the next look".to_owned(), |reason| change(job, reason));
    Some(Explanation { reason, position, pending: state.pending().len() as u64, change })
}

/// The reason with the numbers of this moment.
fn fresh(state: &State, job: &Job, recorded: Option<&WaitReason>) -> Option<WaitReason> {
    if job.held {
        return Some(WaitReason::Held);
    }
    let queue = state.queue(&job.spec.queue);
    if queue.settings.held {
        return Some(WaitReason::QueueHeld);
    }
    if let Some(detail) = queue.quota_lacks(job.gpus(), job.slots()) {
        return Some(WaitReason::Quota { detail });
    }
    match recorded {
        None | Some(WaitReason::Backoff | WaitReason::Preempting) => recorded.cloned(),
        Some(WaitReason::Held | WaitReason::QueueHeld | WaitReason::Quota { .. }) => None,
        Some(WaitReason::Resources { .. } | WaitReason::NoSuchNode { .. }) => {
            let leaving = |run: &RunId| state.jobs().get(run)?.attempt()?.stop.as_ref().map(|_| false);
            match lack(state, &Board::new(state, leaving), &job.spec) {
                Lack::Never(detail) => Some(WaitReason::NoSuchNode { detail }),
                Lack::Now(detail) => Some(WaitReason::Resources { detail }),
            }
        }
    }
}

fn change(job: &Job, reason: &WaitReason) -> String {
    match reason {
        WaitReason::Held => "someone has to release it (job release)".to_owned(),
        WaitReason::QueueHeld => format!("queue {} has to be released (queue set)", job.spec.queue),
        WaitReason::Quota { .. } => {
            format!("work of queue {} has to end, its quota be raised, or the job ask for less", job.spec.queue)
        }
        WaitReason::Resources { .. } if job.spec.preemptible => "running work has to end, or a node has to join".to_owned(),
        WaitReason::Resources { .. } => {
            "running work has to end, or a node has to join; a larger priority may also preempt what is preemptible".to_owned()
        }
        WaitReason::NoSuchNode { .. } => "a node that can take it has to join, or the job has to ask for less".to_owned(),
        WaitReason::Backoff => "its back-off after a failed attempt has to be over; it is then tried again by itself".to_owned(),
        WaitReason::Preempting => "preempted work has to leave; it starts right after".to_owned(),
    }
}
