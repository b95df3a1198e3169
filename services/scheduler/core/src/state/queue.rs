//! Queues: their settings and what their jobs hold.

use super::Claim;
use crate::DEFAULT_QUEUE;
use footplate_events::facts::{JobSpec, QueueConfigured};
use footplate_types::QueueName;
use serde::{Deserialize, Serialize};

/// What a queue's placed jobs hold now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Whole GPUs.
    pub gpus: u64,
    /// CPU slots.
    pub slots: u64,
}

impl Holding {
    /// What a whole gang asks.
    pub(crate) fn asked(spec: &JobSpec) -> Self {
        Self { gpus: spec.all_gpus(), slots: spec.all_slots() }
    }

    /// With a claim more.
    pub(crate) fn add(&mut self, claim: &Claim) {
        self.gpus += claim.gpus.len() as u64;
        self.slots += claim.slots.len() as u64;
    }

    /// With a claim less.
    pub(crate) fn remove(&mut self, claim: &Claim) {
        self.gpus = self.gpus.saturating_sub(claim.gpus.len() as u64);
        self.slots = self.slots.saturating_sub(claim.slots.len() as u64);
    }

    /// Less what is given up.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self { gpus: self.gpus.saturating_sub(other.gpus), slots: self.slots.saturating_sub(other.slots) }
    }

    /// The sum of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { gpus: self.gpus + other.gpus, slots: self.slots + other.slots }
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
