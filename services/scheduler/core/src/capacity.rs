//! What is asked of the nodes, which of them lie idle, and how many more of which kind would serve what waits: for people, and for whatever grows and
//! shrinks pools. Nothing is decided upon it.
//!
//! Each demand is looked at alone, as if nothing else waited, and nothing that runs ended. What waits for its queue's quota or by somebody's will waits for
//! no node and is no demand.

use crate::decide::matches;
use crate::state::{Claim, Holding, Job, Node, Stage, Stamp, State};
use footplate_events::facts::{JobSpec, PerNode, WaitReason};
use footplate_types::{Digest, Gpu, GpuMilli, GpuModel, GpuUuid, NodeName, NodeShape, QueueName, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most demands that are told, those that ask the most first; how many are beyond is counted.
pub const DEMANDS_MAX: usize = 20;
/// The most kinds of nodes that are told, those of which there are most first.
const KINDS_MAX: usize = 32;
/// Nodes whose memory differs by less are of one kind.
const MEMORY_STEP: u64 = 1 << 30;

/// What the jobs of a queue ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Jobs that are placed.
    pub placed_jobs: u64,
    /// What they ask.
    pub placed: Holding,
    /// Jobs that are pending, whatever they wait for.
    pub pending_jobs: u64,
    /// What they ask.
    pub pending: Holding,
}

/// An open node on which nothing stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Which.
    pub node: NodeName,
    /// What it offers.
    pub shape: Arc<NodeShape>,
    /// The sequence of the last event that changed anything of it: it has been idle since then at least.
    pub since: u64,
}

/// What makes nodes alike: their pool and what a job can ask of one, memory as whole GiB. Disk does not, since it is what was free when the agent started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct KindKey {
    pool: Option<String>,
    labels: BTreeMap<String, String>,
    taints: BTreeSet<Taint>,
    /// By model, memory and profile.
    gpus: BTreeMap<(GpuModel, u64, Option<String>), u32>,
    share_gpus: bool,
    slots: u32,
    cpus: u32,
    memory: u64,
}

impl KindKey {
    fn of(shape: &NodeShape) -> Self {
        let mut gpus = BTreeMap::new();
        for gpu in &shape.gpus {
            *gpus.entry((gpu.model.clone(), gpu.memory_bytes, gpu.mig_profile.clone())).or_default() += 1;
        }
        let (pool, slots, cpus, memory) = (shape.pool.clone(), shape.slots, shape.cpus, shape.memory_bytes / MEMORY_STEP);
        let (labels, taints) = (shape.labels.clone(), shape.taints.clone());
        Self { pool, labels, taints, gpus, share_gpus: shape.share_gpus, slots, cpus, memory }
    }
}

/// Nodes that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// One of them: the one with the least memory and disk.
    pub shape: Arc<NodeShape>,
    /// How many there are that are not lost.
    pub nodes: u64,
    /// How many of them are idle.
    pub idle: u64,
}

/// How many more nodes of a kind would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Help {
    /// Which of [`Capacity::kinds`].
    pub kind: usize,
    /// For one of the jobs.
    pub for_one: u64,
    /// For all of them at once.
    pub for_all: u64,
}

/// Pending jobs that wait for nodes and ask the same.
#[derive(Clone, Debug)]
pub struct Demand {
    /// What each of them asks, and where it may stand.
    pub spec: Arc<JobSpec>,
    /// How many they are.
    pub jobs: u64,
    /// The one that has waited longest: since when.
    pub oldest: Stamp,
    /// How many of which queue.
    pub queues: BTreeMap<QueueName, u64>,
    /// On how many open nodes a member has room now.
    pub fitting: u64,
    /// Which nodes would help, the fewest first; none when no kind that is there could take a member, or only named nodes may.
    pub help: Vec<Help>,
}

