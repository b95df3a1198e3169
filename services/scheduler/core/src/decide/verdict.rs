//! The end of an attempt: once every member is released, the job ends or is pending again.
//!
//! The first non-success in ledger order decides, a cancel that was granted (or waits for its answer) lets no later attempt follow, and
//! every retry is counted against the budget of its cause.

use super::pass::Pass;
use crate::state::{Ask, Attempt, Budget, Job, Verdict};
use footplate_events::facts::{Cause, JobEnded, JobRequeued, MemoryKind, Outcome, PerNode, RootCause, StopCause, cut_text};
use footplate_types::{ByteSize, EventId, Millis, NodeName, RequestId};

/// Gives every attempt whose members are all released its verdict.
pub(super) fn close_released(pass: &mut Pass<'_>) {
    let state = pass.state;
    for job in state.index().released.iter().filter_map(|run| state.jobs().get(run)) {
        if pass.is_full() {
            return;
        }
        if let Some(attempt) = job.attempt() {
            close(pass, job, attempt);
        }
    }
}

fn close(pass: &mut Pass<'_>, job: &Job, attempt: &Attempt) {
    let because = attempt.endings.last().map_or(attempt.placed.id, |ending| ending.stamp.id);
    if attempt.void {
        return again(pass, job, attempt, Cause::Void, None, because);
    }
    match attempt.verdict() {
        Verdict::Succeeded => {
            let ended = end(job, Outcome::Succeeded, Cause::Success, None, None, String::new());
            pass.say(job, ended, because);
        }
        Verdict::Failed(cause, root) => again(pass, job, attempt, cause, Some(root), because),
        Verdict::Stopped(cause, root) => match cause {
            StopCause::Cancelled => cancelled(pass, job, wish(job), Some(root), because),
            StopCause::TimedOut => {
                let limit = job.spec.limits.max_duration;
                let message = format!("ran longer than limits.max_duration ({limit}); raise it, or resume from the last checkpoint");
                let ended = end(job, Outcome::Failed, Cause::TimedOut, Some(root), None, message);
                pass.say(job, ended, because);
            }
            StopCause::Preempted => again(pass, job, attempt, Cause::Preempted, Some(root), because),
            StopCause::Drained | StopCause::Shutdown => again(pass, job, attempt, Cause::Drained, Some(root), because),
            StopCause::NodeLost | StopCause::Fenced => again(pass, job, attempt, Cause::Lost, Some(root), because),
            StopCause::NotReady | StopCause::MemberFailed => again(pass, job, attempt, Cause::Infrastructure, Some(root), because),
        },
    }
}

/// The cancel that is granted, or that waits for its answer.
fn wish(job: &Job) -> Option<RequestId> {
    job.cancelled.or_else(|| job.requests.iter().find(|request| request.ask == Ask::Cancel).map(|request| request.id))
}

fn end(job: &Job, outcome: Outcome, cause: Cause, root: Option<RootCause>, request: Option<RequestId>, message: String) -> JobEnded {
    JobEnded { outcome, cause, attempt: job.last_attempt, root, request, message: cut_text(&message) }
}

fn cancelled(pass: &mut Pass<'_>, job: &Job, request: Option<RequestId>, root: Option<RootCause>, because: EventId) {
    pass.say(job, end(job, Outcome::Cancelled, Cause::Cancelled, root, request, String::new()), because);
}

