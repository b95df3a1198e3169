//! The world around the scheduler's core: arrivals, starts, ends, stops, in virtual time.
//!
//! What the executor and the inventory would report is written as the events that they would write; what the core decides is folded as the service folds
//! it, until it has nothing more to say. (`attempt.started` is left out: nothing is decided upon it.)

use crate::book::Book;
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use footplate_es::{Cause, Decision, Evolve};
use footplate_events::facts::{
    AttemptExited, AttemptReady, Exit, FinalOffsets, JobEnded, JobStopRequested, JobSubmitted, MemberExited, MemberReady, NodeRegistered,
    QueueConfigured, Rendezvous, StopCause, TermBegan, WaitReason, WorkerExit,
};
use footplate_events::{Envelope, Event, Recorded, Subject};
use footplate_scheduler_core::{Attempt, Facts, Member, Memory, Policy, SERVICE, State, Timeline, admit, can_configure, decide, explain};
use footplate_types::{
    AttemptId, AttemptNumber, Digest, Epoch, EventId, Invalid, MemberIndex, Millis, PrincipalId, ProjectName, QueueName, RunId,
    ServiceName, Timestamp,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// How programs and nodes behave, in ways that a workload does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// From the placement until every member is ready.
    pub prepare: Millis,
    /// From a stop until the program has left; at most its grace.
    pub leave: Millis,
    /// How often a program saves what it has done; 0: whenever it is asked to stop, so that nothing is lost.
    pub checkpoint_every: Millis,
}

/// It does not come to rest: a fault of the policy or of the core.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// Decision follows decision though no time passes.
    #[error("at {at} the policy {policy:?} does not come to rest: {looks} looks, the last of them decided {last}")]
    Restless {
        /// When.
        at: Millis,
        /// Under which policy.
        policy: String,
        /// How often it was asked.
        looks: usize,
        /// What it said last.
        last: String,
    },
    /// A queue of the cluster cannot be set as it is declared.
    #[error("{0}")]
    Queue(String),
    /// A name of the simulation's own that is none.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// Looks without a step of time.
const LOOKS_MAX: usize = 100_000;

/// What is due. Of what is due at once, ends come before arrivals: what is free is free for who comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    End(usize, AttemptNumber),
    Leave(usize, AttemptNumber),
    Ready(usize, AttemptNumber),
    Arrival(usize),
}

/// A job that is under way.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// Of what it takes, in milliseconds.
    done: u64,
    /// When its workers started.
    launched: Option<u64>,
}

struct World<'a> {
    scenario: &'a Scenario,
    policy: &'a Policy,
    habits: Habits,
    project: ProjectName,
    actor: PrincipalId,
    state: State,
    timeline: Timeline,
    memory: Memory,
    now: u64,
    sequence: u64,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    ways: BTreeMap<usize, Way>,
    book: Book<'a>,
}

/// Simulates the whole scenario under one policy, until nothing more happens.
///
/// # Errors
/// A cluster whose queues cannot be so, and a policy under which decisions never end.
pub fn simulate(scenario: &Scenario, policy: &Policy, habits: Habits) -> Result<Outcome, Stuck> {
    let mut world = World {
        scenario,
        policy,
        habits,
        project: ProjectName::parse("simulated")?,
        actor: PrincipalId::parse("simulated")?,
        state: State::default(),
        timeline: Timeline::default(),
        memory: Memory::default(),
        now: 0,
        sequence: 0,
        due: BinaryHeap::new(),
        ways: BTreeMap::new(),
        book: Book::new(scenario),
    };
    world.begin()?;
    world.run()?;
    Ok(world.close())
}

fn run_of(job: usize) -> RunId {
    RunId::from_bytes((job as u128 + 1).to_be_bytes())
}

fn job_of(run: &RunId) -> usize {
    (u128::from_be_bytes(*run.as_bytes()) - 1) as usize
}

