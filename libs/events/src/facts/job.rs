//! Jobs: a run's claim on compute, from its submission to its end.

use super::{JobSpec, MemoryKind, Rendezvous};
use footplate_types::{
    AttemptNumber, Digest, Epoch, GpuUuid, MemberIndex, MigProfile, Millis, NodeName, Rank, RequestId, SlotIndex, Timestamp,
};
use serde::{Deserialize, Serialize};

/// A client submitted a job; the run of the same id begins here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSubmitted {
    /// What it asks.
    pub spec: JobSpec,
    /// Digest of the request's body under the client's idempotency key: the same key with another body is refused.
    pub body: Digest,
}

/// A request about a job was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRefused {
    /// The request.
    pub request: RequestId,
    /// Why, and what to do next.
    pub reason: String,
}

/// Why a pending job waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum WaitReason {
    /// It is held by its user or operator.
    Held,
    /// Its queue is held, or closed, or not there.
    QueueHeld,
    /// Its queue's hard quota is used up.
    Quota {
        /// What is used and allowed, in words ("gpus: 4 of 4").
        detail: String,
    },
    /// Enough nodes could take it, but what it asks is in use.
    Resources {
        /// The binding resource and by how much, in words.
        detail: String,
    },
    /// No node that is there now could ever take it.
    NoSuchNode {
        /// What the nearest node lacks, in words.
        detail: String,
    },
    /// It waits for its back-off after a failed attempt.
    Backoff,
    /// It waits until preempted work has left.
    Preempting,
    /// It waits for the ends of other jobs.
    Dependencies {
        /// Which, and which ends of them, in words.
        detail: String,
    },
    /// As many of its array as may be are placed or stand in line before it.
    Array {
        /// How many that are, in words.
        detail: String,
    },
}

/// The reason for which a pending job waits changed. Written on change alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobWaiting {
    /// The reason.
    pub reason: WaitReason,
}

/// The latest start of a pending job is near: from now on it goes before others of its priority in its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobDeadlineNeared {
    /// When it has to start at the latest: its deadline, less the longest that it may run.
    pub latest_start: Timestamp,
}

/// The deadline of a pending job has passed: it waits on, as if it had none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobDeadlineMissed {
    /// By when it should have been over.
    pub deadline: Timestamp,
}

/// A pending job is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobHeld {
    /// The request that this answers.
    pub request: RequestId,
}

/// A held job may start again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobReleased {
    /// The request that this answers.
    pub request: RequestId,
}

/// A job has another priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobReprioritized {
    /// The request that this answers.
    pub request: RequestId,
    /// The new priority.
    pub priority: i32,
}

/// What a decision was taken upon, so that it can be taken again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct View {
    /// The ledger sequence up to which the state was folded.
    pub sequence: u64,
    /// The decider's clock.
    pub now: Timestamp,
    /// The seed of its randomness.
    pub seed: u64,
    /// The name and version of its policy.
    pub policy: String,
}

/// One member of a placed gang: its node and what it claims there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberPlacement {
    /// Its place in the gang (the node rank).
    pub member: MemberIndex,
    /// The node.
    pub node: NodeName,
    /// The node's generation; the agent starts only its own.
    pub epoch: Epoch,
    /// The GPUs it claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUuid>,
    /// The profile when they are MIG slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_profile: Option<MigProfile>,
    /// The share that it claims of its one GPU, in thousandths; 0 = it has its GPUs alone.
    #[serde(default, skip_serializing_if = "super::gpus::is_unsaid")]
    pub gpu_share: u32,
    /// The part of that GPU's memory that it claims with the share, in bytes; 0 = none is set apart.
    #[serde(default, skip_serializing_if = "super::gpus::is_unsaid")]
    pub gpu_memory_bytes: u64,
    /// The CPU slots it claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotIndex>,
    /// Logical CPUs it claims.
    #[serde(default)]
    pub cpus: u32,
    /// Memory it claims, in bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its role; absent in a gang without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The rank of its first worker.
    pub first_rank: Rank,
    /// How many workers it has.
    pub workers: u32,
}

