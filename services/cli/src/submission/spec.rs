//! The spec as it goes over the wire, made from the typed job file.

use super::Documents;
use crate::jobfile::{JobFile, LauncherType, Missed, ResourcesSection, RetryCause, RetrySection, RoleSection, Signal};
use footplate_api::types;
use footplate_types::Digest;

/// What a spec refers to by digest or id.
#[derive(Clone, Debug, Default)]
pub struct Refs {
    /// The launch document.
    pub launch: types::DocumentRef,
    /// The program's config.
    pub config: Option<types::DocumentRef>,
    /// The resolved job file.
    pub document: Option<types::DocumentRef>,
    /// The code.
    pub source: Option<types::SourceRef>,
    /// The run that `why.baseline` names, as its whole id.
    pub baseline: String,
    /// The runs that it comes after.
    pub after: Vec<types::AfterJob>,
    /// The run this one repeats.
    pub rerun_of: String,
    /// Paths of what was masked.
    pub masked: Vec<String>,
}

impl Refs {
    /// References to documents that are not stored: for a dry run.
    ///
    /// # Errors
    /// None in practice: the documents are plain text.
    pub fn unstored(documents: &Documents) -> Result<Self, serde_json::Error> {
        let wire = |bytes: &[u8]| {
            let reference = Documents::reference(bytes);
            types::DocumentRef { digest: reference.digest.to_string(), bytes: reference.bytes }
        };
        Ok(Self {
            launch: wire(&documents.launch(None)?),
            config: documents.config.as_deref().map(wire),
            document: Some(wire(&documents.document)),
            masked: documents.masked.clone(),
            ..Self::default()
        })
    }
}

/// Retries of a cause in `on` when `max` is absent.
const FAILURES_DEFAULT: u32 = 3;
/// Retries after a preemption when `max` is absent.
const PREEMPTIONS_DEFAULT: u32 = 1_000;
/// Retries after a retryable exit code when `max` is absent.
const RETRYABLE_DEFAULT: u32 = 100;

/// The spec of a job.
pub fn job_spec(file: &JobFile, refs: Refs) -> types::JobSpec {
    types::JobSpec {
        name: file.name.to_string(),
        experiment: file.experiment.to_string(),
        labels: file.labels.clone().into_iter().collect(),
        why: Some(types::Why { hypothesis: file.why.hypothesis.clone(), success: file.why.success.clone(), baseline: refs.baseline }),
        // Beside roles nothing is asked for all of them.
        resources: file
            .roles
            .is_empty()
            .then(|| types::ResourceAsk { nodes: file.resources.nodes, per_node: Some(per_node(&file.resources)) }),
        roles: file.roles.iter().map(role).collect(),
        placement: Some(types::PlacementAsk {
            pool: file.placement.pool.clone().unwrap_or_default(),
            nodes: file.placement.nodes.iter().map(ToString::to_string).collect(),
            exclude: file.placement.exclude.iter().map(ToString::to_string).collect(),
            labels: file.placement.labels.clone().into_iter().collect(),
            same_rack: file.placement.same_rack,
            tolerations: file.placement.tolerations.iter().map(ToString::to_string).collect(),
        }),
        queue: file.queue.name.to_string(),
        priority: file.queue.priority,
        preemptible: file.queue.preemptible,
        launcher: match file.launcher.kind {
            LauncherType::Direct => types::Launcher::Direct,
            LauncherType::Torchrun => types::Launcher::Torchrun,
        }
        .into(),
        limits: Some(types::Limits {
            max_duration_ms: file.limits.max_duration.map_or(0, |span| span.0.0),
            max_pending_ms: file.limits.max_pending.map_or(0, |span| span.0.0),
            min_run_ms: file.limits.min_run.map_or(0, |span| span.0.0),
            deadline: file.limits.deadline.map(|deadline| deadline.at(footplate_clock::now()).to_string()).unwrap_or_default(),
            deadline_missed: match file.limits.deadline_missed {
                Missed::Run => types::DeadlineMissed::Unspecified.into(),
                Missed::End => types::DeadlineMissed::End.into(),
            },
        }),
        stop: Some(types::StopPolicy {
            signal: signal(file.stop.signal).into(),
            grace_ms: Some(file.stop.grace.0.0),
            notice_signal: file.stop.notify.map_or(types::StopSignal::Unspecified, |notify| signal(notify.signal)).into(),
            notice_before_ms: file.stop.notify.map_or(0, |notify| notify.before.0.0),
        }),
        retry: Some(retry(&file.retry)),
        launch: Some(refs.launch),
        config: refs.config,
        document: refs.document,
        source: refs.source,
        inputs: file.data.iter().map(|item| input(&item.name, &item.snapshot)).collect(),
        seed: file.seeds.base,
        rerun_of: refs.rerun_of,
        masked: refs.masked,
        objectives: Vec::new(),
        after: refs.after,
        // Who submits an array says it of each of its jobs.
        array: None,
    }
}

