//! The rules as seen from outside: an own account of the ledger's events that shares no code with the scheduler. Panics at the first
//! event that breaks one.

use footplate_events::facts::*;
use footplate_events::{Event, Recorded};
use footplate_types::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
struct NodeSeen {
    epoch: u64,
    closed: bool,
    rack: Option<String>,
    declared: BTreeSet<Taint>,
    /// What operators have set.
    taints: BTreeSet<Taint>,
    shape: NodeShape,
}

/// Who holds something of a unit.
struct Holder {
    of: (RunId, u32, u32),
    /// Thousandths of the unit: a thousand for who has it alone.
    part: u64,
    memory: u64,
    /// Thousandths of a GPU under quotas; 0 of a slot.
    counts: u64,
}

/// What an ask counts of one GPU: a slice the number before `g` of seven.
fn counts(ask: &PerNode) -> u64 {
    match &ask.gpu_profile {
        Some(profile) => profile.as_str().split('g').next().unwrap().parse::<u64>().unwrap() * 1_000 / 7,
        None if ask.gpu_share > 0 => ask.gpu_share.into(),
        None => 1_000,
    }
}

#[derive(Default)]
pub struct Checker {
    nodes: BTreeMap<NodeName, NodeSeen>,
    specs: BTreeMap<RunId, JobSpec>,
    projects: BTreeMap<RunId, ProjectName>,
    queues: BTreeMap<QueueName, QueueConfigured>,
    held: BTreeSet<QueueName>,
    /// Who holds something of a unit of a node, until released.
    units: BTreeMap<(NodeName, String), Vec<Holder>>,
    /// Members not yet released.
    living: BTreeMap<(RunId, u32), BTreeSet<u32>>,
    last: BTreeMap<RunId, u32>,
    stopped: BTreeSet<(RunId, u32)>,
    ended: BTreeMap<RunId, Outcome>,
}

impl Checker {
    pub fn see(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        let run = subject.run_id();
        match (&recorded.envelope.event, run) {
            (Event::NodeRegistered(fact), _) => {
                let node = self.nodes.entry(subject.node_name().unwrap()).or_default();
                if fact.epoch.0 >= node.epoch {
                    node.rack.clone_from(&fact.shape.rack);
                    node.declared.clone_from(&fact.shape.taints);
                    node.shape.clone_from(&fact.shape);
                }
                node.epoch = node.epoch.max(fact.epoch.0);
            }
            (Event::QueueConfigured(fact), _) => {
                let name = subject.queue_name().unwrap();
                if fact.held {
                    self.held.insert(name.clone())
                } else {
                    self.held.remove(&name)
                };
                self.queues.insert(name, fact.clone());
            }
            (Event::JobSubmitted(fact), Some(run)) => {
                self.specs.entry(run).or_insert_with(|| fact.spec.clone());
                self.projects.entry(run).or_insert_with(|| subject.project.clone());
            }
            (Event::JobPlaced(fact), Some(run)) => self.placed(run, fact),
            (Event::JobLaunched(fact), Some(run)) => {
                assert!(!self.stopped.contains(&(run, fact.attempt.0)), "launched after a stop");
            }
            (Event::JobStopRequested(fact), Some(run)) => {
                self.stopped.insert((run, fact.attempt.0));
            }
            (Event::JobRequeued(fact), Some(run)) => {
                assert!(self.living.get(&(run, fact.attempt.0)).is_none_or(BTreeSet::is_empty), "requeued while members live");
            }
            (Event::JobEnded(fact), Some(run)) => {
                if fact.cause == Cause::Dependency {
                    assert_eq!((fact.outcome, fact.attempt.0), (Outcome::Cancelled, 0), "{run} was not started");
                    let after = &self.specs[&run].after;
                    assert!(after.iter().any(|after| self.condition(run, after) == Some(false)), "{run} could still have come to its turn");
                }
                assert!(self.ended.insert(run, fact.outcome).is_none(), "{run} ends twice");
                let alive = self.living.iter().any(|((known, _), members)| *known == run && !members.is_empty());
                assert!(!alive, "{run} ended while members live");
            }
            (Event::AttemptExited(fact), Some(run)) => {
                let attempt = subject.attempt_id().unwrap().attempt.0;
                fact.members.iter().for_each(|member| self.release(run, attempt, member.member.0));
            }
            (Event::AttemptLost(fact), Some(run)) => {
                let attempt = subject.attempt_id().unwrap().attempt.0;
                fact.members.iter().for_each(|member| self.release(run, attempt, member.member.0));
            }
            _ => {}
        }
        self.note_closing(recorded);
    }

