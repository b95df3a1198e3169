//! A run: folded from its own events and from those of its job and attempts.

pub(crate) mod command;
mod evolve;
mod param;
mod status;
#[cfg(test)]
mod tests;

use footplate_events::facts::{
    Cause, DocumentRef, FinalOffsets, InputRef, Outcome, RootCause, RunSealed, SessionEnd, SourceRef, StopCause,
};
use footplate_types::{
    ArtifactPath, AttemptNumber, Digest, DisplayName, EventId, ExperimentId, GpuUuid, MemberIndex, MetricName, MigProfile, NodeName,
    ParamKey, PrincipalId, ProjectName, QueueName, Rank, RunId, SlotIndex, Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

pub use command::{KEYS_MAX, RunCommand, RunFacts, RunRefusal, TAG_MAX, outcome_text};
pub use param::{EARLIER_MAX, Param, param_text};
pub use status::Status;

/// How many of a run's newest event ids are remembered, so that a request sent again is recognised.
pub const RECENT_MAX: usize = 512;

/// How a run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A client opened it (a notebook).
    Opened,
    /// It was submitted as a job.
    Submitted,
}

/// What belongs together with a run's beginning: carried on by everything that the tracker answers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// The event that began the run.
    pub event: EventId,
    /// The first event of the chain.
    pub correlation: EventId,
    /// Who began it.
    pub actor: PrincipalId,
    /// Its trace.
    pub trace: Option<String>,
}

impl Chain {
    /// The cause of what answers `event`, an event of this chain.
    pub fn cause(&self, event: EventId) -> footplate_es::Cause {
        let trace = self.trace.as_deref().and_then(footplate_events::Trace::parse);
        footplate_es::Cause { id: event, actor: self.actor.clone(), correlation: self.correlation, trace }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The event that says so.
    pub event: EventId,
    /// When, by the broker's clock.
    pub at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// Why; absent for a run without a job.
    pub cause: Option<Cause>,
    /// The last attempt; 0 without one.
    pub attempt: AttemptNumber,
    /// The first thing that went wrong.
    pub root: Option<RootCause>,
    /// In words; may be empty.
    pub message: String,
    /// The logging sessions that a run without a job named.
    pub sessions: Vec<SessionEnd>,
}

/// A seal, and when it was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SealMark {
    /// When, by the broker's clock.
    pub at: Timestamp,
    /// The fact.
    pub fact: RunSealed,
}

/// One file of a run as it stands now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// SHA-256 of its content.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
    /// The attempt whose worker made it; 0 for clients.
    pub attempt: AttemptNumber,
    /// The worker's rank.
    pub rank: Rank,
    /// The ledger sequence that says so.
    pub sequence: u64,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemberState {
    /// It has its place.
    Placed,
    /// It is prepared.
    Ready,
    /// Its workers run.
    Started,
    /// They ended; its claims are free.
    Exited,
    /// Its node is lost; its claims are free.
    Lost,
}

impl MemberState {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Placed => "placed",
            Self::Ready => "ready",
            Self::Started => "started",
            Self::Exited => "exited",
            Self::Lost => "lost",
        }
    }
}

/// The archived logs of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberLogs {
    /// Whether everything up to the member's final offset is there.
    pub complete: bool,
    /// Bytes of all its logs.
    pub bytes: u64,
}

/// An attempt's part on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its node.
    pub node: NodeName,
    /// The GPUs it claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUuid>,
    /// The profile when they are MIG slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_profile: Option<MigProfile>,
    /// The share of its one GPU that it claims, in thousandths, and the part of that GPU's memory, in bytes; absent when it has its GPUs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_share: Option<(u32, u64)>,
    /// The slots it claims.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotIndex>,
    /// The rank of its first worker.
    pub first_rank: Rank,
    /// How many workers it has.
    pub workers: u32,
    /// How far it has come.
    pub state: MemberState,
    /// One line a worker that ended ("rank 2: exit 7").
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<String>,
    /// Up to where its spools go, once it exited.
    pub offsets: Option<FinalOffsets>,
    /// Its logs, once they are archived.
    pub logs: Option<MemberLogs>,
}

/// One try of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it was placed.
    pub placed_at: Timestamp,
    /// When its workers were let go.
    pub launched_at: Option<Timestamp>,
    /// When its job was requeued or ended.
    pub ended_at: Option<Timestamp>,
    /// Why it was stopped.
    pub stop: Option<StopCause>,
    /// Why it ended.
    pub cause: Option<Cause>,
    /// The first thing that went wrong.
    pub root: Option<RootCause>,
    /// The newest whole checkpoint's step.
    pub checkpoint: Option<i64>,
    /// Its members.
    pub members: BTreeMap<MemberIndex, Member>,
}

