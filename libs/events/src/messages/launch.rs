//! The launch document: the long part of a job, kept in the object store and named by its digest in the ledger.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum RunCommand {
    /// A line for `/bin/sh -c`.
    Shell(String),
    /// Program and arguments, started without a shell.
    Argv(Vec<String>),
}

/// What an agent needs to start a member, beside its assignment. Secrets never stand here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LaunchDocument {
    /// The command of a worker (direct) or of a node (torchrun).
    pub run: RunCommand,
    /// A line for `/bin/sh -c`, run once per attempt per node before any worker; empty = none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub setup: String,
    /// Environment variables set for set-up and workers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables passed on from the agent's own environment when they are set there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass: Vec<String>,
    /// Who submitted, from which host and folder, with which client version; for the record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origin: BTreeMap<String, String>,
}
