//! What a job asks, as it stands in the ledger. Long things (argv, environment, config) are documents, named by digest.

use super::{AfterJob, ArrayMember, GangRole};
use footplate_types::{
    AttemptNumber, Digest, DisplayName, GpuModel, Invalid, MetricName, MigProfile, Millis, NodeName, QueueName, RunId, Taint, Timestamp,
    Toleration,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A document or blob in the object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DocumentRef {
    /// SHA-256 of its bytes; also its address.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}

/// Why someone runs this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Why {
    /// The expectation that is being tested; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hypothesis: String,
    /// When it counts as met, in words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub success: String,
    /// The run it is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<RunId>,
}

/// What each node of a gang must give.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PerNode {
    /// Whole GPUs, or slices where a profile is named. Exactly one of `gpus` and `slots` is above 0.
    #[serde(default)]
    pub gpus: u32,
    /// The MIG profile: slices of it are asked instead of whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_profile: Option<MigProfile>,
    /// The share of the one GPU that is asked, in thousandths, beside which others may stand on it; 0 = all of it. Its `gpu_memory_bytes` is then
    /// the part of the GPU's memory that is asked.
    #[serde(default, skip_serializing_if = "super::gpus::is_unsaid")]
    pub gpu_share: u32,
    /// CPU slots.
    #[serde(default)]
    pub slots: u32,
    /// Kinds of GPU that will do; empty = any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<GpuModel>,
    /// The least memory of each GPU, in bytes; of a share its own part of it.
    #[serde(default)]
    pub gpu_memory_bytes: u64,
    /// Logical CPUs; 0 = whatever is there.
    #[serde(default)]
    pub cpus: u32,
    /// Memory, in bytes; 0 = whatever is there.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Free disk, in bytes; 0 = whatever is there.
    #[serde(default)]
    pub disk_bytes: u64,
}

/// What a gang asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceAsk {
    /// How many nodes, each giving `per_node`; all or none.
    pub nodes: u32,
    /// What each gives.
    pub per_node: PerNode,
}

/// Where a gang may stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlacementAsk {
    /// Only in this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Only on these nodes; empty = any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// Never on these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<NodeName>,
    /// Only on nodes with these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether all its nodes must stand in one rack. Without it they do where that is possible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_rack: bool,
    /// The taints of nodes that it does not mind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

impl PlacementAsk {
    /// The most tolerations of a job, and the most taints of a node that operators set and that its agent declares.
    pub const TAINTS_MAX: usize = 64;

    /// Whether it may stand on a node with this taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    }
}

/// How the workers of a node are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Launcher {
    /// One worker a slot (or GPU), each with its own rank.
    #[default]
    Direct,
    /// One command a node, which starts the workers itself.
    Torchrun,
}

/// A signal that asks a program to end or to be ready for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT.
    Int,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
}

/// A warning ahead of the stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopNotice {
    /// The signal.
    pub signal: StopSignal,
    /// How long before the stop signal.
    pub before: Millis,
}

/// How a job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopPolicy {
    /// The signal that asks it to end.
    #[serde(default)]
    pub signal: StopSignal,
    /// Time between that signal and KILL.
    pub grace: Millis,
    /// A warning ahead, where the stop can wait (preemption, drain, limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<StopNotice>,
}

impl Default for StopPolicy {
    fn default() -> Self {
        Self { signal: StopSignal::Term, grace: Self::DEFAULT_GRACE, notice: None }
    }
}

impl StopPolicy {
    /// Grace where the job file names none.
    pub const DEFAULT_GRACE: Millis = Millis(30_000);
}

