//! Beats: leases of agents and of the services' leaders.

use footplate_types::{AttemptNumber, Epoch, NodeName, RunId, ServiceName, Timestamp};
use serde::{Deserialize, Serialize};

/// What stands on a node's beat subject: its own beat, or the fence that ended its generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum BeatMessage {
    /// The agent lives.
    Beat(Beat),
    /// The executor's leader has ended the generation.
    Fence(Fence),
}

/// An agent lives. Published expecting the agent's own previous beat; acknowledged, it extends the lease to the time it was sent
/// plus `lease_ms`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Beat {
    /// The node.
    pub node: NodeName,
    /// The generation the agent lives under.
    pub epoch: Epoch,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Beats of this agent process, from 1.
    pub number: u64,
    /// The length of the lease, in milliseconds; 0 = it has no end (one machine: only a new boot id loses its members).
    pub lease_ms: u64,
    /// How long the shims need at most to empty a tree after the lease has run out, in milliseconds.
    pub kill_ms: u64,
    /// The highest assignment it has seen.
    pub as_of: u64,
    /// What it holds.
    #[serde(default)]
    pub held: Vec<(RunId, AttemptNumber)>,
    /// The agent's clock; shown only.
    pub sent_at: Timestamp,
    /// A token of the agent's work folder, minted once: two agents that beat under one name are told apart by it, on one machine too. Empty
    /// in beats of agents that did not say it yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
}

/// The generation is over: the agent kills all it holds, reports it, then beats from this message's sequence under `epoch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fence {
    /// The node.
    pub node: NodeName,
    /// The next generation.
    pub epoch: Epoch,
    /// Why, in words.
    pub reason: String,
    /// The lease length of the fenced generation, carried on for who takes over.
    pub lease_ms: u64,
}

/// A service's leader lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseBeat {
    /// The service.
    pub service: ServiceName,
    /// The leading instance.
    pub instance: String,
    /// Beats of this leader, from 1.
    pub number: u64,
    /// After how long without a change another may take over, in milliseconds, on its own clock.
    pub lease_ms: u64,
    /// Whether the leader has stepped down of its own will; another may take over at once.
    #[serde(default)]
    pub released: bool,
}
