//! Attempts: a placed gang, member by member, and how each member ended.

use super::Stamp;
use footplate_events::facts::{
    Cause, DocumentRef, Exit, MemberExited, MemberPlacement, MemoryKind, Rendezvous, RetryPolicy, RootCause, StopCause, WorkerExit,
};
use footplate_types::{AttemptNumber, Millis, Rank, RequestId};
use serde::{Deserialize, Serialize};

/// A checkpoint that a later attempt may begin from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The attempt that saved it.
    pub attempt: AttemptNumber,
    /// The worker's step.
    pub step: i64,
    /// The rank that saved it.
    pub rank: Rank,
    /// The manifest.
    pub manifest: DocumentRef,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberStage {
    /// Its node prepares it.
    Preparing,
    /// It is prepared.
    Ready,
    /// Its workers run.
    Running,
    /// Its process tree is confirmed empty.
    Exited,
    /// It is lost with its node.
    Lost,
}

/// One member of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where it stands and what it claims.
    pub placement: MemberPlacement,
    /// How far it has come.
    pub stage: MemberStage,
    /// The port that its agent keeps for it, in a gang of roles.
    pub port: Option<u16>,
}

impl Member {
    /// Whether its claim is free again.
    pub fn is_released(&self) -> bool {
        matches!(self.stage, MemberStage::Exited | MemberStage::Lost)
    }
}

/// The launch of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The event.
    pub stamp: Stamp,
    /// Where rank 0 waits.
    pub rendezvous: Rendezvous,
    /// The addresses of the members' nodes at the launch, in order of node rank.
    pub peers: Vec<String>,
}

/// The stop of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The event.
    pub stamp: Stamp,
    /// Why.
    pub cause: StopCause,
    /// Time between the signal and KILL.
    pub grace: Millis,
    /// The request that led here.
    pub request: Option<RequestId>,
    /// Where not every member was ready in time: the first that was not.
    pub slow: Option<usize>,
}

/// How a member ended, as far as it decides anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// Every worker exited 0 and no stop was obeyed.
    Succeeded,
    /// It obeyed a stop.
    Obeyed(StopCause),
    /// It failed by itself.
    Failed {
        /// What a retry is counted against.
        cause: Cause,
        /// The worker, when it was one.
        rank: Option<Rank>,
        /// What happened, in words.
        what: String,
        /// Which memory ran out, where one did.
        memory: Option<MemoryKind>,
    },
    /// It was lost with its node.
    Lost,
}

/// The end of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Its index.
    pub member: usize,
    /// How.
    pub how: How,
    /// The event.
    pub stamp: Stamp,
}

/// One try of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which try.
    pub number: AttemptNumber,
    /// The placement.
    pub placed: Stamp,
    /// How long the gang may take until it is ready.
    pub ready_within: Millis,
    /// Its members, by index.
    pub members: Vec<Member>,
    /// What it begins from: the newest whole checkpoint when it was placed.
    pub checkpoint: Option<Checkpoint>,
    /// Where rank 0 will wait, once member 0 is ready.
    pub rendezvous: Option<Rendezvous>,
    /// The newest report on it, or its placement.
    pub reported: Stamp,
    /// The launch, once it came.
    pub launched: Option<Launch>,
    /// The newest checkpoint that it saved.
    pub saved: Option<Stamp>,
    /// The stop that stands.
    pub stop: Option<Stop>,
    /// How members ended, in ledger order.
    pub endings: Vec<Ending>,
    /// The placement followed, in the ledger, a node's loss or drain or its queue's hold: it claims nothing, is in no assignment, and is requeued.
    pub void: bool,
}

/// What an attempt came to, once every member is released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Succeeded,
    Stopped(StopCause, RootCause),
    Failed(Cause, RootCause),
}

impl Attempt {
    /// Whether no member holds anything any more.
    pub fn is_released(&self) -> bool {
        self.void || self.members.iter().all(Member::is_released)
    }

    /// Whether every member is prepared and none has ended.
    pub fn is_ready(&self) -> bool {
        self.members.iter().all(|member| member.stage == MemberStage::Ready)
    }

    /// The first member, in ledger order, that did not succeed.
    pub fn first_failure(&self) -> Option<&Ending> {
        self.endings.iter().find(|ending| ending.how != How::Succeeded)
    }