/// How often a job is tried again, counted by cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetryPolicy {
    /// After the program failed.
    #[serde(default)]
    pub user_code: u32,
    /// After it could not be prepared or started.
    pub infrastructure: u32,
    /// After a node was lost.
    pub lost: u32,
    /// After a preemption or a drain.
    pub preempted: u32,
    /// Exit codes that are retried against `retryable` (75 always is).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// After one of `exit_codes` or 75.
    pub retryable: u32,
    /// After it ran out of memory.
    #[serde(default, skip_serializing_if = "is_none")]
    pub out_of_memory: u32,
    /// The wait before the first retry; doubles with each up to `backoff_max`.
    pub backoff: Millis,
    /// The longest wait.
    pub backoff_max: Millis,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            user_code: 0,
            infrastructure: 3,
            lost: 3,
            preempted: 1_000,
            exit_codes: Vec::new(),
            retryable: 100,
            // It would only run out of it again.
            out_of_memory: 0,
            backoff: Millis::from_secs(1),
            backoff_max: Millis::from_secs(600),
        }
    }
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

/// Limits of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Limits {
    /// The longest an attempt may run after its launch; queue time never counts. 0 = no limit.
    #[serde(default)]
    pub max_duration: Millis,
    /// The longest it may be in line before its first placement; a wait for other jobs never counts. 0 = no limit.
    #[serde(default)]
    pub max_pending: Millis,
    /// How long an attempt may run after its launch before it is preempted for others. 0 = it may be at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_run: Millis,
    /// By when it should be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What becomes of it when its deadline passes before it runs.
    #[serde(default, skip_serializing_if = "DeadlineMissed::is_run")]
    pub deadline_missed: DeadlineMissed,
}

impl Limits {
    /// When an attempt has to start at the latest that takes as long as it may and is to be over by the deadline.
    pub fn latest_start(&self) -> Option<Timestamp> {
        let nanos = i64::try_from(self.max_duration.0).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        self.deadline.map(|deadline| Timestamp::from_nanos(deadline.as_nanos().saturating_sub(nanos)))
    }
}

/// What becomes of a job whose deadline passes before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeadlineMissed {
    /// It waits on, and runs when its turn comes.
    #[default]
    Run,
    /// It ends as failed.
    End,
}

impl DeadlineMissed {
    fn is_run(&self) -> bool {
        *self == Self::Run
    }
}

fn is_zero(millis: &Millis) -> bool {
    millis.0 == 0
}

/// The code of a run: a snapshot of the tree and where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SourceRef {
    /// The snapshot archive (`.tar.gz`).
    pub archive: DocumentRef,
    /// Digest of the tree (names, modes, contents), independent of times and of how it is packed.
    pub tree: Digest,
    /// The commit it is based on; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The branch; empty when detached or without git.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Whether the tree differed from the commit.
    #[serde(default)]
    pub dirty: bool,
    /// How many untracked files are in it.
    #[serde(default)]
    pub untracked: u32,
    /// The remote's address without credentials; empty when there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remote: String,
    /// The working folder inside the tree; empty for its top.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// A mark when something could not be captured, in words; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remark: String,
}

/// Data that a run reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InputRef {
    /// What the run calls it.
    pub name: String,
    /// Which snapshot of which dataset, or a URI.
    pub snapshot: String,
    /// Digest of its content; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// What a job asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSpec {
    /// The run's name.
    pub name: DisplayName,
    /// The experiment's name.
    pub experiment: DisplayName,
    /// Labels; they become the run's first tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Why someone runs this.
    #[serde(default)]
    pub why: Why,
    /// What it asks.
    pub resources: ResourceAsk,
    /// Where it may stand.
    #[serde(default)]
    pub placement: PlacementAsk,
    /// Its queue.
    pub queue: QueueName,
    /// Inside its queue a larger one goes first.
    #[serde(default)]
    pub priority: i32,
    /// Whether a more urgent job of its queue may stop it, or another queue that asks its own back (it is requeued).
    #[serde(default)]
    pub preemptible: bool,
    /// How workers are started.
    #[serde(default)]
    pub launcher: Launcher,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// How it is stopped.
    #[serde(default)]
    pub stop: StopPolicy,
    /// How often it is tried again.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// The launch document: command, set-up, environment ([`crate::messages::LaunchDocument`] as JSON).
    pub launch: DocumentRef,
    /// The resolved config of the program (JSON); absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<DocumentRef>,
    /// The resolved job file as submitted (JSON), for reruns and lineage; absent for clients that sent none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentRef>,
    /// The code; absent when the command needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRef>,
    /// The data it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputRef>,
    /// The base seed; absent when the user gave none (the platform never seeds by itself).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The run this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<RunId>,
    /// What was masked as secret before it was recorded, by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<String>,
    /// Metrics whose values its seal must hold: a sweep's objective.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<MetricName>,
    /// The jobs whose ends it waits for before it gets in line: all of these conditions must hold. When one never can, the job ends by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<AfterJob>,
    /// The roles of its gang, each with resources of its own; all of them are placed, or none. Empty: all members ask the same, `resources`. With roles
    /// `resources` are those of the first, for whoever knows no roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<GangRole>,
    /// Which one of an array it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayMember>,
}

