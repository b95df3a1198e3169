//! What a leader keeps of the nodes from look to look: what is to be had on each, what stands on it, and which shapes of jobs fit there.
//!
//! It is a help and never the truth: whoever begins with an empty [`Memory`] decides the same, more slowly. A plot is planted anew when its node has
//! changed since, and a shape is compared only with the plots that have changed since.

use super::room::{Room, suits};
use crate::facts::Settled;
use crate::state::{Claim, Holding, Node, State};
use footplate_events::facts::{JobSpec, MemberPlacement, StopCause, WaitReason};
use footplate_types::{Digest, GpuUuid, NodeName, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// What a leader keeps from look to look. Not to be used with another ledger's state.
#[derive(Debug, Default)]
pub struct Memory {
    pub(super) ground: Ground,
    /// What the last look found out about the pending jobs.
    pub(super) settled: Option<Settled>,
}

impl Memory {
    /// Whether the last look has shown that nothing more can be placed, and nothing that could change that has come since.
    pub fn is_at_rest(&self, state: &State) -> bool {
        self.settled.is_some_and(|settled| settled.revision == state.revision())
    }
}

/// How many shapes are kept. When there are more, all are dropped before a look and found anew as they come.
const FITS_MOST: usize = 512;

/// One node.
#[derive(Debug, Default)]
pub(crate) struct Plot {
    /// The node's change that this follows from; 0 when it has to be planted anew.
    seen: u64,
    /// It takes new work.
    pub(super) open: bool,
    /// It is kept free for a job that has waited long.
    pub(super) reserved: bool,
    /// Something on it is being preempted.
    pub(super) preempting: bool,
    /// Which rack it stands in, by number.
    pub(super) rack: u32,
    /// What is free now.
    pub(super) free: Room,
    /// What is free now or will be when everything that is being stopped has left.
    pub(super) coming: Room,
    capacity: Holding,
    stands: Vec<Stand>,
}

/// What jobs of one queue hold on a node.
#[derive(Debug)]
struct Stand {
    queue: QueueName,
    sum: Standing,
}

/// Of what a queue's jobs hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What is being stopped.
    pub(super) leaving: Holding,
    /// What cannot be preempted and is not being stopped, of healthy units on open nodes.
    pub(super) firm: Holding,
}

/// All nodes that ever registered, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    position: u64,
    /// The event that was the last to add a node.
    joined_at: u64,
    names: Vec<NodeName>,
    pub(super) plots: Vec<Plot>,
    /// How often each has changed, from 1.
    changes: Vec<u32>,
    /// The plots that have changed, in order, and how often it was begun anew.
    journal: (u64, Vec<usize>),
    racks: BTreeMap<Option<String>, u32>,
    fits: BTreeMap<Digest, Fit>,
    /// What was told of shapes that find no room, and how far the journal had come then.
    told: BTreeMap<Digest, ((u64, usize), WaitReason)>,
    /// By queue.
    pub(super) standing: BTreeMap<QueueName, Standing>,
    /// What the open nodes have that is healthy, in use or not.
    pub(super) capacity: Holding,
    /// Plots on which something is coming free.
    pub(super) differing: BTreeSet<usize>,
    /// Open plots with units that are not healthy.
    pub(super) unwell: BTreeSet<usize>,
    /// Plots that are lost or drained, or have begun another generation, with claims on them.
    pub(super) troubled: BTreeSet<usize>,
}

/// The nodes of a state, in the order of the plots.
pub(crate) type Nodes<'a> = Vec<(&'a NodeName, &'a Node)>;

