//! Queues: who may use how much.

use footplate_types::{Millis, QueueName};
use serde::{Deserialize, Serialize};

/// An amount of what a queue's placed jobs may hold at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quota {
    /// Whole GPUs; absent = nothing is said of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// CPU slots; absent = nothing is said of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

impl Quota {
    /// Whether nothing is said of anything.
    pub fn is_none(&self) -> bool {
        self.gpus.is_none() && self.slots.is_none()
    }
}

/// A queue was created, or its settings were replaced as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueConfigured {
    /// Its share against other queues, from 1.
    pub weight: u32,
    /// Its hard quota: it and the queues below it never hold more; what is not said of has no limit.
    pub quota: Quota,
    /// What is its own: others may use it meanwhile, and leave for it. What is not said of is nothing.
    #[serde(default, skip_serializing_if = "Quota::is_none")]
    pub guarantee: Quota,
    /// The queue above it, whose quota holds for it too and whose share it is a part of; absent: it stands at the top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<QueueName>,
    /// Whether its pending jobs start nothing until it is released.
    #[serde(default)]
    pub held: bool,
    /// Whether it is closed for good: no submit is taken. Refused while jobs of it live.
    #[serde(default)]
    pub closed: bool,
    /// How long a job yields to those of equal priority that are half its size: the GPUs (or slots) of the whole gang times the longest it may run. 0: they
    /// go in the order of their submission.
    #[serde(default, skip_serializing_if = "is_none")]
    pub small_first: Millis,
}

fn is_none(time: &Millis) -> bool {
    time.0 == 0
}

impl QueueConfigured {
    /// The longest that a job may have to yield to those of half its size, in milliseconds: a week.
    pub const SMALL_FIRST_MAX: u64 = 7 * 86_400_000;
}

/// What a queue is that nobody configured.
impl Default for QueueConfigured {
    fn default() -> Self {
        Self {
            weight: 1,
            quota: Quota::default(),
            guarantee: Quota::default(),
            parent: None,
            held: false,
            closed: false,
            small_first: Millis(0),
        }
    }
}
