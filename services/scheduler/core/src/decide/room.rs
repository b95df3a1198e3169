//! What is to be had on one node, and what its shape lacks for a job.
//!
//! Units are named (this GPU, that slot), so a fit is always a fit on real devices, never a sum. A node that shrank below what is claimed
//! on it owes slots: they are subtracted from what looks free.

use crate::state::{Claim, Holding, Node};
use footplate_events::facts::{JobSpec, PerNode};
use footplate_types::{ByteSize, Gpu, NodeName, NodeShape, SlotIndex};
use std::collections::BTreeMap;
use std::fmt;

/// What a node's shape lacks for a job, whoever uses it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shortage<'a> {
    Excluded,
    NotNamed,
    Pool(&'a str),
    Label { key: &'a str, asked: &'a str },
    Rackless,
    Gpus { asked: u32, there: u32, of_kind: bool },
    Slots { asked: u32, there: u32 },
    Cpus { asked: u32, there: u32 },
    Memory { asked: u64, there: u64 },
    Disk { asked: u64, there: u64 },
}

impl Shortage<'_> {
    /// For the choice of the nearest node: how far along the list of demands it came, and how much of the failing one it has.
    pub(crate) fn nearness(&self) -> (u8, u64) {
        match self {
            Self::Excluded => (0, 0),
            Self::NotNamed => (1, 0),
            Self::Pool(_) => (2, 0),
            Self::Label { .. } | Self::Rackless => (3, 0),
            Self::Gpus { there, .. } | Self::Slots { there, .. } => (4, (*there).into()),
            Self::Cpus { there, .. } => (5, (*there).into()),
            Self::Memory { there, .. } => (6, *there),
            Self::Disk { there, .. } => (7, *there),
        }
    }
}

impl fmt::Display for Shortage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        match self {
            Self::Excluded => f.write_str("is excluded by placement.exclude"),
            Self::NotNamed => f.write_str("is not among placement.nodes"),
            Self::Pool(pool) => write!(f, "is not in pool {pool}"),
            Self::Label { key, asked } => write!(f, "has not the label {key}={asked} of placement.labels"),
            Self::Rackless => f.write_str("stands in no rack that is known, placement.same_rack is asked"),
            Self::Gpus { asked, there, of_kind } => {
                let kind = if *of_kind { " of the asked kind" } else { "" };
                write!(f, "has {}{kind}, {asked} asked of each node", units(*there, "gpu"))
            }
            Self::Slots { asked, there } => write!(f, "has {}, {asked} asked of each node", units(*there, "slot")),
            Self::Cpus { asked, there } => write!(f, "has {}, {asked} asked of each node", units(*there, "cpu")),
            Self::Memory { asked, there } => write!(f, "has {} of memory, {} asked of each node", ByteSize(*there), ByteSize(*asked)),
            Self::Disk { asked, there } => write!(f, "has {} of free disk, {} asked of each node", ByteSize(*there), ByteSize(*asked)),
        }
    }
}

fn matches(gpu: &Gpu, ask: &PerNode) -> bool {
    gpu.memory_bytes >= ask.gpu_memory_bytes && (ask.gpu_models.is_empty() || ask.gpu_models.contains(&gpu.model))
}

/// What the node lacks for the job, even when it is empty; `None` when it could take a member.
pub(crate) fn shape_lacks<'a>(name: &NodeName, shape: &NodeShape, spec: &'a JobSpec) -> Option<Shortage<'a>> {
    let (ask, place) = (&spec.resources.per_node, &spec.placement);
    if place.exclude.contains(name) {
        return Some(Shortage::Excluded);
    }
    if !place.nodes.is_empty() && !place.nodes.contains(name) {
        return Some(Shortage::NotNamed);
    }
    if let Some(pool) = place.pool.as_deref().filter(|pool| shape.pool.as_deref() != Some(pool)) {
        return Some(Shortage::Pool(pool));
    }
    if let Some((key, asked)) = place.labels.iter().find(|(key, asked)| shape.labels.get(*key) != Some(asked)) {
        return Some(Shortage::Label { key, asked });
    }
    if place.same_rack && spec.resources.nodes > 1 && shape.rack.is_none() {
        return Some(Shortage::Rackless);
    }
    let gpus = shape.gpus.iter().filter(|gpu| matches(gpu, ask)).count() as u32;
    let of_kind = !ask.gpu_models.is_empty() || ask.gpu_memory_bytes > 0;
    let lacks = |asked: u64, there: u64| asked > there;
    if lacks(ask.gpus.into(), gpus.into()) {
        Some(Shortage::Gpus { asked: ask.gpus, there: gpus, of_kind })
    } else if lacks(ask.slots.into(), shape.slots.into()) {
        Some(Shortage::Slots { asked: ask.slots, there: shape.slots })
    } else if lacks(ask.cpus.into(), shape.cpus.into()) {
        Some(Shortage::Cpus { asked: ask.cpus, there: shape.cpus })
    } else if lacks(ask.memory_bytes, shape.memory_bytes) {
        Some(Shortage::Memory { asked: ask.memory_bytes, there: shape.memory_bytes })
    } else if lacks(ask.disk_bytes, shape.disk_bytes) {
        Some(Shortage::Disk { asked: ask.disk_bytes, there: shape.disk_bytes })
    } else {
        None
    }
}

