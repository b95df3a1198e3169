//! Nodes: what they have, whether they may be used.

use footplate_types::{Epoch, GpuUuid, NodeShape, RequestId, Taint, Toleration};
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

/// An operator's taint is on a node: no job that does not tolerate it starts there; what runs goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeTainted {
    /// The request that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The taint.
    pub taint: Taint,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Taints that operators had set are off a node; those that its agent declares stay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeUntainted {
    /// The request that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// Which: one taint, or by a key alone all with that key.
    pub taint: Toleration,
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
