//! One machine: its disk, its boots, its agent, and the trees that really run on it. What trees do is the ground truth.

mod agent;
mod beat;
mod spool;
mod work;

pub(crate) use agent::Key;

use crate::broker::{Answer, Broker, Done, Op, Trouble};
use crate::clock::{Clock, Time};
use crate::dice::Dice;
use crate::faults::Fault;
use crate::instance::Service;
use crate::planted::Planted;
use crate::script::Script;
use crate::truth::Truth;
use crate::wire::{Party, Step, Wire};
use agent::{Agent, Effect, Saved};
use footplate_events::facts::Exit;
use footplate_events::messages::{Assignment, BeatMessage, ReportBody, SpoolPosition};
use footplate_types::{GpuUuid, NodeName, NodeShape, SpoolId};
use spool::Spool;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use work::{Record, Tree};

/// The services that an agent reports to.
const HEARERS: [Service; 2] = [Service::Executor, Service::Inventory];

/// A step of an agent's own.
#[derive(Debug)]
pub(crate) enum Input {
    /// Something to be judged.
    Judge(Box<agent::Input>),
    /// The state is on disk: what was judged is done.
    Perform,
    /// A supervisor is started.
    Fork(Key),
    /// A report is in the spool; of whose end it tells.
    Spooled {
        to: usize,
        body: Box<ReportBody>,
        then: Option<Key>,
    },
    /// It reads its assignment and what is settled.
    Read,
    Tick,
    Ship,
    Reconnected,
    /// An assignment was pushed.
    Heard(Rc<Assignment>),
}

/// A step of the machine's.
#[derive(Debug)]
pub(crate) enum MachineInput {
    /// A tree ends in this way, unless it has ended before.
    TreeEnds { key: Key, exit: Exit },
    /// A supervisor looks at the lease.
    LeaseLook { key: Key },
}

/// What is on a machine's disk.
struct Disk {
    saved: Saved,
    /// The boot for which it holds, and until when on its clock.
    lease: Option<(String, u64)>,
    spools: [Spool; 2],
    /// Members whose supervisor was ever started, how they ended, and what they were told.
    folders: BTreeSet<Key>,
    records: BTreeMap<Key, Record>,
    stops: BTreeMap<Key, agent::End>,
}

/// One machine.
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) name: NodeName,
    pub(crate) shape: NodeShape,
    pub(crate) clock: Clock,
    pub(crate) is_up: bool,
    pub(crate) boot: u32,
    pub(crate) agent_life: u32,
    pub(crate) agent_paused_until: Time,
    /// How much longer than a moment a write to its disk takes at most.
    pub(crate) slow_ms: u64,
    pub(crate) unhealthy: BTreeSet<GpuUuid>,
    /// The agent dies when it next writes down that it will start something, before that is on the disk.
    pub(crate) dies_writing: bool,
    disk: Disk,
    agent: Option<Agent>,
    trees: BTreeMap<Key, Tree>,
    queue: VecDeque<agent::Input>,
    /// What waits for the disk: the state, and the effects behind it.
    writing: Option<(Saved, Vec<Effect>)>,
    spooling_until: Time,
    planted: Option<Planted>,
    script: Script,
    dice: Dice,
}

fn new_disk(dice: &mut Dice) -> Disk {
    let token = format!("folder-{:x}", dice.next());
    let mut spool = || Spool::new(SpoolId::from_bytes(dice.bytes()));
    Disk {
        saved: Saved { token, ..Saved::default() },
        lease: None,
        spools: [spool(), spool()],
        folders: BTreeSet::new(),
        records: BTreeMap::new(),
        stops: BTreeMap::new(),
    }
}

impl Node {
    pub(crate) fn new(index: usize, name: NodeName, shape: NodeShape, seed: u64, planted: Option<Planted>) -> Self {
        let mut dice = Dice::new(seed, &format!("node {name}"));
        Self {
            index,
            name,
            shape,
            clock: Clock::start(0, &mut dice),
            is_up: false,
            boot: 0,
            agent_life: 0,
            agent_paused_until: 0,
            slow_ms: 0,
            unhealthy: BTreeSet::new(),
            dies_writing: false,
            disk: new_disk(&mut dice),
            agent: None,
            trees: BTreeMap::new(),
            queue: VecDeque::new(),
            writing: None,
            spooling_until: 0,
            planted,
            script: Script::new(seed),
            dice,
        }
    }

    fn boot_id(&self) -> String {
        format!("boot-{}-{}", self.name, self.boot)
    }

    /// The machine starts, and its agent with it.
    pub(crate) fn power_on(&mut self, wire: &mut Wire) {
        self.is_up = true;
        self.boot += 1;
        self.clock = Clock::start(wire.now, &mut self.dice);
        self.start_agent(wire);
    }

