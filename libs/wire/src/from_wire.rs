//! From the wire to the ledger's words.

use footplate_api::types as wire;
use footplate_events::facts::{
    AfterJob, AfterWhen, ArrayMember, DeadlineMissed, DocumentRef, GangRole, InputRef, JobSpec, Launcher, Limits, PerNode, PlacementAsk,
    ResourceAsk, RetryPolicy, SourceRef, StopNotice, StopPolicy, StopSignal, Why,
};
use footplate_types::{
    Digest, DisplayName, GpuModel, Invalid, MetricName, MigProfile, Millis, NodeName, QueueName, RunId, Timestamp, Toleration,
};

/// The specification as the ledger holds it. Limits of numbers are checked by [`JobSpec::validate`].
///
/// # Errors
/// A field that cannot be read, by its path.
pub fn job_spec_from_wire(spec: &wire::JobSpec) -> Result<JobSpec, Invalid> {
    let or_default = |text: &str| if text.is_empty() { "default".to_owned() } else { text.to_owned() };
    Ok(JobSpec {
        name: DisplayName::parse(&spec.name).map_err(|invalid| invalid.of("name"))?,
        experiment: DisplayName::parse(&or_default(&spec.experiment)).map_err(|invalid| invalid.of("experiment"))?,
        labels: spec.labels.clone().into_iter().collect(),
        why: why(spec.why.as_ref())?,
        resources: resources(spec)?,
        placement: placement(spec.placement.as_ref())?,
        queue: QueueName::parse(&or_default(&spec.queue)).map_err(|invalid| invalid.of("queue.name"))?,
        priority: spec.priority,
        preemptible: spec.preemptible,
        launcher: launcher(spec.launcher)?,
        limits: limits(spec.limits.as_ref())?,
        stop: stop(spec.stop.as_ref())?,
        retry: retry(spec.retry.as_ref()),
        launch: document("launch", spec.launch.as_ref())?.ok_or_else(|| absent("launch", "a launch document in the object store"))?,
        config: document("config", spec.config.as_ref())?,
        document: document("document", spec.document.as_ref())?,
        source: spec.source.as_ref().map(source).transpose()?,
        inputs: spec.inputs.iter().map(input).collect::<Result<_, _>>()?,
        seed: spec.seed,
        rerun_of: run("rerun_of", &spec.rerun_of)?,
        masked: spec.masked.clone(),
        objectives: spec.objectives.iter().map(|name| metric(name)).collect::<Result<_, _>>()?,
        after: spec.after.iter().map(after).collect::<Result<_, _>>()?,
        array: spec.array.as_ref().map(array).transpose()?,
        roles: spec.roles.iter().map(role).collect::<Result<_, _>>()?,
    })
}

fn absent(field: &str, allowed: &str) -> Invalid {
    Invalid::new(field, "nothing", allowed)
}

fn run(field: &str, text: &str) -> Result<Option<RunId>, Invalid> {
    if text.is_empty() { Ok(None) } else { RunId::parse(text).map(Some).map_err(|invalid| invalid.of(field)) }
}

fn metric(name: &str) -> Result<MetricName, Invalid> {
    MetricName::parse(name).map_err(|invalid| invalid.of("objectives"))
}

fn after(after: &wire::AfterJob) -> Result<AfterJob, Invalid> {
    let run = RunId::parse(&after.run_id).map_err(|invalid| invalid.of("after.run"))?;
    Ok(AfterJob { run, when: after_when(after.when)? })
}

fn array(array: &wire::ArrayMember) -> Result<ArrayMember, Invalid> {
    let id = RunId::parse(&array.id).map_err(|invalid| invalid.of("array.id"))?;
    Ok(ArrayMember { id, index: array.index, count: array.count, at_once: array.at_once })
}

/// Which end of a job is waited for; success where nothing is said.
///
/// # Errors
/// A number that stands for none.
pub fn after_when(number: i32) -> Result<AfterWhen, Invalid> {
    match wire::AfterWhen::try_from(number) {
        Ok(wire::AfterWhen::Unspecified | wire::AfterWhen::Success) => Ok(AfterWhen::Success),
        Ok(wire::AfterWhen::Failure) => Ok(AfterWhen::Failure),
        Ok(wire::AfterWhen::Any) => Ok(AfterWhen::Any),
        Err(_) => Err(Invalid::new("after.when", number, "success, failure or any")),
    }
}

