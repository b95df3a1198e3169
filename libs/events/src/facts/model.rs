//! Models and their versions: what a version is, who approved it, which one stands where.
//!
//! Who stands where (stages, what serves, aliases) is said on the model, so that one event moves it and no reader ever finds none or two. What
//! a version is and whether it was approved is said on the version; those facts only accrue, so that a decision about the model may build
//! upon them. `body` is the digest of the request's body under the client's idempotency key: the same key with another body is refused.

use super::Outcome;
use footplate_types::{AliasName, ArtifactPath, AttemptNumber, Digest, EventId, MetricName, ModelName, RunId, VersionNumber};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a version stands, in the words of MLflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nowhere.
    #[default]
    None,
    /// It is being tried; one version at most.
    Staging,
    /// It serves; one version at most.
    Production,
    /// It is retired.
    Archived,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 4] = [Self::None, Self::Staging, Self::Production, Self::Archived];

    /// As MLflow writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Staging => "Staging",
            Self::Production => "Production",
            Self::Archived => "Archived",
        }
    }

    /// Reads it in any case, as MLflow does.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str().eq_ignore_ascii_case(text))
    }
}

/// One file of a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelFile {
    /// Its path in the run.
    pub path: ArtifactPath,
    /// SHA-256 of its content.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}

/// A version as whoever serves it needs it: which, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VersionRef {
    /// Its number.
    pub version: VersionNumber,
    /// The run that made it.
    pub run: RunId,
    /// The artifact in that run: a file, or a folder.
    pub path: ArtifactPath,
    /// SHA-256 of the file; of a folder, of its listing (see `footplate.model-version.registered.v1`).
    pub digest: Digest,
}

/// A model was created: a name under which versions are registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelCreated {
    /// Its name, unique in the project.
    pub model: ModelName,
    /// What it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// An approved version serves now (stage Production); whatever served before stands nowhere since the same event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelPromoted {
    /// The model.
    pub model: ModelName,
    /// What serves.
    pub to: VersionRef,
    /// What served until now; absent for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<VersionNumber>,
    /// The approval that allowed it.
    pub approval: EventId,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// A version that served before serves again (stage Production); whatever served until now stands nowhere since the same event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelRolledBack {
    /// The model.
    pub model: ModelName,
    /// What serves again.
    pub to: VersionRef,
    /// What served until now; absent for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<VersionNumber>,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// A version was moved to Staging, or to None (out of Production, Staging or the archive). Production and the archive have events of their
/// own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelStaged {
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: VersionNumber,
    /// Where it stood.
    pub from: Stage,
    /// Where it stands.
    pub to: Stage,
    /// The version that left Staging for it and stands nowhere now; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub displaced: Option<VersionNumber>,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// A version was retired. Never the one that serves; the aliases that still named it are gone with the same event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelArchived {
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: VersionNumber,
    /// Where it stood.
    pub from: Stage,
    /// The aliases that named it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<AliasName>,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// An alias names a version now; one that named another moved with this event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelAliasSet {
    /// The model.
    pub model: ModelName,
    /// The alias.
    pub alias: AliasName,
    /// What it names.
    pub to: VersionRef,
    /// What it named until now; absent for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<VersionNumber>,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// An alias names nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelAliasRemoved {
    /// The model.
    pub model: ModelName,
    /// The alias.
    pub alias: AliasName,
    /// What it named.
    pub version: VersionNumber,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// A version was made of an artifact of a sealed run: a file, or every file of a folder, as they stood when the run was sealed.
///
/// Of a file `digest` is its SHA-256. Of a folder it is the SHA-256 of its listing: for each file in the order of the paths one line of its
/// digest, two blanks and its path, ended by a line feed (as `sha256sum` prints it in the run's folder).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelVersionRegistered {
    /// The model.
    pub model: ModelName,
    /// Its number, one more than the last.
    pub version: VersionNumber,
    /// The run that made it.
    pub run: RunId,
    /// The attempt that made its newest file; 0 for clients.
    #[serde(default)]
    pub attempt: AttemptNumber,
    /// The artifact in the run: a file, or a folder.
    pub path: ArtifactPath,
    /// What it is, in one digest.
    pub digest: Digest,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its files.
    pub files: Vec<ModelFile>,
    /// How the run ended; not `succeeded` only when that was asked for.
    pub outcome: Outcome,
    /// Whether the run's record is complete; false only when that was asked for.
    pub complete: bool,
    /// What it is about.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// What a version was evaluated on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EvaluationData {
    /// What people call it.
    pub name: String,
    /// SHA-256 of it; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// Figures of a version were measured. Each is finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelVersionEvaluated {
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: VersionNumber,
    /// Name to figure.
    pub figures: BTreeMap<MetricName, f64>,
    /// On what; absent when nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<EvaluationData>,
    /// Anything else; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// Someone proposes that a version may serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelVersionProposed {
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: VersionNumber,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// Someone else than the proposer approves that a version may serve. It stands for ever: what must not serve any more is archived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelVersionApproved {
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: VersionNumber,
    /// The proposal that is answered.
    pub proposal: EventId,
    /// Whether the proposer approved it, as the only member of the project.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_only_member: bool,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}

/// A proposal was rejected, or withdrawn by its proposer. Another may follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelVersionRejected {
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: VersionNumber,
    /// The proposal that is answered.
    pub proposal: EventId,
    /// Why; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Digest of the request's body under an idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Digest>,
}
