//! The roles of a gang, each as a shape of its own: where its members fit is found and kept like that of any other job.

use super::Job;
use footplate_events::facts::{GangRole, JobSpec, ResourceAsk};
use footplate_types::{Digest, NodeName};
use std::sync::Arc;

/// One role of a job.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// What it is called.
    pub(crate) name: String,
    /// Equal for what fits on the same nodes.
    pub(crate) class: Digest,
    /// A job of this role alone: what it asks, and where it may stand.
    pub(crate) spec: Arc<JobSpec>,
}

impl Part {
    /// The roles of a job; none for a job without.
    pub(crate) fn all(spec: &JobSpec, avoid: &[NodeName]) -> Vec<Self> {
        let part = |role: &GangRole| {
            let resources = ResourceAsk { nodes: role.nodes, per_node: role.per_node.clone() };
            let alone = JobSpec::of(spec.name.clone(), spec.experiment.clone(), spec.queue.clone(), resources, spec.launch);
            let alone = JobSpec { placement: spec.placement.clone(), ..alone };
            Self { name: role.name.clone(), class: Job::class_of(&alone, avoid), spec: Arc::new(alone) }
        };
        spec.roles.iter().map(part).collect()
    }
}