impl Ground {
    /// Brings it up to date with a state, whose nodes it answers with.
    pub(super) fn refresh<'a>(&mut self, state: &'a State) -> Nodes<'a> {
        let nodes: Nodes<'a> = state.nodes().iter().collect();
        let known = state.position() >= self.position && self.joined_at == state.joined_at();
        if !known {
            let names = nodes.iter().map(|(name, _)| (*name).clone()).collect();
            *self = Self { names, joined_at: state.joined_at(), journal: (1, Vec::new()), ..Self::default() };
            self.plots.resize_with(nodes.len(), Plot::default);
            self.changes.resize(nodes.len(), 0);
        }
        if self.fits.len() > FITS_MOST {
            self.fits.clear();
            self.told.clear();
        }
        if self.journal.1.len() > JOURNAL_MOST {
            self.journal = (self.journal.0 + 1, Vec::new());
        }
        self.position = state.position();
        for (at, (_, node)) in nodes.iter().enumerate() {
            if self.plots[at].seen != node.changed_at {
                self.plant(state, at, node);
            }
        }
        nodes
    }

    fn plant(&mut self, state: &State, at: usize, node: &Node) {
        self.count(at, false);
        let next_rack = self.racks.len() as u32;
        let rack = match self.racks.get(&node.shape.rack) {
            Some(rack) => *rack,
            None => *self.racks.entry(node.shape.rack.clone()).or_insert(next_rack),
        };
        let plot = &mut self.plots[at];
        let empty = Room::empty_node(node);
        plot.open = node.is_open();
        (plot.reserved, plot.preempting, plot.rack) = (false, false, rack);
        plot.capacity = if plot.open { empty.holding(node) } else { Holding::default() };
        plot.free = empty;
        plot.stands.clear();
        node.claims.values().for_each(|claim| plot.free.take(node, claim));
        plot.coming = plot.free.clone();
        for (key, claim) in &node.claims {
            let Some(job) = state.jobs().get(&key.run) else { continue };
            let stop = job.attempt().and_then(|attempt| attempt.stop.as_ref());
            let mut sum = Standing::default();
            if let Some(stop) = stop {
                plot.coming.give(node, claim);
                plot.preempting |= stop.cause == StopCause::Preempted;
                sum.leaving = claim.held();
            } else if !job.spec.preemptible {
                sum.firm = usable(node, claim);
            }
            if sum != Standing::default() {
                plot.stands.push(Stand { queue: job.spec.queue.clone(), sum });
            }
        }
        plot.seen = node.changed_at;
        self.count(at, true);
        mark(&mut self.unwell, at, node.is_open() && !node.unhealthy_gpus.is_empty());
        let raised = node.claims.keys().next().is_some_and(|oldest| oldest.placed < node.raised_at);
        mark(&mut self.troubled, at, !node.claims.is_empty() && (node.lost.is_some() || node.drained.is_some() || raised));
        self.moved(at);
    }

    /// Takes a plot into the sums, or out of them.
    fn count(&mut self, at: usize, add: bool) {
        let change = |sum: &mut Holding, part: Holding| *sum = if add { sum.with(part) } else { sum.without(part) };
        let plot = &self.plots[at];
        change(&mut self.capacity, plot.capacity);
        for stand in &plot.stands {
            let sum = match self.standing.get_mut(&stand.queue) {
                Some(sum) => sum,
                None => self.standing.entry(stand.queue.clone()).or_default(),
            };
            change(&mut sum.leaving, stand.sum.leaving);
            change(&mut sum.firm, stand.sum.firm);
        }
    }

    /// What is to be had on a plot has changed.
    fn moved(&mut self, at: usize) {
        let plot = &self.plots[at];
        self.changes[at] = self.changes[at].wrapping_add(1).max(1);
        self.journal.1.push(at);
        mark(&mut self.differing, at, plot.free != plot.coming);
    }

    /// Changes a plot for the rest of a look; [`Ground::forget`] is told of it.
    pub(super) fn change(&mut self, at: usize, change: impl FnOnce(&mut Plot)) {
        change(&mut self.plots[at]);
        self.moved(at);
    }

    /// A plot is planted anew before the next look.
    pub(super) fn forget(&mut self, at: usize) {
        self.plots[at].seen = 0;
    }

    /// The position of a node.
    pub(super) fn position(&self, name: &NodeName) -> Option<usize> {
        self.names.binary_search(name).ok()
    }

    /// Where the jobs of a class fit, brought up to date.
    pub(super) fn fit(&mut self, nodes: &Nodes<'_>, class: Digest, spec: &JobSpec, avoid: &[NodeName]) -> &Fit {
        let fit = self.fits.entry(class).or_default();
        fit.refresh(nodes, &self.plots, &self.changes, &self.journal, spec, avoid);
        fit
    }

    fn now(&self) -> (u64, usize) {
        (self.journal.0, self.journal.1.len())
    }

    /// What was told of a shape that finds no room, if nothing has changed since.
    pub(super) fn told(&self, class: &Digest) -> Option<WaitReason> {
        self.told.get(class).filter(|(at, _)| *at == self.now()).map(|(_, reason)| reason.clone())
    }

    /// Notes what is told of a shape that finds no room.
    pub(super) fn tell(&mut self, class: Digest, reason: &WaitReason) {
        self.told.insert(class, (self.now(), reason.clone()));
    }

    /// Where the jobs of a class fitted when it was asked for last.
    pub(super) fn known(&self, class: &Digest) -> Option<&Fit> {
        self.fits.get(class)
    }
}

fn mark(set: &mut BTreeSet<usize>, at: usize, on: bool) {
    if on {
        set.insert(at);
    } else {
        set.remove(&at);
    }
}

/// What of these units counts as there: healthy units of open nodes.
fn usable(node: &Node, claim: &Claim) -> Holding {
    if !node.is_open() {
        return Holding::default();
    }
    let healthy = |uuid: &&GpuUuid| node.shape.gpus.iter().any(|gpu| gpu.uuid == **uuid && node.is_well(gpu));
    let slots = claim.slots.iter().filter(|slot| slot.0 < node.shape.slots);
    Holding { gpu_milli: claim.gpus.iter().filter(healthy).count() as u64 * claim.gpu_counts, slots: slots.count() as u64 }
}

/// What a member holds of what the capacity counts.
pub(super) fn usable_of(state: &State, member: &MemberPlacement) -> Holding {
    state.nodes().get(&member.node).map_or_else(Holding::default, |node| usable(node, &Claim::of(member)))
}

/// How good a place is: the less, the better. Avoided nodes last; before them those on which no NVLink island is large enough, or whose GPUs are not asked for;
/// then the tightest.
pub(super) type Score = u16;