    /// What the attempt came to. The first non-success in ledger order decides; members that only obeyed the stop which another member's
    /// failure had caused never do.
    pub(crate) fn verdict(&self) -> Verdict {
        let decides = |ending: &&Ending| !matches!(ending.how, How::Succeeded | How::Obeyed(StopCause::MemberFailed));
        let first = self.endings.iter().find(decides).or_else(|| self.first_failure());
        let Some(first) = first else { return Verdict::Succeeded };
        let root = |rank: Option<Rank>, what: String| {
            let placement = &self.members[first.member].placement;
            RootCause { member: placement.member, node: placement.node.clone(), rank, what, memory: None }
        };
        match &first.how {
            How::Succeeded => Verdict::Succeeded,
            How::Obeyed(cause) => {
                // Who obeyed first was quick. At fault is who was not ready.
                let slow = self.stop.as_ref().filter(|_| *cause == StopCause::NotReady).and_then(|stop| self.members.get(stop.slow?));
                let of_slow = slow.map(|member| RootCause {
                    member: member.placement.member,
                    node: member.placement.node.clone(),
                    rank: None,
                    what: "was not ready in time".to_owned(),
                    memory: None,
                });
                Verdict::Stopped(*cause, of_slow.unwrap_or_else(|| root(None, format!("obeyed the stop: {}", stop_words(*cause)))))
            }
            How::Failed { cause, rank, what, memory } => {
                Verdict::Failed(*cause, RootCause { memory: *memory, ..root(*rank, what.clone()) })
            }
            How::Lost => Verdict::Failed(Cause::Lost, root(None, "its node was lost".to_owned())),
        }
    }
}

/// A stop's cause in words.
pub(crate) const fn stop_words(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Cancelled => "cancelled",
        StopCause::Preempted => "preempted",
        StopCause::Drained => "a node is drained",
        StopCause::NodeLost => "a node was lost",
        StopCause::NotReady => "not every member was ready in time",
        StopCause::TimedOut => "longer than its limit",
        StopCause::MemberFailed => "another member failed",
        StopCause::Shutdown => "the platform was shut down",
        StopCause::Fenced => "its node's generation was over",
    }
}

/// The longest text of a root cause, in characters.
const WHAT_MAX: usize = 500;

impl How {
    /// How a member ended, from what its agent saw. The first worker that did not exit 0 decides.
    pub(crate) fn of(exited: &MemberExited, retry: &RetryPolicy) -> Self {
        if let Some(cause) = exited.obeyed {
            return Self::Obeyed(cause);
        }
        if exited.is_success() {
            return Self::Succeeded;
        }
        if let Some(why) = &exited.not_started {
            return Self::Failed { cause: Cause::Infrastructure, rank: None, what: cut(format!("not started: {why}")), memory: None };
        }
        let Some(worker) = exited.workers.iter().find(|worker| !worker.exit.is_success()) else {
            return Self::Failed { cause: Cause::Infrastructure, rank: None, what: "no worker was started".to_owned(), memory: None };
        };
        let (cause, what) = match &worker.exit {
            Exit::Code(code) if *code == 75 || retry.exit_codes.contains(code) => (Cause::Retryable, format!("exit {code}")),
            Exit::Code(code) if *code == WorkerExit::OUT_OF_MEMORY => (Cause::OutOfMemory, format!("exit {code}")),
            Exit::Code(code) => (Cause::UserCode, format!("exit {code}")),
            Exit::Signal(signal) => (Cause::UserCode, format!("signal {signal}")),
            Exit::NotStarted(why) => (Cause::Infrastructure, format!("not started: {why}")),
            Exit::Unknown(why) => (Cause::Infrastructure, format!("ended unseen: {why}")),
        };
        // A code that the job file names is worth a retry whatever led to it.
        let cause = if worker.out_of_memory.is_some() && cause == Cause::UserCode { Cause::OutOfMemory } else { cause };
        let what = if worker.message.is_empty() { what } else { format!("{what}: {}", worker.message) };
        Self::Failed { cause, rank: Some(worker.rank), what: cut(what), memory: worker.out_of_memory }
    }
}

fn cut(text: String) -> String {
    if text.chars().count() <= WHAT_MAX { text } else { text.chars().take(WHAT_MAX).collect() }
}