fn role(role: &RoleSection) -> types::GangRole {
    types::GangRole { name: role.name.clone(), nodes: role.resources.nodes, per_node: Some(per_node(&role.resources)) }
}

fn per_node(resources: &ResourcesSection) -> types::PerNode {
    let gpus = resources.gpus.unwrap_or(0);
    types::PerNode {
        gpus,
        gpu_profile: resources.gpu.mig.as_ref().map(ToString::to_string).unwrap_or_default(),
        gpu_share: resources.gpu.share.unwrap_or(0),
        slots: resources.slots.unwrap_or(u32::from(gpus == 0)),
        gpu_models: resources.gpu.model.iter().map(ToString::to_string).collect(),
        gpu_memory_bytes: resources.gpu.memory.map_or(0, |size| size.0.0),
        cpus: resources.cpus.unwrap_or(0),
        memory_bytes: resources.memory.map_or(0, |size| size.0.0),
        disk_bytes: resources.disk.map_or(0, |size| size.0.0),
    }
}

fn signal(signal: Signal) -> types::StopSignal {
    match signal {
        Signal::Term => types::StopSignal::Term,
        Signal::Int => types::StopSignal::Int,
        Signal::Usr1 => types::StopSignal::Usr1,
        Signal::Usr2 => types::StopSignal::Usr2,
    }
}

fn retry(section: &RetrySection) -> types::RetryPolicy {
    let budget = |cause: RetryCause, default: u32| Some(if section.on.contains(&cause) { section.max.unwrap_or(default) } else { 0 });
    types::RetryPolicy {
        user_code: budget(RetryCause::Failed, FAILURES_DEFAULT),
        infrastructure: budget(RetryCause::Infra, FAILURES_DEFAULT),
        lost: budget(RetryCause::Lost, FAILURES_DEFAULT),
        preempted: budget(RetryCause::Preempted, PREEMPTIONS_DEFAULT),
        out_of_memory: budget(RetryCause::Oom, FAILURES_DEFAULT),
        exit_codes: section.exit_codes.clone(),
        retryable: Some(section.max.unwrap_or(RETRYABLE_DEFAULT)),
        backoff_ms: Some(section.backoff.first.0),
        backoff_max_ms: Some(section.backoff.longest.0),
    }
}