impl World<'_> {
    /// The broker's time: as if the simulation had begun with the epoch.
    fn time(&self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.now).unwrap_or(i64::MAX))
    }

    fn record(&mut self, subject: Subject, event: Event, id: Option<EventId>, cause: Option<Cause>) {
        self.sequence += 1;
        let id = id.unwrap_or_else(|| EventId::derived(&[b"simulated", &self.sequence.to_be_bytes()]));
        let envelope = Envelope {
            id,
            subject,
            event,
            source: SERVICE.to_owned(),
            time: self.time(),
            actor: self.actor.clone(),
            correlation: cause.as_ref().map_or(id, |cause| cause.correlation),
            causation: cause.map(|cause| cause.id),
            trace: None,
        };
        let recorded = Recorded { sequence: self.sequence, recorded_at: self.time(), envelope };
        self.state.evolve(&recorded);
    }

    fn tell(&mut self, subject: Subject, event: impl Into<Event>) {
        self.record(subject, event.into(), None, None);
    }

    /// The nodes, the queues, the term; then the arrivals.
    fn begin(&mut self) -> Result<(), Stuck> {
        for (name, shape) in &self.scenario.nodes {
            let registered = NodeRegistered {
                epoch: Epoch(1),
                boot_id: "simulated".to_owned(),
                shape: shape.clone(),
                address: name.to_string(),
                agent_version: String::new(),
                clock_ahead_ms: None,
            };
            self.tell(Subject::node(name), registered);
        }
        for (name, settings) in &self.scenario.queues {
            self.configure(name, settings)?;
        }
        let service = ServiceName::parse(SERVICE)?;
        self.tell(Subject::term(&service), TermBegan { service, instance: "simulated".to_owned() });
        if let Some(term) = self.state.term() {
            self.timeline = Timeline::begin(term, Millis(0));
        }
        self.due = self.scenario.arrivals.iter().enumerate().map(|(job, arrival)| Reverse((arrival.at_ms, Due::Arrival(job)))).collect();
        Ok(())
    }

    fn configure(&mut self, name: &QueueName, settings: &QueueConfigured) -> Result<(), Stuck> {
        can_configure(&self.state, name, settings).map_err(|refusal| Stuck::Queue(refusal.to_string()))?;
        self.tell(Subject::queue(name), settings.clone());
        Ok(())
    }

    fn run(&mut self) -> Result<(), Stuck> {
        loop {
            while let Some(Reverse((at, due))) = self.due.peek().copied() {
                if at > self.now {
                    break;
                }
                self.due.pop();
                self.happens(due);
            }
            let wake = self.decide()?;
            let next = self.due.peek().map(|Reverse((at, _))| *at);
            let Some(next) = [next, wake].into_iter().flatten().min() else { return Ok(()) };
            self.now = self.now.max(next);
            self.book.until(self.now);
        }
    }

    /// Asks the core until it has nothing more to say. When it wants to look again.
    fn decide(&mut self) -> Result<Option<u64>, Stuck> {
        let mut last = String::new();
        for _ in 0..LOOKS_MAX {
            self.timeline.observe(self.sequence, Millis(self.now));
            let facts = Facts {
                view: self.sequence,
                now: self.time(),
                elapsed: Millis(self.now),
                seed: self.sequence,
                policy: self.policy,
                timeline: &self.timeline,
            };
            let ruling = decide(&self.state, &facts, &mut self.memory);
            if ruling.decisions.is_empty() {
                // A look that wants to look again at once has said all it could.
                return Ok(ruling.wake_in.map(|wait| self.now.saturating_add(wait.0.max(1))));
            }
            last.clear();
            last.push_str(&ruling.decisions[0].event.event_type().to_string());
            ruling.decisions.into_iter().for_each(|decision| self.takes_in(decision));
        }
        Err(Stuck::Restless { at: Millis(self.now), policy: self.policy.name.clone(), looks: LOOKS_MAX, last })
    }

    /// A decision stands in the ledger; the world follows it.
    fn takes_in(&mut self, decision: Decision) {
        let Some(run) = decision.subject.run_id() else { return };
        let job = job_of(&run);
        let was_pending = self.state.jobs().get(&run).is_some_and(|job| job.attempt().is_none());
        let event = decision.event.clone();
        let id = decision.id(SERVICE);
        self.record(decision.subject, decision.event, id, decision.cause);
        match event {
            Event::JobPlaced(placed) => {
                self.book.is_placed(job);
                self.due.push(Reverse((self.now.saturating_add(self.habits.prepare.0), Due::Ready(job, placed.attempt))));
            }
            Event::JobLaunched(launched) => {
                let takes = self.scenario.arrivals[job].takes_ms;
                let way = self.ways.entry(job).or_default();
                way.launched = Some(self.now);
                let end = self.now.saturating_add(takes.saturating_sub(way.done));
                self.due.push(Reverse((end, Due::End(job, launched.attempt))));
            }
            Event::JobStopRequested(stop) => self.is_to_stop(job, &stop),
            Event::JobRequeued(_) => self.book.waits_again(job),
            Event::JobEnded(JobEnded { outcome, message, .. }) => {
                self.ways.remove(&job);
                self.book.ends(job, outcome, was_pending, &message);
            }
            _ => {}
        }
    }

    fn is_to_stop(&mut self, job: usize, stop: &JobStopRequested) {
        let leaves = self.now.saturating_add(self.habits.leave.0.min(stop.grace.0));
        self.due.push(Reverse((leaves, Due::Leave(job, stop.attempt))));
        let way = self.ways.entry(job).or_default();
        let ran = way.launched.take().map_or(0, |launched| self.now - launched);
        let every = self.habits.checkpoint_every.0;
        let kept = ran.checked_div(every).map_or(ran, |saves| saves * every);
        way.done = way.done.saturating_add(kept);
        match stop.cause {
            StopCause::Preempted => self.book.is_preempted(job, ran - kept),
            _ => self.book.loses(job, ran - kept),
        }
    }

    /// The attempt that a thing that is due is about, when it is still the one.
    fn attempt(&self, job: usize, number: AttemptNumber) -> Option<&Attempt> {
        self.state.jobs().get(&run_of(job))?.attempt().filter(|attempt| attempt.number == number && !attempt.is_released())
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Arrival(job) => self.comes(job),
            Due::Ready(job, number) => self.is_ready(job, number),
            Due::End(job, number) => self.exits(job, number, None),
            Due::Leave(job, number) => {
                let cause = self.attempt(job, number).and_then(|attempt| attempt.stop.as_ref()).map(|stop| stop.cause);
                if cause.is_some() {
                    self.exits(job, number, cause);
                }
            }
        }
    }

    fn comes(&mut self, job: usize) {
        let spec = &self.scenario.arrivals[job].spec;
        if let Err(refusal) = admit(&self.state, spec, false) {
            return self.book.is_refused(job, format!("refused: {refusal}"));
        }
        self.book.comes(job);
        let submitted = JobSubmitted { spec: (**spec).clone(), body: Digest::of(b"") };
        self.tell(Subject::job(&self.project, run_of(job)), submitted);
    }

    fn is_ready(&mut self, job: usize, number: AttemptNumber) {
        let Some(attempt) = self.attempt(job, number).filter(|attempt| attempt.stop.is_none()) else { return };
        let ready = |member: &Member| MemberReady {
            member: member.placement.member,
            node: member.placement.node.clone(),
            epoch: member.placement.epoch,
            rendezvous: (member.placement.member == MemberIndex(0))
                .then(|| Rendezvous { address: member.placement.node.to_string(), port: 4_000 }),
        };
        let members = attempt.members.iter().map(ready).collect();
        let subject = Subject::attempt(&self.project, AttemptId { run: run_of(job), attempt: number });
        self.tell(subject, AttemptReady { members });
    }

    /// Every member is gone: by itself, or because it obeyed.
    fn exits(&mut self, job: usize, number: AttemptNumber, obeyed: Option<StopCause>) {
        let Some(attempt) = self.attempt(job, number) else { return };
        let code = if obeyed.is_some() { 143 } else { 0 };
        let exited = |member: &Member| MemberExited {
            member: member.placement.member,
            node: member.placement.node.clone(),
            epoch: member.placement.epoch,
            obeyed,
            workers: vec![WorkerExit {
                rank: member.placement.first_rank,
                exit: Exit::Code(code),
                after_ms: 0,
                message: String::new(),
                out_of_memory: None,
            }],
            not_started: None,
            offsets: FinalOffsets::default(),
        };
        let members = attempt.members.iter().map(exited).collect();
        let subject = Subject::attempt(&self.project, AttemptId { run: run_of(job), attempt: number });
        self.book.has_left(job);
        self.tell(subject, AttemptExited { members });
    }

    /// Who waits now waits for ever.
    fn close(mut self) -> Outcome {
        let left: Vec<(usize, String)> = self.state.jobs().keys().map(|run| (job_of(run), self.reason(run))).collect();
        for (job, reason) in left {
            self.book.is_left(job, reason);
        }
        self.book.close(self.policy.name.clone())
    }

    fn reason(&self, run: &RunId) -> String {
        match explain(&self.state, run, self.time()).and_then(|told| told.reason) {
            Some(WaitReason::NoSuchNode { detail }) => format!("never: {detail}"),
            Some(WaitReason::Quota { detail }) => format!("quota: {detail}"),
            Some(WaitReason::Resources { detail }) => format!("resources: {detail}"),
            Some(WaitReason::QueueHeld) => "its queue starts nothing".to_owned(),
            Some(WaitReason::Held) => "it is held".to_owned(),
            Some(WaitReason::Dependencies { detail }) => format!("after others: {detail}"),
            Some(WaitReason::Array { detail }) => format!("after others of its array: {detail}"),
            Some(WaitReason::Backoff | WaitReason::Preempting) | None => "it had not started when everything else was over".to_owned(),
        }
    }
}
