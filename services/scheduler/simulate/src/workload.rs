//! The workload file: groups of equal jobs, when they come and how long they take.

use crate::cluster::{Size, Span, check_head};
use crate::dice::Dice;
use crate::scenario::Arrival;
use footplate_events::facts::{DocumentRef, JobSpec, Limits, PerNode, PlacementAsk, ResourceAsk, RetryPolicy};
use footplate_types::{Digest, DisplayName, GpuModel, Invalid, MigProfile, QueueName};
use serde::Deserialize;
use std::sync::Arc;

/// A workload file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// `footplate/v1`.
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    /// `Workload`.
    pub kind: String,
    /// Its jobs.
    pub jobs: Vec<JobGroup>,
}

/// Jobs that are equal, one after the other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobGroup {
    /// What they are called.
    pub name: DisplayName,
    /// Their queue.
    pub queue: Option<QueueName>,
    /// How many come.
    #[serde(default = "one")]
    pub count: u32,
    /// When the first comes.
    #[serde(default)]
    pub at: Span,
    /// How long after it the next one comes, and so on; left out: all at once.
    #[serde(default)]
    pub every: Span,
    /// How long one takes once it runs.
    pub duration: Span,
    /// Whether `every` and `duration` are means of what is drawn, exponentially, from the seed.
    #[serde(default)]
    pub random: bool,
    /// Nodes of one.
    #[serde(default = "one")]
    pub nodes: u32,
    /// GPUs of each node.
    #[serde(default)]
    pub gpus: u32,
    /// CPU slots of each node.
    #[serde(default)]
    pub slots: u32,
    /// Kinds of GPU that will do; empty: any.
    #[serde(default)]
    pub gpu_models: Vec<GpuModel>,
    /// The least memory of each GPU; of a share its own part of it.
    pub gpu_memory: Option<Size>,
    /// The MIG profile: `gpus` slices of it are asked.
    pub gpu_profile: Option<MigProfile>,
    /// The share of the one GPU, in thousandths.
    #[serde(default)]
    pub gpu_share: u32,
    /// Logical CPUs of each node.
    #[serde(default)]
    pub cpus: u32,
    /// Memory of each node.
    pub memory: Option<Size>,
    /// Only in this pool.
    pub pool: Option<String>,
    /// Inside its queue a larger one goes first.
    #[serde(default)]
    pub priority: i32,
    /// Whether it may be stopped for others.
    #[serde(default)]
    pub preemptible: bool,
    /// The longest it may run.
    #[serde(default)]
    pub max_duration: Span,
    /// The longest it may wait for its first start.
    #[serde(default)]
    pub max_pending: Span,
}

const fn one() -> u32 {
    1
}

impl Workload {
    /// The most jobs of all groups together.
    pub const JOBS_MAX: u32 = 1_000_000;

    /// Every job, by the time it comes.
    ///
    /// # Errors
    /// A value that no job may have, by its group.
    pub fn arrivals(&self, seed: u64) -> Result<Vec<Arrival>, Invalid> {
        check_head(&self.api_version, &self.kind, "Workload")?;
        let sum = self.jobs.iter().fold(0u32, |sum, group| sum.saturating_add(group.count));
        if !(1..=Self::JOBS_MAX).contains(&sum) {
            return Err(Invalid::new("jobs (of all groups)", sum, format!("1 to {}", Self::JOBS_MAX)));
        }
        let mut arrivals = Vec::with_capacity(sum as usize);
        for (stream, group) in self.jobs.iter().enumerate() {
            let spec = group.spec();
            spec.validate().map_err(|invalid| {
                let field = format!("jobs.{}: {}", group.name, invalid.field);
                invalid.of(field)
            })?;
            let spec = Arc::new(spec);
            let mut dice = Dice::new(seed, stream as u64);
            let mut at_ms = group.at.0.0;
            for n in 0..group.count {
                let draw = |dice: &mut Dice, mean: u64| if group.random { dice.exponential(mean) } else { mean };
                if n > 0 {
                    at_ms = at_ms.saturating_add(draw(&mut dice, group.every.0.0));
                }
                let takes_ms = draw(&mut dice, group.duration.0.0);
                arrivals.push(Arrival { at_ms, takes_ms, spec: spec.clone() });
            }
        }
        // Stable: of those that come at once, those that stand first in the file.
        arrivals.sort_by_key(|arrival| arrival.at_ms);
        Ok(arrivals)
    }
}

impl JobGroup {
    fn spec(&self) -> JobSpec {
        let mut spec = plain(self.name.clone(), self.queue.clone());
        spec.resources = ResourceAsk {
            nodes: self.nodes,
            per_node: PerNode {
                gpus: self.gpus,
                gpu_profile: self.gpu_profile.clone(),
                gpu_share: self.gpu_share,
                slots: self.slots,
                gpu_models: self.gpu_models.clone(),
                gpu_memory_bytes: self.gpu_memory.unwrap_or_default().0.0,
                cpus: self.cpus,
                memory_bytes: self.memory.unwrap_or_default().0.0,
                disk_bytes: 0,
            },
        };
        spec.placement = PlacementAsk { pool: self.pool.clone(), ..PlacementAsk::default() };
        (spec.priority, spec.preemptible) = (self.priority, self.preemptible);
        spec.limits = Limits { max_duration: self.max_duration.0, max_pending: self.max_pending.0, ..Limits::default() };
        spec
    }
}

/// A job that asks for nothing yet.
pub(crate) fn plain(name: DisplayName, queue: Option<QueueName>) -> JobSpec {
    JobSpec {
        retry: RetryPolicy { preempted: u32::MAX, ..RetryPolicy::default() },
        ..JobSpec::of(
            name.clone(),
            name,
            queue.unwrap_or_else(|| QueueName::parse(footplate_scheduler_core::DEFAULT_QUEUE).expect("a literal that is valid")),
            ResourceAsk { nodes: 1, per_node: PerNode::default() },
            DocumentRef { digest: Digest::of(b""), bytes: 0 },
        )
    }
}
