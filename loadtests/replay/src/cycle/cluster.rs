//! A cluster of declared nodes and a ledger in memory: what the service would append is folded, what agents would report is made up.

use crate::pack::dice::Dice;
use anyhow::Result;
use footplate_es::{Decision, Evolve};
use footplate_events::facts::{
    AttemptExited, AttemptReady, DocumentRef, Exit, FinalOffsets, JobSpec, JobSubmitted, Limits, MemberExited, MemberReady, PerNode,
    QueueConfigured, Quota, Rendezvous, ResourceAsk, TermBegan, WorkerExit,
};
use footplate_events::{Envelope, Event, Recorded, Subject};
use footplate_scheduler_core::{Attempt, Facts, Memory, Policy, State, Timeline, decide};
use footplate_types::{
    AttemptId, Digest, DisplayName, EventId, Gpu, GpuModel, GpuUuid, Millis, NodeName, NodeShape, NvlinkIsland, PrincipalId, ProjectName,
    QueueName, RunId, ServiceName, Timestamp,
};
use std::time::{Duration, Instant};

/// How large, and what is asked.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Nodes.
    pub nodes: u32,
    /// GPUs of each.
    pub gpus_per_node: u32,
    /// Jobs.
    pub pending: u32,
    /// Of the jobs and of which of them end.
    pub seed: u64,
}

/// Departments, each with teams below it.
const DEPARTMENTS: u32 = 5;
const TEAMS: u32 = 10;
/// How many nodes stand in a rack.
const RACK: u32 = 32;
/// Two kinds of GPU, by turns of racks.
const MODELS: [&str; 2] = ["A100-SXM4-80GB", "H100-SXM5-80GB"];

pub(super) struct Cluster {
    state: State,
    timeline: Timeline,
    policy: Policy,
    memory: Memory,
    elapsed: u64,
    /// Runs that were placed and have not ended, in no order.
    placed: Vec<RunId>,
    /// Of these the ones that are not ready yet.
    young: Vec<RunId>,
    /// Runs whose attempt is being stopped.
    stopped: Vec<RunId>,
    dice: Dice,
    project: ProjectName,
    actor: PrincipalId,
}

fn name<T>(parse: impl Fn(&str) -> Result<T, footplate_types::Invalid>, text: &str) -> T {
    parse(text).unwrap_or_else(|invalid| unreachable!("a name made here is valid: {invalid:?}"))
}

impl Cluster {
    /// The nodes registered, the queues made, the jobs submitted; nothing placed.
    pub(super) fn new(mix: &Mix) -> Self {
        let mut cluster = Self {
            state: State::default(),
            timeline: Timeline::default(),
            policy: Policy::default(),
            memory: Memory::default(),
            elapsed: 1,
            placed: Vec::new(),
            young: Vec::new(),
            stopped: Vec::new(),
            dice: Dice::of(mix.seed, 1),
            project: name(ProjectName::parse, "vision"),
            actor: name(PrincipalId::parse, "load"),
        };
        for at in 0..mix.nodes {
            let node = format!("n{at:05}");
            let registered = footplate_events::facts::NodeRegistered {
                epoch: footplate_types::Epoch(1),
                boot_id: "boot".to_owned(),
                shape: node_shape(&node, at, mix.gpus_per_node),
                address: node.clone(),
                agent_version: String::new(),
                clock_ahead_ms: None,
            };
            cluster.record(Subject::node(&name(NodeName::parse, &node)), registered.into(), None);
        }
        let own = mix.nodes * mix.gpus_per_node / (2 * DEPARTMENTS * TEAMS);
        for department in 0..DEPARTMENTS {
            let above = name(QueueName::parse, &format!("d{department}"));
            let guarantee = |gpus| Quota { gpus: Some(gpus), slots: None };
            let settings = QueueConfigured { guarantee: guarantee(own * TEAMS), ..QueueConfigured::default() };
            cluster.record(Subject::queue(&above), settings.into(), None);
            for team in 0..TEAMS {
                let settings = QueueConfigured {
                    weight: 1 + team % 3,
                    guarantee: guarantee(own),
                    parent: Some(above.clone()),
                    ..QueueConfigured::default()
                };
                cluster.record(Subject::queue(&queue(department, team)), settings.into(), None);
            }
        }
        let mut jobs = Dice::of(mix.seed, 2);
        for at in 0..mix.pending {
            let spec = job(&mut jobs, at, mix);
            let run = RunId::derived(&[b"cycle", &at.to_be_bytes()]);
            let subject = Subject::job(&cluster.project, run);
            cluster.record(subject, JobSubmitted { spec, body: Digest::of(b"") }.into(), None);
        }
        let service = name(ServiceName::parse, "scheduler");
        cluster.record(Subject::term(&service), TermBegan { service, instance: "here".to_owned() }.into(), None);
        if let Some(term) = cluster.state.term() {
            cluster.timeline = Timeline::begin(term, Millis(cluster.elapsed));
        }
        cluster
    }