/// Whether the node could take a member of the job if it were empty.
pub(crate) fn suits(name: &NodeName, node: &Node, spec: &JobSpec) -> bool {
    shape_lacks(name, &node.shape, spec).is_none()
}

/// A small set of indices: up to 64 of them, which is nearly every node, without a heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bits {
    first: u64,
    more: Vec<u64>,
}

impl Bits {
    fn full(count: usize) -> Self {
        let mut bits = Self { first: 0, more: vec![0; count.div_ceil(64).saturating_sub(1)] };
        (0..count).for_each(|at| bits.set(at, true));
        bits
    }

    fn word(&mut self, at: usize) -> Option<&mut u64> {
        if at < 64 { Some(&mut self.first) } else { self.more.get_mut(at / 64 - 1) }
    }

    /// Sets or clears; indices outside are left alone.
    fn set(&mut self, at: usize, on: bool) {
        if let Some(word) = self.word(at) {
            let bit = 1u64 << (at % 64);
            *word = if on { *word | bit } else { *word & !bit };
        }
    }

    fn count(&self) -> u32 {
        self.first.count_ones() + self.more.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    fn keep(&mut self, other: &Self) {
        self.first &= other.first;
        for (word, other) in self.more.iter_mut().zip(&other.more) {
            *word &= other;
        }
    }

    fn ones(&self) -> impl Iterator<Item = usize> + '_ {
        std::iter::once(&self.first).chain(&self.more).enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(at * 64 + bit)
            })
        })
    }
}

/// What is to be had on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    gpus: Bits,
    slots: Bits,
    /// Claimed slots that the shape does not have (any more).
    owed: u32,
    cpus: i64,
    memory: i64,
}

impl Room {
    pub(crate) fn empty_node(node: &Node) -> Self {
        let mut gpus = Bits::full(node.shape.gpus.len());
        for (at, gpu) in node.shape.gpus.iter().enumerate() {
            gpus.set(at, !node.unhealthy_gpus.contains_key(&gpu.uuid));
        }
        Self {
            gpus,
            slots: Bits::full(node.shape.slots as usize),
            owed: 0,
            cpus: node.shape.cpus.into(),
            memory: i64::try_from(node.shape.memory_bytes).unwrap_or(i64::MAX),
        }
    }

    /// What a node of this shape would have, if all of it were well.
    pub(super) fn of_shape(shape: &NodeShape) -> Self {
        Self {
            gpus: Bits::full(shape.gpus.len()),
            slots: Bits::full(shape.slots as usize),
            owed: 0,
            cpus: shape.cpus.into(),
            memory: i64::try_from(shape.memory_bytes).unwrap_or(i64::MAX),
        }
    }

