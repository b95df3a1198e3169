//! Jobs: what was asked, where each stands, and what clients want of it.

use super::{Attempt, Checkpoint, Holding, Part, Stamp};
use crate::plan::{Applicant, Order};
use footplate_es::Cause as EventCause;
use footplate_events::facts::{ArrayMember, Cause, GangRole, JobEnded, JobSpec, QueueConfigured, RetryPolicy, RootCause, WaitReason};
use footplate_events::{Actor, Trace};
use footplate_types::{
    AttemptNumber, Digest, DisplayName, EventId, MigProfile, Millis, NodeName, ProjectName, QueueName, RequestId, RunId, Timestamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// No job counts as shorter.
const LENGTH_LEAST: Millis = Millis::from_secs(60);
/// As how long a job counts that has no limit.
const LENGTH_UNKNOWN: Millis = Millis::from_secs(7 * 86_400);
/// How much of a sequence tells apart what was submitted in one millisecond.
const SEQUENCE_BITS: u32 = 10;

/// What all events of one job carry on of its submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Who submitted.
    pub actor: Actor,
    /// The chain's id.
    pub correlation: EventId,
    /// The trace of the submit.
    pub trace: Option<Trace>,
}

impl Chain {
    /// A cause inside this chain: the event `id`.
    pub(crate) fn cause(&self, id: EventId) -> EventCause {
        EventCause { id, actor: self.actor.clone(), correlation: self.correlation, trace: self.trace.clone() }
    }
}

/// What a client wants of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// End it.
    Cancel,
    /// Do not start it.
    Hold,
    /// Let it start again.
    Release,
    /// Give it this priority.
    Reprioritize(i32),
}

/// A request that has no answer yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// What is wanted.
    pub ask: Ask,
    /// Why, in the client's words; may be empty.
    pub reason: String,
    /// Its event.
    pub cause: EventCause,
}

/// How a request was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The sequence of the answering event.
    pub sequence: u64,
    /// Why not, in words; `None` when it was granted.
    pub refused: Option<String>,
}

/// What retries are counted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Budget {
    /// The program failed.
    UserCode,
    /// The program asked for a retry by its exit code.
    Retryable,
    /// It could not be prepared or started.
    Infrastructure,
    /// A node was lost.
    Lost,
    /// It was preempted or drained.
    Preempted,
    /// It ran out of memory.
    OutOfMemory,
}

impl Budget {
    /// The budget that a cause counts against; `None` for causes that end a job or cost nothing.
    pub fn of(cause: Cause) -> Option<Self> {
        match cause {
            Cause::UserCode => Some(Self::UserCode),
            Cause::Retryable => Some(Self::Retryable),
            Cause::OutOfMemory => Some(Self::OutOfMemory),
            Cause::Infrastructure => Some(Self::Infrastructure),
            Cause::Lost => Some(Self::Lost),
            Cause::Preempted | Cause::Drained => Some(Self::Preempted),
            Cause::Success
            | Cause::Cancelled
            | Cause::TimedOut
            | Cause::PendingTooLong
            | Cause::Void
            | Cause::Dependency
            | Cause::DeadlineMissed => None,
        }
    }

    /// How many retries a policy allows.
    pub const fn allowed(self, retry: &RetryPolicy) -> u32 {
        match self {
            Self::UserCode => retry.user_code,
            Self::Retryable => retry.retryable,
            Self::Infrastructure => retry.infrastructure,
            Self::Lost => retry.lost,
            Self::Preempted => retry.preempted,
            Self::OutOfMemory => retry.out_of_memory,
        }
    }
}

/// The kind of a [`WaitReason`]: what a job is told anew when it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    Held,
    QueueHeld,
    Quota,
    Resources,
    NoSuchNode,
    Backoff,
    Preempting,
    Dependencies,
    Array,
}