fn digest(field: &str, text: &str) -> Result<Digest, Invalid> {
    Digest::parse(text).map_err(|invalid| invalid.of(field))
}

fn document(field: &str, document: Option<&wire::DocumentRef>) -> Result<Option<DocumentRef>, Invalid> {
    let read = |document: &wire::DocumentRef| {
        Ok(DocumentRef { digest: digest(&format!("{field}.digest"), &document.digest)?, bytes: document.bytes })
    };
    document.map(read).transpose()
}

fn why(why: Option<&wire::Why>) -> Result<Why, Invalid> {
    let Some(why) = why else { return Ok(Why::default()) };
    Ok(Why { hypothesis: why.hypothesis.clone(), success: why.success.clone(), baseline: run("why.baseline", &why.baseline)? })
}

/// What is asked; beside roles that of the first, where nothing else is said.
fn resources(spec: &wire::JobSpec) -> Result<ResourceAsk, Invalid> {
    if let (None, Some(first)) = (&spec.resources, spec.roles.first()) {
        let GangRole { nodes, per_node, .. } = role(first)?;
        return Ok(ResourceAsk { nodes, per_node });
    }
    let ask = spec.resources.as_ref().ok_or_else(|| absent("resources", "how many nodes, and gpus or slots of each"))?;
    Ok(ResourceAsk { nodes: ask.nodes, per_node: per_node("resources", ask.per_node.as_ref())? })
}

fn role(role: &wire::GangRole) -> Result<GangRole, Invalid> {
    let field = format!("roles.{}.resources", role.name);
    Ok(GangRole { name: role.name.clone(), nodes: role.nodes, per_node: per_node(&field, role.per_node.as_ref())? })
}

fn per_node(field: &str, ask: Option<&wire::PerNode>) -> Result<PerNode, Invalid> {
    let ask = ask.ok_or_else(|| absent(field, "gpus or slots, at least 1"))?;
    let model = |text: &String| GpuModel::parse(text).map_err(|invalid| invalid.of(format!("{field}.gpu.model")));
    Ok(PerNode {
        gpus: ask.gpus,
        gpu_profile: profile(&ask.gpu_profile)?,
        gpu_share: ask.gpu_share,
        slots: ask.slots,
        gpu_models: ask.gpu_models.iter().map(model).collect::<Result<_, _>>()?,
        gpu_memory_bytes: ask.gpu_memory_bytes,
        cpus: ask.cpus,
        memory_bytes: ask.memory_bytes,
        disk_bytes: ask.disk_bytes,
    })
}

fn profile(text: &str) -> Result<Option<MigProfile>, Invalid> {
    if text.is_empty() { Ok(None) } else { MigProfile::parse(text).map(Some).map_err(|invalid| invalid.of("resources.gpu.mig")) }
}

fn placement(ask: Option<&wire::PlacementAsk>) -> Result<PlacementAsk, Invalid> {
    let Some(ask) = ask else { return Ok(PlacementAsk::default()) };
    let nodes = |field: &str, names: &[String]| -> Result<Vec<NodeName>, Invalid> {
        names.iter().map(|name| NodeName::parse(name).map_err(|invalid| invalid.of(field))).collect()
    };
    let toleration = |text: &String| Toleration::parse(text).map_err(|invalid| invalid.of("placement.tolerations"));
    Ok(PlacementAsk {
        pool: (!ask.pool.is_empty()).then(|| ask.pool.clone()),
        nodes: nodes("placement.nodes", &ask.nodes)?,
        exclude: nodes("placement.exclude", &ask.exclude)?,
        labels: ask.labels.clone().into_iter().collect(),
        same_rack: ask.same_rack,
        tolerations: ask.tolerations.iter().map(toleration).collect::<Result<_, _>>()?,
    })
}

