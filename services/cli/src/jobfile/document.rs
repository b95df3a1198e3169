//! The job file's keys as types: what each means, its default, and (through schemars) the published JSON Schema.
//!
//! Every field acts. A key that is planned and not built stands in [`super::keys`], which refuses it by name.

use super::after::AfterItem;
use super::array::ArraySection;
use super::role::RoleSection;
use super::units::{AtLeast, Backoff, Deadline, Size, Span};
use crate::capture::{DirtyRule, LfsRule, MAX_UNTRACKED_DEFAULT, SubmoduleRule};
use footplate_types::{DisplayName, GpuModel, MigProfile, NodeName, ProjectName, QueueName, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The version of this format.
pub const API_VERSION: &str = "footplate/v1";
/// The experiment of a job that names none.
pub const EXPERIMENT_DEFAULT: &str = "default";
/// The queue of a job that names none.
pub const QUEUE_DEFAULT: &str = "default";

/// A job: one training, what it runs, what it needs, and why.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// The version of the format: `footplate/v1`.
    #[serde(rename = "apiVersion")]
    #[schemars(extend("const" = "footplate/v1"))]
    pub api_version: String,
    /// What the file describes: `Job`.
    #[schemars(extend("const" = "Job"))]
    pub kind: String,
    /// What people call the run: any Unicode, at most 250 characters.
    pub name: DisplayName,
    /// The tenant; when absent that of `--project`, `FOOTPLATE_PROJECT` or the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectName>,
    /// The group of runs it belongs to.
    #[serde(default = "experiment_default")]
    pub experiment: DisplayName,
    /// The run's first tags; values are text (quote numbers).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Why someone runs this.
    #[serde(default)]
    pub why: WhySection,
    /// Files merged under this one, relative to it: sections key by key, everything else replaced. A name or a list of names.
    #[serde(default, skip_serializing)]
    #[schemars(extend("anyOf" = [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]))]
    pub extends: Value,
    /// Given to the program as a JSON file whose path is in `FOOTPLATE_CONFIG`; any keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    /// The code.
    #[serde(default)]
    pub source: SourceSection,
    /// The environment of set-up and workers.
    #[serde(default)]
    pub env: EnvSection,
    /// A line for `/bin/sh -c`, run once per attempt per node before any worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// What is run: a line for `/bin/sh -c`, or a list of program and arguments started without a shell. `entrypoint` and `command` mean the
    /// same; `commands` is a list of lines run one after the other until one fails.
    pub run: Run,
    /// How the workers of a node are started.
    #[serde(default)]
    pub launcher: LauncherSection,
    /// What each node gives, and how many.
    #[serde(default)]
    pub resources: ResourcesSection,
    /// Roles of its gang, each with resources of its own, by name in the order in which their members are numbered; all of them are placed, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleSection>,
    /// Where it may stand.
    #[serde(default)]
    pub placement: PlacementSection,
    /// Its queue and its rank in it.
    #[serde(default)]
    pub queue: QueueSection,
    /// The runs it comes after: it gets in line when each of them has ended so. When one of them never can, it ends as cancelled. A run's id (or the
    /// beginning of one), `ID:failure`, `ID:any`, or a list of at most 64 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<AfterItem>,
    /// Many jobs of this one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySection>,
    /// How long it may take.
    #[serde(default)]
    pub limits: LimitsSection,
    /// How it is stopped.
    #[serde(default)]
    pub stop: StopSection,
    /// How often it is tried again.
    #[serde(default)]
    pub retry: RetrySection,
    /// The data it reads; recorded as the run's inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<DataItem>,
    /// Checkpoints.
    #[serde(default)]
    pub checkpoints: CheckpointsSection,
    /// Randomness.
    #[serde(default)]
    pub seeds: SeedsSection,
}

fn experiment_default() -> DisplayName {
    DisplayName::parse(EXPERIMENT_DEFAULT).expect("a constant that is well formed")
}

fn queue_default() -> QueueName {
    QueueName::parse(QUEUE_DEFAULT).expect("a constant that is well formed")
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Run {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
}

/// Why someone runs this.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WhySection {
    /// The expectation that is being tested.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hypothesis: String,
    /// When it counts as met, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub success: String,
    /// The run it is compared with: `run:` and an id or the beginning of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
}

