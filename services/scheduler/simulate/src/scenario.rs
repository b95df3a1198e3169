//! What is simulated: nodes, queues, and the jobs that come.

use crate::cluster::Cluster;
use footplate_events::facts::{JobSpec, QueueConfigured};
use footplate_types::{Invalid, NodeName, NodeShape, QueueName};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A job that comes.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// When, in milliseconds from the beginning.
    pub at_ms: u64,
    /// How long it takes once it runs, in milliseconds.
    pub takes_ms: u64,
    /// What it asks.
    pub spec: Arc<JobSpec>,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) nodes: Vec<(NodeName, NodeShape)>,
    pub(crate) queues: Vec<(QueueName, QueueConfigured)>,
    pub(crate) arrivals: Vec<Arrival>,
}

impl Scenario {
    /// A cluster and the jobs that come to it, in order of time. `open`: queues of jobs that the cluster does not declare are made, each at the top with weight
    /// 1, as for a trace; else such jobs are refused, as the service does.
    ///
    /// # Errors
    /// A value of the cluster that cannot be.
    pub fn new(cluster: &Cluster, arrivals: Vec<Arrival>, open: bool) -> Result<Self, Invalid> {
        let mut queues = cluster.settings();
        if open {
            let declared: BTreeSet<QueueName> = queues.iter().map(|(name, _)| name.clone()).collect();
            let used: BTreeSet<&QueueName> = arrivals.iter().map(|arrival| &arrival.spec.queue).collect();
            let missing = used.into_iter().filter(|name| !declared.contains(*name));
            queues.extend(missing.map(|name| (name.clone(), QueueConfigured::default())));
        }
        Ok(Self { nodes: cluster.shapes()?, queues, arrivals })
    }

    /// How many jobs come.
    pub fn jobs(&self) -> usize {
        self.arrivals.len()
    }

    /// GPUs, in thousandths of one, and slots of all nodes.
    pub fn capacity(&self) -> (u64, u64) {
        let gpus = |shape: &NodeShape| shape.gpus.iter().map(|gpu| gpu.counts().0).sum::<u64>();
        self.nodes.iter().fold((0, 0), |(all, slots), (_, shape)| (all + gpus(shape), slots + u64::from(shape.slots)))
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }
}
