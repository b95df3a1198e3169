//! What goes wrong, and when: each seed has its own mixture, so that some runs know one sort of trouble only (swarm testing: Groce et al.,
//! ISSTA 2012).

use crate::clock::Time;
use crate::dice::Dice;
use crate::wire::{Cut, Party, Step};
use crate::world::World;
use footplate_events::facts::Exit;
use footplate_types::GpuUuid;

/// A fault, or the end of one.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The next fault is chosen.
    Next,
    InstanceUp(usize),
    InstanceBack(usize),
    BrokerUp,
    /// An agent of this life dies, in the middle of something.
    AgentDies(usize, u32),
    AgentUp(usize, u32),
    NodeUp(usize),
    NodeBack(usize),
    DiskFine(usize),
    GpuFine(usize, GpuUuid),
    /// A view is compared with a fold from the first event on.
    Compare,
    /// Everything is mended; from here on everybody must come to rest.
    Calm,
    /// Is everybody at rest?
    Judge,
}

/// The sorts of trouble.
const SORTS: usize = 15;

/// How often each sort of trouble comes, and how long the pause between two is.
#[derive(Debug)]
pub(crate) struct Mixture {
    dice: Dice,
    weights: [u64; SORTS],
    pause: Time,
}

impl Mixture {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "faults");
        let mut weights = [0; SORTS];
        for weight in &mut weights {
            *weight = [0, 1, 1, 3, 8][dice.below(5) as usize];
        }
        let pause = [4_000, 10_000, 25_000, 60_000][dice.below(4) as usize];
        Self { dice, weights, pause }
    }

    /// The trouble of calls in this seed: so many in a thousand of each sort.
    pub(crate) fn network(&mut self) -> u64 {
        [0, 2, 10, 40][self.dice.below(4) as usize]
    }

    fn sort(&mut self) -> Option<usize> {
        let mut at = self.dice.below(self.weights.iter().sum());
        for (sort, weight) in self.weights.iter().enumerate() {
            if at < *weight {
                return Some(sort);
            }
            at -= weight;
        }
        None
    }
}

impl World {
    /// Does something bad, and plans its end and the next one.
    pub(crate) fn next_fault(&mut self) {
        let wait = self.mixture.dice.between(self.mixture.pause / 4, self.mixture.pause * 2);
        self.wire.after(wait, Step::Fault(Fault::Next));
        let instance = self.mixture.dice.below(self.instances.len() as u64) as usize;
        let node = self.mixture.dice.below(self.nodes.len() as u64) as usize;
        match self.mixture.sort() {
            Some(0) => self.crash_instance(instance),
            Some(1) => self.pause_instance(instance),
            Some(2) => self.cut_instance(instance),
            Some(3) => self.kill_broker(),
            Some(4) => self.kill_agent(node),
            Some(5) => self.pause_agent(node),
            Some(6) => self.power_off(node),
            Some(7 | 8) => self.cut_node(node),
            Some(9) => self.kill_tree(node),
            Some(10) => self.slow_disk(node),
            Some(11) => self.break_gpu(node),
            Some(12) => {
                self.tell("assignments are wiped".to_owned());
                self.broker.wipe_assignments();
            }
            Some(13) => self.nodes[node].dies_writing = true,
            Some(_) => self.jump_clocks(instance),
            None => {}
        }
    }

    fn later(&mut self, least: Time, most: Time, fault: Fault) {
        let wait = self.mixture.dice.spread(least, most);
        self.wire.after(wait, Step::Fault(fault));
    }

    fn crash_instance(&mut self, at: usize) {
        if self.instances[at].is_up {
            self.tell(format!("{:?} {} crashes", self.instances[at].service, self.instances[at].name));
            self.instances[at].crash();
            self.later(500, 60_000, Fault::InstanceUp(at));
        }
    }

    fn pause_instance(&mut self, at: usize) {
        let pause = self.mixture.dice.spread(500, 40_000);
        self.tell(format!("{:?} {} stands still for {pause} ms", self.instances[at].service, self.instances[at].name));
        self.instances[at].paused_until = self.wire.now + pause;
    }

    fn a_cut(&mut self) -> Cut {
        match self.mixture.dice.below(4) {
            0 => Cut { out: true, back: false },
            1 => Cut { out: false, back: true },
            _ => Cut { out: true, back: true },
        }
    }

    fn cut_instance(&mut self, at: usize) {
        let cut = self.a_cut();
        self.tell(format!("{:?} {} is cut off: {cut:?}", self.instances[at].service, self.instances[at].name));
        self.wire.cut(Party::Instance(at), cut);
        self.later(500, 60_000, Fault::InstanceBack(at));
    }

