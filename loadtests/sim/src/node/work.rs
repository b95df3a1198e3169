//! Doing what was judged, and the supervisors: each starts a tree under a valid lease, records its end, and kills it when the lease has run
//! out on the boot clock.

use super::agent::{Effect, End, Key, all_ended};
use super::{HEARERS, Input, MachineInput, Node, agent};
use crate::broker::Op;
use crate::instance::Service;
use crate::planted::Planted;
use crate::settings::{KILL_MS, LEASE_MS};
use crate::truth::Truth;
use crate::wire::Wire;
use footplate_events::facts::{Exit, MemberExited, NodeHealthChanged, NodeRegistered, Rendezvous, StopCause};
use footplate_events::messages::{Beat, BeatMessage, InventoryReport, ReportBody, Task};
use footplate_types::{Epoch, GpuUuid, Timestamp};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A tree that runs.
#[derive(Debug)]
pub(super) struct Tree {
    task: Rc<Task>,
    obeyed: Option<StopCause>,
}

/// What a supervisor left of a tree.
#[derive(Clone, Debug)]
pub(super) struct Record {
    exit: Exit,
    obeyed: Option<StopCause>,
}

/// How late a supervisor may see that the lease is over.
const LEASE_TICK_MS: u64 = 1_000;

impl Node {
    pub(super) fn perform(&mut self, wire: &mut Wire, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist => {}
                Effect::LookAtBeat => self.call(wire, Op::ReadBeat(self.name.clone())),
                Effect::SendBeat { number, epoch, expect } => self.send_beat(wire, number, epoch, expect),
                Effect::WriteLease { until } => self.disk.lease = Some((self.boot_id(), until)),
                Effect::Register { epoch } => self.register(wire, epoch),
                Effect::Prepare { key } => self.prepare(wire, key),
                Effect::CancelPrepare { key } => {
                    self.judge_later(wire, 5, agent::Input::Prepared { key, result: Err("cancelled".to_owned()) });
                }
                Effect::Launch { key } => {
                    let wait = self.dice.between(5, 200) + self.dice.below(self.slow_ms + 1);
                    self.later(wire, wait, Input::Fork(key));
                }
                Effect::Stop { key, cause, grace } => self.stop(wire, key, cause, grace),
                Effect::Gather { key, end } => {
                    let wait = self.dice.between(5, 500);
                    if let Some(exited) = self.last_words(key, &end) {
                        self.judge_later(wire, wait, agent::Input::Gathered { key, exited: Box::new(exited) });
                    }
                }
                Effect::Report(report) => self.spool(wire, Service::Executor, ReportBody::Executor(report), None),
                Effect::ReportExit { key, exited } => {
                    let Some(of) = self.task(key).map(|task| agent::member_ref(&task)) else { continue };
                    let report = footplate_events::messages::ExecutorReport::Exited { of, exited: *exited };
                    self.spool(wire, Service::Executor, ReportBody::Executor(report), Some(key));
                }
                Effect::Forget { key } => {
                    self.disk.records.remove(&key);
                    self.disk.folders.remove(&key);
                    self.disk.stops.remove(&key);
                }
            }
        }
    }

    fn task(&self, key: Key) -> Option<Rc<Task>> {
        self.agent.as_ref().and_then(|agent| agent.saved.members.get(&key)).map(|held| held.task.clone())
    }

    /// Puts a report on the disk, after those before it.
    fn spool(&mut self, wire: &mut Wire, to: Service, body: ReportBody, then: Option<Key>) {
        let at = HEARERS.iter().position(|hearer| *hearer == to).unwrap_or(0);
        let done = (wire.now + self.disk_delay()).max(self.spooling_until);
        self.spooling_until = done;
        self.later(wire, done - wire.now, Input::Spooled { to: at, body: Box::new(body), then });
    }

    fn send_beat(&mut self, wire: &mut Wire, number: u64, epoch: Epoch, expect: u64) {
        let Some(agent) = &self.agent else { return };
        let beat = Beat {
            node: self.name.clone(),
            epoch,
            boot_id: agent.boot.clone(),
            number,
            lease_ms: LEASE_MS,
            kill_ms: KILL_MS,
            as_of: agent.saved.as_of,
            held: Vec::new(),
            sent_at: Timestamp::from_millis(self.clock.wall(wire.now)),
            agent: agent.saved.token.clone(),
        };
        self.call(wire, Op::WriteBeat { expect, message: BeatMessage::Beat(beat) });
    }

    fn register(&mut self, wire: &mut Wire, epoch: Epoch) {
        let registered = NodeRegistered {
            epoch,
            boot_id: self.boot_id(),
            shape: self.shape.clone(),
            address: format!("{}.sim", self.name),
            agent_version: "sim".to_owned(),
            clock_ahead_ms: None,
        };
        self.spool(wire, Service::Inventory, ReportBody::Inventory(InventoryReport::Registered { registered }), None);
        let devices: BTreeSet<GpuUuid> = self.shape.gpus.iter().map(|gpu| gpu.parent.as_ref().unwrap_or(&gpu.uuid).clone()).collect();
        for gpu in devices {
            self.tell_health(wire, &gpu);
        }
    }

    pub(super) fn tell_health(&mut self, wire: &mut Wire, gpu: &GpuUuid) {
        let changed = NodeHealthChanged { gpu: Some(gpu.clone()), healthy: !self.unhealthy.contains(gpu), reason: "xid".to_owned() };
        self.spool(wire, Service::Inventory, ReportBody::Inventory(InventoryReport::HealthChanged { changed }), None);
    }

    fn prepare(&mut self, wire: &mut Wire, key: Key) {
        let Some(task) = self.task(key) else { return };
        let part = self.script.part(&key, task.members, wire.storm);
        let rendezvous = (key.member.0 == 0).then(|| Rendezvous { address: format!("{}.sim", self.name), port: 4_000 });
        let result = if part.prepare_fails { Err("the set-up failed".to_owned()) } else { Ok(rendezvous) };
        self.judge_later(wire, part.prepare_ms, agent::Input::Prepared { key, result });
    }

    fn lease_holds(&self, wire: &Wire) -> bool {
        let now = self.clock.at(wire.now);
        let holds = self.disk.lease.as_ref().is_some_and(|(boot, until)| *boot == self.boot_id() && now < *until);
        holds || self.planted == Some(Planted::Lease)
    }

    /// A supervisor starts: it looks at the lease, then starts the workers.
    pub(super) fn fork(&mut self, wire: &mut Wire, truth: &mut Truth, key: Key) {
        let Some(task) = self.task(key) else { return };
        if !self.lease_holds(wire) {
            let result = Err("the node's lease has run out".to_owned());
            return self.judge_later(wire, 1, agent::Input::Launched { key, result });
        }
        let part = self.script.part(&key, task.members, wire.storm);
        truth.started(wire.now, &self.name, &key, &task);
        self.disk.folders.insert(key);
        self.trees.insert(key, Tree { task, obeyed: None });
        self.machine_later(wire, part.run_ms, MachineInput::TreeEnds { key, exit: part.exit });
        self.look_at_lease_later(wire, key);
        if let Some(End::Stopped(cause)) = self.disk.stops.get(&key).cloned() {
            self.stop(wire, key, cause, 0);
        }
        let wait = self.dice.between(1, 50);
        self.judge_later(wire, wait, agent::Input::Launched { key, result: Ok(()) });
    }

    fn look_at_lease_later(&mut self, wire: &mut Wire, key: Key) {
        let until = self.disk.lease.as_ref().map_or(0, |(_, until)| *until);
        let wait = self.clock.when(wire.now, until) - wire.now + self.dice.below(self.clock.lasts(LEASE_TICK_MS)) + 1;
        self.machine_later(wire, wait, MachineInput::LeaseLook { key });
    }

    fn stop(&mut self, wire: &mut Wire, key: Key, cause: StopCause, grace: u64) {
        self.disk.stops.entry(key).or_insert(End::Stopped(cause));
        let Some(tree) = self.trees.get_mut(&key) else { return };
        tree.obeyed.get_or_insert(cause);
        let part = self.script.part(&key, tree.task.members, wire.storm);
        let (wait, exit) = if part.stop_ms <= grace { (part.stop_ms, Exit::Code(143)) } else { (grace, Exit::Signal(9)) };
        self.machine_later(wire, wait + 5, MachineInput::TreeEnds { key, exit });
    }

    /// Does one step of the machine's.
    pub(crate) fn machine_step(&mut self, wire: &mut Wire, truth: &mut Truth, input: MachineInput) {
        match input {
            MachineInput::TreeEnds { key, exit } => {
                let Some(tree) = self.trees.remove(&key) else { return };
                truth.ended(wire.now, &self.name, &key);
                self.disk.records.insert(key, Record { exit, obeyed: tree.obeyed });
                if self.agent.is_some() {
                    let wait = self.dice.between(1, 20);
                    self.judge_later(wire, wait, agent::Input::TreeEmpty { key });
                }
            }
            MachineInput::LeaseLook { key } => {
                if self.lease_holds(wire) && self.planted != Some(Planted::Lease) {
                    if self.trees.contains_key(&key) {
                        self.look_at_lease_later(wire, key);
                    }
                } else if self.planted != Some(Planted::Lease)
                    && let Some(tree) = self.trees.get_mut(&key)
                {
                    tree.obeyed = Some(StopCause::Fenced);
                    let wait = self.dice.below(self.clock.lasts(KILL_MS - LEASE_TICK_MS - 500));
                    self.machine_later(wire, wait, MachineInput::TreeEnds { key, exit: Exit::Signal(9) });
                }
            }
        }
    }

    /// What can be told of a member that is at its end.
    fn last_words(&self, key: Key, end: &End) -> Option<MemberExited> {
        let agent = self.agent.as_ref()?;
        let task = self.task(key)?;
        let nothing = agent.exited(&task);
        let record = self.disk.records.get(&key);
        Some(match (end, record) {
            (_, Some(record)) => MemberExited { obeyed: record.obeyed, workers: all_ended(&task, &record.exit), ..nothing },
            // The machine was started anew: the supervisor left no record.
            (End::Recorded, None) if self.disk.folders.contains(&key) => {
                MemberExited { workers: all_ended(&task, &Exit::Unknown("the machine was started anew".to_owned())), ..nothing }
            }
            (End::Recorded, None) => MemberExited { not_started: Some("the agent was started anew before".to_owned()), ..nothing },
            (End::Stopped(cause), None) => MemberExited { obeyed: Some(*cause), ..nothing },
            (End::NotStarted(why), None) => MemberExited { not_started: Some(why.clone()), ..nothing },
        })
    }
}