    fn record(&mut self, subject: Subject, event: Event, id: Option<EventId>) {
        let sequence = self.state.position() + 1;
        let id = id.unwrap_or_else(|| EventId::derived(&[b"cycle", &sequence.to_be_bytes()]));
        let time = Timestamp::from_millis(sequence as i64);
        let envelope = Envelope {
            id,
            subject,
            event,
            source: "load".to_owned(),
            time,
            actor: self.actor.clone(),
            correlation: id,
            causation: None,
            trace: None,
        };
        self.state.evolve(&Recorded { sequence, recorded_at: time, envelope });
    }

    /// Lets time pass.
    pub(super) fn wait(&mut self, time: Duration) {
        self.elapsed += u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2);
    }

    /// One look of the leader, and how long it took.
    pub(super) fn look(&mut self) -> (Vec<Decision>, Duration) {
        self.elapsed += 1;
        self.timeline.observe(self.state.position(), Millis(self.elapsed));
        let begun = Instant::now();
        let facts = Facts {
            view: self.state.position(),
            now: Timestamp::from_millis(0),
            elapsed: Millis(self.elapsed),
            seed: 0,
            policy: &self.policy,
            timeline: &self.timeline,
        };
        let ruling = decide(&self.state, &facts, &mut self.memory);
        let took = begun.elapsed();
        (ruling.decisions, took)
    }

    /// Folds decisions; how many placements were among them.
    pub(super) fn take(&mut self, decisions: Vec<Decision>) -> u64 {
        let mut placed = 0;
        for decision in decisions {
            let id = decision.id("scheduler");
            if let (Event::JobPlaced(_), Some(run)) = (&decision.event, decision.subject.run_id()) {
                self.placed.push(run);
                self.young.push(run);
                placed += 1;
            }
            if let (Event::JobStopRequested(_), Some(run)) = (&decision.event, decision.subject.run_id()) {
                self.stopped.push(run);
            }
            self.record(decision.subject, decision.event, id);
        }
        placed
    }

    /// The agents do as they are told: whoever was placed is ready, whoever is stopped ends.
    pub(super) fn obey_all(&mut self) {
        for run in std::mem::take(&mut self.stopped) {
            if let Some(end) = self.end(run) {
                self.record(end.0, end.1, None);
            }
        }
        for run in std::mem::take(&mut self.young) {
            let Some((subject, attempt)) = self.attempt(run) else { continue };
            let ready = |member: &footplate_scheduler_core::Member| MemberReady {
                member: member.placement.member,
                node: member.placement.node.clone(),
                epoch: member.placement.epoch,
                rendezvous: Some(Rendezvous { address: "10.0.0.1".to_owned(), port: 29_500 }),
            };
            let members = attempt.members.iter().map(ready).collect();
            self.record(subject, AttemptReady { members }.into(), None);
        }
    }

    fn attempt(&self, run: RunId) -> Option<(Subject, &Attempt)> {
        let attempt = self.state.jobs().get(&run)?.attempt()?;
        Some((Subject::attempt(&self.project, AttemptId { run, attempt: attempt.number }), attempt))
    }

    /// What would be reported of a run that ends; none when nothing of it runs.
    fn end(&self, run: RunId) -> Option<(Subject, Event)> {
        let (subject, attempt) = self.attempt(run)?;
        let exited = |member: &footplate_scheduler_core::Member| MemberExited {
            member: member.placement.member,
            node: member.placement.node.clone(),
            epoch: member.placement.epoch,
            obeyed: attempt.stop.as_ref().map(|stop| stop.cause),
            workers: vec![WorkerExit {
                rank: member.placement.first_rank,
                exit: Exit::Code(0),
                after_ms: 0,
                message: String::new(),
                out_of_memory: None,
            }],
            not_started: None,
            offsets: FinalOffsets::default(),
        };
        let members = attempt.members.iter().map(exited).collect();
        Some((subject, AttemptExited { members }.into()))
    }

    /// What would be reported of so many jobs that end; none when nothing runs.
    pub(super) fn next_ends(&mut self, count: u32) -> Option<Vec<(Subject, Event)>> {
        let mut ends = Vec::new();
        while ends.len() < count as usize && !self.placed.is_empty() {
            let at = self.dice.below(self.placed.len() as u64) as usize;
            let run = self.placed.swap_remove(at);
            ends.extend(self.end(run));
        }
        (!ends.is_empty()).then_some(ends)
    }

    /// Folds reports.
    pub(super) fn report(&mut self, reports: Vec<(Subject, Event)>) {
        reports.into_iter().for_each(|(subject, event)| self.record(subject, event, None));
    }

    /// Whether the state is consistent: nothing is claimed twice.
    pub(super) fn check(&self) -> Result<()> {
        self.state.check().map_err(anyhow::Error::msg)
    }
}