/// No member fits there now.
const NONE: Score = Score::MAX;
/// What a score tells beside the units.
const QUALITY: u32 = 14;
/// The most units that a score tells apart.
const UNITS_MOST: u32 = (1 << QUALITY) - 2;

/// Changes that are remembered in order. A shape that has seen none of them is compared with every plot.
const JOURNAL_MOST: usize = 65_536;

/// It could take a member if it were empty and open.
const SUITS: u8 = 1;
/// And it is open.
const ELIGIBLE: u8 = 2;

/// Where jobs of one class fit.
#[derive(Debug, Default)]
pub(crate) struct Fit {
    seen: Vec<u32>,
    /// How far the journal was read.
    read: (u64, usize),
    /// Of a member now.
    scores: Vec<Score>,
    marks: Vec<u8>,
    suiting: usize,
    eligible: usize,
    /// Where a member fits now.
    fitting: usize,
}

impl Fit {
    fn refresh(
        &mut self,
        nodes: &Nodes<'_>,
        plots: &[Plot],
        changes: &[u32],
        (begun, journal): &(u64, Vec<usize>),
        spec: &JobSpec,
        avoid: &[NodeName],
    ) {
        let count = plots.len();
        if self.seen.len() != count {
            *self = Self { seen: vec![0; count], scores: vec![NONE; count], marks: vec![0; count], ..Self::default() };
        }
        let from = (self.read.0 == *begun).then_some(self.read.1);
        let mut look = |at: usize| {
            if self.seen[at] != changes[at] {
                self.seen[at] = changes[at];
                self.look_at(at, nodes[at], &plots[at], spec, avoid);
            }
        };
        match from.and_then(|from| journal.get(from..)) {
            Some(changed) => changed.iter().copied().for_each(&mut look),
            None => (0..count).for_each(&mut look),
        }
        self.read = (*begun, journal.len());
    }

    fn look_at(&mut self, at: usize, (name, node): (&NodeName, &Node), plot: &Plot, spec: &JobSpec, avoid: &[NodeName]) {
        self.suiting -= usize::from(self.suits(at));
        self.eligible -= usize::from(self.is_eligible(at));
        self.fitting -= usize::from(self.scores[at] != NONE);
        let suits = suits(name, node, spec);
        self.marks[at] = if suits { SUITS | if plot.open { ELIGIBLE } else { 0 } } else { 0 };
        let fits = self.is_eligible(at) && !plot.reserved;
        self.scores[at] = if fits { score(&plot.free, (name, node), spec, avoid) } else { NONE };
        self.suiting += usize::from(suits);
        self.eligible += usize::from(self.is_eligible(at));
        self.fitting += usize::from(self.scores[at] != NONE);
    }

    /// Whether a member could stand there if the node were empty and open.
    pub(super) fn suits(&self, at: usize) -> bool {
        self.marks[at] & SUITS != 0
    }

    /// Whether a member could stand there if the node were empty.
    pub(super) fn is_eligible(&self, at: usize) -> bool {
        self.marks[at] & ELIGIBLE != 0
    }

    /// How many nodes, open or not, could take a member if they were empty.
    pub(super) fn suiting(&self) -> usize {
        self.suiting
    }

    /// How many of them are open.
    pub(super) fn eligible(&self) -> usize {
        self.eligible
    }

    /// How many of these have room for a member now.
    pub(super) fn fitting(&self) -> usize {
        self.fitting
    }

    /// Whether a member fits there now.
    pub(super) fn fits(&self, at: usize) -> bool {
        self.scores[at] != NONE
    }

    /// The nodes that could take a member if they were empty, by position.
    pub(super) fn all_eligible(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.marks.len()).filter(|at| self.is_eligible(*at))
    }

    /// Where a member stands best now, with the score of that place.
    pub(super) fn best(&self) -> Option<(Score, usize)> {
        let best = self.scores.iter().copied().min().filter(|score| *score != NONE)?;
        Some((best, self.scores.iter().position(|score| *score == best)?))
    }

    /// Every place where a member fits now, with its score, ascending by position.
    pub(super) fn places(&self) -> impl Iterator<Item = (Score, usize)> + '_ {
        self.scores.iter().enumerate().filter(|(_, score)| **score != NONE).map(|(at, score)| (*score, at))
    }
}

/// How good a node with this much room is for a member; the worst there is when it does not fit.
pub(super) fn score(room: &Room, (name, node): (&NodeName, &Node), spec: &JobSpec, avoid: &[NodeName]) -> Score {
    let ask = &spec.resources.per_node;
    let Some(units) = room.fitting_units(node, ask) else { return NONE };
    // Work without GPUs would strand those of the node: it goes there last.
    let strands = ask.gpus == 0 && !node.shape.gpus.is_empty();
    let quality = u16::from(avoid.contains(name)) << 1 | u16::from(strands || room.is_scattered(node, ask));
    quality << QUALITY | units.min(UNITS_MOST) as u16
}

/// What a score tells beside the units: the less, the better.
pub(super) fn quality(score: Score) -> u16 {
    score >> QUALITY
}