    /// The power goes: every tree with it, at once and unseen.
    pub(crate) fn power_off(&mut self, wire: &Wire, truth: &mut Truth) {
        self.is_up = false;
        self.kill_agent();
        for key in std::mem::take(&mut self.trees).into_keys() {
            truth.ended(wire.now, &self.name, &key);
        }
    }

    /// Somebody installs the machine anew: its disk is empty.
    pub(crate) fn reinstall(&mut self) {
        self.disk = new_disk(&mut self.dice);
    }

    pub(crate) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// The agent's process dies; supervisors and workers do not.
    pub(crate) fn kill_agent(&mut self) {
        self.agent = None;
        self.agent_life += 1;
        self.queue.clear();
        self.writing = None;
    }

    pub(crate) fn start_agent(&mut self, wire: &mut Wire) {
        let boot = self.boot_id();
        let lease = self.disk.lease.as_ref().filter(|(of, _)| *of == boot).map(|(_, until)| *until);
        let mut agent = Agent::new(self.name.clone(), boot, self.disk.saved.clone(), lease, self.planted);
        let effects = agent.adopt(&self.trees.keys().copied().collect());
        self.agent = Some(agent);
        self.agent_paused_until = 0;
        let now = self.clock.at(wire.now);
        self.disk.spools.iter_mut().for_each(|spool| spool.again(now));
        self.take(wire, effects);
        for (wait, input) in [(2, Input::Tick), (5, Input::Read), (7, Input::Ship)] {
            self.later(wire, wait, input);
        }
    }

    fn later(&self, wire: &mut Wire, wait: Time, input: Input) {
        wire.after(wait, Step::Agent { index: self.index, life: self.agent_life, input });
    }

    fn judge_later(&self, wire: &mut Wire, wait: Time, input: agent::Input) {
        self.later(wire, wait, Input::Judge(Box::new(input)));
    }

    fn machine_later(&self, wire: &mut Wire, wait: Time, input: MachineInput) {
        wire.after(wait, Step::Machine { index: self.index, boot: self.boot, input });
    }

    fn call(&self, wire: &mut Wire, op: Op) {
        wire.call(Party::Agent(self.index), self.agent_life, op);
    }

    fn disk_delay(&mut self) -> Time {
        self.dice.between(1, 10) + self.dice.below(self.slow_ms + 1)
    }

    /// Does one step of the agent's.
    pub(crate) fn agent_step(&mut self, wire: &mut Wire, broker: &Broker, truth: &mut Truth, input: Input) {
        match input {
            Input::Judge(input) => self.judge(wire, *input),
            Input::Perform => {
                if let Some((saved, effects)) = self.writing.take() {
                    self.disk.saved = saved;
                    self.perform(wire, effects);
                    self.pump(wire);
                }
            }
            Input::Fork(key) => self.fork(wire, truth, key),
            Input::Spooled { to, body, then } => {
                let epoch = self.agent.as_ref().and_then(|agent| agent.saved.epoch).unwrap_or_default();
                self.disk.spools[to].append(epoch, *body);
                if let Some(key) = then {
                    self.judge(wire, agent::Input::ExitReported { key });
                }
                self.ship(wire);
            }
            Input::Read => {
                self.read(wire, broker);
                let wait = self.clock.lasts(crate::settings::ASSIGNMENT_MS) + self.dice.below(1_000);
                self.later(wire, wait, Input::Read);
            }
            Input::Tick => {
                self.judge(wire, agent::Input::Tick);
                let wait = self.dice.between(1_500, 2_500);
                self.later(wire, wait, Input::Tick);
            }
            Input::Ship => {
                let now = self.clock.at(wire.now);
                self.disk.spools.iter_mut().for_each(|spool| spool.look(now));
                self.ship(wire);
                let wait = self.dice.between(2_000, 4_000);
                self.later(wire, wait, Input::Ship);
            }
            Input::Reconnected => {
                let now = self.clock.at(wire.now);
                self.read(wire, broker);
                self.disk.spools.iter_mut().for_each(|spool| spool.again(now));
                self.ship(wire);
            }
            Input::Heard(assignment) => {
                if !wire.cut_of(Party::Agent(self.index)).back {
                    self.judge(wire, agent::Input::Assigned(assignment));
                }
            }
        }
    }

    fn read(&mut self, wire: &mut Wire, broker: &Broker) {
        self.call(wire, Op::ReadAssignment(self.name.clone()));
        if wire.cut_of(Party::Agent(self.index)).back || wire.broker_down {
            return;
        }
        let now = self.clock.at(wire.now);
        for (spool, service) in self.disk.spools.iter_mut().zip(HEARERS) {
            if let Some(settled) = broker.settled.get(&(service.name(), self.name.clone())) {
                spool.settled(now, settled.up_to);
            }
        }
    }

