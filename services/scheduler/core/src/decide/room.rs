//! What is to be had on one node, and what its shape lacks for a job.
//!
//! Units are named (this GPU, that slot), so a fit is always a fit on real devices, never a sum. A node that shrank below what is claimed
//! on it owes slots: they are subtracted from what looks free. What is left of GPUs that are shared is in [`super::parts`].

use super::parts::Part;
use crate::state::{Claim, Holding, Node};
use footplate_events::facts::{JobSpec, PerNode};
use footplate_types::{ByteSize, Gpu, GpuMilli, MigProfile, NodeName, NodeShape, SlotIndex, Taint};
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
    Tainted(Taint),
    Gpus { asked: u32, there: u32, of_kind: bool, split: bool },
    Slices { profile: &'a MigProfile, asked: u32, there: u32 },
    Unshared { asked: u32 },
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
            Self::Label { .. } | Self::Rackless | Self::Tainted(_) => (3, 0),
            Self::Gpus { there, .. } | Self::Slices { there, .. } | Self::Slots { there, .. } => (4, (*there).into()),
            Self::Unshared { .. } => (4, u64::from(u32::MAX)),
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
            Self::Tainted(taint) => write!(f, "has the taint {taint}, which is not among placement.tolerations"),
            Self::Gpus { asked, there, of_kind, split } => {
                let kind = if *of_kind { " of the asked kind" } else { "" };
                let what = if *split { "whole gpu" } else { "gpu" };
                write!(f, "has {}{kind}, {asked} asked of each node", units(*there, what))
            }
            Self::Slices { profile, asked, there } => write!(f, "has {} of {profile}, {asked} asked of each node", units(*there, "slice")),
            Self::Unshared { asked } => {
                write!(f, "does not share its gpus (agent.share_gpus), {} of one asked", GpuMilli((*asked).into()))
            }
            Self::Slots { asked, there } => write!(f, "has {}, {asked} asked of each node", units(*there, "slot")),
            Self::Cpus { asked, there } => write!(f, "has {}, {asked} asked of each node", units(*there, "cpu")),
            Self::Memory { asked, there } => write!(f, "has {} of memory, {} asked of each node", ByteSize(*there), ByteSize(*asked)),
            Self::Disk { asked, there } => write!(f, "has {} of free disk, {} asked of each node", ByteSize(*there), ByteSize(*asked)),
        }
    }
}

