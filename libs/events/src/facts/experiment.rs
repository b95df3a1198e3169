//! Experiments: named groups of runs.

use footplate_types::DisplayName;
use serde::{Deserialize, Serialize};

/// An experiment was created, by name, by the first run that names it or by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExperimentCreated {
    /// Its name, unique in the project.
    pub name: DisplayName,
    /// What it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// An experiment's description was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExperimentNoted {
    /// The new description.
    pub note: String,
}
