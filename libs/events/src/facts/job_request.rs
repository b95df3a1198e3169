//! What clients ask of a job; the scheduler's leader answers in the job's own events.

use footplate_types::RequestId;
use serde::{Deserialize, Serialize};

/// A client asks that a job be cancelled, whatever state it is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobCancelRequested {
    /// The request's id.
    pub request: RequestId,
    /// Why, in the client's words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A client asks that a pending job not be started until it is released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobHoldRequested {
    /// The request's id.
    pub request: RequestId,
    /// Why, in the client's words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A client asks that a held job may start again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobReleaseRequested {
    /// The request's id.
    pub request: RequestId,
}

/// A client asks for another priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobReprioritizeRequested {
    /// The request's id.
    pub request: RequestId,
    /// The new priority; inside its queue a larger one goes first.
    pub priority: i32,
}
