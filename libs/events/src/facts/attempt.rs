//! Attempts: what the nodes saw. Reports that arrive together fold into one event.

use super::{DocumentRef, StopCause};
use footplate_types::{Digest, Epoch, MemberIndex, NodeName, Rank, SessionId, SpoolId};
use serde::{Deserialize, Serialize};

/// Where rank 0 waits for the other workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rendezvous {
    /// Host name or address (`MASTER_ADDR`).
    pub address: String,
    /// Port, reserved by the agent until rank 0 binds it (`MASTER_PORT`).
    pub port: u16,
}

/// One member is prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberReady {
    /// Which member.
    pub member: MemberIndex,
    /// On which node.
    pub node: NodeName,
    /// Under which generation.
    pub epoch: Epoch,
    /// Where rank 0 will wait, from member 0; in a gang of roles every member names a port of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendezvous: Option<Rendezvous>,
}

/// Members are prepared: code unpacked, set-up done, nothing started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptReady {
    /// The members.
    pub members: Vec<MemberReady>,
}

/// One worker runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerStarted {
    /// Its rank; for `torchrun`, the first rank of the node.
    pub rank: Rank,
    /// Its process id on the node.
    pub pid: u32,
}

/// One member's workers run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberStarted {
    /// Which member.
    pub member: MemberIndex,
    /// On which node.
    pub node: NodeName,
    /// Under which generation.
    pub epoch: Epoch,
    /// Its workers.
    pub workers: Vec<WorkerStarted>,
}

/// Members' workers run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptStarted {
    /// The members.
    pub members: Vec<MemberStarted>,
}

/// A checkpoint is stored, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptCheckpointed {
    /// The worker's step.
    pub step: i64,
    /// The rank that saved it.
    pub rank: Rank,
    /// The manifest: a list of files, each with its digest.
    pub manifest: DocumentRef,
    /// Bytes of all files.
    pub bytes: u64,
    /// What the script said of it, as JSON text; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metadata: String,
}

/// How one process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// It died of this signal.
    Signal(i32),
    /// It never started; why.
    NotStarted(String),
    /// It is gone and nobody saw how (its shim was killed too); why that is known.
    Unknown(String),
}

impl Exit {
    /// Whether this is exit code 0.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Code(0))
    }
}

/// Which memory a worker ran out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// The machine's, or what the job asked of it.
    Machine,
    /// A GPU's, or another accelerator's.
    Accelerator,
}

/// How one worker ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerExit {
    /// Its rank; for `torchrun`, the first rank of the node.
    pub rank: Rank,
    /// How it ended.
    pub exit: Exit,
    /// When, in milliseconds after the first worker of the member ended (order inside the member).
    #[serde(default)]
    pub after_ms: u64,
    /// The last words: an exception's text from an error file, or the last line of stderr; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Which memory it ran out of: the kernel killed it for want of memory, or its last words say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<MemoryKind>,
}

impl WorkerExit {
    /// The exit code by which a program says that it ran out of memory.
    pub const OUT_OF_MEMORY: i32 = 76;
}

/// The last number of one logging session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionEnd {
    /// The worker.
    pub rank: Rank,
    /// The process's session.
    pub session: SessionId,
    /// How many metric batches it sent (numbered 1 to this).
    pub batches: u64,
}

/// Up to where a member's spools go: what must be stored before its run is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FinalOffsets {
    /// The agent's spool; absent when the member never got one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolId>,
    /// The last offset of the reports to the tracker.
    #[serde(default)]
    pub tracker: u64,
    /// The last offset of the log chunks.
    #[serde(default)]
    pub logs: u64,
    /// The logging sessions of its workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionEnd>,
    /// What the node had taken over and could not store or report, in words, at most [`INCOMPLETE_MAX`] of them: its run is never sealed as
    /// complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
}

/// The most entries of [`FinalOffsets::incomplete`].
pub const INCOMPLETE_MAX: usize = 16;

/// One member's process tree is confirmed empty: its claims are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberExited {
    /// Which member.
    pub member: MemberIndex,
    /// On which node.
    pub node: NodeName,
    /// Under which generation.
    pub epoch: Epoch,
    /// The stop it obeyed; absent when it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obeyed: Option<StopCause>,
    /// Its workers, in the order in which they ended. Empty when none was started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerExit>,
    /// Why it never started (set-up failed, snapshot unreadable, interpreter missing); absent when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_started: Option<String>,
    /// Up to where its spools go.
    pub offsets: FinalOffsets,
}

impl MemberExited {
    /// Whether every worker exited 0 and no stop was obeyed.
    pub fn is_success(&self) -> bool {
        self.obeyed.is_none() && self.not_started.is_none() && !self.workers.is_empty() && self.workers.iter().all(|w| w.exit.is_success())
    }
}

/// Members ended; their claims are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptExited {
    /// The members.
    pub members: Vec<MemberExited>,
}

/// How a loss is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LossEvidence {
    /// The node's lease, its kill time and a margin passed without a new beat; it was fenced.
    LeaseExpired,
    /// The node came back with another boot id.
    Rebooted,
    /// An operator said so; it was fenced.
    Declared,
}

/// One member is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberLost {
    /// Which member.
    pub member: MemberIndex,
    /// On which node.
    pub node: NodeName,
    /// The generation that is over.
    pub epoch: Epoch,
    /// How it is known.
    pub evidence: LossEvidence,
}

/// Members are lost with their node; their claims are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptLost {
    /// The members.
    pub members: Vec<MemberLost>,
}

/// Which stream of a worker a log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Output of the set-up, before any worker.
    Setup,
    /// What the platform itself has to say (a launch error, a kill).
    Platform,
}

/// One archived log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogArchive {
    /// The worker; the member's first rank for set-up and platform.
    pub rank: Rank,
    /// Which stream.
    pub stream: LogStream,
    /// SHA-256 of the whole.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}

/// One member's logs are in the object store, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptLogsArchived {
    /// Which member.
    pub member: MemberIndex,
    /// On which node.
    pub node: NodeName,
    /// Whether everything up to the member's final offset is in it; false when its node was lost first.
    pub complete: bool,
    /// The logs.
    pub logs: Vec<LogArchive>,
}