    fn ship(&mut self, wire: &mut Wire) {
        for at in 0..HEARERS.len() {
            if let Some(report) = self.disk.spools[at].send(&self.name) {
                self.call(wire, Op::Report { report });
            }
        }
    }

    /// Takes in a call's answer.
    pub(crate) fn answered(&mut self, wire: &mut Wire, op: &Op, answer: Answer) {
        match (op, answer) {
            (Op::ReadBeat(_), answer) => {
                let looked = match answer {
                    Ok(Done::Beat(last)) => Ok(last),
                    _ => Err(()),
                };
                self.judge(wire, agent::Input::BeatLooked(looked));
            }
            (Op::WriteBeat { message: BeatMessage::Beat(beat), .. }, answer) => {
                let outcome = match answer {
                    Ok(Done::Sequence(sequence)) => beat::Outcome::Acknowledged(sequence),
                    Err(Trouble::Conflict) => beat::Outcome::Conflict,
                    Err(Trouble::Unavailable) => beat::Outcome::NotSent,
                    _ => beat::Outcome::Unknown,
                };
                self.judge(wire, agent::Input::BeatDone { number: beat.number, outcome });
            }
            (Op::ReadAssignment(_), Ok(Done::Assignment(Some((_, assignment))))) => {
                self.judge(wire, agent::Input::Assigned(assignment));
            }
            (Op::Report { report }, answer) => {
                let now = self.clock.at(wire.now);
                let well = answer.is_ok();
                self.disk.spools.iter_mut().for_each(|spool| spool.sent(now, report.at, well));
                if well {
                    self.ship(wire);
                }
            }
            _ => {}
        }
    }

    fn judge(&mut self, wire: &mut Wire, input: agent::Input) {
        self.queue.push_back(input);
        self.pump(wire);
    }

    /// Judges what waits, one after the other; while the state is being written nothing is judged.
    fn pump(&mut self, wire: &mut Wire) {
        while self.writing.is_none() {
            let Some(agent) = &mut self.agent else { return };
            let Some(input) = self.queue.pop_front() else { return };
            let effects = agent.step(self.clock.at(wire.now), input);
            self.take(wire, effects);
        }
    }

    /// Does effects in their order; what comes after the state waits until that is on disk.
    fn take(&mut self, wire: &mut Wire, mut effects: Vec<Effect>) {
        if !matches!(effects.first(), Some(Effect::Persist)) {
            return self.perform(wire, effects);
        }
        let mut rest = effects.split_off(1);
        let launches = rest.iter().any(|effect| matches!(effect, Effect::Launch { .. }));
        if self.planted == Some(Planted::Intent) {
            let (early, late): (Vec<_>, Vec<_>) = rest.into_iter().partition(|effect| matches!(effect, Effect::Launch { .. }));
            self.perform(wire, early);
            rest = late;
        }
        let Some(agent) = &self.agent else { return };
        self.writing = Some((agent.saved.clone(), rest));
        let mut wait = self.disk_delay();
        if launches && std::mem::take(&mut self.dies_writing) {
            wait += 2_000;
            wire.after(wait - 1, Step::Fault(Fault::AgentDies(self.index, self.agent_life)));
        }
        self.later(wire, wait, Input::Perform);
    }

    /// A GPU's health changes; the agent tells, if there is one.
    pub(crate) fn health(&mut self, wire: &mut Wire, gpu: &GpuUuid, is_healthy: bool) {
        if is_healthy {
            self.unhealthy.remove(gpu)
        } else {
            self.unhealthy.insert(gpu.clone())
        };
        if self.agent.is_some() {
            self.tell_health(wire, gpu);
        }
    }

    /// What of it is under way: a tree, or something held; `None`: nothing.
    pub(crate) fn unrest(&self) -> Option<String> {
        let is_idle = self.agent.as_ref().is_none_or(|agent| agent.is_idle() && agent.fencing.is_none());
        (!self.trees.is_empty() || !is_idle).then(|| format!("{} holds members, or trees run there", self.name))
    }

    /// The last report of each spool that is not settled as far as the node knows.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = (Service, SpoolPosition)> {
        HEARERS.into_iter().zip(&self.disk.spools).filter(|(_, spool)| !spool.is_settled()).map(|(hearer, spool)| (hearer, spool.last()))
    }

    /// The trees that run, for who wants to kill one.
    pub(crate) fn running(&self) -> Vec<Key> {
        self.trees.keys().copied().collect()
    }
}
