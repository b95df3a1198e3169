//! A model of the agent's judgement, written after rules 6 to 8: what to prepare, start, stop, report and beat, given what was assigned and
//! seen. It answers an input with effects, which are done in order; [`Effect::Persist`] comes first.

use super::beat::Beating;
use crate::planted::Planted;
use footplate_events::facts::{
    Exit, FinalOffsets, MemberExited, MemberReady, MemberStarted, Rendezvous, StopCause, WorkerExit, WorkerStarted,
};
use footplate_events::messages::{Assignment, BeatMessage, ExecutorReport, MemberRef, Order, Task};
use footplate_types::{AttemptNumber, Epoch, GpuUuid, MemberIndex, NodeName, Rank, RunId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// Which member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) run: RunId,
    pub(crate) attempt: AttemptNumber,
    pub(crate) member: MemberIndex,
}

impl Key {
    pub(crate) fn of(task: &Task) -> Self {
        Self { run: task.run, attempt: task.attempt, member: task.member }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.run, self.attempt, self.member)
    }
}

/// How far a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Preparing,
    Ready,
    /// The intent to start it stands.
    Launching,
    Running,
    /// Nothing of it runs; its last words are gathered.
    Finishing,
    /// `exited` is in the spool.
    Ended,
}

/// One member that the node holds, or has held.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) task: Rc<Task>,
    pub(super) phase: Phase,
    rendezvous: Option<Rendezvous>,
    stop: Option<StopCause>,
}

/// What survives a restart.
#[derive(Clone, Debug, Default)]
pub(super) struct Saved {
    pub(super) epoch: Option<Epoch>,
    pub(super) boot: String,
    pub(super) as_of: u64,
    /// Tells this folder's agent from others.
    pub(super) token: String,
    pub(super) members: BTreeMap<Key, Held>,
}

/// Why a member is at its end.
#[derive(Clone, Debug)]
pub(crate) enum End {
    NotStarted(String),
    Stopped(StopCause),
    Recorded,
}

/// Something that happened to the agent.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    BeatLooked(Result<Option<(u64, BeatMessage)>, ()>),
    BeatDone { number: u64, outcome: super::beat::Outcome },
    Assigned(Rc<Assignment>),
    Prepared { key: Key, result: Result<Option<Rendezvous>, String> },
    Launched { key: Key, result: Result<(), String> },
    TreeEmpty { key: Key },
    Gathered { key: Key, exited: Box<MemberExited> },
    ExitReported { key: Key },
    Tick,
}

/// Something to be done.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Persist,
    LookAtBeat,
    SendBeat { number: u64, epoch: Epoch, expect: u64 },
    WriteLease { until: u64 },
    Register { epoch: Epoch },
    Prepare { key: Key },
    CancelPrepare { key: Key },
    Launch { key: Key },
    Stop { key: Key, cause: StopCause, grace: u64 },
    Gather { key: Key, end: End },
    Report(ExecutorReport),
    ReportExit { key: Key, exited: Box<MemberExited> },
    Forget { key: Key },
}

/// The agent's memory.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) node: NodeName,
    pub(super) boot: String,
    pub(super) saved: Saved,
    pub(super) beating: Beating,
    assignment: Option<Rc<Assignment>>,
    pub(super) fencing: Option<(Epoch, u64)>,
    pub(super) planted: Option<Planted>,
    pub(super) dirty: bool,
    pub(super) effects: Vec<Effect>,
}

impl Agent {
    pub(super) fn new(node: NodeName, boot: String, saved: Saved, lease_until: Option<u64>, planted: Option<Planted>) -> Self {
        let beating = Beating::new(&saved.boot, &boot, lease_until);
        Self { node, boot, saved, beating, assignment: None, fencing: None, planted, dirty: true, effects: Vec::new() }
    }

    /// What must be done first after a restart. `running`: members whose tree lives.
    pub(super) fn adopt(&mut self, running: &BTreeSet<Key>) -> Vec<Effect> {
        self.saved.boot.clone_from(&self.boot);
        for (key, phase) in self.saved.members.iter().map(|(key, held)| (*key, held.phase)).collect::<Vec<_>>() {
            match phase {
                Phase::Preparing => self.effects.push(Effect::Prepare { key }),
                Phase::Ready => self.report_ready(key),
                Phase::Launching | Phase::Running if running.contains(&key) => {
                    self.set_phase(key, Phase::Running);
                    self.report_started(key);
                    self.stop_again(key);
                }
                Phase::Launching | Phase::Running | Phase::Finishing => self.finish(key, End::Recorded),
                Phase::Ended => {}
            }
        }
        self.take_effects()
    }

