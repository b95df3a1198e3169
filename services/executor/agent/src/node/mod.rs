//! What the machine is and how it does: the agent's eyes. Absent tools make fields absent, never a failure.

mod declared;
mod gpu;
mod host;
mod sample;

pub use declared::{DeclaredError, DeclaredNode, declared_nodes};
pub use sample::{Sampler, Seen};

use footplate_types::{NodeShape, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where a node's shape comes from.
#[derive(Clone, Debug)]
pub enum ShapeSource {
    /// Looked up: GPUs through NVML where its library loads, else CPU slots.
    Detected {
        /// CPU slots where there is no GPU; absent: one a logical CPU.
        slots: Option<u32>,
        /// Offer slots even where there are GPUs.
        ignore_gpus: bool,
        /// Let jobs that ask shares stand together on one whole GPU.
        share_gpus: bool,
        /// The pool that the node says it is of.
        pool: Option<String>,
        /// The rack it stands in.
        rack: Option<String>,
        /// Labels, beside those that are found; of two with one key these count.
        labels: BTreeMap<String, String>,
        /// What keeps off it jobs that do not tolerate it.
        taints: BTreeSet<Taint>,
    },
    /// Declared, for tests and simulation.
    Declared(NodeShape),
}

impl ShapeSource {
    /// The node's shape; `work` is the folder whose free disk counts.
    pub fn shape(&self, work: &Path) -> NodeShape {
        match self {
            Self::Declared(shape) => shape.clone(),
            Self::Detected { slots, ignore_gpus, share_gpus, pool, rack, labels, taints } => {
                let found = if *ignore_gpus { gpu::Found::default() } else { gpu::detect() };
                let cpus = host::cpus();
                let slots = if found.gpus.is_empty() { slots.unwrap_or(cpus) } else { 0 };
                NodeShape {
                    gpus: found.gpus,
                    share_gpus: *share_gpus,
                    slots,
                    cpus,
                    memory_bytes: host::memory_bytes(),
                    disk_bytes: host::free_disk_bytes(work),
                    rack: rack.clone(),
                    pool: pool.clone(),
                    labels: found.labels.into_iter().chain(labels.clone()).collect(),
                    taints: taints.clone(),
                }
            }
        }
    }
}
