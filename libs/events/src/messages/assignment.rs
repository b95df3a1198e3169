//! Assignments: what a node should be running now. A function of a ledger prefix; written by the scheduler's leader alone.

use crate::facts::{ArrayMember, DocumentRef, Launcher, Rendezvous, SourceRef, StopCause, StopPolicy};
use footplate_types::{
    AttemptNumber, DisplayName, Epoch, GpuUuid, MemberIndex, MetricName, MigProfile, Millis, NodeName, ProjectName, Rank, RunId, SlotIndex,
};
use serde::{Deserialize, Serialize};

/// What a node should be running, as of a ledger sequence. A missing message means *change nothing*.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Assignment {
    /// The node.
    pub node: NodeName,
    /// The ledger sequence that this is a function of. An agent ignores lower ones than it has seen.
    pub as_of: u64,
    /// Everything the node should hold, in order of placement.
    pub tasks: Vec<Task>,
}

/// What to do with one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Order {
    /// Unpack, set up, reserve the rendezvous, report ready; start nothing.
    Prepare,
    /// Start the workers.
    Run {
        /// Where rank 0 waits.
        rendezvous: Rendezvous,
        /// Every member's node address in order of node rank, so that scripts can be told of their peers.
        peers: Vec<String>,
    },
    /// Signal, grace, KILL; report `exited`.
    Stop {
        /// Why.
        cause: StopCause,
        /// Time between the signal and KILL.
        grace: Millis,
    },
}

/// The role of a member, in a gang of roles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskRole {
    /// What it is called.
    pub name: String,
    /// All roles of the gang, in the order of its members.
    pub roles: Vec<RoleSize>,
    /// A port on the node of each member, in their order, from the launch on: kept free until the member's first worker is started. Empty where an agent
    /// knows no roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
}

/// How large a role is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RoleSize {
    /// What it is called.
    pub name: String,
    /// How many members it has.
    pub members: u32,
    /// How many workers each of them has.
    pub workers: u32,
}

/// One member that a node should hold: everything its agent needs, so that it asks nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Task {
    /// The tenant.
    pub project: ProjectName,
    /// The run.
    pub run: RunId,
    /// The run's name.
    pub name: DisplayName,
    /// Which try.
    pub attempt: AttemptNumber,
    /// Which member of it.
    pub member: MemberIndex,
    /// The node's generation at the placement; an agent of another one answers `exited`.
    pub epoch: Epoch,
    /// The ledger sequence of the placement.
    pub placed_at: u64,
    /// What to do.
    pub order: Order,
    /// How many members the gang has (nodes).
    pub members: u32,
    /// Workers of the whole gang.
    pub world_size: u32,
    /// The rank of this member's first worker.
    pub first_rank: Rank,
    /// How many workers this member has.
    pub workers: u32,
    /// The GPUs it may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUuid>,
    /// The profile when they are MIG slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_profile: Option<MigProfile>,
    /// Its share of its one GPU, in thousandths, beside which others may stand; 0 = it has its GPUs alone.
    #[serde(default, skip_serializing_if = "crate::facts::is_unsaid")]
    pub gpu_share: u32,
    /// The part of that GPU's memory that is its own, in bytes; 0 = none is set apart.
    #[serde(default, skip_serializing_if = "crate::facts::is_unsaid")]
    pub gpu_memory_bytes: u64,
    /// The CPU slots it may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotIndex>,
    /// Memory limit, in bytes; 0 = none.
    #[serde(default)]
    pub memory_bytes: u64,
    /// How the workers are started.
    pub launcher: Launcher,
    /// How it is stopped.
    pub stop: StopPolicy,
    /// The launch document.
    pub launch: DocumentRef,
    /// The program's config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<DocumentRef>,
    /// The code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRef>,
    /// The newest whole checkpoint of an earlier attempt: (attempt, step, manifest).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<(AttemptNumber, i64, DocumentRef)>,
    /// The base seed, when the user gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The metric that the sweep of this trial goes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<MetricName>,
    /// Its role, in a gang of roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<TaskRole>,
    /// Which one of an array the job is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayMember>,
    /// The trace of the submit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}