    /// Judges one input at a time of the boot clock.
    pub(super) fn step(&mut self, now: u64, input: Input) -> Vec<Effect> {
        match input {
            Input::BeatLooked(looked) => self.beat_looked(now, looked),
            Input::BeatDone { number, outcome } => self.beat_done(now, number, outcome),
            Input::Assigned(assignment) => self.assigned(assignment),
            Input::Prepared { key, result } => self.prepared(key, result),
            Input::Launched { key, result } => self.launched(key, result),
            Input::TreeEmpty { key } => self.tree_empty(key),
            Input::Gathered { key, exited } => self.effects.push(Effect::ReportExit { key, exited }),
            Input::ExitReported { key } => self.set_phase(key, Phase::Ended),
            Input::Tick => {}
        }
        self.advance_fence();
        self.reconcile(now);
        self.drive_beat(now);
        self.take_effects()
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        let mut effects = std::mem::take(&mut self.effects);
        if std::mem::take(&mut self.dirty) {
            effects.insert(0, Effect::Persist);
        }
        effects
    }

    pub(super) fn is_idle(&self) -> bool {
        self.saved.members.values().all(|held| held.phase == Phase::Ended)
    }

    fn set_phase(&mut self, key: Key, phase: Phase) {
        if let Some(held) = self.saved.members.get_mut(&key) {
            held.phase = phase;
            self.dirty = true;
        }
    }

    fn finish(&mut self, key: Key, end: End) {
        self.set_phase(key, Phase::Finishing);
        self.effects.push(Effect::Gather { key, end });
    }

    fn assigned(&mut self, assignment: Rc<Assignment>) {
        if assignment.node != self.node || assignment.as_of < self.saved.as_of {
            return;
        }
        if assignment.as_of > self.saved.as_of {
            self.saved.as_of = assignment.as_of;
            self.dirty = true;
        }
        self.assignment = Some(assignment);
    }

    /// Brings what is held to what is assigned.
    fn reconcile(&mut self, now: u64) {
        let (Some(epoch), Some(assignment)) = (self.saved.epoch, self.assignment.clone()) else { return };
        if self.fencing.is_none() {
            for task in &assignment.tasks {
                self.follow(now, task, epoch);
            }
        }
        let assigned: BTreeSet<Key> = assignment.tasks.iter().map(Key::of).collect();
        let absent = |(key, held): (&Key, &Held)| (!assigned.contains(key) && held.task.placed_at <= assignment.as_of).then_some(*key);
        for key in self.saved.members.iter().filter_map(absent).collect::<Vec<_>>() {
            self.drop_absent(key);
        }
    }

    fn follow(&mut self, now: u64, task: &Task, epoch: Epoch) {
        let key = Key::of(task);
        let held = self.saved.members.get(&key).map(|held| held.phase);
        match (&task.order, held) {
            _ if task.epoch > epoch => {}
            (Order::Prepare, None) if task.epoch == epoch => self.begin(now, key, task),
            (Order::Prepare | Order::Run { .. }, None) => self.answer(key, task, None),
            (Order::Stop { cause, .. }, None) => self.answer(key, task, Some(*cause)),
            (Order::Run { .. }, Some(Phase::Ready)) => self.launch(now, key),
            (Order::Stop { cause, grace }, Some(_)) => self.stop(key, *cause, grace.0),
            (Order::Prepare | Order::Run { .. }, Some(_)) => {}
        }
    }

    fn may_begin(&self, now: u64) -> bool {
        self.fencing.is_none() && self.beating.lease_holds(now)
    }

    fn overlaps(&self, task: &Task) -> bool {
        let others = || {
            self.saved.members.iter().filter(|(key, held)| **key != Key::of(task) && held.phase != Phase::Ended).map(|(_, held)| &held.task)
        };
        let part = |task: &Task| if task.gpu_share > 0 { task.gpu_share } else { 1_000 };
        let too_full = |gpu: &GpuUuid| {
            let all: u32 = others().filter(|held| held.gpus.contains(gpu)).map(|held| part(held)).sum();
            all > 0 && all + part(task) > 1_000
        };
        task.gpus.iter().any(too_full) || others().any(|held| held.slots.iter().any(|slot| task.slots.contains(slot)))
    }

    fn begin(&mut self, now: u64, key: Key, task: &Task) {
        if self.may_begin(now) && !self.overlaps(task) {
            self.saved.members.insert(key, Held { task: Rc::new(task.clone()), phase: Phase::Preparing, rendezvous: None, stop: None });
            self.dirty = true;
            self.effects.push(Effect::Prepare { key });
        }
    }

    /// To a run or stop that matches nothing: it does not run here, and never will.
    fn answer(&mut self, key: Key, task: &Task, obeyed: Option<StopCause>) {
        self.saved.members.insert(key, Held { task: Rc::new(task.clone()), phase: Phase::Finishing, rendezvous: None, stop: obeyed });
        self.dirty = true;
        let exited = MemberExited { obeyed, not_started: Some("this agent holds nothing of it".to_owned()), ..self.exited(task) };
        self.effects.push(Effect::ReportExit { key, exited: Box::new(exited) });
    }

    /// The last words of a member, with nothing in them yet.
    pub(super) fn exited(&self, task: &Task) -> MemberExited {
        MemberExited {
            member: task.member,
            node: self.node.clone(),
            epoch: task.epoch,
            obeyed: None,
            workers: Vec::new(),
            not_started: None,
            offsets: FinalOffsets::default(),
        }
    }

