//! Runs: what one training was, and what came out of it.

use super::{InputRef, Outcome, SessionEnd};
use footplate_types::{ArtifactPath, AttemptNumber, Digest, DisplayName, ExperimentId, MetricName, ParamKey, Rank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run without a job was opened (a notebook, a script outside the platform). A run with a job begins with `job.submitted`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunCreated {
    /// Its name.
    pub name: DisplayName,
    /// The experiment it belongs to.
    pub experiment: ExperimentId,
    /// The experiment's name when the run was created.
    pub experiment_name: DisplayName,
    /// Digest of the request's body under the client's idempotency key: the same key with another body is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
    /// The expectation that is being tested; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hypothesis: String,
}

/// A param's value. Numbers are finite; `NaN` and the infinities are texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum ParamValue {
    /// true or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number that was written with a point or an exponent.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<ParamValue>),
    /// A nested section.
    Map(BTreeMap<String, ParamValue>),
    /// Nothing (`null`).
    Null(()),
}

/// Params were logged. A key logged again by a later attempt becomes that attempt's value; the older stays visible.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunParamsLogged {
    /// The attempt whose worker said so; 0 for clients.
    #[serde(default)]
    pub attempt: AttemptNumber,
    /// The worker's rank.
    #[serde(default)]
    pub rank: Rank,
    /// Key to value.
    pub params: BTreeMap<ParamKey, ParamValue>,
}

/// Tags were set or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunTagsSet {
    /// Key to value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<ParamKey, String>,
    /// Keys that are no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<ParamKey>,
}

/// A hypothesis, a conclusion or a note was written; what is absent stays as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunNoted {
    /// The expectation that is being tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypothesis: Option<String>,
    /// What was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Data that the run reads was named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunInputsLogged {
    /// The inputs.
    pub inputs: Vec<InputRef>,
}

/// One file that a run produced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoggedArtifact {
    /// Its name in the run.
    pub path: ArtifactPath,
    /// SHA-256 of its content.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
    /// The attempt whose worker made it; 0 for clients.
    #[serde(default)]
    pub attempt: AttemptNumber,
    /// The worker's rank.
    #[serde(default)]
    pub rank: Rank,
}

/// Artifacts are stored, each whole under its digest. A path logged again names the new content; the older stays in history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunArtifactsLogged {
    /// The artifacts.
    pub artifacts: Vec<LoggedArtifact>,
}

/// A run without a job was ended by its client, or a worker said how it saw its own end (which decides nothing for a run with a job).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFinished {
    /// How it ended.
    pub outcome: Outcome,
    /// The attempt whose worker said so; 0 for clients.
    #[serde(default)]
    pub attempt: AttemptNumber,
    /// In words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The logging sessions of a run without a job: its seal waits for their batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionEnd>,
}

/// A run is complete: all metrics, logs and artifacts up to its workers' final offsets are stored. What comes later is shown as late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSealed {
    /// How it ended.
    pub outcome: Outcome,
    /// The last attempt; 0 for a run without a job.
    #[serde(default)]
    pub attempt: AttemptNumber,
    /// Whether nothing was missing; false when the deadline came first.
    pub complete: bool,
    /// What was missing at the deadline, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// How many metric points were stored.
    pub points: u64,
    /// How many artifacts stand.
    pub artifacts: u64,
    /// How many bytes of logs are archived.
    pub log_bytes: u64,
    /// Digest over what was sealed (final params, latest values, artifacts), in the order of their names.
    pub record: Digest,
    /// What became of the metrics that its job named as objectives: those that were logged, at the lowest rank that has them: the last value of the newest attempt, the least and the greatest of all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objectives: BTreeMap<MetricName, SealedFigure>,
}

/// A metric as a seal holds it. A value that is not finite is absent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SealedFigure {
    /// The highest step.
    pub step: i64,
    /// The value at that step; absent when it is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<f64>,
    /// The lowest finite value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The highest finite value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}
