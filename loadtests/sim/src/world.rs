//! The whole of a run: everybody, the steps, the checkers after each of them.

use crate::broker::{Broker, Op, Trouble};
use crate::check::{Found, Referee};
use crate::clients::{Clients, Plan};
use crate::clock::Time;
use crate::cluster::machines;
use crate::dice::Dice;
use crate::faults::{Fault, Mixture};
use crate::instance::{self, Instance, Service};
use crate::node::{self, Node};
use crate::planted::Planted;
use crate::trace::Trace;
use crate::truth::Truth;
use crate::wire::{Cut, Party, Step, Wire};
use footplate_events::messages::BeatMessage;
use footplate_events::{Event, Recorded};
use std::fmt::Write;

/// How long the faults last, in true time.
const STORM_MS: Time = 1_200_000;
/// A run of more steps than these is stuck in a loop that takes no time.
const STEPS_MAX: u64 = 5_000_000;

/// One run.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) planted: Option<Planted>,
    pub(crate) wire: Wire,
    pub(crate) broker: Broker,
    pub(crate) instances: Vec<Instance>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) truth: Truth,
    pub(crate) mixture: Mixture,
    pub(crate) clients: Clients,
    pub(crate) referee: Referee,
    pub(crate) trace: Trace,
    pub(crate) steps: u64,
    /// Up to where the ledger was checked.
    checked: u64,
    /// Until when everybody must be at rest; 0 while the storm lasts.
    pub(crate) bound: Time,
    pub(crate) calm_since: Time,
    pub(crate) is_over: bool,
    pub(crate) found: Option<Found>,
}