    fn launch(&mut self, now: u64, key: Key) {
        if self.may_begin(now) && self.saved.members.get(&key).is_some_and(|held| held.stop.is_none()) {
            self.set_phase(key, Phase::Launching);
            self.effects.push(Effect::Launch { key });
        }
    }

    fn prepared(&mut self, key: Key, result: Result<Option<Rendezvous>, String>) {
        let Some(held) = self.saved.members.get_mut(&key).filter(|held| held.phase == Phase::Preparing) else { return };
        match (held.stop, result) {
            (Some(cause), _) => self.finish(key, End::Stopped(cause)),
            (None, Err(why)) => self.finish(key, End::NotStarted(why)),
            (None, Ok(rendezvous)) => {
                held.rendezvous = rendezvous;
                self.set_phase(key, Phase::Ready);
                self.report_ready(key);
            }
        }
    }

    fn launched(&mut self, key: Key, result: Result<(), String>) {
        if self.saved.members.get(&key).is_none_or(|held| held.phase != Phase::Launching) {
            return;
        }
        match result {
            Ok(()) => {
                self.set_phase(key, Phase::Running);
                self.report_started(key);
            }
            Err(why) => self.finish(key, End::NotStarted(why)),
        }
    }

    fn tree_empty(&mut self, key: Key) {
        let runs = |held: &Held| matches!(held.phase, Phase::Launching | Phase::Running);
        if self.saved.members.get(&key).is_some_and(runs) {
            self.finish(key, End::Recorded);
        }
    }

    fn stop(&mut self, key: Key, cause: StopCause, grace: u64) {
        let Some(held) = self.saved.members.get_mut(&key) else { return };
        let is_over = matches!(held.phase, Phase::Finishing | Phase::Ended);
        if is_over || held.stop == Some(cause) || (held.stop.is_some() && cause != StopCause::Fenced) {
            return;
        }
        held.stop = Some(cause);
        self.dirty = true;
        match held.phase {
            Phase::Preparing => self.effects.push(Effect::CancelPrepare { key }),
            Phase::Ready => self.finish(key, End::Stopped(cause)),
            Phase::Launching | Phase::Running => self.effects.push(Effect::Stop { key, cause, grace }),
            Phase::Finishing | Phase::Ended => {}
        }
    }

    /// A stop whose delivery a restart may have cut off.
    fn stop_again(&mut self, key: Key) {
        let Some((held, cause)) = self.saved.members.get(&key).and_then(|held| Some((held, held.stop?))) else { return };
        self.effects.push(Effect::Stop { key, cause, grace: held.task.stop.grace.0 });
    }

    fn drop_absent(&mut self, key: Key) {
        let Some(held) = self.saved.members.get(&key) else { return };
        if held.phase == Phase::Ended {
            self.saved.members.remove(&key);
            self.dirty = true;
            return self.effects.push(Effect::Forget { key });
        }
        let grace = held.task.stop.grace.0;
        self.stop(key, StopCause::Fenced, grace);
    }

    /// A fenced generation is over once nothing of it is left; then the next one begins.
    fn advance_fence(&mut self) {
        let Some((epoch, sequence)) = self.fencing else { return };
        for key in self.saved.members.keys().copied().collect::<Vec<_>>() {
            self.stop(key, StopCause::Fenced, 0);
        }
        if self.is_idle() {
            self.fencing = None;
            self.saved.epoch = Some(epoch);
            self.dirty = true;
            self.beating.begin_generation(sequence);
        }
    }

    fn report_ready(&mut self, key: Key) {
        let Some(held) = self.saved.members.get(&key) else { return };
        let (node, epoch, rendezvous) = (self.node.clone(), held.task.epoch, held.rendezvous.clone());
        let ready = MemberReady { member: key.member, node, epoch, rendezvous };
        self.effects.push(Effect::Report(ExecutorReport::Ready { of: member_ref(&held.task), ready }));
    }

    fn report_started(&mut self, key: Key) {
        let Some(held) = self.saved.members.get(&key) else { return };
        let workers = (0..held.task.workers).map(|at| WorkerStarted { rank: Rank(held.task.first_rank.0 + at), pid: 1 }).collect();
        let started = MemberStarted { member: key.member, node: self.node.clone(), epoch: held.task.epoch, workers };
        self.effects.push(Effect::Report(ExecutorReport::Started { of: member_ref(&held.task), started }));
    }
}

/// The member that a task is about.
pub(super) fn member_ref(task: &Task) -> MemberRef {
    MemberRef { project: task.project.clone(), run: task.run, attempt: task.attempt, member: task.member }
}

/// Every worker of a member ended in this way.
pub(super) fn all_ended(task: &Task, exit: &Exit) -> Vec<WorkerExit> {
    let ended = |at| WorkerExit {
        rank: Rank(task.first_rank.0 + at),
        exit: exit.clone(),
        after_ms: 0,
        message: String::new(),
        out_of_memory: None,
    };
    (0..task.workers).map(ended).collect()
}
