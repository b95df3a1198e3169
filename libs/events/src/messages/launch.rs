//! The launch document: the long part of a job, kept in the object store and named by its digest in the ledger.

use crate::facts::DocumentRef;
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

/// What the members of one role are started with, over what all have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RoleLaunch {
    /// The command of a worker; absent: that of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunCommand>,
    /// Environment variables of set-up and workers, over those of all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
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
    /// What the members of a role run instead, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleLaunch>,
    /// Who submitted, from which host and folder, with which client version; for the record.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origin: BTreeMap<String, String>,
    /// The sealed document ([`SealedDocument`] as JSON): the real values of what is masked here and in the config. Only the agent that
    /// starts the job reads it; no view, search or log shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<DocumentRef>,
}

/// What a stored sealed document begins with, before its JSON. The artifact door gives what begins so to nodes alone.
pub const SEALED_PREFIX: &[u8] = b"footplate-sealed/1\n";

/// What was masked in the launch document and the config, as it really is. Each present field stands in the place of the masked one when the
/// job is prepared; it is never recorded, shown or searched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SealedDocument {
    /// Instead of [`LaunchDocument::run`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunCommand>,
    /// Instead of [`LaunchDocument::setup`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// These variables instead of those of the same names in [`LaunchDocument::env`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The same of [`LaunchDocument::roles`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleLaunch>,
    /// The whole config, as the text of its JSON file, instead of the recorded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

impl LaunchDocument {
    /// This document with the real values in the place of the masked ones; the config's text comes back when it was masked.
    #[must_use]
    pub fn unsealed(mut self, sealed: SealedDocument) -> (Self, Option<String>) {
        let SealedDocument { run, setup, env, roles, config } = sealed;
        for (name, real) in roles {
            let role = self.roles.entry(name).or_default();
            role.run = real.run.or(role.run.take());
            role.env.extend(real.env);
        }
        self.run = run.unwrap_or(self.run);
        self.setup = setup.unwrap_or(self.setup);
        self.env.extend(env);
        (self, config)
    }

    /// This document as the members of a role are started by it.
    #[must_use]
    pub fn of_role(mut self, role: Option<&str>) -> Self {
        let roles = std::mem::take(&mut self.roles);
        if let Some(RoleLaunch { run, env }) = role.and_then(|role| roles.get(role)).cloned() {
            self.run = run.unwrap_or(self.run);
            self.env.extend(env);
        }
        self
    }
}
