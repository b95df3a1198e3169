//! The node's judgement: what to prepare, start, stop, report and beat, given what was assigned and seen. Pure.
//!
//! `step(now, input) -> effects`: no I/O, no clock, no randomness. The effects of a step are done in order, and [`Effect::Persist`] always
//! comes first, so that an intent is on disk before what it intends. It never starts a member twice, nor under another generation, nor
//! without a valid lease; a missing assignment changes nothing.

mod beat;
mod state;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use beat::BeatOutcome;
pub(crate) use state::{CoreState, Held, MemberKey, Phase};

use crate::shim::{Notice, Stop};
use beat::Beating;
use footplate_events::{
    facts::{FinalOffsets, MemberExited, MemberReady, MemberStarted, Rendezvous, StopCause, StopSignal, WorkerStarted},
    messages::{Assignment, Beat, BeatMessage, ExecutorReport, MemberRef, Order, Task},
};
use footplate_types::{Epoch, Millis, NodeName, Timestamp};
use std::collections::BTreeSet;

/// What the clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Nanoseconds since boot: what is decided by.
    pub(crate) boot_ns: u64,
    /// The wall clock: only shown.
    pub(crate) wall: Timestamp,
}

/// What does not change while the agent lives.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    pub(crate) node: NodeName,
    pub(crate) boot_id: String,
    /// Length of the lease; 0 = it has no end.
    pub(crate) lease_ms: u64,
    pub(crate) beat_every_ms: u64,
    /// How long the shims need at most to empty a tree once the lease has run out.
    pub(crate) kill_ms: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    /// The last message on the own beat subject was read; `Err`: it could not be.
    BeatLooked(Result<Option<(u64, BeatMessage)>, ()>),
    /// A beat's publish ended.
    BeatDone { number: u64, outcome: BeatOutcome },
    /// An assignment was heard or read.
    Assigned(Assignment),
    /// A preparation ended: with member 0's rendezvous, or with why it failed.
    Prepared { key: MemberKey, result: Result<Option<Rendezvous>, String> },
    /// The shim was started, or could not be.
    Launched { key: MemberKey, result: Result<Vec<WorkerStarted>, String> },
    /// The tree is empty.
    TreeEmpty { key: MemberKey },
    /// The last words of a member are gathered.
    Gathered { key: MemberKey, exited: MemberExited },
    /// `exited` is durable in the spool.
    ExitReported { key: MemberKey },
    /// Time passes.
    Tick,
    /// The agent is asked to end and to end its members first.
    StopMembers,
}

/// Why a member is at its end without a tree to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing was started, for this reason.
    NotStarted(String),
    /// Nothing was started, and a stop was obeyed.
    Stopped(StopCause),
    /// Its shim's record says how.
    Recorded,
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Make the state durable, before anything after it.
    Persist,
    /// Read the own beat subject's last message.
    LookAtBeat,
    /// Publish a beat, expecting this last sequence.
    SendBeat { beat: Beat, expect: u64 },
    /// Write the lease file; absent: no end.
    WriteLease { until_boot_ns: Option<u64> },
    /// Tell gpu-inventory what the node has, under this generation.
    Register { epoch: Epoch },
    /// Unpack, set up, reserve.
    Prepare { key: MemberKey },
    /// Give up a preparation that is under way.
    CancelPrepare { key: MemberKey },
    /// Start the shim.
    Launch { key: MemberKey, rendezvous: Rendezvous, peers: Vec<String> },
    /// Stop the tree.
    Stop { key: MemberKey, stop: Stop, cause: StopCause },
    /// Gather a member's last words: logs to their end, what was logged, uploads.
    Gather { key: MemberKey, end: End },
    /// Put a report to the executor into its spool.
    Report(ExecutorReport),
    /// Put `exited` into the spool, then say [`Input::ExitReported`].
    ReportExit { key: MemberKey, exited: MemberExited },
    /// Forget a member's files.
    Forget { key: MemberKey },
}

