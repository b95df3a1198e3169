//! The payloads of the ledger's events, one file an aggregate. Serde only: a fact is data.
//!
//! Texts in facts are short and for people (at most [`TEXT_MAX`] characters); whatever is long is a document in the object store,
//! named here by its digest.

mod access;
mod after;
mod array;
mod attempt;
mod experiment;
mod gpus;
mod job;
mod job_request;
mod job_sizes;
mod job_spec;
mod model;
mod node;
mod node_request;
mod queue;
mod role;
mod run;
mod sweep;
mod term;
mod trial;
mod webhook;

pub use access::{
    PrincipalCreated, PrincipalDisabled, PrincipalEnabled, ProjectCreated, ProjectRoleGiven, ProjectRoleTaken, SubscriptionCreated,
    SubscriptionDeleted, TokenCreated, TokenRevoked,
};
pub use after::{AfterJob, AfterWhen};
pub use array::{ArrayMember, array_indices};
pub use attempt::{
    AttemptCheckpointed, AttemptExited, AttemptLogsArchived, AttemptLost, AttemptReady, AttemptStarted, Exit, FinalOffsets, INCOMPLETE_MAX,
    LogArchive, LogStream, LossEvidence, MemberExited, MemberLost, MemberReady, MemberStarted, MemoryKind, Rendezvous, SessionEnd,
    WorkerExit, WorkerStarted,
};
pub use experiment::{ExperimentCreated, ExperimentNoted};
pub(crate) use gpus::is_unsaid;
pub use job::{
    Cause, JobDeadlineMissed, JobDeadlineNeared, JobEnded, JobHeld, JobLaunched, JobPlaced, JobRefused, JobReleased, JobReprioritized,
    JobRequeued, JobStopRequested, JobSubmitted, JobWaiting, MemberPlacement, Outcome, RootCause, StopCause, View, WaitReason,
};
pub use job_request::{JobCancelRequested, JobHoldRequested, JobReleaseRequested, JobReprioritizeRequested};
pub use job_spec::{
    DeadlineMissed, DocumentRef, InputRef, JobSpec, Launcher, Limits, PerNode, PlacementAsk, ResourceAsk, RetryPolicy, SourceRef,
    StopNotice, StopPolicy, StopSignal, Why,
};
pub use model::{
    EvaluationData, ModelAliasRemoved, ModelAliasSet, ModelArchived, ModelCreated, ModelFile, ModelPromoted, ModelRolledBack, ModelStaged,
    ModelVersionApproved, ModelVersionEvaluated, ModelVersionProposed, ModelVersionRegistered, ModelVersionRejected, Stage, VersionRef,
};
pub use node::{
    NodeCordoned, NodeDrained, NodeHealthChanged, NodeLost, NodeRefused, NodeRegistered, NodeTainted, NodeUncordoned, NodeUntainted,
};
pub use node_request::{
    NodeCordonRequested, NodeDrainRequested, NodeLossDeclared, NodeTaintRequested, NodeUncordonRequested, NodeUntaintRequested,
};
pub use queue::{QueueConfigured, Quota};
pub use role::{Asked, GangRole};
pub use run::{
    LoggedArtifact, ParamValue, RunArtifactsLogged, RunCreated, RunFinished, RunInputsLogged, RunNoted, RunParamsLogged, RunSealed,
    RunTagsSet, SealedFigure,
};
pub use sweep::{
    Condition, Direction, Domain, Objective, Parameter, Pruner, Sampler, Space, SweepCreated, SweepResumed, SweepStopRequested, Take,
};
pub use term::TermBegan;
pub use trial::{PruneCause, TrialFinished, TrialObserved, TrialOutcome, TrialPruned, TrialSuggested, Values};
pub use webhook::{WebhookCreated, WebhookDeleted, WebhookPaused, WebhookReplayed, WebhookResumed};

/// The most characters of a human text inside a fact; a longer one is a document.
pub const TEXT_MAX: usize = 4_000;

/// `text` cut to [`TEXT_MAX`] characters, with a mark that it was cut.
pub fn cut_text(text: &str) -> String {
    if text.chars().count() <= TEXT_MAX {
        return text.to_owned();
    }
    let head: String = text.chars().take(TEXT_MAX - 3).collect();
    format!("{head}...")
}
