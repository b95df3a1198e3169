//! The end of a run: the faults have ceased, and every accepted job must have ended or wait for a reason that is true.

use super::book::{Book, JobBook, NodeBook};
use super::units::{ALL, is_asked};
use super::{Checked, Found};
use footplate_events::facts::{PerNode, WaitReason};
use footplate_scheduler_core::{State, explain};
use footplate_types::{NodeName, RunId, Timestamp};

/// Something that is not at rest.
#[derive(Clone, Debug)]
pub(crate) struct Unrest {
    pub(crate) what: String,
    pub(crate) words: Vec<String>,
}

/// Whether a node could take a member, were it empty.
fn suits(name: &NodeName, node: &NodeBook, job: &JobBook, each: &PerNode) -> bool {
    let ask = &job.spec.placement;
    let named = ask.nodes.is_empty() || ask.nodes.contains(name);
    let gpus = node.shape.gpus.iter().filter(|gpu| is_asked(gpu, each)).count();
    let welcome = node.taints.keys().all(|taint| ask.tolerates(taint));
    let may_share = each.gpu_share == 0 || node.shape.share_gpus;
    welcome && may_share && named && !ask.exclude.contains(name) && gpus >= each.gpus as usize && node.shape.slots >= each.slots
}

impl Book {
    /// Whether an open node could take a member of a job without roles now.
    pub(super) fn has_room(&self, name: &NodeName, node: &NodeBook, job: &JobBook) -> bool {
        let each = &job.spec.resources.per_node;
        let taken = |unit: String| self.units.taken(&(name.clone(), unit));
        let parts = if each.gpu_share > 0 { each.gpu_share.into() } else { ALL };
        let has_room = |gpu: &&footplate_types::Gpu| {
            let (taken, memory) = taken(gpu.uuid.to_string());
            taken + parts <= ALL && (each.gpu_share == 0 || memory + each.gpu_memory_bytes <= gpu.memory_bytes)
        };
        let usable = node.shape.gpus.iter().filter(|gpu| is_asked(gpu, each) && node.bad_since(&gpu.uuid).is_none());
        let gpus = usable.filter(has_room).count();
        let slots = (0..node.shape.slots).filter(|slot| taken(format!("slot {slot}")).0 == 0).count();
        node.is_open() && suits(name, node, job, each) && gpus >= each.gpus as usize && slots >= each.slots as usize
    }

    /// Every reason that is true of a pending job; none: it could start.
    fn reasons(&self, run: RunId, job: &JobBook) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        if self.waits(run, job) {
            reasons.push("dependencies");
        }
        if self.stands_behind(run, job) {
            reasons.push("array");
        }
        if job.held {
            reasons.push("held");
        }
        if self.queue(&job.spec.queue).is_none_or(|(_, settings)| settings.held || settings.closed) {
            reasons.push("queue-held");
        }
        if self.would_exceed(job) {
            reasons.push("quota");
        }
        let members = job.members();
        let too_few = |(role, each): &(Option<&str>, &PerNode)| {
            let asked = members.iter().filter(|(other, _)| other == role).count();
            self.nodes.iter().filter(|(name, node)| suits(name, node, job, each)).count() < asked
        };
        if members.iter().any(too_few) {
            reasons.push("no-such-node");
        } else if !self.could_seat(job) {
            reasons.push("resources");
        }
        reasons
    }

    pub(super) fn unrest(&self) -> Vec<Unrest> {
        let mut unrest = Vec::new();
        for (run, job) in self.jobs.iter().filter(|(_, job)| job.outcome.is_none()) {
            let words = vec![run.to_string()];
            if !job.is_pending() {
                unrest.push(Unrest { what: format!("{run} has an open attempt: {:?}", job.attempt), words });
            } else if self.never_comes(*run, job) {
                unrest.push(Unrest { what: format!("{run} waits for what can never come: {:?}", job.spec.after), words });
            } else if job.spec.limits.max_pending.0 > 0 && job.attempts == 0 && !self.waits(*run, job) && !self.stands_behind(*run, job) {
                unrest.push(Unrest { what: format!("{run} waits beyond its limit of {}", job.spec.limits.max_pending), words });
            } else if self.reasons(*run, job).is_empty() {
                unrest.push(Unrest { what: format!("{run} is pending and could start: {:?}", job.spec.resources), words });
            }
        }
        for (id, request) in &self.requests {
            let words = request.run.map(|run| run.to_string()).into_iter().chain(request.node.as_ref().map(ToString::to_string)).collect();
            unrest.push(Unrest { what: format!("request {id} has no answer: {request:?}"), words });
        }
        unrest
    }

    pub(super) fn explained(&self, state: &State) -> Checked {
        for (run, job) in self.jobs.iter().filter(|(_, job)| job.is_pending()) {
            // What is looked at here rests on no clock.
            let (told, truth) = (explain(state, run, Timestamp::default()), self.reasons(*run, job));
            let told = told.and_then(|told| told.reason);
            let name = told.as_ref().map_or("nothing", kind);
            if !truth.contains(&name) {
                let detail = format!("{run} waits for {truth:?}, and `explain` says {name}: {told:?}");
                return Err(Found::new("explain", detail, &[run]));
            }
        }
        Ok(())
    }
}

fn kind(reason: &WaitReason) -> &'static str {
    match reason {
        WaitReason::Held => "held",
        WaitReason::QueueHeld => "queue-held",
        WaitReason::Quota { .. } => "quota",
        WaitReason::Resources { .. } => "resources",
        WaitReason::NoSuchNode { .. } => "no-such-node",
        WaitReason::Backoff => "backoff",
        WaitReason::Preempting => "preempting",
        WaitReason::Dependencies { .. } => "dependencies",
        WaitReason::Array { .. } => "array",
    }
}