impl Wait {
    pub(crate) const fn of(reason: &WaitReason) -> Self {
        match reason {
            WaitReason::Held => Self::Held,
            WaitReason::QueueHeld => Self::QueueHeld,
            WaitReason::Quota { .. } => Self::Quota,
            WaitReason::Resources { .. } => Self::Resources,
            WaitReason::NoSuchNode { .. } => Self::NoSuchNode,
            WaitReason::Backoff => Self::Backoff,
            WaitReason::Preempting => Self::Preempting,
            WaitReason::Dependencies { .. } => Self::Dependencies,
            WaitReason::Array { .. } => Self::Array,
        }
    }
}

/// Where a living job stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Stage {
    /// No attempt of it lives.
    Pending {
        /// Since when: its submission, the last end that it waited for, or its last requeue.
        since: Stamp,
        /// How long after that it may be placed at the earliest.
        backoff: Millis,
        /// Why it waits, as last recorded.
        reason: Option<WaitReason>,
    },
    /// An attempt holds something, or has just let go and waits for its verdict.
    Active(Box<Attempt>),
}

/// How the deadline of a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Urgency {
    /// It has none, or its latest start is far.
    #[default]
    None,
    /// Its latest start is near.
    Near,
    /// It passed before the job ran.
    Missed,
}

/// An attempt that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastAttempt {
    /// Which try.
    pub number: AttemptNumber,
    /// What it came to.
    pub cause: Cause,
    /// The first thing that went wrong.
    pub root: Option<RootCause>,
    /// The event that closed it.
    pub closed: Stamp,
}

/// A job that has not ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The run.
    pub run: RunId,
    /// The tenant.
    pub project: ProjectName,
    /// What it asks.
    pub spec: Arc<JobSpec>,
    /// Digest of the submission's body.
    pub body: Digest,
    /// What its events carry on.
    pub chain: Chain,
    /// Its submission.
    pub submitted: Stamp,
    /// Its place among those of its queue and priority: who has less goes first.
    pub order: u64,
    /// The newest event of the job itself.
    pub latest: Stamp,
    /// Its priority now.
    pub priority: i32,
    /// Whether it is held.
    pub held: bool,
    /// Whether it waits for the ends of others, out of line.
    pub(crate) tied: bool,
    /// How its deadline stands, as last recorded.
    pub urgency: Urgency,
    /// Where it stands.
    pub stage: Stage,
    /// The newest attempt's number; 0 when there was none.
    pub last_attempt: AttemptNumber,
    /// The newest attempts that are over, oldest first (at most [`Job::PAST_MAX`]).
    pub past: Vec<PastAttempt>,
    /// Retries spent, by budget.
    pub spent: BTreeMap<Budget, u32>,
    /// Nodes to be avoided where others will do.
    pub avoid: Vec<NodeName>,
    /// The newest whole checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The cancel that was granted and is under way.
    pub cancelled: Option<RequestId>,
    /// Requests without an answer, in ledger order.
    pub requests: Vec<Request>,
    /// Answers to requests (the newest [`Job::ANSWERS_MAX`]).
    pub answers: BTreeMap<RequestId, Answer>,
    /// Equal for jobs that fit on the same nodes: what one cannot get, the other cannot get either.
    pub(crate) class: Digest,
    /// Its roles; none for a job without. They follow from what it asks and avoids.
    #[serde(skip)]
    pub(crate) parts: Vec<Part>,
}

impl Job {
    /// How many past attempts are remembered.
    pub const PAST_MAX: usize = 16;
    /// How many answers are remembered.
    pub const ANSWERS_MAX: usize = 32;
    /// How many nodes are avoided at most: the newest.
    pub const AVOID_MAX: usize = 16;

    /// GPUs of the whole gang, in thousandths of one.
    pub fn gpu_milli(&self) -> u64 {
        super::Holding::asked(&self.spec).gpu_milli
    }

    /// CPU slots of the whole gang.
    pub fn slots(&self) -> u64 {
        self.spec.all_slots()
    }

