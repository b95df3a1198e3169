//! Trials: the points of a sweep, and what came of them.

use super::{JobSpec, ParamValue};
use footplate_types::{ParamKey, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The params of a point: those that exist in it, each with its value.
pub type Values = BTreeMap<ParamKey, ParamValue>;

/// A point is to be tried. The scheduler submits its job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialSuggested {
    /// The run that is the trial.
    pub run: RunId,
    /// The point.
    pub values: Values,
    /// The job, its config holding the point.
    pub job: JobSpec,
    /// The ledger sequence up to which the search had seen what came of earlier trials.
    pub view: u64,
}

/// The objective was seen at a rung.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialObserved {
    /// The rung.
    pub rung: i64,
    /// The step that was logged: the first at the rung or beyond it.
    pub step: i64,
    /// The value; absent when it is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// Why a trial is ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PruneCause {
    /// It has no hope, by the sweep's rule.
    Rule,
    /// The sweep is stopped.
    SweepStopped,
}

/// A trial is ended before its time. The scheduler cancels its job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialPruned {
    /// Why.
    pub cause: PruneCause,
    /// The rung at which it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<i64>,
    /// In words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrialOutcome {
    /// It has a value (Optuna: COMPLETE).
    Complete,
    /// It was ended for want of hope (Optuna: PRUNED).
    Pruned,
    /// It failed, or has no finite value (Optuna: FAIL).
    Failed,
    /// Someone cancelled it, or its sweep.
    Cancelled,
}

/// A trial's run is sealed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrialFinished {
    /// What came of it.
    pub outcome: TrialOutcome,
    /// The objective's value; absent when it has none that is finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// In words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