/// One recorded training. Serialized as the row of the projection; artifacts have rows of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The tenant.
    pub project: ProjectName,
    /// Its id.
    pub id: RunId,
    /// How it began; absent before (an event about a run that never began shows nothing).
    pub origin: Option<Origin>,
    /// Its name.
    pub name: Option<DisplayName>,
    /// Its experiment.
    pub experiment: Option<ExperimentId>,
    /// The experiment's name when the run began.
    pub experiment_name: Option<DisplayName>,
    /// Digest of the body it was made from, under an idempotency key.
    pub body: Option<Digest>,
    /// What it belongs together with; absent before it began.
    pub chain: Option<Chain>,
    /// Who began it.
    pub created_by: String,
    /// When it began, by the broker's clock.
    pub created_at: Timestamp,
    /// When its first worker (or its client) began.
    pub started_at: Option<Timestamp>,
    /// Since when it runs without a break; absent while it does not.
    pub running_since: Option<Timestamp>,
    /// Milliseconds of earlier attempts.
    pub ran_ms: u64,
    /// Where it stands.
    pub status: Status,
    /// Why it waits, in words; empty when it does not.
    pub waiting: String,
    /// How it ended.
    pub ended: Option<Ended>,
    /// Its seal.
    pub seal: Option<SealMark>,
    /// Params by key.
    pub params: BTreeMap<ParamKey, Param>,
    /// Tags by key.
    pub tags: BTreeMap<ParamKey, String>,
    /// The expectation that is being tested.
    pub hypothesis: String,
    /// What was learned.
    pub conclusion: String,
    /// Anything else.
    pub note: String,
    /// Data that it reads.
    pub inputs: Vec<InputRef>,
    /// The tries of its job.
    pub attempts: BTreeMap<AttemptNumber, Attempt>,
    /// Its queue.
    pub queue: Option<QueueName>,
    /// Its priority; a larger one wins.
    pub priority: i32,
    /// Its code.
    pub source: Option<SourceRef>,
    /// Metrics whose values its seal must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<MetricName>,
    /// The run it repeats.
    pub rerun_of: Option<RunId>,
    /// The run it is compared with.
    pub baseline: Option<RunId>,
    /// The config whose params are not in the ledger yet, and the submission that named it.
    pub config_wanted: Option<(DocumentRef, EventId)>,
    /// Params, inputs and artifacts that came after the seal.
    pub late: u64,
    /// Ledger sequence of the last event about it, of any aggregate.
    pub sequence: u64,
    /// Ledger sequence of the last event of the run aggregate itself: what an append expects.
    pub version: u64,
    /// The newest events of the run aggregate: (id, sequence).
    pub recent: VecDeque<(EventId, u64)>,
    /// Its files by path; rows of their own in the projection.
    #[serde(skip)]
    pub artifacts: BTreeMap<ArtifactPath, Artifact>,
}

impl Run {
    /// A run of which nothing is known yet.
    pub fn new(project: ProjectName, id: RunId) -> Self {
        Self {
            project,
            id,
            origin: None,
            name: None,
            experiment: None,
            experiment_name: None,
            body: None,
            chain: None,
            created_by: String::new(),
            created_at: Timestamp::default(),
            started_at: None,
            running_since: None,
            ran_ms: 0,
            status: Status::Pending,
            waiting: String::new(),
            ended: None,
            seal: None,
            params: BTreeMap::new(),
            tags: BTreeMap::new(),
            hypothesis: String::new(),
            conclusion: String::new(),
            note: String::new(),
            inputs: Vec::new(),
            attempts: BTreeMap::new(),
            queue: None,
            priority: 0,
            source: None,
            objectives: Vec::new(),
            rerun_of: None,
            baseline: None,
            config_wanted: None,
            late: 0,
            sequence: 0,
            version: 0,
            recent: VecDeque::new(),
            artifacts: BTreeMap::new(),
        }
    }

    /// Whether it began, so that clients see it.
    pub fn is_visible(&self) -> bool {
        self.origin.is_some()
    }

    /// Whether it has a job.
    pub fn has_job(&self) -> bool {
        self.origin == Some(Origin::Submitted)
    }

    /// Milliseconds it has run at `now`; never negative.
    pub fn duration_ms(&self, now: Timestamp) -> u64 {
        self.ran_ms + self.running_since.map_or(0, |since| now.millis_since(since))
    }

    /// The sequence of a remembered event of the run aggregate.
    pub fn remembered(&self, id: &EventId) -> Option<u64> {
        self.recent.iter().find(|(known, _)| known == id).map(|(_, sequence)| *sequence)
    }

    /// The run that this one belongs under: the one its `parent` or `mlflow.parentRunId` tag names, else the one it repeats.
    pub fn parent(&self) -> Option<RunId> {
        let tagged = ["parent", "mlflow.parentRunId"]
            .iter()
            .find_map(|key| self.tags.iter().find(|(known, _)| known.as_str() == *key).and_then(|(_, value)| RunId::parse(value).ok()));
        tagged.or(self.rerun_of)
    }
}