impl Demand {
    fn asks(&self) -> u64 {
        let asked = Holding::asked(&self.spec);
        asked.gpu_milli.max(asked.slots.saturating_mul(GpuMilli::WHOLE.0)).saturating_mul(self.jobs)
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Capacity {
    /// What each queue's jobs ask, of queues with jobs that have not ended.
    pub queues: BTreeMap<QueueName, Asked>,
    /// Idle nodes, the one that has been idle longest first.
    pub idle: Vec<Idle>,
    /// The kinds of nodes.
    pub kinds: Vec<Kind>,
    /// What waits for nodes.
    pub demands: Vec<Demand>,
    /// Demands beyond [`DEMANDS_MAX`].
    pub beyond: u64,
}

/// What is to be had on a node.
struct Free<'s> {
    shape: &'s NodeShape,
    /// GPUs and slices on which nothing stands.
    gpus: Vec<&'s Gpu>,
    /// Those on which shares stand, with what is left of each: thousandths and memory.
    shared: Vec<(&'s Gpu, u64, u64)>,
    slots: u32,
    cpus: u32,
    memory: u64,
}

impl<'s> Free<'s> {
    fn empty(shape: &'s NodeShape) -> Self {
        let NodeShape { slots, cpus, memory_bytes, .. } = *shape;
        Self { shape, gpus: shape.gpus.iter().collect(), shared: Vec::new(), slots, cpus, memory: memory_bytes }
    }

    fn now(node: &'s Node) -> Self {
        let mut free = Self::empty(&node.shape);
        free.gpus.retain(|gpu| node.is_well(gpu));
        for claim in node.claims.values() {
            for uuid in &claim.gpus {
                free.take_gpu(uuid, claim);
            }
        }
        free.slots = free.slots.saturating_sub(node.claimed().slots);
        for claim in node.claims.values() {
            free.cpus = free.cpus.saturating_sub(claim.cpus);
            free.memory = free.memory.saturating_sub(claim.memory_bytes);
        }
        free
    }

    fn take_gpu(&mut self, uuid: &GpuUuid, claim: &Claim) {
        let share = if claim.gpu_share > 0 { claim.gpu_share.into() } else { GpuMilli::WHOLE.0 };
        if let Some((_, milli, memory)) = self.shared.iter_mut().find(|(gpu, ..)| gpu.uuid == *uuid) {
            (*milli, *memory) = (milli.saturating_sub(share), memory.saturating_sub(claim.gpu_memory_bytes));
        } else if let Some(at) = self.gpus.iter().position(|gpu| gpu.uuid == *uuid) {
            let gpu = self.gpus.remove(at);
            self.shared.push((
                gpu,
                GpuMilli::WHOLE.0 - share.min(GpuMilli::WHOLE.0),
                gpu.memory_bytes.saturating_sub(claim.gpu_memory_bytes),
            ));
        }
    }

    /// How many shares find room here beside each other, each on one GPU.
    fn shares(&self, ask: &PerNode) -> u64 {
        if !self.shape.share_gpus {
            return 0;
        }
        let whole = self.gpus.iter().map(|gpu| (*gpu, GpuMilli::WHOLE.0, gpu.memory_bytes));
        let all = whole.chain(self.shared.iter().copied()).filter(|(gpu, ..)| matches(gpu, ask));
        let of_one = |(_, milli, memory): (&Gpu, u64, u64)| {
            let by_memory = memory.checked_div(ask.gpu_memory_bytes).unwrap_or(u64::MAX);
            milli.checked_div(ask.gpu_share.into()).unwrap_or(0).min(by_memory)
        };
        all.map(of_one).sum()
    }

    /// How many members of jobs that ask this find room here beside each other.
    fn seats(&self, ask: &PerNode) -> u64 {
        let gpus = if ask.gpu_share > 0 { self.shares(ask) } else { self.gpus.iter().filter(|gpu| matches(gpu, ask)).count() as u64 };
        if ask.disk_bytes > self.shape.disk_bytes {
            return 0;
        }
        let of = |there: u64, asked: u64| there.checked_div(asked);
        let each = [
            of(gpus, ask.gpus.into()),
            of(self.slots.into(), ask.slots.into()),
            of(self.cpus.into(), ask.cpus.into()),
            of(self.memory, ask.memory_bytes),
        ];
        each.into_iter().flatten().min().unwrap_or(0)
    }
}

/// Whether a node of this shape is where the job asks to be: its pool and its labels.
fn is_where_asked(shape: &NodeShape, spec: &JobSpec) -> bool {
    let place = &spec.placement;
    let in_pool = place.pool.as_deref().is_none_or(|pool| shape.pool.as_deref() == Some(pool));
    in_pool && place.labels.iter().all(|(key, value)| shape.labels.get(key) == Some(value))
}

fn may_stand(name: &NodeName, shape: &NodeShape, spec: &JobSpec) -> bool {
    let place = &spec.placement;
    let is_named = place.nodes.is_empty() || place.nodes.contains(name);
    is_named && !place.exclude.contains(name) && is_where_asked(shape, spec)
}

/// What is asked, what is idle, what would help. It walks all jobs once, and all nodes once for each of the demands that it tells.
pub fn capacity(state: &State) -> Capacity {
    let mut capacity = Capacity { kinds: kinds(state), ..Capacity::default() };
    let mut demands: BTreeMap<Digest, Demand> = BTreeMap::new();
    for job in state.jobs().values() {
        add(&mut capacity.queues, job);
        wait(&mut demands, job);
    }
    let mut demands: Vec<Demand> = demands.into_values().collect();
    demands.sort_by_key(|demand| (std::cmp::Reverse(demand.asks()), demand.oldest.sequence));
    capacity.beyond = demands.len().saturating_sub(DEMANDS_MAX) as u64;
    demands.truncate(DEMANDS_MAX);
    let open: Vec<(&NodeName, Free<'_>)> =
        state.nodes().iter().filter(|(_, node)| node.is_open()).map(|(name, node)| (name, Free::now(node))).collect();
    for demand in &mut demands {
        help(demand, &open, &capacity.kinds);
    }
    capacity.demands = demands;
    capacity.idle = idle(state);
    capacity
}

fn add(queues: &mut BTreeMap<QueueName, Asked>, job: &Job) {
    let asked = queues.entry(job.spec.queue.clone()).or_default();
    let all = Holding::asked(&job.spec);
    match job.stage {
        Stage::Active(_) => (asked.placed_jobs, asked.placed) = (asked.placed_jobs + 1, asked.placed.with(all)),
        Stage::Pending { .. } => (asked.pending_jobs, asked.pending) = (asked.pending_jobs + 1, asked.pending.with(all)),
    }
}

fn wait(demands: &mut BTreeMap<Digest, Demand>, job: &Job) {
    let Stage::Pending { since, reason: Some(WaitReason::Resources { .. } | WaitReason::NoSuchNode { .. }), .. } = &job.stage else {
        return;
    };
    if job.held {
        return;
    }
    // Each role of a gang is a demand of its own.
    let asks: Vec<(Digest, &Arc<JobSpec>)> =
        if job.parts.is_empty() { vec![(job.class, &job.spec)] } else { job.parts.iter().map(|part| (part.class, &part.spec)).collect() };
    for (class, spec) in asks {
        let new = || Demand { spec: spec.clone(), jobs: 0, oldest: *since, queues: BTreeMap::new(), fitting: 0, help: Vec::new() };
        let demand = demands.entry(class).or_insert_with(new);
        demand.jobs += 1;
        *demand.queues.entry(job.spec.queue.clone()).or_default() += 1;
        if since.sequence < demand.oldest.sequence {
            demand.oldest = *since;
        }
    }
}

fn kinds(state: &State) -> Vec<Kind> {
    let mut kinds: BTreeMap<KindKey, Kind> = BTreeMap::new();
    for node in state.nodes().values().filter(|node| node.lost.is_none()) {
        let new = || Kind { shape: node.shape.clone(), nodes: 0, idle: 0 };
        let kind = kinds.entry(KindKey::of(&node.shape)).or_insert_with(new);
        kind.nodes += 1;
        kind.idle += u64::from(node.is_open() && node.claims.is_empty());
        let least = |shape: &NodeShape| (shape.memory_bytes, shape.disk_bytes);
        if least(&node.shape) < least(&kind.shape) {
            kind.shape = node.shape.clone();
        }
    }
    let mut kinds: Vec<Kind> = kinds.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.nodes));
    kinds.truncate(KINDS_MAX);
    kinds
}

/// How many more nodes of each kind the demand takes. `jobs` gangs of `nodes` members each, whose members stand on nodes of their own, find room exactly
/// when the seats for them, on each node no more than there are gangs, are as many as all their members.
fn help(demand: &mut Demand, open: &[(&NodeName, Free<'_>)], kinds: &[Kind]) {
    let (spec, jobs) = (demand.spec.clone(), demand.jobs);
    let ask = &spec.resources.per_node;
    let standing = open.iter().filter(|(name, free)| may_stand(name, free.shape, &spec));
    let seats: Vec<u64> = standing.map(|(_, free)| free.seats(ask)).collect();
    let there_for = |jobs: u64| seats.iter().map(|seats| (*seats).min(jobs)).sum::<u64>();
    demand.fitting = there_for(1);
    if !spec.placement.nodes.is_empty() {
        return;
    }
    if spec.placement.same_rack && spec.resources.nodes > 1 {
        // Which rack a new node would stand in is not told: no number of them is promised to help.
        demand.fitting = most_in_one_rack(open, &spec);
        return;
    }
    let members = u64::from(spec.resources.nodes);
    let (for_one, lacking) = (members.saturating_sub(there_for(1)), members.saturating_mul(jobs).saturating_sub(there_for(jobs)));
    for (at, kind) in kinds.iter().enumerate().filter(|(_, kind)| is_where_asked(&kind.shape, &spec)) {
        let seats = Free::empty(&kind.shape).seats(ask);
        if seats > 0 {
            demand.help.push(Help { kind: at, for_one, for_all: lacking.div_ceil(seats.min(jobs).max(1)) });
        }
    }
    demand.help.sort_by_key(|help| (help.for_all, help.kind));
}

/// On how many nodes of the rack that has the most of them one member each finds room.
fn most_in_one_rack(open: &[(&NodeName, Free<'_>)], spec: &JobSpec) -> u64 {
    let mut racks: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, free) in open.iter().filter(|(name, free)| may_stand(name, free.shape, spec) && free.seats(&spec.resources.per_node) > 0) {
        if let Some(rack) = free.shape.rack.as_deref() {
            *racks.entry(rack).or_default() += 1;
        }
    }
    racks.into_values().max().unwrap_or(0)
}

fn idle(state: &State) -> Vec<Idle> {
    let is_idle = |node: &Node| node.is_open() && node.claims.is_empty();
    let nodes = state.nodes().iter().filter(|(_, node)| is_idle(node));
    let mut idle: Vec<Idle> =
        nodes.map(|(name, node)| Idle { node: name.clone(), shape: node.shape.clone(), since: node.changed_at }).collect();
    idle.sort_by(|one, other| (one.since, &one.node).cmp(&(other.since, &other.node)));
    idle
}