/// The node's judgement and what it knows.
pub(crate) struct Core {
    fixed: Fixed,
    pub(crate) state: CoreState,
    beating: Beating,
    /// What was assigned last; absent until something was heard.
    assignment: Option<Assignment>,
    /// The generation that a fence began, and the fence's sequence.
    fencing: Option<(Epoch, u64)>,
    stopping: bool,
    /// The boot of another living agent that beats under this name.
    name_taken: Option<String>,
    dirty: bool,
    effects: Vec<Effect>,
}

impl Core {
    /// From the state as it was persisted, and the lease file. Members are adopted as `looks` says how their trees stand.
    pub(crate) fn new(fixed: Fixed, state: CoreState, lease_until: Option<u64>) -> Self {
        let beating = Beating::new(&state.boot_id, &fixed.boot_id, lease_until);
        Self { fixed, state, beating, assignment: None, fencing: None, stopping: false, name_taken: None, dirty: true, effects: Vec::new() }
    }

    /// What must be done first after a restart: each member goes on from where the disk says it was. `running` are those whose tree
    /// lives, with their workers.
    pub(crate) fn adopt(&mut self, running: Vec<(MemberKey, Vec<WorkerStarted>)>) -> Vec<Effect> {
        self.state.boot_id.clone_from(&self.fixed.boot_id);
        for (key, phase) in self.state.members.iter().map(|(key, held)| (*key, held.phase)).collect::<Vec<_>>() {
            let alive = running.iter().find(|(known, _)| *known == key).map(|(_, workers)| workers.clone());
            match (phase, alive) {
                (Phase::Preparing, _) => self.effects.push(Effect::Prepare { key }),
                (Phase::Ready, _) => self.report_ready(key),
                (Phase::Launching | Phase::Running, Some(workers)) => {
                    self.set_phase(key, Phase::Running);
                    self.report_started(key, workers);
                    self.stop_again(key);
                }
                (Phase::Launching | Phase::Running | Phase::Finishing, _) => self.finish(key, End::Recorded),
                (Phase::Ended, _) => {}
            }
        }
        self.take_effects()
    }

