//! Nodes: what they have, whether they may be used.

use footplate_types::{Epoch, GpuUuid, NodeShape, RequestId};
use serde::{Deserialize, Serialize};

/// A node's agent told what the node has: first, after each start, and when the shape changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRegistered {
    /// The generation under which it may be given work.
    pub epoch: Epoch,
    /// The kernel's boot id; another one than before means that nothing of before runs any more.
    pub boot_id: String,
    /// What it offers.
    pub shape: NodeShape,
    /// Where other nodes reach it (host name or address), for the rendezvous.
    pub address: String,
    /// The agent's version.
    pub agent_version: String,
    /// By how much the agent's clock ran ahead of the broker's (negative: behind), in milliseconds; shown only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
}

/// A node or one of its GPUs turned unhealthy, or healthy again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeHealthChanged {
    /// The GPU, or the node as a whole when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUuid>,
    /// Whether it may be used.
    pub healthy: bool,
    /// Why, in words (an Xid, a full disk).
    pub reason: String,
}

/// A node takes no new work; what runs goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeCordoned {
    /// The request that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// Why.
    pub reason: String,
}

/// A node takes new work again; a drain ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeUncordoned {
    /// The request that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

/// A node is being emptied: no new work, what runs is stopped with notice and requeued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeDrained {
    /// The request that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// Why.
    pub reason: String,
}

/// A node is not heard of any more. Releases no claim: only an attempt's `lost` or `exited` does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeLost {
    /// The generation that is over; work is given again only after a registration under a higher one, or the same one when the
    /// node was heard of again before it was fenced.
    pub epoch: Epoch,
    /// How it is known.
    pub reason: String,
}

/// A request about a node was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeRefused {
    /// The request.
    pub request: RequestId,
    /// Why, and what to do next.
    pub reason: String,
}
