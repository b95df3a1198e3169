//! What a leader keeps of the nodes from look to look: what is to be had on each, what stands on it, and which shapes of jobs fit there.
//!
//! It is a help and never the truth: whoever begins with an empty [`Memory`] decides the same, more slowly. A plot is planted anew when its node has
//! changed since, and a shape is compared only with the plots that have changed since.

use super::alarms::Alarms;
use super::fit::Fit;
use super::room::Room;
use crate::facts::Settled;
use crate::state::{Claim, Holding, Node, State};
use footplate_events::facts::{JobSpec, MemberPlacement, StopCause, WaitReason};
use footplate_types::{Digest, GpuUuid, NodeName, QueueName};
use std::collections::{BTreeMap, BTreeSet};

/// What a leader keeps from look to look. Not to be used with another ledger's state.
#[derive(Debug, Default)]
pub struct Memory {
    pub(super) ground: Ground,
    /// Of attempts.
    pub(super) timed: Alarms,
    /// Of who waits for a first placement.
    pub(super) expiring: Alarms,
    /// What the last look found out about the pending jobs.
    pub(super) settled: Option<Settled>,
}

impl Memory {
    /// Whether the last look has shown that nothing more can be placed, and nothing that could change that has come since.
    pub fn is_at_rest(&self, state: &State) -> bool {
        self.settled.is_some_and(|settled| settled.revision == state.revision())
    }
}

/// How much memory the fits of all shapes may take, in bytes, between looks: of 10,000 nodes those of some 2,700 shapes. When it is more, those that were
/// not asked for the longest are dropped and found anew as they come.
const FITS_MOST: usize = 512 << 20;
/// Changes that are remembered in order. A shape that has seen none of them is compared with every plot.
const JOURNAL_MOST: usize = 65_536;

/// One node.
#[derive(Debug, Default)]
pub(crate) struct Plot {
    /// The node's change that this follows from; 0 when it has to be planted anew.
    seen: u64,
    /// It takes new work.
    pub(super) open: bool,
    /// Something on it is being preempted.
    pub(super) preempting: bool,
    /// Which rack it stands in, by number.
    pub(super) rack: u32,
    /// What is free now.
    pub(super) free: Room,
    /// What is free now or will be when everything that is being stopped has left.
    pub(super) coming: Room,
    /// Whether the two differ.
    pub(super) differs: bool,
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
    /// How often it was brought up to date.
    looks: u64,
    /// The event that was the last to add a node.
    joined_at: u64,
    names: Vec<NodeName>,
    pub(super) plots: Vec<Plot>,
    /// How often each has changed, from 1.
    changes: Vec<u32>,
    /// The plots that have changed, in order, and how often it was begun anew.
    journal: (u64, Vec<usize>),
    racks: BTreeMap<Option<String>, u32>,
    /// The plots that stand in each, in order.
    pub(super) in_rack: Vec<BTreeSet<usize>>,
    fits: BTreeMap<Digest, Fit>,
    /// What was told of shapes that find no room, and how far the journal had come then.
    told: BTreeMap<Digest, ((u64, usize), WaitReason)>,
    /// By queue.
    pub(super) standing: BTreeMap<QueueName, Standing>,
    /// What the open nodes have that is healthy, in use or not.
    pub(super) capacity: Holding,
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
            *self = Self { names, joined_at: state.joined_at(), journal: (1, Vec::new()), looks: self.looks, ..Self::default() };
            self.plots.resize_with(nodes.len(), Plot::default);
            self.changes.resize(nodes.len(), 0);
        }
        self.looks += 1;
        self.drop_fits(FITS_MOST);
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

    /// Drops the fits that were not asked for the longest, until the others take no more than so many bytes.
    fn drop_fits(&mut self, most: usize) {
        let mut bytes: usize = self.fits.values().map(Fit::bytes).sum();
        if bytes <= most {
            return;
        }
        let mut by_use: Vec<(u64, Digest)> = self.fits.iter().map(|(class, fit)| (fit.used, *class)).collect();
        by_use.sort_unstable();
        for (_, class) in by_use {
            if bytes <= most / 2 {
                break;
            }
            bytes -= self.fits.remove(&class).map_or(0, |fit| fit.bytes());
            self.told.remove(&class);
        }
    }

    fn plant(&mut self, state: &State, at: usize, node: &Node) {
        self.count(at, false);
        let next_rack = self.racks.len() as u32;
        let rack = match self.racks.get(&node.shape.rack) {
            Some(rack) => *rack,
            None => *self.racks.entry(node.shape.rack.clone()).or_insert(next_rack),
        };
        self.in_rack.resize_with(self.racks.len(), BTreeSet::new);
        let plot = &mut self.plots[at];
        self.in_rack[plot.rack as usize].remove(&at);
        self.in_rack[rack as usize].insert(at);
        let empty = Room::empty_node(node);
        plot.open = node.is_open();
        (plot.preempting, plot.rack) = (false, rack);
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
        let plot = &mut self.plots[at];
        plot.differs = plot.free != plot.coming;
        self.changes[at] = self.changes[at].wrapping_add(1).max(1);
        self.journal.1.push(at);
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
        fit.used = self.looks;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fits_that_were_not_asked_for_the_longest_make_room() {
        let mut ground = Ground::default();
        let class = |at: u64| Digest::of(&at.to_be_bytes());
        for at in 0..10u64 {
            ground.fits.entry(class(at)).or_default().used = (at + 5) % 10;
            ground.tell(class(at), &WaitReason::Backoff);
        }
        let each = Fit::default().bytes();
        ground.drop_fits(10 * each);
        assert_eq!(ground.fits.len(), 10);
        ground.drop_fits(8 * each);
        let left: Vec<u64> = (0..10).filter(|at| ground.known(&class(*at)).is_some()).collect();
        assert_eq!(left, [1, 2, 3, 4]);
        assert_eq!(ground.told.len(), 4, "what was told of the others is gone with them");
    }
}