fn limits(limits: Option<&wire::Limits>) -> Result<Limits, Invalid> {
    let Some(limits) = limits else { return Ok(Limits::default()) };
    let deadline = |text: &str| Timestamp::parse(text).map_err(|invalid| invalid.of("limits.deadline"));
    Ok(Limits {
        max_duration: Millis(limits.max_duration_ms),
        max_pending: Millis(limits.max_pending_ms),
        min_run: Millis(limits.min_run_ms),
        deadline: (!limits.deadline.is_empty()).then(|| deadline(&limits.deadline)).transpose()?,
        deadline_missed: match wire::DeadlineMissed::try_from(limits.deadline_missed) {
            Ok(wire::DeadlineMissed::Unspecified | wire::DeadlineMissed::Run) => DeadlineMissed::Run,
            Ok(wire::DeadlineMissed::End) => DeadlineMissed::End,
            Err(_) => return Err(Invalid::new("limits.deadline_missed", limits.deadline_missed, "run or end")),
        },
    })
}

fn launcher(number: i32) -> Result<Launcher, Invalid> {
    match wire::Launcher::try_from(number) {
        Ok(wire::Launcher::Unspecified | wire::Launcher::Direct) => Ok(Launcher::Direct),
        Ok(wire::Launcher::Torchrun) => Ok(Launcher::Torchrun),
        Err(_) => Err(Invalid::new("launcher", number, "direct or torchrun")),
    }
}

fn signal(field: &str, number: i32) -> Result<Option<StopSignal>, Invalid> {
    match wire::StopSignal::try_from(number) {
        Ok(wire::StopSignal::Unspecified) => Ok(None),
        Ok(wire::StopSignal::Term) => Ok(Some(StopSignal::Term)),
        Ok(wire::StopSignal::Int) => Ok(Some(StopSignal::Int)),
        Ok(wire::StopSignal::Usr1) => Ok(Some(StopSignal::Usr1)),
        Ok(wire::StopSignal::Usr2) => Ok(Some(StopSignal::Usr2)),
        Err(_) => Err(Invalid::new(field, number, "TERM, INT, USR1 or USR2")),
    }
}

fn stop(policy: Option<&wire::StopPolicy>) -> Result<StopPolicy, Invalid> {
    let Some(policy) = policy else { return Ok(StopPolicy::default()) };
    let notice = signal("stop.notice.signal", policy.notice_signal)?;
    Ok(StopPolicy {
        signal: signal("stop.signal", policy.signal)?.unwrap_or_default(),
        grace: policy.grace_ms.map_or(StopPolicy::DEFAULT_GRACE, Millis),
        notice: notice.map(|signal| StopNotice { signal, before: Millis(policy.notice_before_ms) }),
    })
}

fn retry(policy: Option<&wire::RetryPolicy>) -> RetryPolicy {
    let default = RetryPolicy::default();
    let Some(policy) = policy else { return default };
    let backoff = policy.backoff_ms.map_or(default.backoff, Millis);
    RetryPolicy {
        user_code: policy.user_code.unwrap_or(default.user_code),
        infrastructure: policy.infrastructure.unwrap_or(default.infrastructure),
        lost: policy.lost.unwrap_or(default.lost),
        preempted: policy.preempted.unwrap_or(default.preempted),
        exit_codes: policy.exit_codes.clone(),
        retryable: policy.retryable.unwrap_or(default.retryable),
        out_of_memory: policy.out_of_memory.unwrap_or(default.out_of_memory),
        backoff,
        // A long first wait with no longest named lifts the longest.
        backoff_max: policy.backoff_max_ms.map_or(Millis(default.backoff_max.0.max(backoff.0)), Millis),
    }
}

fn source(source: &wire::SourceRef) -> Result<SourceRef, Invalid> {
    let archive = document("source.archive", source.archive.as_ref())?;
    Ok(SourceRef {
        archive: archive.ok_or_else(|| absent("source.archive", "the snapshot's archive in the object store"))?,
        tree: digest("source.tree", &source.tree)?,
        commit: source.commit.clone(),
        branch: source.branch.clone(),
        dirty: source.dirty,
        untracked: source.untracked,
        remote: source.remote.clone(),
        folder: source.folder.clone(),
        remark: source.remark.clone(),
    })
}

fn input(input: &wire::InputRef) -> Result<InputRef, Invalid> {
    Ok(InputRef {
        name: input.name.clone(),
        snapshot: input.snapshot.clone(),
        digest: if input.digest.is_empty() { None } else { Some(digest("data.digest", &input.digest)?) },
    })
}
