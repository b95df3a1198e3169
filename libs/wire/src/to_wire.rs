//! From the ledger's words to the wire.

use footplate_api::types as wire;
use footplate_events::facts::{
    AfterJob, AfterWhen, ArrayMember, DeadlineMissed, DocumentRef, GangRole, JobSpec, Launcher, PerNode, SourceRef, StopPolicy, StopSignal,
};

/// The specification as clients see it: every field stated.
pub fn job_spec_to_wire(spec: &JobSpec) -> wire::JobSpec {
    let (ask, retry) = (&spec.resources.per_node, &spec.retry);
    wire::JobSpec {
        name: spec.name.to_string(),
        experiment: spec.experiment.to_string(),
        labels: spec.labels.clone().into_iter().collect(),
        why: Some(wire::Why {
            hypothesis: spec.why.hypothesis.clone(),
            success: spec.why.success.clone(),
            baseline: spec.why.baseline.map(|run| run.to_string()).unwrap_or_default(),
        }),
        resources: Some(wire::ResourceAsk { nodes: spec.resources.nodes, per_node: Some(per_node_to_wire(ask)) }),
        placement: Some(wire::PlacementAsk {
            pool: spec.placement.pool.clone().unwrap_or_default(),
            nodes: spec.placement.nodes.iter().map(ToString::to_string).collect(),
            exclude: spec.placement.exclude.iter().map(ToString::to_string).collect(),
            labels: spec.placement.labels.clone().into_iter().collect(),
            same_rack: spec.placement.same_rack,
            tolerations: spec.placement.tolerations.iter().map(ToString::to_string).collect(),
        }),
        queue: spec.queue.to_string(),
        priority: spec.priority,
        preemptible: spec.preemptible,
        launcher: match spec.launcher {
            Launcher::Direct => wire::Launcher::Direct.into(),
            Launcher::Torchrun => wire::Launcher::Torchrun.into(),
        },
        limits: Some(wire::Limits {
            max_duration_ms: spec.limits.max_duration.0,
            max_pending_ms: spec.limits.max_pending.0,
            min_run_ms: spec.limits.min_run.0,
            deadline: spec.limits.deadline.map(|deadline| deadline.to_string()).unwrap_or_default(),
            deadline_missed: match spec.limits.deadline_missed {
                DeadlineMissed::Run => wire::DeadlineMissed::Unspecified.into(),
                DeadlineMissed::End => wire::DeadlineMissed::End.into(),
            },
        }),
        stop: Some(stop(&spec.stop)),
        retry: Some(wire::RetryPolicy {
            user_code: Some(retry.user_code),
            infrastructure: Some(retry.infrastructure),
            lost: Some(retry.lost),
            preempted: Some(retry.preempted),
            exit_codes: retry.exit_codes.clone(),
            retryable: Some(retry.retryable),
            out_of_memory: Some(retry.out_of_memory),
            backoff_ms: Some(retry.backoff.0),
            backoff_max_ms: Some(retry.backoff_max.0),
        }),
        launch: Some(document(&spec.launch)),
        config: spec.config.as_ref().map(document),
        document: spec.document.as_ref().map(document),
        source: spec.source.as_ref().map(source),
        inputs: spec
            .inputs
            .iter()
            .map(|input| wire::InputRef {
                name: input.name.clone(),
                snapshot: input.snapshot.clone(),
                digest: input.digest.map(|digest| digest.to_string()).unwrap_or_default(),
            })
            .collect(),
        seed: spec.seed,
        rerun_of: spec.rerun_of.map(|run| run.to_string()).unwrap_or_default(),
        masked: spec.masked.clone(),
        objectives: spec.objectives.iter().map(ToString::to_string).collect(),
        after: spec.after.iter().map(after).collect(),
        array: spec.array.as_ref().map(array_to_wire),
        roles: spec.roles.iter().map(role_to_wire).collect(),
    }
}

/// What each node of a gang must give, as clients see it.
pub fn per_node_to_wire(ask: &PerNode) -> wire::PerNode {
    wire::PerNode {
        gpus: ask.gpus,
        gpu_profile: ask.gpu_profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        gpu_share: ask.gpu_share,
        slots: ask.slots,
        gpu_models: ask.gpu_models.iter().map(ToString::to_string).collect(),
        gpu_memory_bytes: ask.gpu_memory_bytes,
        cpus: ask.cpus,
        memory_bytes: ask.memory_bytes,
        disk_bytes: ask.disk_bytes,
    }
}

/// A role of a gang, as clients see it.
pub fn role_to_wire(role: &GangRole) -> wire::GangRole {
    wire::GangRole { name: role.name.clone(), nodes: role.nodes, per_node: Some(per_node_to_wire(&role.per_node)) }
}

/// Which one of an array a job is, as clients see it.
pub fn array_to_wire(array: &ArrayMember) -> wire::ArrayMember {
    wire::ArrayMember { id: array.id.to_string(), index: array.index, count: array.count, at_once: array.at_once }
}

fn after(after: &AfterJob) -> wire::AfterJob {
    let when = match after.when {
        AfterWhen::Success => wire::AfterWhen::Success,
        AfterWhen::Failure => wire::AfterWhen::Failure,
        AfterWhen::Any => wire::AfterWhen::Any,
    };
    wire::AfterJob { run_id: after.run.to_string(), when: when.into() }
}

fn document(document: &DocumentRef) -> wire::DocumentRef {
    wire::DocumentRef { digest: document.digest.to_string(), bytes: document.bytes }
}

fn signal(signal: StopSignal) -> i32 {
    match signal {
        StopSignal::Term => wire::StopSignal::Term.into(),
        StopSignal::Int => wire::StopSignal::Int.into(),
        StopSignal::Usr1 => wire::StopSignal::Usr1.into(),
        StopSignal::Usr2 => wire::StopSignal::Usr2.into(),
    }
}

fn stop(policy: &StopPolicy) -> wire::StopPolicy {
    wire::StopPolicy {
        signal: signal(policy.signal),
        grace_ms: Some(policy.grace.0),
        notice_signal: policy.notice.map(|notice| signal(notice.signal)).unwrap_or_default(),
        notice_before_ms: policy.notice.map(|notice| notice.before.0).unwrap_or_default(),
    }
}

fn source(source: &SourceRef) -> wire::SourceRef {
    wire::SourceRef {
        archive: Some(document(&source.archive)),
        tree: source.tree.to_string(),
        commit: source.commit.clone(),
        branch: source.branch.clone(),
        dirty: source.dirty,
        untracked: source.untracked,
        remote: source.remote.clone(),
        folder: source.folder.clone(),
        remark: source.remark.clone(),
    }
}
