//! Faults that are planted to see whether the checkers find them. Each sits in the simulation's own layer; the cores know nothing of it.

use footplate_es::Decision;
use footplate_events::facts::{JobSpec, JobStopRequested, JobSubmitted, QueueConfigured, Quota, StopCause};
use footplate_events::{Event, Recorded, Subject};
use footplate_scheduler_core::{Attempt, Job, State};

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The agent reads a fence and lives on under the generation that it ended. Stands for the fencing of rule 8: what was declared lost
    /// must never start again.
    Fencing,
    /// The scheduler's loop drops the last member of every placed gang of two or more. Stands for all or nothing.
    Gang,
    /// The scheduler's loop stops an attempt that nobody may preempt. Stands for the choice of victims.
    Victim,
    /// What the scheduler folds of a queue's quota is five units more than was configured. Stands for the check of the hard quota, both where
    /// it is decided upon and where a placement is void by it.
    Quota,
    /// A node's supervisors never look at the lease. Stands for the end of a lease of rule 8.
    Lease,
    /// A leader's append expects nothing. Stands for the term of rule 2.
    Term,
    /// The agent forks before its intent is on disk. Stands for "each member at most once" of rule 8.
    Intent,
    /// What the scheduler folds of a submission names no jobs that it comes after. Stands for the wait for other jobs' ends.
    Turn,
    /// What the scheduler folds of a submission says nothing of its array's limit. Stands for the count of those that are placed.
    Crowd,
    /// What the scheduler folds of a placed share is half of it. Stands for the sum of what stands on one GPU.
    Share,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 10] =
        [Self::Fencing, Self::Gang, Self::Victim, Self::Quota, Self::Lease, Self::Term, Self::Intent, Self::Turn, Self::Crowd, Self::Share];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fencing => "fencing",
            Self::Gang => "gang",
            Self::Victim => "victim",
            Self::Quota => "quota",
            Self::Lease => "lease",
            Self::Term => "term",
            Self::Intent => "intent",
            Self::Turn => "turn",
            Self::Crowd => "crowd",
            Self::Share => "share",
        }
    }

    /// The fault of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|planted| planted.name() == text)
    }
}

/// What the scheduler folds instead of an event, when the quota rule, the wait for other jobs, the limit of an array or the sum of shares is broken.
pub(crate) fn misread(planted: Option<Planted>, recorded: &Recorded) -> Option<Recorded> {
    match (planted, &recorded.envelope.event) {
        (Some(Planted::Quota), Event::QueueConfigured(settings)) => Some(raised(recorded, settings)),
        (Some(Planted::Turn), Event::JobSubmitted(fact)) if !fact.spec.after.is_empty() => {
            Some(asking(recorded, fact, JobSpec { after: Vec::new(), ..fact.spec.clone() }))
        }
        (Some(Planted::Crowd), Event::JobSubmitted(fact)) if fact.spec.array.is_some() => {
            Some(asking(recorded, fact, JobSpec { array: None, ..fact.spec.clone() }))
        }
        (Some(Planted::Share), Event::JobPlaced(fact)) if fact.members.iter().any(|member| member.gpu_share > 1) => {
            let mut told = recorded.clone();
            let mut fact = fact.clone();
            fact.members.iter_mut().for_each(|member| member.gpu_share = member.gpu_share.div_ceil(2));
            told.envelope.event = fact.into();
            Some(told)
        }
        _ => None,
    }
}

fn asking(recorded: &Recorded, fact: &JobSubmitted, spec: JobSpec) -> Recorded {
    let mut told = recorded.clone();
    told.envelope.event = JobSubmitted { spec, body: fact.body }.into();
    told
}

fn raised(recorded: &Recorded, settings: &QueueConfigured) -> Recorded {
    let more = |quota: Option<u32>| quota.map(|most| most + 5);
    let mut told = recorded.clone();
    let quota = Quota { gpus: more(settings.quota.gpus), slots: more(settings.quota.slots) };
    told.envelope.event = QueueConfigured { quota, ..settings.clone() }.into();
    told
}

/// What the scheduler appends instead of what it decided, when the gang rule or the victim rule is broken.
pub(crate) fn bend(planted: Option<Planted>, state: &State, decisions: &mut [Decision]) {
    match planted {
        Some(Planted::Gang) => decisions.iter_mut().for_each(shorten),
        Some(Planted::Victim) => decisions.iter_mut().for_each(|decision| turn_on_another(state, decision)),
        _ => {}
    }
}

fn shorten(decision: &mut Decision) {
    if let Event::JobPlaced(placed) = &mut decision.event
        && placed.members.len() > 1
    {
        placed.members.pop();
    }
}

/// A preemption hits somebody who may not be preempted; and who waits for resources preempts whom it likes.
fn turn_on_another(state: &State, decision: &mut Decision) {
    let may_not_go = |(job, attempt): &(&Job, &Attempt)| {
        attempt.stop.is_none() && !attempt.is_released() && (!job.spec.preemptible || job.priority >= highest_pending(state))
    };
    let hits = match &decision.event {
        Event::JobStopRequested(stop) => stop.cause == StopCause::Preempted,
        Event::JobWaiting(waiting) => matches!(waiting.reason, footplate_events::facts::WaitReason::Resources { .. }),
        _ => false,
    };
    let mut active = state.jobs().values().filter_map(|job| Some((job, job.attempt()?)));
    let Some((job, attempt)) = active.find(may_not_go).filter(|_| hits) else { return };
    let stop = JobStopRequested {
        attempt: attempt.number,
        cause: StopCause::Preempted,
        grace: job.spec.stop.grace,
        request: None,
        message: "planted".to_owned(),
    };
    decision.subject = Subject::job(&job.project, job.run);
    decision.event = stop.into();
}

fn highest_pending(state: &State) -> i32 {
    let pending = state.jobs().values().filter(|job| job.attempt().is_none());
    pending.map(|job| job.priority).max().unwrap_or(i32::MIN)
}
