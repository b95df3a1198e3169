//! Reports: what an agent tells a service, and up to where the service has folded it.

use crate::facts::{
    AttemptCheckpointed, LoggedArtifact, MemberExited, MemberReady, MemberStarted, NodeHealthChanged, NodeRegistered, RunFinished,
    RunNoted, RunParamsLogged, RunTagsSet,
};
use footplate_types::{AttemptNumber, Epoch, MemberIndex, NodeName, ProjectName, RunId, SpoolId};
use serde::{Deserialize, Serialize};

/// A place in an agent's spool. Offsets of one spool rise by one from 1; another spool begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpoolPosition {
    /// Which spool.
    pub spool: SpoolId,
    /// Which entry of it.
    pub offset: u64,
}

/// The member that a report is about, checked by the reader against the placement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberRef {
    /// The tenant.
    pub project: ProjectName,
    /// The run.
    pub run: RunId,
    /// Which try.
    pub attempt: AttemptNumber,
    /// Which member.
    pub member: MemberIndex,
}

/// One message of an agent to a service, on `fp.report.<node>.<service>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The node; equal to the subject's token, or the report is refused.
    pub node: NodeName,
    /// The generation under which it was written.
    pub epoch: Epoch,
    /// Its place in the agent's spool for this service.
    pub at: SpoolPosition,
    /// The lowest offset that the agent still keeps: all below it were settled once, so a reader whose own memory of that is gone
    /// (a killed broker may lose the last `settled`) goes on from here instead of waiting for ever.
    #[serde(default)]
    pub kept_from: u64,
    /// What is told.
    pub body: ReportBody,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// What is told, by the service it is told to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "to")]
pub enum ReportBody {
    /// To the executor.
    Executor(ExecutorReport),
    /// To gpu-inventory.
    Inventory(InventoryReport),
    /// To the tracker.
    Tracker(TrackerReport),
}

impl ReportBody {
    /// The service's token in the subject.
    pub const fn service(&self) -> &'static str {
        match self {
            Self::Executor(_) => "executor",
            Self::Inventory(_) => "gpu-inventory",
            Self::Tracker(_) => "tracker",
        }
    }
}

/// What an agent tells the executor about one member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum ExecutorReport {
    /// The member is prepared.
    Ready {
        /// Which member.
        of: MemberRef,
        /// The fact.
        ready: MemberReady,
    },
    /// Its workers run.
    Started {
        /// Which member.
        of: MemberRef,
        /// The fact.
        started: MemberStarted,
    },
    /// It ended; its tree is empty.
    Exited {
        /// Which member.
        of: MemberRef,
        /// The fact.
        exited: MemberExited,
    },
    /// A checkpoint is stored.
    Checkpointed {
        /// Which member.
        of: MemberRef,
        /// The fact.
        checkpointed: AttemptCheckpointed,
    },
}

/// What an agent tells gpu-inventory about its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum InventoryReport {
    /// What the node has.
    Registered {
        /// The fact.
        registered: NodeRegistered,
    },
    /// Its health changed.
    HealthChanged {
        /// The fact.
        changed: NodeHealthChanged,
    },
}

/// What an agent tells the tracker for one of its workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum TrackerReport {
    /// Params.
    Params {
        /// Which member.
        of: MemberRef,
        /// The fact.
        params: RunParamsLogged,
    },
    /// Tags.
    Tags {
        /// Which member.
        of: MemberRef,
        /// The fact.
        tags: RunTagsSet,
    },
    /// A note or conclusion.
    Noted {
        /// Which member.
        of: MemberRef,
        /// The fact.
        noted: RunNoted,
    },
    /// Artifacts, already stored.
    Artifacts {
        /// Which member.
        of: MemberRef,
        /// The facts.
        artifacts: Vec<LoggedArtifact>,
    },
    /// A worker said that it is done.
    Finished {
        /// Which member.
        of: MemberRef,
        /// The fact.
        finished: RunFinished,
    },
}

/// Up to which spool offset a service has folded an agent's reports, on `fp.settled.<node>.<service>`; the agent forgets up to there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settled {
    /// The node.
    pub node: NodeName,
    /// Up to where (inclusive).
    pub up_to: SpoolPosition,
}

/// The subject of a node's reports to a service.
pub fn report_subject(node: &NodeName, service: &str) -> String {
    format!("fp.report.{node}.{service}")
}

/// The subject of what a service (or `logs`, for the log archive) has settled of a node.
pub fn settled_subject(node: &NodeName, service: &str) -> String {
    format!("fp.settled.{node}.{service}")
}
