//! A node as packing sees it: what is left on it.

use super::demand::{Demand, WHOLE};

/// How many GPUs a node may have here.
pub const GPUS_MOST: usize = 16;

/// Some GPUs of one node, by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuSet(u16);

impl GpuSet {
    /// Those positions; what is beyond [`GPUS_MOST`] is left out.
    pub fn of(positions: impl IntoIterator<Item = usize>) -> Self {
        Self(positions.into_iter().filter(|at| *at < GPUS_MOST).fold(0, |all, at| all | 1 << at))
    }

    /// The positions, ascending.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..GPUS_MOST).filter(move |at| self.0 >> at & 1 == 1)
    }

    /// How many.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What is left on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    cpu_milli: u64,
    memory_bytes: u64,
    model: u8,
    count: u8,
    left: [u16; GPUS_MOST],
}

impl Host {
    /// A node with this much left: thousandths of CPUs, bytes, the number of its GPUs' model, and of every GPU the thousandths that are to
    /// be had. `None` where it has more than [`GPUS_MOST`] GPUs, or more of one than there is.
    pub fn new(cpu_milli: u64, memory_bytes: u64, model: u8, gpus: &[u16]) -> Option<Self> {
        if gpus.len() > GPUS_MOST || gpus.iter().any(|left| *left > WHOLE) {
            return None;
        }
        let mut left = [0; GPUS_MOST];
        left[..gpus.len()].copy_from_slice(gpus);
        Some(Self { cpu_milli, memory_bytes, model, count: gpus.len() as u8, left })
    }

    /// Thousandths of CPUs left.
    pub fn cpu_milli(&self) -> u64 {
        self.cpu_milli
    }

    /// Bytes of memory left.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Which model its GPUs are.
    pub fn model(&self) -> u8 {
        self.model
    }

    /// What is left of every GPU, in thousandths.
    pub fn gpus(&self) -> &[u16] {
        &self.left[..usize::from(self.count)]
    }

    /// What is left of all its GPUs, in thousandths.
    pub fn gpu_milli(&self) -> u32 {
        self.gpus().iter().map(|left| u32::from(*left)).sum()
    }

    /// Whether a demand fits: on real GPUs, one by one, never on their sum.
    pub fn fits(&self, demand: &Demand) -> bool {
        if demand.cpu_milli > self.cpu_milli || demand.memory_bytes > self.memory_bytes {
            return false;
        }
        demand.gpus == 0 || (demand.models.allow(self.model) && self.room(demand) >= usize::from(demand.gpus))
    }

    fn has(&self, at: usize, demand: &Demand) -> bool {
        demand.gpu_milli > 0 && self.gpus().get(at).is_some_and(|left| *left >= demand.gpu_milli)
    }

    /// How many GPUs have as much left as is asked of each.
    fn room(&self, demand: &Demand) -> usize {
        (0..usize::from(self.count)).filter(|at| self.has(*at, demand)).count()
    }

    /// The GPUs among which to choose for a demand that fits: one of every remainder for a share of one GPU, else the fullest that will do
    /// (whole GPUs are all alike).
    pub(super) fn choices(&self, demand: &Demand) -> Choices {
        let mut choices = Choices { sets: [GpuSet::default(); GPUS_MOST], count: 0 };
        let whole = demand.gpu_milli == WHOLE;
        match demand.gpus {
            0 => choices.push(GpuSet::default()),
            1 if !whole => {
                for at in (0..usize::from(self.count)).filter(|at| self.has(*at, demand)) {
                    if !self.left[..at].contains(&self.left[at]) {
                        choices.push(GpuSet(1 << at));
                    }
                }
            }
            _ => {
                let mut fitting = [0usize; GPUS_MOST];
                let mut count = 0;
                for at in (0..usize::from(self.count)).filter(|at| self.has(*at, demand)) {
                    fitting[count] = at;
                    count += 1;
                }
                let fitting = &mut fitting[..count];
                if !whole {
                    fitting.sort_by_key(|at| self.left[*at]);
                }
                choices.push(GpuSet::of(fitting.iter().take(demand.gpus.into()).copied()));
            }
        }
        choices
    }

    /// Takes a demand's share of these GPUs. False, and nothing is taken, where it does not fit there.
    pub fn take(&mut self, demand: &Demand, gpus: GpuSet) -> bool {
        let seated = gpus.len() == usize::from(demand.gpus) && gpus.positions().all(|at| self.has(at, demand));
        if !seated || !self.fits(demand) {
            return false;
        }
        self.taken(demand, gpus);
        true
    }

    /// As [`Host::take`], for what is known to fit.
    pub(super) fn taken(&mut self, demand: &Demand, gpus: GpuSet) {
        self.cpu_milli -= demand.cpu_milli;
        self.memory_bytes -= demand.memory_bytes;
        if demand.gpus > 0 {
            (0..usize::from(self.count)).filter(|at| gpus.0 >> at & 1 == 1).for_each(|at| self.left[at] -= demand.gpu_milli);
        }
    }

    /// Gives back what a demand took of these GPUs. False, and nothing is given, where the node would have more than `limit` has.
    pub fn give(&mut self, demand: &Demand, gpus: GpuSet, limit: &Self) -> bool {
        let cpu = self.cpu_milli.checked_add(demand.cpu_milli).filter(|cpu| *cpu <= limit.cpu_milli);
        let memory = self.memory_bytes.checked_add(demand.memory_bytes).filter(|memory| *memory <= limit.memory_bytes);
        let back = |at: usize| self.left[at].checked_add(demand.gpu_milli).filter(|left| *left <= limit.left[at]);
        let seated = gpus.len() == usize::from(demand.gpus) && gpus.positions().all(|at| at < self.count.into() && back(at).is_some());
        let (Some(cpu_milli), Some(memory_bytes), true) = (cpu, memory, seated) else { return false };
        (self.cpu_milli, self.memory_bytes) = (cpu_milli, memory_bytes);
        gpus.positions().for_each(|at| self.left[at] += demand.gpu_milli);
        true
    }
}

/// Sets of GPUs among which to choose.
pub(super) struct Choices {
    sets: [GpuSet; GPUS_MOST],
    count: usize,
}

impl Choices {
    fn push(&mut self, set: GpuSet) {
        if let Some(place) = self.sets.get_mut(self.count) {
            *place = set;
            self.count += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = GpuSet> + '_ {
        self.sets[..self.count].iter().copied()
    }
}