    fn kill_broker(&mut self) {
        if !self.wire.broker_down {
            let lost = self.mixture.dice.below(7) as usize;
            self.tell(format!("the broker is killed; {lost} writes are lost of each stream that is not synced"));
            self.wire.broker_down = true;
            self.broker.lose_ends(lost);
            self.later(300, 30_000, Fault::BrokerUp);
        }
    }

    fn kill_agent(&mut self, at: usize) {
        if self.nodes[at].has_agent() {
            self.tell(format!("the agent of {} dies", self.nodes[at].name));
            self.nodes[at].kill_agent();
            self.later(300, 150_000, Fault::AgentUp(at, self.nodes[at].agent_life));
        }
    }

    fn pause_agent(&mut self, at: usize) {
        let pause = self.mixture.dice.spread(500, 120_000);
        self.tell(format!("the agent of {} stands still for {pause} ms", self.nodes[at].name));
        self.nodes[at].agent_paused_until = self.wire.now + pause;
    }

    fn power_off(&mut self, at: usize) {
        if self.nodes[at].is_up {
            self.tell(format!("{} loses its power", self.nodes[at].name));
            self.nodes[at].power_off(&self.wire, &mut self.truth);
            if self.mixture.dice.chance(250) {
                self.tell(format!("{} is installed anew", self.nodes[at].name));
                self.nodes[at].reinstall();
            }
            self.later(5_000, 300_000, Fault::NodeUp(at));
        }
    }

    fn cut_node(&mut self, at: usize) {
        let cut = self.a_cut();
        self.tell(format!("{} is cut off: {cut:?}", self.nodes[at].name));
        self.wire.cut(Party::Agent(at), cut);
        self.later(1_000, 250_000, Fault::NodeBack(at));
    }

    fn kill_tree(&mut self, at: usize) {
        let running = self.nodes[at].running();
        if let Some(key) = self.mixture.dice.pick(&running).copied() {
            self.tell(format!("somebody kills {key} on {}", self.nodes[at].name));
            let exit = Exit::Signal(9);
            let boot = self.nodes[at].boot;
            self.wire.after(0, Step::Machine { index: at, boot, input: crate::node::MachineInput::TreeEnds { key, exit } });
        }
    }

    fn slow_disk(&mut self, at: usize) {
        self.nodes[at].slow_ms = self.mixture.dice.spread(200, 20_000);
        self.tell(format!("the disk of {} takes up to {} ms", self.nodes[at].name, self.nodes[at].slow_ms));
        self.later(5_000, 120_000, Fault::DiskFine(at));
    }

    fn break_gpu(&mut self, at: usize) {
        let gpus = self.nodes[at].shape.gpus.clone();
        // What breaks is a GPU, with all its slices.
        if let Some(gpu) = self.mixture.dice.pick(&gpus).map(|gpu| gpu.parent.as_ref().unwrap_or(&gpu.uuid).clone()) {
            self.tell(format!("{gpu} breaks"));
            self.nodes[at].health(&mut self.wire, &gpu, false);
            self.later(10_000, 300_000, Fault::GpuFine(at, gpu));
        }
    }

    fn jump_clocks(&mut self, at: usize) {
        let jump = |dice: &mut Dice| dice.below(14_400_000) as i64 - 7_200_000;
        self.broker.wall_off = jump(&mut self.mixture.dice);
        self.instances[at].clock.wall_off = jump(&mut self.mixture.dice);
        self.tell("wall clocks jump".to_owned());
    }

    /// The end of a fault, or what stands beside them in the plan.
    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Next if self.wire.storm => self.next_fault(),
            Fault::Next => {}
            Fault::InstanceUp(at) => self.start_instance(at),
            Fault::InstanceBack(at) => self.reconnect_instance(at),
            Fault::BrokerUp => self.start_broker(),
            Fault::AgentDies(at, life) if self.nodes[at].agent_life == life => self.kill_agent(at),
            Fault::AgentDies(..) => {}
            Fault::AgentUp(at, life) => {
                if self.nodes[at].is_up && !self.nodes[at].has_agent() && self.nodes[at].agent_life == life {
                    self.tell(format!("the agent of {} starts", self.nodes[at].name));
                    self.nodes[at].start_agent(&mut self.wire);
                }
            }
            Fault::NodeUp(at) => self.power_on(at),
            Fault::NodeBack(at) => self.reconnect_node(at),
            Fault::DiskFine(at) => self.nodes[at].slow_ms = 0,
            Fault::GpuFine(at, gpu) => self.nodes[at].health(&mut self.wire, &gpu, true),
            Fault::Compare => self.compare_one(),
            Fault::Calm => self.calm(),
            Fault::Judge => self.judge(),
        }
    }
}