fn queue(department: u32, team: u32) -> QueueName {
    name(QueueName::parse, &format!("d{department}-t{team}"))
}

/// A node with so many GPUs, in the rack of its number, of the model of its rack.
pub fn node_shape(node: &str, at: u32, gpus: u32) -> NodeShape {
    let rack = at / RACK;
    let model = name(GpuModel::parse, MODELS[(rack % 2) as usize]);
    let gpu = |index: u32| Gpu {
        uuid: name(GpuUuid::parse, &format!("GPU-{}", RunId::derived(&[node.as_bytes(), &index.to_be_bytes()]))),
        model: model.clone(),
        memory_bytes: 80 << 30,
        island: Some(NvlinkIsland(0)),
        numa: Some(index / 4),
        pci: None,
        mig_profile: None,
    };
    NodeShape {
        gpus: (0..gpus).map(gpu).collect(),
        cpus: 96,
        memory_bytes: 1 << 40,
        disk_bytes: 4 << 40,
        rack: Some(format!("r{rack:04}")),
        ..NodeShape::default()
    }
}

/// Seven in ten ask one GPU; the widest gang is 64; a third may be preempted; some ask for one kind of GPU, some tell how long they take.
fn job(dice: &mut Dice, at: u32, mix: &Mix) -> JobSpec {
    let whole = mix.gpus_per_node;
    let (nodes, gpus) = match dice.below(100) {
        0..=69 => (1, 1),
        70..=81 => (1, 2.min(whole)),
        82..=89 => (1, 4.min(whole)),
        90..=95 => (1, whole),
        96..=98 => (2.min(mix.nodes), whole),
        _ => (8.min(mix.nodes), whole),
    };
    let models = match dice.below(10) {
        0 => vec![name(GpuModel::parse, MODELS[0])],
        1 => vec![name(GpuModel::parse, MODELS[1])],
        _ => Vec::new(),
    };
    let max_duration = if dice.below(10) < 3 { Millis::from_secs(600 * (1 + dice.below(60))) } else { Millis(0) };
    let per_node = PerNode { gpus, gpu_models: models, cpus: 8 * gpus, memory_bytes: u64::from(gpus) * (32 << 30), ..PerNode::default() };
    let (department, team) = (dice.below(DEPARTMENTS.into()) as u32, dice.below(TEAMS.into()) as u32);
    JobSpec {
        queue: queue(department, team),
        priority: dice.below(3) as i32,
        preemptible: dice.below(3) == 0,
        limits: Limits { max_duration, ..Limits::default() },
        ..one_job(at, ResourceAsk { nodes, per_node })
    }
}

/// A job of the default queue.
pub fn one_job(at: u32, resources: ResourceAsk) -> JobSpec {
    JobSpec::of(
        name(DisplayName::parse, &format!("job-{at}")),
        name(DisplayName::parse, "load"),
        name(QueueName::parse, footplate_scheduler_core::DEFAULT_QUEUE),
        resources,
        DocumentRef { digest: Digest::of(b"launch"), bytes: 1 },
    )
}
