//! Sweeps: what is searched, over which space, and by which rule.

use super::{JobSpec, ParamValue};
use footplate_types::{Digest, DisplayName, MetricName, ParamKey};
use serde::{Deserialize, Serialize};

/// The values that a param may take. Bounds belong to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Domain {
    /// Numbers with a fraction.
    Float {
        /// The lowest.
        low: f64,
        /// The highest.
        high: f64,
        /// Whether they are drawn evenly over their logarithm.
        #[serde(default)]
        log: bool,
        /// Only `low`, `low` + step, `low` + 2 steps, ...
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<f64>,
    },
    /// Whole numbers.
    Int {
        /// The lowest.
        low: i64,
        /// The highest.
        high: i64,
        /// Whether they are drawn evenly over their logarithm.
        #[serde(default)]
        log: bool,
        /// Only `low`, `low` + step, `low` + 2 steps, ...; 1 when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<i64>,
    },
    /// One of these.
    Categorical {
        /// The choices: numbers, texts, true, false.
        choices: Vec<ParamValue>,
    },
}

/// A param exists in a trial only where another one has one of some values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Condition {
    /// The other one.
    pub parameter: ParamKey,
    /// The values.
    pub one_of: Vec<ParamValue>,
}

/// One param of a space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parameter {
    /// Its name: a path of the program's config, parts joined by dots.
    pub name: ParamKey,
    /// Its values.
    pub domain: Domain,
    /// All of these must hold for it to exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<Condition>,
}

/// What is searched over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Space(pub Vec<Parameter>);

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Less is better.
    Minimize,
    /// More is better.
    Maximize,
}

/// Which of a metric's values counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// The one at the highest step.
    #[default]
    Last,
    /// The best of all.
    Best,
}

/// What a sweep goes by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Objective {
    /// The metric.
    pub metric: MetricName,
    /// Which way is better.
    pub direction: Direction,
    /// Which of its values counts.
    #[serde(default)]
    pub take: Take,
}

/// How points are chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Sampler {
    /// Every point once, in order; the search ends when there is none left.
    Grid,
    /// Independent draws, fixed by the seed and the trial's number.
    Random,
}

/// How trials without hope are ended early.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Pruner {
    /// Not at all.
    #[default]
    None,
    /// A trial that is worse at a rung than the median of the others there.
    Median {
        /// How many others must have been seen at a rung before any trial is pruned there.
        startup: u32,
    },
}

/// A client began a search over a space of params.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepCreated {
    /// Its name.
    pub name: DisplayName,
    /// What is searched over.
    pub space: Space,
    /// What it goes by.
    pub objective: Objective,
    /// How points are chosen.
    pub sampler: Sampler,
    /// How trials without hope are ended early.
    #[serde(default)]
    pub pruner: Pruner,
    /// The steps at which the objective is looked at before the end, rising.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<i64>,
    /// What the draws are fixed by.
    pub seed: u64,
    /// How many trials may be under way at once.
    pub parallel: u32,
    /// How many trials there may be; absent = as many as the sampler has points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials: Option<u32>,
    /// How many points the grid has; absent for other samplers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<u64>,
    /// The job of a trial, but for its config.
    pub job: JobSpec,
    /// Digest of the request's body under the client's idempotency key: the same key with another body is refused.
    pub body: Digest,
}

/// A client asks that a sweep suggest no more trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepStopRequested {
    /// Whether the trials that are under way are cancelled; else they run to their end.
    #[serde(default)]
    pub cancel: bool,
    /// Why, in the client's words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// A client lets a sweep go on: after a stop, or with a larger budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SweepResumed {
    /// How many trials there may be from now on; absent = as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trials: Option<u32>,
}
