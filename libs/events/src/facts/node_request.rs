//! What operators ask of a node; gpu-inventory's leader answers in the node's own events.

use footplate_types::{Epoch, RequestId, Taint, Toleration};
use serde::{Deserialize, Serialize};

/// An operator asks that a node take no new work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeCordonRequested {
    /// The request's id.
    pub request: RequestId,
    /// Why.
    pub reason: String,
}

/// An operator asks that a node take work again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeUncordonRequested {
    /// The request's id.
    pub request: RequestId,
}

/// An operator asks that a node be emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeDrainRequested {
    /// The request's id.
    pub request: RequestId,
    /// Why.
    pub reason: String,
}

/// An operator asks that a node keep off jobs that do not tolerate a taint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeTaintRequested {
    /// The request's id.
    pub request: RequestId,
    /// The taint.
    pub taint: Taint,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// An operator asks that taints be taken off a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeUntaintRequested {
    /// The request's id.
    pub request: RequestId,
    /// Which: one taint, or by a key alone all with that key.
    pub taint: Toleration,
}

/// An operator's word that a node is gone for good (powered off, wiped): the executor fences it at once instead of waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeLossDeclared {
    /// The request's id.
    pub request: RequestId,
    /// How the operator knows.
    pub reason: String,
    /// The generation that is meant: a machine that has been started anew since is another one. Absent: whichever stands when this is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}
