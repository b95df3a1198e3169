//! Jobs as clients see them.

use crate::measures::cause_word;
use footplate_api::types::{self, MemberSummary};
use footplate_api::v1::Job as Shown;
use footplate_events::facts::{Outcome, WaitReason};
use footplate_scheduler_core::{Attempt, EndedJob, How, Job, Member, MemberStage, Stage};
use footplate_wire::{array_to_wire, role_to_wire};

/// The states of a job, in the order of its life.
pub(super) const STATES: [&str; 6] = ["pending", "held", "placed", "launched", "stopping", "ended"];

/// Where a living job stands, in one word.
pub(super) fn state_of(job: &Job) -> &'static str {
    match &job.stage {
        Stage::Pending { .. } if job.held => "held",
        Stage::Pending { .. } => "pending",
        Stage::Active(attempt) if attempt.stop.is_some() => "stopping",
        Stage::Active(attempt) if attempt.launched.is_some() => "launched",
        Stage::Active(_) => "placed",
    }
}

/// Why a job waits, in one sentence part.
pub(super) fn reason_words(reason: &WaitReason) -> String {
    match reason {
        WaitReason::Held => "held".to_owned(),
        WaitReason::QueueHeld => "its queue is held".to_owned(),
        WaitReason::Quota { detail } => format!("its queue's quota is used up: {detail}"),
        WaitReason::Resources { detail } => format!("waiting: {detail}"),
        WaitReason::NoSuchNode { detail } => format!("never: {detail}"),
        WaitReason::Backoff => "waits for its back-off after a failed attempt".to_owned(),
        WaitReason::Preempting => "waits until preempted work has left".to_owned(),
        WaitReason::Dependencies { detail } => format!("waits for {detail}"),
        WaitReason::Array { detail } => format!("waits for others of its array: {detail}"),
    }
}

/// Why a job waits, in one word.
pub(super) const fn reason_word(reason: &WaitReason) -> &'static str {
    match reason {
        WaitReason::Held => "held",
        WaitReason::QueueHeld => "queue_held",
        WaitReason::Quota { .. } => "quota",
        WaitReason::Resources { .. } => "resources",
        WaitReason::NoSuchNode { .. } => "no_such_node",
        WaitReason::Backoff => "backoff",
        WaitReason::Preempting => "preempting",
        WaitReason::Dependencies { .. } => "dependencies",
        WaitReason::Array { .. } => "array",
    }
}

pub(super) fn living(job: &Job) -> Shown {
    let reason = match &job.stage {
        Stage::Pending { reason, .. } => reason.as_ref().map(reason_words).unwrap_or_default(),
        Stage::Active(attempt) => attempt.stop.as_ref().map(|stop| crate::measures::stop_word(stop.cause).to_owned()).unwrap_or_default(),
    };
    Shown {
        run_id: job.run.to_string(),
        project: job.project.to_string(),
        name: job.spec.name.to_string(),
        queue: job.spec.queue.to_string(),
        priority: job.priority,
        state: state_of(job).to_owned(),
        attempt: job.last_attempt.0,
        reason,
        submitted_at: job.submitted.at.to_string(),
        nodes: job.spec.members(),
        gpus_per_node: job.spec.resources.per_node.gpus,
        gpu_profile: job.spec.resources.per_node.gpu_profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        gpu_share: job.spec.resources.per_node.gpu_share,
        slots_per_node: job.spec.resources.per_node.slots,
        members: job.attempt().map(members).unwrap_or_default(),
        outcome: types::Outcome::Unspecified.into(),
        cause: String::new(),
        preemptible: job.spec.preemptible,
        submitted_by: job.chain.actor.to_string(),
        sequence: job.latest.sequence,
        spec: None,
        array: job.spec.array.as_ref().map(array_to_wire),
        roles: job.spec.roles.iter().map(role_to_wire).collect(),
    }
}

pub(super) fn ended(job: &EndedJob) -> Shown {
    let outcome = match job.fact.outcome {
        Outcome::Succeeded => types::Outcome::Succeeded,
        Outcome::Failed => types::Outcome::Failed,
        Outcome::Cancelled => types::Outcome::Cancelled,
    };
    Shown {
        run_id: job.run.to_string(),
        project: job.project.to_string(),
        name: job.name.to_string(),
        queue: job.queue.to_string(),
        priority: job.priority,
        state: "ended".to_owned(),
        attempt: job.fact.attempt.0,
        reason: job.fact.message.clone(),
        submitted_at: job.submitted.at.to_string(),
        nodes: job.nodes,
        gpus_per_node: job.gpus,
        gpu_profile: job.gpu_profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        gpu_share: job.gpu_share,
        slots_per_node: job.slots,
        members: Vec::new(),
        outcome: outcome.into(),
        cause: cause_word(job.fact.cause).to_owned(),
        preemptible: job.preemptible,
        submitted_by: job.chain.actor.to_string(),
        sequence: job.ended.sequence,
        spec: None,
        array: job.array.as_ref().map(array_to_wire),
        roles: job.roles.iter().map(role_to_wire).collect(),
    }
}

fn members(attempt: &Attempt) -> Vec<MemberSummary> {
    attempt.members.iter().enumerate().map(|(at, known)| member(attempt, at, known)).collect()
}

fn member(attempt: &Attempt, at: usize, member: &Member) -> MemberSummary {
    let placement = &member.placement;
    let state = match member.stage {
        MemberStage::Preparing => "placed",
        MemberStage::Ready => "ready",
        MemberStage::Running => "started",
        MemberStage::Exited => "exited",
        MemberStage::Lost => "lost",
    };
    let ended = attempt.endings.iter().filter(|ending| ending.member == at).map(|ending| match &ending.how {
        How::Succeeded => "exit 0".to_owned(),
        How::Obeyed(cause) => format!("stopped: {}", crate::measures::stop_word(*cause)),
        How::Failed { rank: Some(rank), what, .. } => format!("rank {rank}: {what}"),
        How::Failed { rank: None, what, .. } => what.clone(),
        How::Lost => "lost".to_owned(),
    });
    MemberSummary {
        member: placement.member.0,
        node: placement.node.to_string(),
        gpus: placement.gpus.iter().map(ToString::to_string).collect(),
        gpu_profile: placement.gpu_profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        gpu_share: placement.gpu_share,
        gpu_memory_bytes: placement.gpu_memory_bytes,
        slots: placement.slots.iter().map(|slot| slot.0).collect(),
        first_rank: placement.first_rank.0,
        workers: placement.workers,
        state: state.to_owned(),
        exits: ended.collect(),
        role: placement.role.clone().unwrap_or_default(),
    }
}
