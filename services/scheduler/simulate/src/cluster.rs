//! The cluster file: groups of equal nodes, and the tree of queues.

use crate::API_VERSION;
use footplate_events::facts::{JobSpec, QueueConfigured, Quota};
use footplate_types::{ByteSize, Gpu, GpuModel, GpuUuid, Invalid, MigProfile, Millis, NodeName, NodeShape, NvlinkIsland, QueueName};
use serde::Deserialize;

/// A length of time as people write it (`90s`, `1h30m`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Millis);

impl TryFrom<String> for Span {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        Millis::parse(&text).map(Self)
    }
}

/// A size in bytes as people write it (`80GiB`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Size(pub ByteSize);

impl TryFrom<String> for Size {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        ByteSize::parse(&text).map(Self)
    }
}

/// A cluster file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// `footplate/v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// `Cluster`.
    pub kind: String,
    /// Its nodes.
    pub nodes: Vec<NodeGroup>,
    /// Its queues, each after the one that stands above it. `default` is there without.
    #[serde(default)]
    pub queues: Vec<QueueGroup>,
}

/// Nodes that are equal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    /// What they are called; more than one get `-1`, `-2` and so on.
    pub name: NodeName,
    /// How many there are.
    #[serde(default = "one")]
    pub count: u32,
    /// Their pool.
    pub pool: Option<String>,
    /// Their rack.
    pub rack: Option<String>,
    /// The GPUs of each.
    pub gpus: Option<GpuGroup>,
    /// Whether jobs that ask shares may stand together on one GPU of each.
    #[serde(default)]
    pub share_gpus: bool,
    /// The CPU slots of each.
    #[serde(default)]
    pub slots: u32,
    /// Logical CPUs of each; left out: as many as are asked.
    pub cpus: Option<u32>,
    /// Memory of each; left out: as much as is asked.
    pub memory: Option<Size>,
}

/// The GPUs of a node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuGroup {
    /// Their kind.
    pub model: GpuModel,
    /// How many.
    pub count: u32,
    /// Memory of each; left out: as much as is asked.
    pub memory: Option<Size>,
    /// Into how many NVLink islands they are divided, in order; 0: none is linked.
    #[serde(default = "one")]
    pub islands: u32,
    /// The MIG profile of which they are slices; then `count` counts slices, and `memory` is that of one. None is linked.
    pub mig: Option<MigProfile>,
}

/// One queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueGroup {
    /// Its name.
    pub name: QueueName,
    /// The queue above it.
    pub parent: Option<QueueName>,
    /// Its share against its siblings.
    #[serde(default = "one")]
    pub weight: u32,
    /// What is its own.
    #[serde(default)]
    pub guarantee: Amount,
    /// The most it may hold.
    #[serde(default)]
    pub quota: Amount,
    /// How long a job yields to those of half its size.
    #[serde(default)]
    pub small_first: Span,
}

/// So many GPUs and slots; what is left out is not said of.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// Whole GPUs.
    pub gpus: Option<u32>,
    /// CPU slots.
    pub slots: Option<u32>,
}

const fn one() -> u32 {
    1
}

impl From<Amount> for Quota {
    fn from(amount: Amount) -> Self {
        Self { gpus: amount.gpus, slots: amount.slots }
    }
}

/// Checks the head of a file.
pub(crate) fn check_head(api_version: &str, kind: &str, wanted: &str) -> Result<(), Invalid> {
    if api_version != API_VERSION {
        return Err(Invalid::new("apiVersion", api_version, API_VERSION));
    }
    if kind != wanted {
        return Err(Invalid::new("kind", kind, wanted));
    }
    Ok(())
}

impl Cluster {
    /// The most nodes of all groups together.
    pub const NODES_MAX: u32 = 100_000;
    /// The most GPUs, and the most slots, of one node.
    pub const UNITS_MAX: u32 = JobSpec::WORKERS_PER_NODE_MAX;

    /// Every node by its name and shape.
    pub(crate) fn shapes(&self) -> Result<Vec<(NodeName, NodeShape)>, Invalid> {
        check_head(&self.api_version, &self.kind, "Cluster")?;
        let sum = self.nodes.iter().fold(0u32, |sum, group| sum.saturating_add(group.count));
        if !(1..=Self::NODES_MAX).contains(&sum) {
            return Err(Invalid::new("nodes (of all groups)", sum, format!("1 to {}", Self::NODES_MAX)));
        }
        let mut shapes = Vec::new();
        for group in &self.nodes {
            group.check()?;
            for n in 1..=group.count {
                let name = if group.count == 1 { group.name.clone() } else { NodeName::parse(&format!("{}-{n}", group.name))? };
                shapes.push((name.clone(), group.shape(&name)?));
            }
        }
        let mut names: Vec<&NodeName> = shapes.iter().map(|(name, _)| name).collect();
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Invalid::new("nodes", pair[0], "a name of its own for every node")),
            None => Ok(shapes),
        }
    }

    /// Every queue with its settings.
    pub(crate) fn settings(&self) -> Vec<(QueueName, QueueConfigured)> {
        let of = |queue: &QueueGroup| QueueConfigured {
            weight: queue.weight.max(1),
            quota: queue.quota.into(),
            guarantee: queue.guarantee.into(),
            parent: queue.parent.clone(),
            small_first: queue.small_first.0,
            ..QueueConfigured::default()
        };
        self.queues.iter().map(|queue| (queue.name.clone(), of(queue))).collect()
    }

    /// The most whole GPUs of one node.
    pub(crate) fn gpus_of_a_node(&self) -> u32 {
        let groups = self.nodes.iter().filter_map(|group| group.gpus.as_ref()).filter(|gpus| gpus.mig.is_none());
        groups.map(|gpus| gpus.count).max().unwrap_or(0)
    }
}

impl NodeGroup {
    fn check(&self) -> Result<(), Invalid> {
        for (what, count) in [("gpus.count", self.gpus.as_ref().map_or(0, |gpus| gpus.count)), ("slots", self.slots)] {
            if count > Cluster::UNITS_MAX {
                return Err(Invalid::new(format!("nodes.{}.{what}", self.name), count, format!("0 to {}", Cluster::UNITS_MAX)));
            }
        }
        Ok(())
    }

    fn shape(&self, name: &NodeName) -> Result<NodeShape, Invalid> {
        let mut gpus = Vec::new();
        if let Some(group) = &self.gpus {
            for at in 0..group.count {
                let is_linked = group.islands > 0 && group.mig.is_none();
                let island = is_linked.then(|| NvlinkIsland((u64::from(at) * u64::from(group.islands) / u64::from(group.count)) as u32));
                gpus.push(Gpu {
                    uuid: GpuUuid::parse(&format!("{}-{name}-{at}", if group.mig.is_some() { "MIG" } else { "GPU" }))?,
                    model: group.model.clone(),
                    memory_bytes: group.memory.map_or(JobSpec::BYTES_MAX, |size| size.0.0),
                    island,
                    numa: None,
                    pci: None,
                    mig_profile: group.mig.as_ref().map(ToString::to_string),
                    parent: None,
                });
            }
        }
        Ok(NodeShape {
            gpus,
            share_gpus: self.share_gpus,
            slots: self.slots,
            // Far more than every unit of a node could ask together, and far from what a sum cannot hold.
            cpus: self.cpus.unwrap_or(JobSpec::CPUS_MAX),
            memory_bytes: self.memory.map_or(JobSpec::BYTES_MAX, |size| size.0.0),
            disk_bytes: JobSpec::BYTES_MAX,
            rack: self.rack.clone(),
            pool: self.pool.clone(),
            ..NodeShape::default()
        })
    }
}