impl World {
    pub(crate) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut dice = Dice::new(seed, "world");
        let mut mixture = Mixture::new(seed);
        let nodes: Vec<Node> = machines(&mut dice, &mut Dice::new(seed, "parts of gpus"))
            .into_iter()
            .enumerate()
            .map(|(at, (name, shape))| Node::new(at, name, shape, seed, planted))
            .collect();
        let each = Service::ALL.into_iter().flat_map(|service| [(service, "one"), (service, "two")]);
        let instances = each.enumerate().map(|(at, (service, name))| Instance::new(at, service, name, seed, planted)).collect();
        let mut broker = Broker::default();
        broker.ledger.drops_repeats = dice.chance(500);
        let mut world = Self {
            seed,
            planted,
            wire: Wire::new(Dice::new(seed, "network"), mixture.network()),
            broker,
            instances,
            truth: Truth::default(),
            mixture,
            clients: Clients::new(seed, nodes.iter().map(|node| node.name.clone()).collect()),
            nodes,
            referee: Referee::default(),
            trace: Trace::default(),
            steps: 0,
            checked: 0,
            bound: 0,
            calm_since: 0,
            is_over: false,
            found: None,
        };
        for at in 0..world.instances.len() {
            world.instances[at].start(&mut world.wire, &world.broker);
        }
        world.nodes.iter_mut().for_each(|node| node.power_on(&mut world.wire));
        world.wire.after(20_000, Step::Client(Plan::Act));
        world.wire.after(30_000, Step::Fault(Fault::Next));
        world.wire.after(dice.between(60_000, STORM_MS), Step::Fault(Fault::Compare));
        world.wire.after(STORM_MS, Step::Fault(Fault::Calm));
        world
    }

    /// Runs until everybody is at rest, or a rule is found broken.
    pub(crate) fn run(&mut self) {
        while !self.is_over && self.found.is_none() {
            let Some(step) = self.wire.next() else { return };
            self.steps += 1;
            if self.steps > STEPS_MAX {
                self.found = Some(Found { rule: "steps", detail: format!("more than {STEPS_MAX} steps"), words: Vec::new() });
            }
            self.step(step);
            self.check();
        }
    }

    /// Something that a person would want to read.
    pub(crate) fn tell(&mut self, text: String) {
        self.trace.line(self.wire.now, text);
    }

    pub(crate) fn note(&mut self, checked: Result<(), Found>) {
        if let (Err(found), None) = (checked, &self.found) {
            self.found = Some(found);
        }
    }

    fn step(&mut self, step: Step) {
        let now = self.wire.now;
        match step {
            Step::Arrive { from, life, op, answer_in } => {
                self.trace.step(now, 1, self.steps);
                self.arrive(from, life, op, answer_in);
            }
            Step::Answer { to: Party::Instance(at), life, op, answer } => {
                self.trace.step(now, 2, at as u64);
                let paused = self.instances[at].paused_until;
                if self.instances[at].life != life {
                } else if paused > now {
                    self.wire.after(paused - now, Step::Answer { to: Party::Instance(at), life, op, answer });
                } else {
                    self.instances[at].answered(&mut self.wire, &op, &answer);
                }
            }
            Step::Answer { to: Party::Agent(at), life, op, answer } => {
                self.trace.step(now, 3, at as u64);
                let paused = self.nodes[at].agent_paused_until;
                if self.nodes[at].agent_life != life || !self.nodes[at].has_agent() {
                } else if paused > now {
                    self.wire.after(paused - now, Step::Answer { to: Party::Agent(at), life, op, answer });
                } else {
                    self.nodes[at].answered(&mut self.wire, &op, answer);
                }
            }
            Step::Answer { to: Party::Client, op, answer, .. } => {
                self.trace.step(now, 4, 0);
                if let Some((id, sequence)) = self.clients.answered(&mut self.wire, &op, &answer) {
                    let checked = self.referee.acknowledged(id, sequence);
                    self.note(checked);
                }
            }
            Step::Instance { index, life, input } => {
                self.trace.step(now, 5, index as u64);
                let instance = &mut self.instances[index];
                if instance.life != life || !instance.is_up {
                } else if instance.paused_until > now {
                    self.wire.after(instance.paused_until - now, Step::Instance { index, life, input });
                } else {
                    instance.step(&mut self.wire, &self.broker, input);
                }
            }
            Step::Agent { index, life, input } => {
                self.trace.step(now, 6, index as u64);
                let node = &mut self.nodes[index];
                if node.agent_life != life || !node.has_agent() {
                } else if node.agent_paused_until > now {
                    self.wire.after(node.agent_paused_until - now, Step::Agent { index, life, input });
                } else {
                    node.agent_step(&mut self.wire, &self.broker, &mut self.truth, input);
                }
            }
            Step::Machine { index, boot, input } => {
                self.trace.step(now, 7, index as u64);
                if self.nodes[index].boot == boot && self.nodes[index].is_up {
                    self.nodes[index].machine_step(&mut self.wire, &mut self.truth, input);
                }
            }
            Step::Client(plan) => {
                self.trace.step(now, 8, 0);
                self.client(plan);
            }
            Step::Fault(fault) => {
                self.trace.step(now, 9, 0);
                self.fault(fault);
            }
        }
    }

    /// A call reaches the broker, or does not after all.
    fn arrive(&mut self, from: Party, life: u32, op: Box<Op>, answer_in: Option<Time>) {
        if self.wire.broker_down || self.wire.cut_of(from).out {
            let (answer, wait) = if self.wire.broker_down { (Trouble::Unavailable, 10) } else { (Trouble::Unknown, 3_000) };
            return self.wire.answer(from, life, op, Err(answer), answer_in.map(|_| wait));
        }
        let answer = self.broker.perform(self.wire.now, &op);
        if answer.is_ok() {
            self.stored(&op);
        }
        self.wire.answer(from, life, op, answer, answer_in);
    }

    /// Something new stands in a stream: its readers will see it.
    fn stored(&mut self, op: &Op) {
        match op {
            Op::WriteAssignment { assignment, .. } => {
                let Some(at) = self.nodes.iter().position(|node| node.name == assignment.node) else { return };
                if !self.wire.mishap(100) {
                    let wait = self.wire.delay();
                    let input = node::Input::Heard(assignment.clone());
                    self.wire.after(wait, Step::Agent { index: at, life: self.nodes[at].agent_life, input });
                }
                return;
            }
            Op::WriteBeat { message: BeatMessage::Fence(fence), .. } => {
                self.tell(format!("{} is fenced to generation {}: {}", fence.node, fence.epoch, fence.reason));
                let checked = self.referee.fence(&fence.node, fence.epoch);
                self.note(checked);
            }
            Op::AppendTerm { .. }
            | Op::Append { .. }
            | Op::AppendClient { .. }
            | Op::WriteBeat { .. }
            | Op::Report { .. }
            | Op::Settle { .. } => {}
            _ => return,
        }
        for instance in &mut self.instances {
            instance.something_came(&mut self.wire);
        }
    }

    /// The checkers look at what the step led to.
    fn check(&mut self) {
        while self.checked < self.broker.ledger.end() {
            self.checked += 1;
            let Some(recorded) = self.broker.ledger.get(self.checked).cloned() else { return };
            self.tell(line_of(&recorded));
            let checked = self.referee.event(&recorded);
            self.note(checked);
        }
        if let Some(detail) = self.instances.iter_mut().find_map(|instance| instance.odd.take()) {
            self.note(Err(Found { rule: "settled", detail, words: Vec::new() }));
        }
        for happening in self.truth.take() {
            let does = if happening.started.is_some() { "trains" } else { "trains no more" };
            self.trace.line(happening.at, format!("{} {does} on {}", happening.key, happening.node));
            let checked = self.referee.happening(&happening);
            self.note(checked);
        }
    }

    fn client(&mut self, plan: Plan) {
        if let Plan::Again(at) = plan {
            return self.clients.again(&mut self.wire, at);
        }
        if !self.wire.storm {
            return;
        }
        let wait = self.wire.delay() * 10 + 2_000;
        self.wire.after(wait, Step::Client(Plan::Act));
        let dead: Vec<_> = self.nodes.iter().filter(|node| !node.is_up).map(|node| node.name.clone()).collect();
        let pick = self.steps as usize % 2;
        let scheduler = [pick, 1 - pick].into_iter().find(|at| self.instances[*at].is_up);
        if let Some(state) = scheduler.and_then(|at| self.instances[at].mind.scheduler()) {
            self.clients.act(&mut self.wire, state, &dead);
        }
    }

    pub(crate) fn start_instance(&mut self, at: usize) {
        if !self.instances[at].is_up {
            self.instances[at].start(&mut self.wire, &self.broker);
        }
    }

    pub(crate) fn reconnect_instance(&mut self, at: usize) {
        self.wire.cut(Party::Instance(at), Cut::default());
        let life = self.instances[at].life;
        self.wire.after(5, Step::Instance { index: at, life, input: instance::Input::Reconnected });
    }

    pub(crate) fn reconnect_node(&mut self, at: usize) {
        self.wire.cut(Party::Agent(at), Cut::default());
        let life = self.nodes[at].agent_life;
        self.wire.after(5, Step::Agent { index: at, life, input: node::Input::Reconnected });
    }

    pub(crate) fn start_broker(&mut self) {
        if self.wire.broker_down {
            self.tell("the broker is back".to_owned());
            self.wire.broker_down = false;
            (0..self.instances.len()).for_each(|at| self.reconnect_instance(at));
            (0..self.nodes.len()).for_each(|at| self.reconnect_node(at));
        }
    }

    pub(crate) fn power_on(&mut self, at: usize) {
        if !self.nodes[at].is_up {
            self.tell(format!("{} boots", self.nodes[at].name));
            self.nodes[at].power_on(&mut self.wire);
        }
    }

    /// How many jobs were submitted and ended.
    pub(crate) fn jobs(&self) -> (usize, usize) {
        self.referee.counts()
    }

    /// How often what is rare has come about.
    pub(crate) fn seen(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.referee.seen.clone()
    }

    /// How many events stand in the ledger.
    pub(crate) fn events(&self) -> u64 {
        self.broker.ledger.end()
    }
}

/// An event as a line of the trace.
fn line_of(recorded: &Recorded) -> String {
    let envelope = &recorded.envelope;
    let mut line = format!("#{} {} ", recorded.sequence, envelope.subject);
    // Writing to a String cannot fail.
    let _ = match &envelope.event {
        Event::JobSubmitted(fact) => {
            let spec = &fact.spec;
            let each = &spec.resources.per_node;
            let part =
                each.gpu_profile.as_ref().map_or_else(|| format!("share {}", each.gpu_share), |profile| format!("slices of {profile}"));
            write!(line, "submitted: {} x ({} gpus, {part}, {} slots)", spec.resources.nodes, each.gpus, each.slots)
                .and_then(|()| write!(line, ", queue {}, priority {}, preemptible {}", spec.queue, spec.priority, spec.preemptible))
        }
        Event::NodeRegistered(fact) => write!(line, "registered: generation {}, {}", fact.epoch, fact.boot_id),
        event => write!(line, "{event:?}"),
    };
    let _ = write!(line, " [{}]", envelope.source);
    line
}