/// A whole gang was placed; its nodes prepare it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobPlaced {
    /// Which try.
    pub attempt: AttemptNumber,
    /// Its members, by index.
    pub members: Vec<MemberPlacement>,
    /// How long after this event the whole gang must be ready, else it is stopped whole.
    pub ready_within: Millis,
    /// What the decision was taken upon.
    pub view: View,
}

/// Every member is ready; the workers start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobLaunched {
    /// Which try.
    pub attempt: AttemptNumber,
    /// Where rank 0 waits.
    pub rendezvous: Rendezvous,
}

/// Why an attempt is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A client cancelled the job.
    Cancelled,
    /// A more urgent job of its queue takes its place, or another queue asks its own back.
    Preempted,
    /// A node of it is drained.
    Drained,
    /// A node of it was lost.
    NodeLost,
    /// Not every member was ready in time.
    NotReady,
    /// It ran longer than its limit.
    TimedOut,
    /// Another member of the gang failed.
    MemberFailed,
    /// The platform on this machine is shut down by its user.
    Shutdown,
    /// The agent may not run it (its generation is over, its lease has run out, nothing is known of it).
    Fenced,
}

/// An attempt is to be stopped: TERM, grace, KILL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobStopRequested {
    /// Which try.
    pub attempt: AttemptNumber,
    /// Why.
    pub cause: StopCause,
    /// Time between the signal and KILL.
    pub grace: Millis,
    /// The request that led here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// In words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Why an attempt ended as it did: what a retry is counted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Every member exited 0 and obeyed no stop.
    Success,
    /// The program failed (its exit code, its signal).
    UserCode,
    /// The program exited with a code that its job file names as worth a retry, or 75.
    Retryable,
    /// The program ran out of memory, of the machine or of a GPU: the kernel killed it, its last words say so, or it exited with 76.
    OutOfMemory,
    /// A client cancelled it.
    Cancelled,
    /// It was preempted.
    Preempted,
    /// A node was drained, or the user shut the platform down.
    Drained,
    /// A node was lost.
    Lost,
    /// It could not be prepared or started.
    Infrastructure,
    /// It ran longer than its limit.
    TimedOut,
    /// It waited longer than its limit.
    PendingTooLong,
    /// Its placement was void: a node was lost or drained before it in the ledger.
    Void,
    /// A job that it was to come after ended otherwise than it waited for.
    Dependency,
    /// Its deadline passed before it ran.
    DeadlineMissed,
}

/// The first thing that went wrong in a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RootCause {
    /// The member.
    pub member: MemberIndex,
    /// Its node.
    pub node: NodeName,
    /// The worker, when it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// What happened, in words ("exit 7", "signal 11", an exception's text).
    pub what: String,
    /// Which memory ran out, where one did and it is known which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryKind>,
}

/// A job is pending again after an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobRequeued {
    /// The attempt that ended.
    pub attempt: AttemptNumber,
    /// Why.
    pub cause: Cause,
    /// The first thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<RootCause>,
    /// How long it waits before it may be placed again.
    #[serde(default)]
    pub backoff: Millis,
    /// How many retries of this cause have been spent, this one included.
    pub spent: u32,
    /// How many are allowed.
    pub allowed: u32,
    /// Nodes that later attempts avoid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub avoid: Vec<NodeName>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it should (MLflow: FINISHED).
    Succeeded,
    /// It did not (MLflow: FAILED).
    Failed,
    /// Someone stopped it (MLflow: KILLED).
    Cancelled,
}

/// A job is over. The first such event stands; every member of every attempt is released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobEnded {
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub cause: Cause,
    /// The last attempt; 0 when there was none.
    pub attempt: AttemptNumber,
    /// The first thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<RootCause>,
    /// The request that led here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// In words, with what to do next where something can be done; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
