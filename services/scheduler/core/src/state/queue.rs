//! Queues: their settings and what their jobs hold.

use super::Claim;
use crate::DEFAULT_QUEUE;
use footplate_events::facts::{JobSpec, QueueConfigured, Quota};
use footplate_types::{GpuMilli, QueueName};
use serde::{Deserialize, Serialize};

/// What a queue's placed jobs hold now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// GPUs, in thousandths of one, so that slices and shares add up.
    pub gpu_milli: u64,
    /// CPU slots.
    pub slots: u64,
}

impl Holding {
    /// What a whole gang asks.
    pub(crate) fn asked(spec: &JobSpec) -> Self {
        Self { gpu_milli: spec.all_gpu_milli(), slots: spec.all_slots() }
    }

    /// With a claim more.
    pub(crate) fn add(&mut self, claim: &Claim) {
        *self = self.with(claim.held());
    }

    /// With a claim less.
    pub(crate) fn remove(&mut self, claim: &Claim) {
        *self = self.without(claim.held());
    }

    /// What a quota or a guarantee lets have, of what it says something.
    pub(crate) fn limits(quota: &Quota) -> (Option<u64>, Option<u64>) {
        (quota.gpus.map(|gpus| GpuMilli::of_whole(gpus.into()).0), quota.slots.map(u64::from))
    }

    /// Less what is given up.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self { gpu_milli: self.gpu_milli.saturating_sub(other.gpu_milli), slots: self.slots.saturating_sub(other.slots) }
    }

    /// The sum of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { gpu_milli: self.gpu_milli + other.gpu_milli, slots: self.slots + other.slots }
    }
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its settings.
    pub settings: QueueConfigured,
    /// The last sequence on its subject; 0 when nobody configured it.
    pub sequence: u64,
    /// What its jobs hold.
    pub holding: Holding,
    /// How many of its jobs have not ended.
    pub living: u64,
}

impl Queue {
    /// Whether nobody configured it, and it is not the one that is there without that.
    pub fn is_unknown(&self, name: &QueueName) -> bool {
        self.sequence == 0 && name.as_str() != DEFAULT_QUEUE
    }

    /// Whether nothing of it is placed now: it is held, or a job has come to it that a client could not have brought, of a sweep's trial or beside
    /// its closing. Such a job waits until someone opens it.
    pub fn is_shut(&self, name: &QueueName) -> bool {
        self.settings.held || self.settings.closed || self.is_unknown(name)
    }
}
