//! Which rule a preemption follows: told from the decisions of a look, for whoever counts them.

use crate::state::{Job, State};
use footplate_es::Decision;
use footplate_events::Event;
use footplate_events::facts::{StopCause, WaitReason};
use footplate_types::EventId;
use std::collections::BTreeMap;

/// Why a gang leaves for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preemption {
    /// For a more urgent job of its own queue.
    Priority,
    /// For a job of another queue, which asks its own back.
    Reclaim,
}

/// The preemptions among what a look at `state` has decided, in order. It costs what there is of decisions and of jobs for which others are being stopped.
pub fn preemptions(state: &State, decisions: &[Decision]) -> Vec<Preemption> {
    let stops = |decision: &&Decision| matches!(&decision.event, Event::JobStopRequested(stop) if stop.cause == StopCause::Preempted);
    let stopped: Vec<&Decision> = decisions.iter().filter(stops).collect();
    if stopped.is_empty() {
        return Vec::new();
    }
    let askers = askers(state, decisions);
    let of = |decision: &&Decision| {
        let asker = askers.get(&decision.cause.as_ref()?.id)?;
        let victim = state.jobs().get(&decision.subject.run_id()?)?;
        Some(if victim.spec.queue == asker.spec.queue { Preemption::Priority } else { Preemption::Reclaim })
    };
    stopped.iter().filter_map(of).collect()
}

/// Who may have asked for a stop, by the event that the stop answers: those who wait for leavers already, and those who are told so just now.
fn askers<'s>(state: &'s State, decisions: &[Decision]) -> BTreeMap<EventId, &'s Job> {
    let told = decisions.iter().filter_map(|decision| match &decision.event {
        Event::JobWaiting(waiting) if waiting.reason == WaitReason::Preempting => decision.subject.run_id(),
        _ => None,
    });
    let known = state.index().first.iter().map(|(_, _, run)| *run);
    known.chain(told).filter_map(|run| state.jobs().get(&run)).map(|job| (job.latest.id, job)).collect()
}