    fn shift(&mut self, node: &Node, claim: &Claim, free: bool) {
        for uuid in &claim.gpus {
            let usable = !free || !node.unhealthy_gpus.contains_key(uuid);
            if let Some(at) = node.shape.gpus.iter().position(|gpu| gpu.uuid == *uuid).filter(|_| usable) {
                self.gpus.set(at, free);
            }
        }
        for slot in &claim.slots {
            if slot.0 < node.shape.slots {
                self.slots.set(slot.0 as usize, free);
            } else {
                self.owed = if free { self.owed.saturating_sub(1) } else { self.owed + 1 };
            }
        }
        let sign = if free { 1 } else { -1 };
        self.cpus += sign * i64::from(claim.cpus);
        self.memory = self.memory.saturating_add(sign * i64::try_from(claim.memory_bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn take(&mut self, node: &Node, claim: &Claim) {
        self.shift(node, claim, false);
    }

    pub(crate) fn give(&mut self, node: &Node, claim: &Claim) {
        self.shift(node, claim, true);
    }

    /// No more than `other` has.
    pub(super) fn limit_to(&mut self, other: &Self) {
        self.gpus.keep(&other.gpus);
        self.slots.keep(&other.slots);
        self.owed = self.owed.max(other.owed);
        self.cpus = self.cpus.min(other.cpus);
        self.memory = self.memory.min(other.memory);
    }

    fn slots_free(&self) -> u32 {
        self.slots.count().saturating_sub(self.owed)
    }

    /// GPUs that will do, by position.
    fn matching<'a>(&'a self, node: &'a Node, ask: &'a PerNode) -> impl Iterator<Item = usize> + 'a {
        self.gpus.ones().filter(|at| node.shape.gpus.get(*at).is_some_and(|gpu| matches(gpu, ask)))
    }

    /// Units of the asked sort that are to be had: GPUs that will do, or slots.
    pub(crate) fn units(&self, node: &Node, ask: &PerNode) -> u32 {
        if ask.gpus > 0 { self.matching(node, ask).count() as u32 } else { self.slots_free() }
    }

    /// Whether a member fits.
    pub(crate) fn holds(&self, node: &Node, ask: &PerNode) -> bool {
        self.fitting_units(node, ask).is_some()
    }

    /// What it has in units that queues share.
    pub(super) fn holding(&self) -> Holding {
        Holding { gpus: self.gpus.count().into(), slots: self.slots.count().into() }
    }

    /// How many units of the asked sort there are where a member fits; `None` where none fits.
    pub(super) fn fitting_units(&self, node: &Node, ask: &PerNode) -> Option<u32> {
        let bytes_fit = ask.memory_bytes == 0 || i64::try_from(ask.memory_bytes).is_ok_and(|asked| asked <= self.memory);
        if !bytes_fit || (ask.cpus > 0 && i64::from(ask.cpus) > self.cpus) || self.gpus.count() < ask.gpus {
            return None;
        }
        let units = self.units(node, ask);
        (ask.gpus.max(ask.slots) <= units).then_some(units)
    }

    /// GPUs by NVLink island: the smallest island that is large enough, else from the largest islands down, GPUs without one last.
    fn pick_gpus(&self, node: &Node, ask: &PerNode) -> Vec<usize> {
        let count = ask.gpus as usize;
        let mut islands: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for at in self.matching(node, ask) {
            islands.entry(node.shape.gpus[at].island.map(|island| island.0)).or_default().push(at);
        }
        let alone = islands.remove(&None).unwrap_or_default();
        let mut linked: Vec<Vec<usize>> = islands.into_values().collect();
        linked.sort_by_key(Vec::len);
        // One GPU needs no link: it comes from where it breaks the least.
        if count == 1 && !alone.is_empty() {
            return alone[..1].to_vec();
        }
        if let Some(island) = linked.iter().find(|island| island.len() >= count) {
            return island[..count].to_vec();
        }
        let all = linked.into_iter().rev().flatten().chain(alone);
        all.take(count).collect()
    }

    /// Whether no NVLink island is large enough for the GPUs of a member.
    pub(super) fn is_scattered(&self, node: &Node, ask: &PerNode) -> bool {
        if ask.gpus < 2 {
            return false;
        }
        let island = |at: usize| node.shape.gpus[at].island;
        let size = |of| self.matching(node, ask).filter(|at| island(*at) == Some(of)).count() as u32;
        let mut seen = None;
        !self.matching(node, ask).filter_map(island).any(|of| {
            // Neighbours mostly stand in one island: each is counted once for as long as they do.
            let known = seen == Some(of);
            seen = Some(of);
            !known && size(of) >= ask.gpus
        })
    }

    /// The units that a member would claim.
    pub(super) fn pick(&self, node: &Node, ask: &PerNode) -> Claim {
        let gpus = self.pick_gpus(node, ask);
        Claim {
            gpus: gpus.into_iter().map(|at| node.shape.gpus[at].uuid.clone()).collect(),
            slots: self.slots.ones().take(ask.slots as usize).map(|at| SlotIndex(at as u32)).collect(),
            cpus: ask.cpus,
            memory_bytes: ask.memory_bytes,
        }
    }
}