/// Whether a GPU is of the asked sort: a slice of the asked profile, or a whole one where none is asked.
pub(crate) fn matches(gpu: &Gpu, ask: &PerNode) -> bool {
    let of_sort = match (&gpu.mig_profile, &ask.gpu_profile) {
        (None, None) => true,
        (Some(profile), Some(asked)) => profile == asked.as_str(),
        (None, Some(_)) | (Some(_), None) => false,
    };
    of_sort && gpu.memory_bytes >= ask.gpu_memory_bytes && (ask.gpu_models.is_empty() || ask.gpu_models.contains(&gpu.model))
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
    if let Some(taint) = shape.taints.iter().find(|taint| !place.tolerates(taint)) {
        return Some(Shortage::Tainted(taint.clone()));
    }
    let gpus = shape.gpus.iter().filter(|gpu| matches(gpu, ask)).count() as u32;
    let of_kind = !ask.gpu_models.is_empty() || ask.gpu_memory_bytes > 0;
    let lacks = |asked: u64, there: u64| asked > there;
    if lacks(ask.gpus.into(), gpus.into()) {
        Some(match &ask.gpu_profile {
            Some(profile) => Shortage::Slices { profile, asked: ask.gpus, there: gpus },
            None => Shortage::Gpus { asked: ask.gpus, there: gpus, of_kind, split: shape.gpus.iter().any(|gpu| gpu.mig_profile.is_some()) },
        })
    } else if ask.gpu_share > 0 && !shape.share_gpus {
        Some(Shortage::Unshared { asked: ask.gpu_share })
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
pub(super) struct Bits {
    first: u64,
    more: Vec<u64>,
}

impl Bits {
    /// None of so many.
    pub(super) fn none(count: usize) -> Self {
        Self { first: 0, more: vec![0; count.div_ceil(64).saturating_sub(1)] }
    }

    fn full(count: usize) -> Self {
        let mut bits = Self::none(count);
        (0..count).for_each(|at| bits.set(at, true));
        bits
    }

    pub(super) fn has(&self, at: usize) -> bool {
        let word = if at < 64 { Some(&self.first) } else { self.more.get(at / 64 - 1) };
        word.is_some_and(|word| word & 1u64 << (at % 64) != 0)
    }

    fn word(&mut self, at: usize) -> Option<&mut u64> {
        if at < 64 { Some(&mut self.first) } else { self.more.get_mut(at / 64 - 1) }
    }

    /// Sets or clears; indices outside are left alone.
    pub(super) fn set(&mut self, at: usize, on: bool) {
        if let Some(word) = self.word(at) {
            let bit = 1u64 << (at % 64);
            *word = if on { *word | bit } else { *word & !bit };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == 0 && self.more.iter().all(|word| *word == 0)
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

    pub(super) fn ones(&self) -> impl Iterator<Item = usize> + '_ {
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
    /// GPUs and slices on which nothing stands.
    gpus: Bits,
    /// What is left of each GPU, once a share of one is claimed; empty before.
    parts: Vec<Part>,
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
            gpus.set(at, node.is_well(gpu));
        }
        Self {
            gpus,
            parts: Vec::new(),
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
            parts: Vec::new(),
            slots: Bits::full(shape.slots as usize),
            owed: 0,
            cpus: shape.cpus.into(),
            memory: i64::try_from(shape.memory_bytes).unwrap_or(i64::MAX),
        }
    }

    /// From here on it is looked at what is left of each GPU.
    fn divide(&mut self, node: &Node) {
        if self.parts.is_empty() {
            self.parts = (0..node.shape.gpus.len()).map(|at| Part::of(node, at, self.gpus.has(at))).collect();
        }
    }

    fn shift(&mut self, node: &Node, claim: &Claim, free: bool) {
        if claim.gpu_share > 0 {
            self.divide(node);
        }
        for uuid in &claim.gpus {
            let Some((at, gpu)) = node.shape.gpus.iter().enumerate().find(|(_, gpu)| gpu.uuid == *uuid) else { continue };
            match self.parts.get_mut(at) {
                Some(part) => {
                    part.shift(claim, free);
                    self.gpus.set(at, part.is_whole());
                }
                None if !free || node.is_well(gpu) => self.gpus.set(at, free),
                None => {}
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
    pub(super) fn limit_to(&mut self, node: &Node, other: &Self) {
        if !other.parts.is_empty() {
            self.divide(node);
        }
        for (at, part) in self.parts.iter_mut().enumerate() {
            part.limit_to(&other.parts.get(at).copied().unwrap_or_else(|| Part::of(node, at, other.gpus.has(at))));
        }
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

    /// GPUs on which shares stand and that hold one more, by position.
    fn shared<'a>(&'a self, node: &'a Node, ask: &'a PerNode) -> impl Iterator<Item = (usize, u32)> + 'a {
        let parts = self.parts.iter().enumerate().filter(|(_, part)| !part.is_whole() && part.holds(ask));
        parts.filter(|(at, _)| node.shape.gpus.get(*at).is_some_and(|gpu| matches(gpu, ask))).map(|(at, part)| (at, part.left()))
    }

    /// Of the GPUs on which shares stand and that hold one more the fullest, with what is left of it.
    fn fullest(&self, node: &Node, ask: &PerNode) -> Option<(usize, u32)> {
        self.shared(node, ask).min_by_key(|(at, left)| (*left, *at))
    }

    /// The most that is to be had of any one GPU that will do for a share.
    pub(super) fn most_of_one(&self, node: &Node, ask: &PerNode) -> GpuMilli {
        let will_do = |at: usize| node.shape.gpus.get(at).is_some_and(|gpu| matches(gpu, ask));
        let parts = self.parts.iter().enumerate().filter(|(at, _)| will_do(*at)).map(|(_, part)| part.left());
        let whole = self.matching(node, ask).next().map(|_| GpuMilli::WHOLE.0);
        GpuMilli(parts.map(u64::from).chain(whole).max().unwrap_or(0))
    }

    /// Units of the asked sort that are to be had: GPUs or slices that will do, GPUs that hold a share, or slots.
    pub(crate) fn units(&self, node: &Node, ask: &PerNode) -> u32 {
        if ask.gpu_share > 0 {
            (self.matching(node, ask).count() + self.shared(node, ask).count()) as u32
        } else if ask.gpus > 0 {
            self.matching(node, ask).count() as u32
        } else {
            self.slots_free()
        }
    }

    /// Whether a member fits.
    pub(crate) fn holds(&self, node: &Node, ask: &PerNode) -> bool {
        self.fitting_units(node, ask).is_some()
    }

    /// What it has in units that queues share.
    pub(super) fn holding(&self, node: &Node) -> Holding {
        let gpus = self.gpus.ones().filter_map(|at| node.shape.gpus.get(at));
        Holding { gpu_milli: gpus.map(|gpu| gpu.counts().0).sum(), slots: self.slots.count().into() }
    }

    /// How much of the asked sort there is where a member fits, so that the least is the tightest; `None` where none fits. Units; of a share what is left of
    /// the GPU that it would be put on, and beyond all of one the GPUs that would do, where it would be the first on it.
    pub(super) fn fitting_units(&self, node: &Node, ask: &PerNode) -> Option<u32> {
        let bytes_fit = ask.memory_bytes == 0 || i64::try_from(ask.memory_bytes).is_ok_and(|asked| asked <= self.memory);
        if !bytes_fit || (ask.cpus > 0 && i64::from(ask.cpus) > self.cpus) {
            return None;
        }
        if ask.gpu_share > 0 {
            return self.fitting_share(node, ask);
        }
        if self.gpus.count() < ask.gpus {
            return None;
        }
        let units = self.units(node, ask);
        (ask.gpus.max(ask.slots) <= units).then_some(units)
    }

    fn fitting_share(&self, node: &Node, ask: &PerNode) -> Option<u32> {
        if !node.shape.share_gpus {
            return None;
        }
        if let Some((_, left)) = self.fullest(node, ask) {
            return Some(left);
        }
        let whole = self.matching(node, ask).count() as u32;
        (whole > 0).then(|| GpuMilli::WHOLE.0 as u32 + whole)
    }

    /// GPUs by NVLink island: the smallest island that is large enough, else from the largest islands down, GPUs without one last.
    fn pick_gpus(&self, node: &Node, ask: &PerNode) -> Vec<usize> {
        if let Some((at, _)) = Some(ask.gpu_share).filter(|share| *share > 0).and_then(|_| self.fullest(node, ask)) {
            return vec![at];
        }
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
        // Slices have no NVLink anywhere.
        if ask.gpus < 2 || ask.gpu_profile.is_some() {
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
            gpu_counts: ask.gpu_counts().0,
            gpu_share: ask.gpu_share,
            gpu_memory_bytes: if ask.gpu_share > 0 { ask.gpu_memory_bytes } else { 0 },
            slots: self.slots.ones().take(ask.slots as usize).map(|at| SlotIndex(at as u32)).collect(),
            cpus: ask.cpus,
            memory_bytes: ask.memory_bytes,
        }
    }
}