impl JobSpec {
    /// The most nodes of one gang.
    pub const NODES_MAX: u32 = 1_024;
    /// The most workers of one node.
    pub const WORKERS_PER_NODE_MAX: u32 = 1_024;
    /// The most workers of one gang.
    pub const WORKERS_MAX: u32 = 16_384;
    /// The most bytes of a placement: one event names the whole gang, and an event is at most 256 KiB.
    pub const PLACEMENT_BYTES_MAX: u64 = 224 * 1024;
    /// The farthest that a priority is from 0, either way.
    pub const PRIORITY_MAX: u32 = 1_000_000;
    /// The longest that work is kept from being preempted, in milliseconds: a week. What is guaranteed to others may not be away for longer.
    pub const MIN_RUN_MAX: u64 = 7 * 86_400_000;
    /// The most labels, inputs, or excluded nodes.
    pub const LIST_MAX: usize = 256;

    /// A job that asks for these resources and says nothing else: everything about it is what a job file without the key means.
    pub fn of(name: DisplayName, experiment: DisplayName, queue: QueueName, resources: ResourceAsk, launch: DocumentRef) -> Self {
        Self {
            name,
            experiment,
            labels: BTreeMap::new(),
            why: Why::default(),
            resources,
            placement: PlacementAsk::default(),
            queue,
            priority: 0,
            preemptible: false,
            launcher: Launcher::default(),
            limits: Limits::default(),
            stop: StopPolicy::default(),
            retry: RetryPolicy::default(),
            launch,
            config: None,
            document: None,
            source: None,
            inputs: Vec::new(),
            seed: None,
            rerun_of: None,
            masked: Vec::new(),
            objectives: Vec::new(),
            after: Vec::new(),
            roles: Vec::new(),
            array: None,
        }
    }

    /// Workers of the whole gang.
    pub fn world_size(&self) -> u32 {
        self.asks().fold(0, |sum, asked| sum.saturating_add(asked.nodes.saturating_mul(asked.workers_per_node())))
    }