/// The code of a run.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceSection {
    /// A folder in a git repository, relative to the job file: the whole repository is captured. When both `git` and `path` are absent, the
    /// repository around the job file, or its folder where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<String>,
    /// A folder, relative to the job file, captured without asking git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What becomes of a tree that differs from its commit: `snapshot` captures it as it is, `refuse` refuses it.
    pub dirty: DirtyRule,
    /// What becomes of submodules: `capture` takes their trees as they are, `pinned` demands their recorded commits, `ignore` leaves them out.
    pub submodules: SubmoduleRule,
    /// What becomes of git LFS pointers without content: `record` takes and marks them, `require` refuses them.
    pub lfs: LfsRule,
    /// The most bytes of files that git does not track.
    pub max_untracked: Size,
    /// Files that pass the list of secret names, as patterns in the syntax of `.gitignore`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
}

impl Default for SourceSection {
    fn default() -> Self {
        Self {
            git: None,
            path: None,
            dirty: DirtyRule::default(),
            submodules: SubmoduleRule::default(),
            lfs: LfsRule::default(),
            max_untracked: Size(MAX_UNTRACKED_DEFAULT),
            allow: Vec::new(),
        }
    }
}

/// The environment of set-up and workers.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvSection {
    /// Variables and their values; values are text (quote numbers). Recorded, so no place for secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vars: BTreeMap<String, String>,
    /// Names of variables taken from the environment of the node's agent, where they are set there. Only the names are recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass: Vec<String>,
}

/// How workers are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LauncherType {
    /// One worker a GPU (or slot), each with its own `RANK`.
    #[default]
    Direct,
    /// One command a node, which starts the workers itself.
    Torchrun,
}

/// How workers are started. A bare word means the same as `type`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LauncherSection {
    /// `direct` starts one worker a GPU (or slot), each with its own `RANK`; `torchrun` starts one command a node.
    #[serde(rename = "type")]
    pub kind: LauncherType,
}

/// What each node gives. Exactly one of `gpus` and `slots`; with neither, one slot.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourcesSection {
    /// How many nodes; all of them or none.
    #[schemars(range(min = 1, max = 1024))]
    pub nodes: u32,
    /// GPUs of each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// CPU slots of each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// What kind of GPU.
    pub gpu: GpuSection,
    /// Logical CPUs of each node; absent = whatever is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory of each node, with a unit; absent = whatever is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Free disk of each node, with a unit; absent = whatever is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
}

impl Default for ResourcesSection {
    fn default() -> Self {
        Self { nodes: 1, gpus: None, slots: None, gpu: GpuSection::default(), cpus: None, memory: None, disk: None }
    }
}

impl ResourcesSection {
    /// Whether anything is said in it.
    pub(super) fn is_given(&self) -> bool {
        let Self { nodes, gpus, slots, gpu, cpus, memory, disk } = self;
        let of_kind = !gpu.model.is_empty() || gpu.memory.is_some();
        *nodes != 1 || of_kind || gpus.is_some() || slots.is_some() || cpus.is_some() || memory.is_some() || disk.is_some()
    }
}

/// What kind of GPU.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GpuSection {
    /// Models that will do, one name or a list; empty = any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub model: Vec<GpuModel>,
    /// The least memory of each, with a unit; with `share` its own part of the GPU's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<AtLeast>,
    /// MIG profile, such as `1g.10gb`: `gpus` slices of it are asked instead of whole GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigProfile>,
    /// Share of the one GPU (`gpus: 1`) in thousandths, such as 250 for a quarter, beside which others may stand on it; absent = all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 999))]
    pub share: Option<u32>,
}

/// Where it may stand.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlacementSection {
    /// Only on nodes of this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Only on these nodes; empty = any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// Never on these nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<NodeName>,
    /// Only on nodes with these labels (`agent.labels`); `nccl_topology` and others are found by the agent itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether all its nodes must stand in one rack; without it they do where that is possible.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub same_rack: bool,
    /// The taints of nodes that it does not mind (`agent.taints`, `footplate node taint`): `key=value`, or a key alone for all with that key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// Its queue and its rank in it. A bare word means the same as `name`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueueSection {
    /// The queue.
    pub name: QueueName,
    /// Inside its queue a larger one goes first, then the older.
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    pub priority: i32,
    /// Whether a more urgent job of its queue may stop it, or another queue that asks its own back; it is then requeued and loses no retry of another cause.
    pub preemptible: bool,
}

