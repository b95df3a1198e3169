//! The nodes: who sits where, and where somebody else would fit.

use super::philly::NODE_GPUS;

/// A job, by its place in the trace.
pub type JobId = usize;

/// Nodes of eight GPUs.
#[derive(Clone, Debug)]
pub struct Floor {
    free: Vec<u32>,
    /// Who holds GPUs of a node, and how many of it.
    residents: Vec<Vec<(JobId, u32)>>,
    free_gpus: u32,
}

impl Floor {
    /// An empty floor of so many GPUs, in whole nodes.
    pub fn new(gpus: u32) -> Self {
        let nodes = (gpus / NODE_GPUS) as usize;
        Self { free: vec![NODE_GPUS; nodes], residents: vec![Vec::new(); nodes], free_gpus: nodes as u32 * NODE_GPUS }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.free.len()
    }

    /// All GPUs.
    pub fn gpus(&self) -> u32 {
        self.free.len() as u32 * NODE_GPUS
    }

    /// GPUs that nobody holds.
    pub fn free_gpus(&self) -> u32 {
        self.free_gpus
    }

    /// Free GPUs of a node.
    pub fn free(&self, node: usize) -> u32 {
        self.free[node]
    }

    /// Who holds GPUs of a node.
    pub fn residents(&self, node: usize) -> &[(JobId, u32)] {
        &self.residents[node]
    }

    /// The nodes on which a job of so many GPUs would sit: the fullest one that has room, or idle ones for a wider job.
    pub fn seat(&self, gpus: u32) -> Option<Vec<usize>> {
        self.seat_on(gpus, |_| true)
    }

    /// The same among some nodes.
    pub fn seat_on(&self, gpus: u32, allowed: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        if gpus > self.free_gpus {
            return None;
        }
        if gpus <= NODE_GPUS {
            let fits = (0..self.free.len()).filter(|node| self.free[*node] >= gpus && allowed(*node));
            return fits.min_by_key(|node| self.free[*node]).map(|node| vec![node]);
        }
        let wanted = gpus.div_ceil(NODE_GPUS) as usize;
        let idle: Vec<usize> = (0..self.free.len()).filter(|node| self.free[*node] == NODE_GPUS && allowed(*node)).take(wanted).collect();
        (idle.len() == wanted).then_some(idle)
    }

    /// Seats a job of so many GPUs on nodes that have room.
    pub fn take(&mut self, job: JobId, gpus: u32, nodes: &[usize]) {
        for node in nodes {
            let of_node = gpus.min(NODE_GPUS);
            debug_assert!(self.free[*node] >= of_node, "a node holds more than it has");
            self.free[*node] -= of_node;
            self.free_gpus -= of_node;
            self.residents[*node].push((job, of_node));
        }
    }

    /// Frees what a job holds on nodes.
    pub fn give(&mut self, job: JobId, nodes: &[usize]) {
        for node in nodes {
            let residents = &mut self.residents[*node];
            if let Some(at) = residents.iter().position(|(resident, _)| *resident == job) {
                let (_, gpus) = residents.swap_remove(at);
                self.free[*node] += gpus;
                self.free_gpus += gpus;
            }
        }
    }
}
