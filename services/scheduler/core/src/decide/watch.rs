//! Living attempts: stopped whole when a node, a member, a limit or a deadline says so; launched when the whole gang is ready.
//!
//! `node.lost` releases nothing: the members on that node wait for the attempt's `lost`; the others are stopped.

use super::alarms::Alarms;
use super::ground::{Ground, Nodes};
use super::pass::Pass;
use crate::state::{Attempt, How, Job, Member, Node, State};
use footplate_events::facts::{JobLaunched, JobStopRequested, StopCause};
use footplate_types::{EventId, RunId};

/// Looks at every attempt that something may have to be said of: because of its members, of their nodes, or of a limit.
pub(super) fn watch(pass: &mut Pass<'_>, alarms: &mut Alarms, ground: &Ground, nodes: &Nodes<'_>) {
    let state = pass.state;
    for run in &state.index().stirring {
        look_at(pass, run);
    }
    let troubled = ground.troubled.iter().filter_map(|at| nodes.get(*at));
    for key in troubled.flat_map(|(_, node)| node.claims.keys()) {
        look_at(pass, &key.run);
    }
    let (over, next) = alarms.ring(&state.index().timed, pass.facts);
    pass.wake_in(next);
    for run in over {
        look_at(pass, &run);
    }
}

fn look_at(pass: &mut Pass<'_>, run: &RunId) {
    let state = pass.state;
    let Some(job) = state.jobs().get(run).filter(|_| !pass.is_full() && !pass.is_touched(run)) else { return };
    let Some(attempt) = job.attempt().filter(|attempt| !attempt.is_released() && attempt.stop.is_none()) else { return };
    let failed = after_failure(attempt);
    let trouble = failed.or_else(|| after_loss(state, attempt)).or_else(|| after_drain(state, attempt));
    match trouble.or_else(|| after_limit(pass, job, attempt)) {
        Some(stop) => say_stop(pass, job, attempt, stop),
        None => launch(pass, job, attempt),
    }
}

/// A stop in the making: why, because of which event, in words.
struct Reason {
    cause: StopCause,
    because: EventId,
    message: String,
}

fn say_stop(pass: &mut Pass<'_>, job: &Job, attempt: &Attempt, reason: Reason) {
    let stop = JobStopRequested {
        attempt: attempt.number,
        cause: reason.cause,
        grace: job.spec.stop.grace,
        request: None,
        message: reason.message,
    };
    pass.say(job, stop, reason.because);
}

/// A member did not succeed: the gang is over, the others go too.
fn after_failure(attempt: &Attempt) -> Option<Reason> {
    let first = attempt.first_failure()?;
    let cause = match first.how {
        How::Lost | How::Obeyed(StopCause::Fenced | StopCause::NodeLost) => StopCause::NodeLost,
        How::Obeyed(StopCause::Shutdown) => StopCause::Shutdown,
        How::Obeyed(StopCause::Drained) => StopCause::Drained,
        How::Obeyed(_) | How::Failed { .. } | How::Succeeded => StopCause::MemberFailed,
    };
    let node = &attempt.members[first.member].placement.node;
    let what = match &first.how {
        How::Failed { what, rank: Some(rank), .. } => format!("rank {rank} on {node}: {what}"),
        How::Failed { what, rank: None, .. } => format!("member {} on {node}: {what}", first.member),
        How::Lost => format!("member {} was lost with {node}", first.member),
        How::Obeyed(_) | How::Succeeded => format!("member {} on {node} has stopped", first.member),
    };
    Some(Reason { cause, because: first.stamp.id, message: what })
}

fn living(attempt: &Attempt) -> impl Iterator<Item = &Member> {
    attempt.members.iter().filter(|member| !member.is_released())
}

/// A node is not heard of, or has begun another generation: what stands on other nodes cannot go on without it. A gang that has nothing
/// elsewhere is left alone: its node may come back before it is fenced.
fn after_loss(state: &State, attempt: &Attempt) -> Option<Reason> {
    let node_of = |member: &Member| state.nodes().get(&member.placement.node);
    let is_gone = |member: &Member, node: &Node| node.lost.is_some() || node.epoch > member.placement.epoch;
    let gone = living(attempt).find(|member| node_of(member).is_some_and(|node| is_gone(member, node)))?;
    let elsewhere = living(attempt).any(|member| node_of(member).is_none_or(|node| !is_gone(member, node)));
    let node = node_of(gone)?;
    let because = node.lost.as_ref().map_or(node.registered.id, |mark| mark.stamp.id);
    let message = format!("member {} on {} cannot be counted on any more", gone.placement.member, gone.placement.node);
    elsewhere.then_some(Reason { cause: StopCause::NodeLost, because, message })
}

fn after_drain(state: &State, attempt: &Attempt) -> Option<Reason> {
    for member in living(attempt) {
        let node = state.nodes().get(&member.placement.node);
        if let Some(mark) = node.and_then(|node| node.drained.as_ref()) {
            let message = format!("{} is drained: {}", member.placement.node, mark.reason);
            return Some(Reason { cause: StopCause::Drained, because: mark.stamp.id, message });
        }
    }
    None
}

/// The ready deadline before the launch, the longest duration after it.
fn after_limit(pass: &mut Pass<'_>, job: &Job, attempt: &Attempt) -> Option<Reason> {
    match &attempt.launched {
        None if can_launch(attempt) => None,
        None => {
            let age = pass.facts.age(&attempt.placed);
            let over = pass.is_over(age, attempt.ready_within.0);
            let waits = living(attempt).filter(|member| member.stage == crate::state::MemberStage::Preparing).count();
            let message = format!("{waits} of {} members not ready within {}", attempt.members.len(), attempt.ready_within);
            over.then_some(Reason { cause: StopCause::NotReady, because: attempt.placed.id, message })
        }
        Some(launch) if job.spec.limits.max_duration.0 > 0 => {
            let limit = job.spec.limits.max_duration;
            let age = pass.facts.age(&launch.stamp);
            let over = pass.is_over(age, limit.0);
            let message = format!("limits.max_duration ({limit}) is over");
            over.then_some(Reason { cause: StopCause::TimedOut, because: launch.stamp.id, message })
        }
        Some(_) => None,
    }
}

fn can_launch(attempt: &Attempt) -> bool {
    attempt.is_ready() && attempt.rendezvous.is_some()
}

fn launch(pass: &mut Pass<'_>, job: &Job, attempt: &Attempt) {
    let Some(rendezvous) = attempt.rendezvous.clone().filter(|_| can_launch(attempt) && attempt.launched.is_none()) else { return };
    pass.say(job, JobLaunched { attempt: attempt.number, rendezvous }, attempt.reported.id);
}