impl Default for QueueSection {
    fn default() -> Self {
        Self { name: queue_default(), priority: 0, preemptible: false }
    }
}

/// How long it may take.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// The longest an attempt may run after its launch; absent = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Span>,
    /// The longest it may be in line before its first placement (a wait for other runs does not count); absent = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pending: Option<Span>,
    /// How long an attempt may run after its launch before it is preempted for others, at most a week; absent = it may be at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_run: Option<Span>,
    /// By when it should be over: a time of day with a zone (`2026-12-24T18:00:00Z`), or a duration after its submission (`6h`). Once its latest start
    /// (less `max_duration`) is near it goes before others of its priority in its queue; absent = none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// What becomes of it when its deadline passes while it waits: `run` lets it wait on, `end` ends it as failed.
    pub deadline_missed: Missed,
}

/// What becomes of a job whose deadline passes while it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// It waits on.
    #[default]
    Run,
    /// It ends as failed.
    End,
}

/// A signal that asks a program to end or to be ready for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
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

/// How it is stopped: the signal, then after the grace KILL for the whole process tree.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopSection {
    /// The signal that asks it to end.
    pub signal: Signal,
    /// The time between that signal and KILL.
    pub grace: Span,
    /// A warning ahead of the signal, where the stop can wait (preemption, drain, time limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<NotifySection>,
}

impl Default for StopSection {
    fn default() -> Self {
        Self { signal: Signal::Term, grace: Span(footplate_types::Millis(30_000)), notify: None }
    }
}

/// A warning ahead of the stop signal.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifySection {
    /// The signal.
    pub signal: Signal,
    /// How long before the stop signal.
    pub before: Span,
}

/// What an attempt may have failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryCause {
    /// It could not be prepared or started.
    Infra,
    /// It was preempted, or its node was drained.
    Preempted,
    /// Its node was lost.
    Lost,
    /// The program failed.
    Failed,
    /// The program ran out of memory, of the machine or of a GPU.
    Oom,
}

/// How often it is tried again; each cause is counted for itself.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetrySection {
    /// The most retries of each cause in `on`, and of exits with one of `exit_codes`. Absent: 3 of `infra`, `lost`, `failed` and `oom` each, 1000 of
    /// `preempted`, 100 of `exit_codes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000))]
    pub max: Option<u32>,
    /// Which causes are retried at all. A preemption never counts as a failure.
    pub on: Vec<RetryCause>,
    /// Exit codes of the program that are worth a retry, beside 75 (which always is).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(range(min = 1, max = 255)))]
    pub exit_codes: Vec<i32>,
    /// The wait before the first retry and the longest wait; it doubles in between.
    pub backoff: Backoff,
}

impl Default for RetrySection {
    fn default() -> Self {
        Self {
            max: None,
            on: vec![RetryCause::Infra, RetryCause::Preempted, RetryCause::Lost],
            exit_codes: Vec::new(),
            backoff: Backoff { first: footplate_types::Millis(1_000), longest: footplate_types::Millis(600_000) },
        }
    }
}

/// One thing the run reads.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataItem {
    /// What the run calls it.
    pub name: String,
    /// Which snapshot of which data set, or a URI; a `@sha256:` and 64 hex digits at its end is recorded as its digest.
    pub snapshot: String,
}

/// Where an attempt starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// The newest whole checkpoint of the run is offered to each attempt (`footplate.latest_checkpoint()`).
    #[default]
    Auto,
}

/// Checkpoints.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointsSection {
    /// `auto`: each attempt is offered the newest whole checkpoint of the run.
    pub resume: Resume,
}

/// Randomness. The platform never seeds anything by itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SeedsSection {
    /// The base seed, recorded and given to the workers in `FOOTPLATE_SEED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
}