    /// The attempt, when one lives.
    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.stage {
            Stage::Active(attempt) => Some(attempt),
            Stage::Pending { .. } => None,
        }
    }

    /// Its place among the pending jobs of its queue.
    pub(crate) fn turn(&self) -> super::Turn {
        let near = self.spec.limits.latest_start().filter(|_| self.urgency == Urgency::Near);
        let near = near.map_or(super::index::NOT_NEAR, |at| at.as_nanos().min(super::index::NOT_NEAR - 1));
        (std::cmp::Reverse(self.priority), (near, self.order), self.run)
    }

    fn is_pending(&self) -> bool {
        matches!(self.stage, Stage::Pending { .. })
    }

    /// The latest start that is to come near while it waits.
    pub(crate) fn nearing(&self) -> Option<Timestamp> {
        self.spec.limits.latest_start().filter(|_| self.is_pending() && self.urgency == Urgency::None)
    }

    /// The deadline that is to pass while it waits.
    pub(crate) fn missing(&self) -> Option<Timestamp> {
        self.spec.limits.deadline.filter(|_| self.is_pending() && self.urgency != Urgency::Missed)
    }

    /// The place of a job among those of its queue and priority: that of its submission, or put off by its size ([`Order::Aged`]). It never changes while the
    /// queue's settings stand, so whoever waits is overtaken by those alone that are submitted soon enough after it.
    pub(super) fn order_of(spec: &JobSpec, submitted: &Stamp, settings: &QueueConfigured) -> u64 {
        if settings.small_first.0 == 0 {
            return submitted.sequence;
        }
        let order = Order::Aged { doubling: settings.small_first, shortest: LENGTH_LEAST };
        let asked = Holding::asked(spec);
        let limit = spec.limits.max_duration;
        let applicant = Applicant {
            submitted: Millis(u64::try_from(submitted.at.as_millis()).unwrap_or(0)),
            units: u32::try_from(asked.gpu_milli.max(asked.slots.saturating_mul(1_000))).unwrap_or(u32::MAX),
            estimate: if limit.0 > 0 { limit } else { LENGTH_UNKNOWN },
        };
        // Those of one millisecond in the order of their submission.
        order.rank(&applicant).saturating_mul(1 << SEQUENCE_BITS) | (submitted.sequence & ((1 << SEQUENCE_BITS) - 1))
    }

    /// What was told last of why it waits.
    pub(crate) fn told(&self) -> Option<Wait> {
        match &self.stage {
            Stage::Pending { reason, .. } => reason.as_ref().map(Wait::of),
            Stage::Active(_) => None,
        }
    }

    /// Retries of a budget spent so far.
    pub fn spent(&self, budget: Budget) -> u32 {
        self.spent.get(&budget).copied().unwrap_or(0)
    }

    pub(crate) fn class_of(spec: &JobSpec, avoid: &[NodeName]) -> Digest {
        let roles = if spec.roles.is_empty() { String::new() } else { format!("{:?}", spec.roles) };
        Digest::of(format!("{:?}{:?}{avoid:?}{roles}", spec.resources, spec.placement).as_bytes())
    }
}

/// A job that has ended: what is left of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EndedJob {
    /// The run.
    pub run: RunId,
    /// The tenant.
    pub project: ProjectName,
    /// Its name.
    pub name: DisplayName,
    /// Its queue.
    pub queue: QueueName,
    /// Its priority at the end.
    pub priority: i32,
    /// Whether a more urgent job might have stopped it.
    pub preemptible: bool,
    /// How many nodes it asked.
    pub nodes: u32,
    /// GPUs it asked of each.
    pub gpus: u32,
    /// The profile when these were slices.
    pub gpu_profile: Option<MigProfile>,
    /// The share that it asked of its one GPU, in thousandths; 0: all of it.
    pub gpu_share: u32,
    /// Slots it asked of each.
    pub slots: u32,
    /// Its roles, where it had some: then the numbers above are those of the first, but for the nodes.
    pub roles: Vec<GangRole>,
    /// Which one of an array it was.
    pub array: Option<ArrayMember>,
    /// Digest of the submission's body.
    pub body: Digest,
    /// What its events carry on.
    pub chain: Chain,
    /// Its submission.
    pub submitted: Stamp,
    /// Its end.
    pub ended: Stamp,
    /// How it ended.
    pub fact: JobEnded,
    /// Requests without an answer, in ledger order.
    pub requests: Vec<Request>,
    /// Answers to requests.
    pub answers: BTreeMap<RequestId, Answer>,
}