    /// Whether the end that a job waits for has come (or never will); `None` while it may.
    fn condition(&self, run: RunId, after: &AfterJob) -> Option<bool> {
        if after.run == run || self.projects.get(&after.run) != self.projects.get(&run) {
            return Some(false);
        }
        let outcome = self.ended.get(&after.run)?;
        Some(match after.when {
            AfterWhen::Success => *outcome == Outcome::Succeeded,
            AfterWhen::Failure => *outcome == Outcome::Failed,
            AfterWhen::Any => true,
        })
    }

    /// Nodes that are lost or drained: a placement after that is void.
    fn note_closing(&mut self, recorded: &Recorded) {
        let Some(name) = recorded.envelope.subject.node_name() else { return };
        let Some(node) = self.nodes.get_mut(&name) else { return };
        match &recorded.envelope.event {
            Event::NodeLost(_) | Event::NodeDrained(_) => node.closed = true,
            Event::NodeUncordoned(_) | Event::NodeRegistered(_) => node.closed = false,
            Event::NodeTainted(fact) => _ = node.taints.insert(fact.taint.clone()),
            Event::NodeUntainted(fact) => node.taints.retain(|taint| !fact.taint.tolerates(taint)),
            _ => {}
        }
    }

    fn placed(&mut self, run: RunId, fact: &JobPlaced) {
        let spec = &self.specs[&run];
        let asked = members_of(spec);
        assert_eq!(fact.members.len(), asked.len(), "a gang is placed whole");
        let nodes: BTreeSet<(&Option<String>, &NodeName)> = fact.members.iter().map(|member| (&member.role, &member.node)).collect();
        assert_eq!(nodes.len(), fact.members.len(), "one member of a role a node");
        let mut ranks = 0;
        for (at, (member, (role, ask))) in fact.members.iter().zip(&asked).enumerate() {
            assert_eq!(
                (member.member.0 as usize, member.role.as_deref(), member.first_rank.0),
                (at, *role, ranks),
                "numbered role by role"
            );
            assert_eq!(member.workers, ask.gpus.max(ask.slots));
            ranks += member.workers;
        }
        assert!(!self.ended.contains_key(&run), "an ended job is placed");
        let waits = spec.after.iter().find(|after| self.condition(run, after) != Some(true));
        assert!(waits.is_none(), "{run} is placed before its turn: {waits:?}");
        if let Some(array) = spec.array.filter(|array| array.at_once > 0) {
            let is_same = |other: ArrayMember| (other.id, other.at_once) == (array.id, array.at_once);
            let of_array = |other: &RunId| self.specs[other].array.is_some_and(is_same) && self.projects[other] == self.projects[&run];
            let alive = self.living.iter().filter(|((run, _), members)| !members.is_empty() && of_array(run)).count();
            assert!(alive < array.at_once as usize, "{} of array {} are placed at a time, and {run} is one more", alive, array.id);
        }
        let alive = self.living.iter().any(|((known, _), members)| *known == run && !members.is_empty());
        assert!(!alive, "attempt {} of {run} placed while members of an earlier one live", fact.attempt);
        let last = self.last.insert(run, fact.attempt.0).unwrap_or(0);
        assert_eq!(fact.attempt.0, last + 1, "attempts count by one");
        let is_void = |member: &MemberPlacement| self.nodes.get(&member.node).is_none_or(|n| n.closed || n.epoch != member.epoch.0);
        if fact.members.iter().any(is_void)
            || self.would_break_quota(run)
            || self.line(&spec.queue).iter().any(|name| self.held.contains(name))
        {
            return;
        }
        for taint in fact.members.iter().map(|member| &self.nodes[&member.node]).flat_map(|node| node.declared.iter().chain(&node.taints)) {
            let tolerated = spec.placement.tolerations.iter().any(|toleration| toleration.tolerates(taint));
            assert!(tolerated, "{run} is placed where taint {taint} keeps it off");
        }
        if spec.placement.same_rack && fact.members.len() > 1 {
            let racks: BTreeSet<&Option<String>> = fact.members.iter().map(|member| &self.nodes[&member.node].rack).collect();
            assert!(racks.len() == 1 && !racks.contains(&None), "one rack was asked, {racks:?} it is");
        }
        for (member, (_, ask)) in fact.members.iter().zip(&asked) {
            assert_eq!((member.gpus.len(), member.slots.len()), (ask.gpus as usize, ask.slots as usize));
            assert_eq!((member.gpu_share, &member.gpu_profile), (ask.gpu_share, &ask.gpu_profile), "as it was asked");
            let shape = &self.nodes[&member.node].shape;
            assert!(ask.gpu_share == 0 || shape.share_gpus, "a share where none is allowed");
            let of = (run, fact.attempt.0, member.member.0);
            for uuid in &member.gpus {
                // A shape may have lost it since the decision.
                let Some(gpu) = shape.gpus.iter().find(|gpu| gpu.uuid == *uuid) else { continue };
                let profile = ask.gpu_profile.as_ref().map(MigProfile::as_str);
                assert_eq!(gpu.mig_profile.as_deref(), profile, "{uuid}: whole GPUs for who asks such, slices for who asks slices");
                let part = if ask.gpu_share > 0 { ask.gpu_share.into() } else { 1_000 };
                let memory = if ask.gpu_share > 0 { ask.gpu_memory_bytes } else { 0 };
                assert_eq!(member.gpu_memory_bytes, memory);
                let holders = self.units.entry((member.node.clone(), uuid.to_string())).or_default();
                holders.push(Holder { of, part, memory, counts: counts(ask) });
                let (parts, bytes) = holders.iter().fold((0, 0), |sum, holder| (sum.0 + holder.part, sum.1 + holder.memory));
                assert!(parts <= 1_000 && bytes <= gpu.memory_bytes, "{parts} thousandths and {bytes} bytes of {uuid} are claimed");
            }
            for slot in &member.slots {
                let holders = self.units.entry((member.node.clone(), slot.0.to_string())).or_default();
                assert!(holders.is_empty(), "slot {} of {} is claimed twice", slot.0, member.node);
                holders.push(Holder { of, part: 1_000, memory: 0, counts: 0 });
            }
        }
        self.living.insert((run, fact.attempt.0), fact.members.iter().map(|member| member.member.0).collect());
        self.check_quota(run);
    }