fn input(name: &str, snapshot: &str) -> types::InputRef {
    let digest = snapshot.rsplit_once("@sha256:").and_then(|(_, digest)| Digest::parse(digest).ok());
    types::InputRef {
        name: name.to_owned(),
        snapshot: snapshot.to_owned(),
        digest: digest.map(|digest| digest.to_string()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile;
    use serde_json::{Value, json};

    fn spec(extra: Value) -> types::JobSpec {
        let mut document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": "true"});
        document.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        job_spec(&jobfile::resolve(document.as_object().unwrap().clone(), &[]).unwrap().file, Refs::default())
    }

    #[test]
    fn with_neither_gpus_nor_slots_a_job_asks_one_slot() {
        let per_node = |extra| spec(extra).resources.unwrap().per_node.unwrap();
        assert_eq!((per_node(json!({})).gpus, per_node(json!({})).slots), (0, 1));
        let gpus = per_node(json!({"resources": {"gpus": 8, "gpu": {"memory": ">=80GB"}}}));
        assert_eq!((gpus.gpus, gpus.slots, gpus.gpu_memory_bytes), (8, 0, 80_000_000_000));
        let slices = per_node(json!({"resources": {"gpus": 2, "gpu": {"mig": "1g.10gb"}}}));
        assert_eq!((slices.gpus, slices.gpu_profile.as_str(), slices.gpu_share), (2, "1g.10gb", 0));
        let share = per_node(json!({"resources": {"gpus": 1, "gpu": {"share": 250, "memory": "10GiB"}}}));
        assert_eq!((share.gpus, share.gpu_share, share.gpu_memory_bytes), (1, 250, 10 << 30));
    }

    #[test]
    fn each_role_asks_for_itself() {
        let made = spec(json!({"roles": {"chief": {"resources": {"gpus": 1}}, "ps": {"nodes": 2}}}));
        assert_eq!(made.resources, None);
        let asked: Vec<(&str, u32, u32, u32)> = made
            .roles
            .iter()
            .map(|role| {
                let each = role.per_node.as_ref().unwrap();
                (role.name.as_str(), role.nodes, each.gpus, each.slots)
            })
            .collect();
        assert_eq!(asked, [("chief", 1, 1, 0), ("ps", 2, 0, 1)]);
    }

    #[test]
    fn each_cause_of_a_retry_is_counted_for_itself() {
        let default = spec(json!({})).retry.unwrap();
        assert_eq!((default.user_code, default.infrastructure, default.lost, default.preempted), (Some(0), Some(3), Some(3), Some(1_000)));
        let some = spec(json!({"retry": {"max": 5, "on": ["preempted", "lost"], "backoff": "2s..8s"}})).retry.unwrap();
        assert_eq!((some.user_code, some.infrastructure, some.lost, some.preempted), (Some(0), Some(0), Some(5), Some(5)));
        assert_eq!((default.out_of_memory, some.out_of_memory), (Some(0), Some(0)));
        let oom = spec(json!({"retry": {"on": ["oom"]}})).retry.unwrap();
        assert_eq!((oom.out_of_memory, oom.user_code, oom.lost), (Some(3), Some(0), Some(0)));
        assert_eq!((some.backoff_ms, some.backoff_max_ms), (Some(2_000), Some(8_000)));
        let none = spec(json!({"retry": {"max": 0}})).retry.unwrap();
        assert_eq!((none.infrastructure, none.lost, none.preempted, none.retryable), (Some(0), Some(0), Some(0), Some(0)));
    }

    #[test]
    fn a_deadline_is_a_time_of_day_or_one_that_long_after_the_submission() {
        let limits = |limits: Value| spec(json!({ "limits": limits })).limits.unwrap();
        let named = limits(json!({"deadline": "2026-12-24T18:00:00+01:00", "deadline_missed": "end"}));
        assert_eq!((named.deadline.as_str(), named.deadline_missed()), ("2026-12-24T17:00:00Z", types::DeadlineMissed::End));
        let before = footplate_clock::now();
        let relative = footplate_types::Timestamp::parse(&limits(json!({"deadline": "6h"})).deadline).unwrap();
        assert!((6 * 3_600_000..6 * 3_600_000 + 60_000).contains(&relative.millis_since(before)), "{relative}");
        assert_eq!(limits(json!({})).deadline, "");
        let document = json!({"apiVersion": "footplate/v1", "kind": "Job", "name": "x", "run": "true", "limits": {"deadline": "soon"}});
        let refused = jobfile::resolve(document.as_object().unwrap().clone(), &[]).unwrap_err().to_string();
        assert!(refused.contains("limits.deadline"), "{refused}");
    }

    #[test]
    fn a_digest_at_the_end_of_a_snapshot_is_recorded_as_one() {
        let digest = "ab".repeat(32);
        let made = spec(
            json!({"data": [{"name": "train", "snapshot": format!("imagenet@sha256:{digest}")}, {"name": "v", "snapshot": "s3://b/x"}]}),
        );
        assert_eq!((made.inputs[0].digest.as_str(), made.inputs[1].digest.as_str()), (digest.as_str(), ""));
    }
}
