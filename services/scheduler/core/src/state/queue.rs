//! Queues: their settings and what their jobs hold.

use super::Claim;
use crate::DEFAULT_QUEUE;
use footplate_events::facts::{QueueConfigured, Quota};
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

    /// Both together: the measure of a share.
    pub fn units(&self) -> u64 {
        self.gpus + self.slots
    }
}

/// One queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

impl Default for Queue {
    fn default() -> Self {
        let settings = QueueConfigured { weight: 1, quota: Quota { gpus: None, slots: None }, held: false, closed: false };
        Self { settings, sequence: 0, holding: Holding::default(), living: 0 }
    }
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

    /// Why an ask does not fit under the hard quota now, as used and allowed with the ask, in words; `None` when it fits.
    pub fn quota_lacks(&self, gpus: u64, slots: u64) -> Option<String> {
        let lacks = |what: &str, used: u64, asked: u64, quota: Option<u32>| {
            let quota = u64::from(quota?);
            (asked > 0 && used + asked > quota).then(|| format!("{what}: {used} of {quota} in use, {asked} asked"))
        };
        let quota = &self.settings.quota;
        lacks("gpus", self.holding.gpus, gpus, quota.gpus).or_else(|| lacks("slots", self.holding.slots, slots, quota.slots))
    }

    /// Why an ask can never fit under the hard quota, in words; `None` when it could.
    pub fn quota_never(&self, gpus: u64, slots: u64) -> Option<String> {
        Self { holding: Holding::default(), ..self.clone() }.quota_lacks(gpus, slots)
    }
}
