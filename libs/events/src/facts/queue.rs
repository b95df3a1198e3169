//! Queues: who may use how much.

use serde::{Deserialize, Serialize};

/// A hard limit on what a queue's placed jobs may hold at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Quota {
    /// Whole GPUs; absent = without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// CPU slots; absent = without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
}

/// A queue was created, or its settings were replaced as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueConfigured {
    /// Its share against other queues, from 1.
    pub weight: u32,
    /// Its hard quota.
    pub quota: Quota,
    /// Whether its pending jobs start nothing until it is released.
    #[serde(default)]
    pub held: bool,
    /// Whether it is closed for good: no submit is taken. Refused while jobs of it live.
    #[serde(default)]
    pub closed: bool,
}