    /// An upper estimate of the bytes of this gang's placement: 224 a member and the name of its role, 72 more where it has parts of GPUs, 50 a GPU (a UUID of
    /// 40 characters), 8 a slot.
    fn placement_bytes(&self) -> u64 {
        let each = |asked: super::Asked<'_>| {
            let role = asked.role.map_or(0, |role| role.len() as u64 + 12);
            let parts = if asked.per_node.gpu_share > 0 || asked.per_node.gpu_profile.is_some() { 72 } else { 0 };
            224 + role + parts + 50 * u64::from(asked.per_node.gpus) + 8 * u64::from(asked.per_node.slots)
        };
        self.asks().fold(0, |sum: u64, asked| sum.saturating_add(u64::from(asked.nodes).saturating_mul(each(asked))))
    }

    /// Checks what serde cannot: every number against its limits. The first fault is told.
    pub fn validate(&self) -> Result<(), Invalid> {
        let within = |field: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) { Ok(()) } else { Err(Invalid::new(field, value, format!("{least} to {most}"))) }
        };
        self.validate_roles()?;
        for asked in self.asks() {
            within(&asked.field(".nodes"), asked.nodes.into(), 1, Self::NODES_MAX.into())?;
            let per_node = asked.per_node;
            if (per_node.gpus == 0) == (per_node.slots == 0) {
                let given = format!("gpus: {}, slots: {}", per_node.gpus, per_node.slots);
                return Err(Invalid::new(asked.field(""), given, "exactly one of gpus and slots, at least 1"));
            }
            within(&asked.field(".gpus or slots"), asked.workers_per_node().into(), 1, Self::WORKERS_PER_NODE_MAX.into())?;
            if per_node.gpus == 0 && (!per_node.gpu_models.is_empty() || per_node.gpu_memory_bytes > 0) {
                return Err(Invalid::new(asked.field(".gpu"), "a model or memory", "only together with gpus of at least 1"));
            }
            within(&format!("{} (count)", asked.field(".gpu.model")), per_node.gpu_models.len() as u64, 0, Self::LIST_MAX as u64)?;
            per_node.validate_gpus()?;
        }
        within("roles (members of all)", self.members().into(), 1, Self::NODES_MAX.into())?;
        within("resources (nodes times workers)", self.world_size().into(), 1, Self::WORKERS_MAX.into())?;
        within("resources (bytes of a placement)", self.placement_bytes(), 0, Self::PLACEMENT_BYTES_MAX)?;
        if self.priority.unsigned_abs() > Self::PRIORITY_MAX {
            return Err(Invalid::new("priority", self.priority, format!("-{most} to {most}", most = Self::PRIORITY_MAX)));
        }
        within("limits.min_run", self.limits.min_run.0, 0, Self::MIN_RUN_MAX)?;
        if self.limits.deadline.is_none() && self.limits.deadline_missed == DeadlineMissed::End {
            return Err(Invalid::new("limits.deadline_missed", "end", "only together with limits.deadline"));
        }
        within("retry.backoff", self.retry.backoff.0, 0, Self::STOP_MAX_MS)?;
        within("retry.backoff_max", self.retry.backoff_max.0, self.retry.backoff.0, Self::STOP_MAX_MS)?;
        for (field, count) in [
            ("labels", self.labels.len()),
            ("data", self.inputs.len()),
            ("placement.exclude", self.placement.exclude.len()),
            ("placement.nodes", self.placement.nodes.len()),
            ("placement.labels", self.placement.labels.len()),
            ("retry.exit_codes", self.retry.exit_codes.len()),
            ("objectives", self.objectives.len()),
        ] {
            within(&format!("{field} (count)"), count as u64, 0, Self::LIST_MAX as u64)?;
        }
        within("placement.tolerations (count)", self.placement.tolerations.len() as u64, 0, PlacementAsk::TAINTS_MAX as u64)?;
        let labels = self.labels.iter().map(|label| ("labels", label));
        for (field, (key, value)) in labels.chain(self.placement.labels.iter().map(|label| ("placement.labels", label))) {
            let count = key.chars().count() + value.chars().count();
            // A key that is too long itself is not told in full.
            let shown: String = key.chars().take(40).collect();
            within(&format!("{field}.{shown} (characters)"), count as u64, 0, Self::WORD_MAX as u64)?;
        }
        AfterJob::validate(&self.after)?;
        self.array.as_ref().map_or(Ok(()), ArrayMember::validate)?;
        self.validate_sizes()
    }

    /// How long an attempt may stand on its nodes after its launch, in milliseconds: its limit and the time to end; none without a limit.
    pub fn stay(&self) -> Option<u64> {
        let limit = self.limits.max_duration.0;
        (limit > 0).then(|| limit.saturating_add(self.stop.grace.0))
    }

    /// The wait before retry number `spent` (from 1) of one cause: doubles each time, up to the limit.
    pub fn backoff_for(&self, spent: u32) -> Millis {
        let doubled = self.retry.backoff.0.saturating_mul(1u64 << spent.saturating_sub(1).min(30));
        Millis(doubled.min(self.retry.backoff_max.0))
    }

    /// Whether this is the attempt after which no later one may follow under any budget (for bounds in tests and checks).
    pub fn attempts_max(&self) -> AttemptNumber {
        let retry = &self.retry;
        AttemptNumber(
            1u32.saturating_add(retry.user_code)
                .saturating_add(retry.infrastructure)
                .saturating_add(retry.lost)
                .saturating_add(retry.preempted)
                .saturating_add(retry.retryable)
                .saturating_add(retry.out_of_memory),
        )
    }
}