    /// Judges one input.
    pub(crate) fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
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
            Input::StopMembers => self.stopping = true,
        }
        if self.stopping {
            self.stop_all(StopCause::Shutdown, None);
        }
        self.advance_fence();
        self.reconcile(now);
        self.drive_beat(now);
        self.take_effects()
    }

    /// Whether every member has ended and been reported.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.members.values().all(|held| held.phase == Phase::Ended)
    }

    /// The boot of another living agent that beats under this node's name, if one was seen: this one must end.
    pub(crate) fn name_taken(&self) -> Option<&str> {
        self.name_taken.as_deref()
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        let mut effects = std::mem::take(&mut self.effects);
        if std::mem::take(&mut self.dirty) {
            effects.insert(0, Effect::Persist);
        }
        effects
    }

    fn set_phase(&mut self, key: MemberKey, phase: Phase) {
        if let Some(held) = self.state.members.get_mut(&key) {
            held.phase = phase;
            self.dirty = true;
        }
    }

    fn finish(&mut self, key: MemberKey, end: End) {
        self.set_phase(key, Phase::Finishing);
        self.effects.push(Effect::Gather { key, end });
    }

    fn assigned(&mut self, assignment: Assignment) {
        if assignment.node != self.fixed.node || assignment.as_of < self.state.as_of {
            return;
        }
        if assignment.as_of > self.state.as_of {
            self.state.as_of = assignment.as_of;
            self.dirty = true;
        }
        self.assignment = Some(assignment);
    }

    /// Brings what is held to what is assigned. Runs after every input, since what could not be done may be possible now.
    fn reconcile(&mut self, now: Now) {
        let Some(epoch) = self.state.epoch else { return };
        let Some(assignment) = self.assignment.take() else { return };
        if self.fencing.is_none() {
            for task in &assignment.tasks {
                self.follow(now, task, epoch);
            }
        }
        let assigned: BTreeSet<MemberKey> = assignment.tasks.iter().map(MemberKey::of).collect();
        let absent =
            |(key, held): (&MemberKey, &Held)| (!assigned.contains(key) && held.task.placed_at <= assignment.as_of).then_some(*key);
        for key in self.state.members.iter().filter_map(absent).collect::<Vec<_>>() {
            self.drop_absent(key);
        }
        self.assignment = Some(assignment);
    }

    fn follow(&mut self, now: Now, task: &Task, epoch: Epoch) {
        let key = MemberKey::of(task);
        let held = self.state.members.get(&key).map(|held| held.phase);
        match (&task.order, held) {
            // A generation that is not ours yet: its registration is on the way.
            _ if task.epoch > epoch => {}
            (Order::Prepare, None) if task.epoch == epoch => self.begin(now, key, task),
            (Order::Prepare | Order::Run { .. }, None) => self.answer(key, task, None),
            (Order::Stop { cause, .. }, None) => self.answer(key, task, Some(*cause)),
            (Order::Run { rendezvous, peers }, Some(Phase::Ready)) => {
                // The ports of a gang of roles are known from the launch on.
                if let (Some(role), Some(held)) = (&task.role, self.state.members.get_mut(&key)) {
                    held.task.role = Some(role.clone());
                    self.dirty = true;
                }
                self.launch(now, key, rendezvous, peers);
            }
            (Order::Stop { cause, grace }, Some(_)) => self.stop(key, *cause, *grace),
            (Order::Prepare, Some(_)) => {}
            (Order::Run { .. }, Some(Phase::Preparing | Phase::Launching | Phase::Running | Phase::Finishing | Phase::Ended)) => {}
        }
    }

    fn may_begin(&self, now: Now) -> bool {
        self.fencing.is_none() && !self.stopping && self.beating.lease_holds(now)
    }

    fn begin(&mut self, now: Now, key: MemberKey, task: &Task) {
        if !self.may_begin(now) {
            return;
        }
        if let Some(holder) = self.state.overlapping(task) {
            tracing::warn!(run = %task.run, attempt = %task.attempt, holder = %holder.run, "claim refused: it overlaps with what is held");
            return;
        }
        self.state.members.insert(key, Held { task: task.clone(), phase: Phase::Preparing, rendezvous: None, stop: None });
        self.dirty = true;
        self.effects.push(Effect::Prepare { key });
    }

    /// To a run or stop that matches nothing: it does not run here, and never will.
    fn answer(&mut self, key: MemberKey, task: &Task, obeyed: Option<StopCause>) {
        self.state.members.insert(key, Held { task: task.clone(), phase: Phase::Finishing, rendezvous: None, stop: obeyed });
        self.dirty = true;
        let exited = MemberExited {
            member: task.member,
            node: self.fixed.node.clone(),
            epoch: task.epoch,
            obeyed,
            workers: Vec::new(),
            not_started: Some("this agent holds nothing of it".to_owned()),
            offsets: FinalOffsets::default(),
        };
        self.effects.push(Effect::ReportExit { key, exited });
    }

    fn launch(&mut self, now: Now, key: MemberKey, rendezvous: &Rendezvous, peers: &[String]) {
        if !self.may_begin(now) || self.state.members.get(&key).is_none_or(|held| held.stop.is_some()) {
            return;
        }
        self.set_phase(key, Phase::Launching);
        self.effects.push(Effect::Launch { key, rendezvous: rendezvous.clone(), peers: peers.to_vec() });
    }

    fn prepared(&mut self, key: MemberKey, result: Result<Option<Rendezvous>, String>) {
        let Some(held) = self.state.members.get_mut(&key).filter(|held| held.phase == Phase::Preparing) else { return };
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

    fn launched(&mut self, key: MemberKey, result: Result<Vec<WorkerStarted>, String>) {
        if self.state.members.get(&key).is_none_or(|held| held.phase != Phase::Launching) {
            return;
        }
        match result {
            Ok(workers) => {
                self.set_phase(key, Phase::Running);
                self.report_started(key, workers);
            }
            Err(why) => self.finish(key, End::NotStarted(why)),
        }
    }

    fn tree_empty(&mut self, key: MemberKey) {
        let running = |held: &Held| matches!(held.phase, Phase::Launching | Phase::Running);
        if self.state.members.get(&key).is_some_and(running) {
            self.finish(key, End::Recorded);
        }
    }

    /// Stops a member once by each cause; the first cause that was delivered is the one it obeys.
    fn stop(&mut self, key: MemberKey, cause: StopCause, grace: Millis) {
        let Some(held) = self.state.members.get_mut(&key) else { return };
        if held.stop == Some(cause) || (held.stop.is_some() && cause != StopCause::Fenced) {
            return;
        }
        let phase = held.phase;
        if matches!(phase, Phase::Finishing | Phase::Ended) {
            return;
        }
        held.stop = Some(cause);
        self.dirty = true;
        let stop = stop_of(&held.task, cause, grace);
        match phase {
            Phase::Preparing => self.effects.push(Effect::CancelPrepare { key }),
            Phase::Ready => self.finish(key, End::Stopped(cause)),
            Phase::Launching | Phase::Running => self.effects.push(Effect::Stop { key, stop, cause }),
            Phase::Finishing | Phase::Ended => {}
        }
    }

    /// A stop whose delivery a restart may have cut off; a shim that has it already is not impressed.
    fn stop_again(&mut self, key: MemberKey) {
        let Some((held, cause)) = self.state.members.get(&key).and_then(|held| Some((held, held.stop?))) else { return };
        let stop = stop_of(&held.task, cause, held.task.stop.grace);
        self.effects.push(Effect::Stop { key, stop, cause });
    }

    fn stop_all(&mut self, cause: StopCause, grace: Option<Millis>) {
        for key in self.state.members.keys().copied().collect::<Vec<_>>() {
            let own = self.state.members.get(&key).map_or(Millis(0), |held| held.task.stop.grace);
            self.stop(key, cause, grace.unwrap_or(own));
        }
    }

    /// Assigned no more: what runs is ended, what has ended is forgotten.
    fn drop_absent(&mut self, key: MemberKey) {
        let Some(held) = self.state.members.get(&key) else { return };
        if held.phase == Phase::Ended {
            self.state.members.remove(&key);
            self.dirty = true;
            self.effects.push(Effect::Forget { key });
            return;
        }
        let grace = held.task.stop.grace;
        self.stop(key, StopCause::Fenced, grace);
    }

    /// A fenced generation is over once nothing of it is left; then the next one begins.
    fn advance_fence(&mut self) {
        let Some((epoch, sequence)) = self.fencing else { return };
        self.stop_all(StopCause::Fenced, Some(Millis(0)));
        if self.is_idle() {
            self.fencing = None;
            self.state.epoch = Some(epoch);
            self.dirty = true;
            self.beating.begin_generation(sequence);
        }
    }

    fn report_ready(&mut self, key: MemberKey) {
        let Some(held) = self.state.members.get(&key) else { return };
        let ready =
            MemberReady { member: key.member, node: self.fixed.node.clone(), epoch: held.task.epoch, rendezvous: held.rendezvous.clone() };
        self.effects.push(Effect::Report(ExecutorReport::Ready { of: member_ref(&held.task), ready }));
    }

    fn report_started(&mut self, key: MemberKey, workers: Vec<WorkerStarted>) {
        let Some(held) = self.state.members.get(&key) else { return };
        let started = MemberStarted { member: key.member, node: self.fixed.node.clone(), epoch: held.task.epoch, workers };
        self.effects.push(Effect::Report(ExecutorReport::Started { of: member_ref(&held.task), started }));
    }
}

/// The member that a task is about.
pub(crate) fn member_ref(task: &Task) -> MemberRef {
    MemberRef { project: task.project.clone(), run: task.run, attempt: task.attempt, member: task.member }
}

const fn signal_number(signal: StopSignal) -> i32 {
    match signal {
        StopSignal::Term => 15,
        StopSignal::Int => 2,
        StopSignal::Usr1 => 10,
        StopSignal::Usr2 => 12,
    }
}

/// How a tree is stopped for this cause: with the job's signal, and with its warning ahead where the stop can wait.
fn stop_of(task: &Task, cause: StopCause, grace: Millis) -> Stop {
    let can_wait = matches!(cause, StopCause::Preempted | StopCause::Drained | StopCause::TimedOut);
    let notice = task.stop.notice.filter(|_| can_wait);
    let name = serde_json::to_value(cause).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
    Stop {
        cause: name,
        signal: signal_number(task.stop.signal),
        grace_ms: grace.0,
        notice: notice.map(|notice| Notice { signal: signal_number(notice.signal), before_ms: notice.before.0 }),
    }
}