/// The job is pending again, when nobody wants it cancelled and the budget of the cause allows it; else it ends.
fn again(pass: &mut Pass<'_>, job: &Job, attempt: &Attempt, cause: Cause, root: Option<RootCause>, because: EventId) {
    let budget = Budget::of(cause);
    let allowed = budget.map_or(0, |budget| budget.allowed(&job.spec.retry));
    let spent = budget.map_or(0, |budget| job.spent(budget));
    if budget.is_some() && spent >= allowed {
        // A cancel is what was wanted and got, unless the program failed by itself first.
        let failed_itself = matches!(cause, Cause::UserCode | Cause::Retryable | Cause::OutOfMemory | Cause::Infrastructure);
        if let (Some(request), false) = (wish(job), failed_itself) {
            return cancelled(pass, job, Some(request), root, because);
        }
        let mut message = used_up(cause, spent, allowed, root.as_ref());
        if cause == Cause::OutOfMemory {
            let remedy = more_memory(&job.spec.resources.per_node, root.as_ref().and_then(|root| root.memory));
            message = format!("{message}; {remedy}");
        }
        pass.say(job, end(job, Outcome::Failed, cause, root, None, message), because);
        return;
    }
    if let Some(request) = wish(job) {
        return cancelled(pass, job, Some(request), root, because);
    }
    let spent = spent + u32::from(budget.is_some());
    let backoff = match cause {
        Cause::UserCode | Cause::Retryable | Cause::OutOfMemory | Cause::Infrastructure | Cause::Lost => job.spec.backoff_for(spent),
        _ => Millis(0),
    };
    let avoid = avoided(job, cause, root.as_ref());
    pass.say(job, JobRequeued { attempt: attempt.number, cause, root, backoff, spent, allowed, avoid }, because);
}

fn used_up(cause: Cause, spent: u32, allowed: u32, root: Option<&RootCause>) -> String {
    // The keys are the job file's: what a person would change.
    let what = match cause {
        Cause::UserCode => ("the program failed", "`failed` in retry.on"),
        Cause::OutOfMemory => ("the program ran out of memory", "`oom` in retry.on"),
        Cause::Retryable => ("the program asked for another try", "retry.exit_codes, and 75"),
        Cause::Infrastructure => ("it could not be prepared or started", "`infra` in retry.on"),
        Cause::Lost => ("a node was lost", "`lost` in retry.on"),
        Cause::Preempted | Cause::Drained => ("it was preempted or drained", "`preempted` in retry.on"),
        Cause::Success
        | Cause::Cancelled
        | Cause::TimedOut
        | Cause::PendingTooLong
        | Cause::Void
        | Cause::Dependency
        | Cause::DeadlineMissed => ("it ended", "retry"),
    };
    let where_ = root.map_or(String::new(), |root| match root.rank {
        Some(rank) => format!(" (rank {rank} on {}: {})", root.node, root.what),
        None => format!(" (on {}: {})", root.node, root.what),
    });
    if allowed == 0 {
        format!("{}{where_}; not tried again (no retries are granted: {})", what.0, what.1)
    } else {
        format!("{}{where_}; {spent} of {allowed} retries used ({}; retry.max)", what.0, what.1)
    }
}

/// What was asked of the memory that ran out, and what to ask instead.
fn more_memory(ask: &PerNode, memory: Option<MemoryKind>) -> String {
    let machine = || match ask.memory_bytes {
        0 => "no memory was asked of its nodes, so it had what was left there: ask for what it needs (resources.memory)".to_owned(),
        asked => format!("{} of memory asked of each node: raise resources.memory", ByteSize(asked)),
    };
    let gpus = || match ask.gpu_memory_bytes {
        0 => "any GPU would do for it, whatever its memory: ask for larger ones (resources.gpu.memory)".to_owned(),
        asked => format!("GPUs of at least {} asked: raise resources.gpu.memory", ByteSize(asked)),
    };
    let asked = match memory {
        Some(MemoryKind::Machine) => machine(),
        Some(MemoryKind::Accelerator) if ask.gpus > 0 => gpus(),
        Some(MemoryKind::Accelerator) => "no GPU was asked (resources.gpus)".to_owned(),
        None if ask.gpus > 0 => format!("{}; {}", gpus(), machine()),
        None => machine(),
    };
    format!("{asked}, or let the program need less (a smaller batch, fewer loaders)")
}

/// The nodes to avoid from here on: with the one where the platform, not the program, was at fault.
fn avoided(job: &Job, cause: Cause, root: Option<&RootCause>) -> Vec<NodeName> {
    let mut avoid = job.avoid.clone();
    if let (Cause::Infrastructure | Cause::Lost, Some(root)) = (cause, root) {
        avoid.retain(|known| *known != root.node);
        avoid.push(root.node.clone());
        let excess = avoid.len().saturating_sub(Job::AVOID_MAX);
        avoid.drain(..excess);
    }
    avoid
}