    /// A queue and those above it; itself alone where that has no end.
    fn line(&self, name: &QueueName) -> Vec<QueueName> {
        let mut line = vec![name.clone()];
        while let Some(parent) = self.queues.get(&line[line.len() - 1]).and_then(|queue| queue.parent.clone()) {
            if line.contains(&parent) || !self.queues.contains_key(&parent) || line.len() == 8 {
                return vec![name.clone()];
            }
            line.push(parent);
        }
        line
    }

    /// What all jobs of a queue and below it hold: thousandths of GPUs, slots.
    fn held_below(&self, name: &QueueName) -> (u64, u64) {
        let held = self.units.values().flatten().filter(|holder| self.line(&self.specs[&holder.of.0].queue).contains(name));
        held.fold((0, 0), |(gpus, slots), holder| (gpus + holder.counts, slots + u64::from(holder.counts == 0)))
    }

    /// Whether a quota that stood in the ledger before the placement leaves no room for it.
    fn would_break_quota(&self, run: RunId) -> bool {
        let spec = &self.specs[&run];
        let over = |held: u64, asked: u64, quota: Option<u64>| asked > 0 && quota.is_some_and(|most| held + asked > most);
        let sum = |units: fn(&PerNode) -> u64| members_of(spec).iter().map(|(_, ask)| units(ask)).sum();
        let (all_gpus, all_slots) = (sum(|ask| u64::from(ask.gpus) * counts(ask)), sum(|ask| ask.slots.into()));
        self.line(&spec.queue).iter().any(|name| {
            let Some(queue) = self.queues.get(name) else { return false };
            let (gpus, slots) = self.held_below(name);
            let milli = queue.quota.gpus.map(|most| u64::from(most) * 1_000);
            over(gpus, all_gpus, milli) || over(slots, all_slots, queue.quota.slots.map(u64::from))
        })
    }

    /// At a placement the hard quotas above it hold, whatever they were before.
    fn check_quota(&self, run: RunId) {
        let asked = members_of(&self.specs[&run]);
        let (no_gpus, no_slots) = (asked.iter().all(|(_, ask)| ask.gpus == 0), asked.iter().all(|(_, ask)| ask.slots == 0));
        for name in self.line(&self.specs[&run].queue) {
            let Some(queue) = self.queues.get(&name) else { continue };
            let (gpus, slots) = self.held_below(&name);
            assert!(queue.quota.gpus.is_none_or(|most| gpus <= u64::from(most) * 1_000 || no_gpus), "gpu quota of {name}");
            assert!(queue.quota.slots.is_none_or(|most| slots <= u64::from(most) || no_slots), "slot quota of {name}");
        }
    }

    fn release(&mut self, run: RunId, attempt: u32, member: u32) {
        if self.living.get_mut(&(run, attempt)).is_some_and(|members| members.remove(&member)) {
            self.units.values_mut().for_each(|holders| holders.retain(|holder| holder.of != (run, attempt, member)));
        }
    }
}

/// What each member of a gang asks, in order, and its role.
fn members_of(spec: &JobSpec) -> Vec<(Option<&str>, &PerNode)> {
    if spec.roles.is_empty() {
        return (0..spec.resources.nodes).map(|_| (None, &spec.resources.per_node)).collect();
    }
    spec.roles.iter().flat_map(|role| (0..role.nodes).map(|_| (Some(role.name.as_str()), &role.per_node))).collect()
}
