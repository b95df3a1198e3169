//! How the registry says no.

use footplate_events::facts::Stage;
use footplate_types::{AliasName, Invalid, ModelName, PrincipalId, VersionNumber};

/// A "no", told so that the caller knows what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A field is not allowed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such model.
    #[error("there is no model {model} in this project")]
    NoSuchModel {
        /// The name.
        model: ModelName,
    },
    /// There is such a model already.
    #[error("there is a model {model} in this project already")]
    ModelExists {
        /// The name.
        model: ModelName,
    },
    /// There is no such version.
    #[error("model {model} has no version {version}{}", newest_text(*.newest))]
    NoSuchVersion {
        /// The model.
        model: ModelName,
        /// The number.
        version: VersionNumber,
        /// The newest that there is.
        newest: Option<VersionNumber>,
    },
    /// The model has no version at all.
    #[error("model {model} has no version yet")]
    NoVersions {
        /// The model.
        model: ModelName,
    },
    /// No version stands there.
    #[error("no version of model {model} is in stage {}", .stage.as_str())]
    NothingInStage {
        /// The model.
        model: ModelName,
        /// The stage.
        stage: Stage,
    },
    /// There is no such alias.
    #[error("model {model} has no alias {alias}")]
    NoSuchAlias {
        /// The model.
        model: ModelName,
        /// The alias.
        alias: AliasName,
        /// The aliases that there are, in words.
        there: String,
    },
    /// The model has as many aliases as it may.
    #[error("model {model} has {most} aliases already, the most there may be")]
    TooManyAliases {
        /// The model.
        model: ModelName,
        /// The bound.
        most: usize,
    },
    /// Someone else's proposal is open.
    #[error("version {version} of model {model} was proposed by {by} already and waits for an answer")]
    ProposalOpen {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
        /// By whom.
        by: PrincipalId,
    },
    /// Nothing is there to be answered.
    #[error("version {version} of model {model} has no open proposal{}", answered_text(.answered))]
    NotProposed {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
        /// How the last one was answered, in words; empty when there was none.
        answered: String,
    },
    /// Nobody approves what they proposed themselves.
    #[error("version {version} of model {model} was proposed by {by}, and is approved by someone else")]
    OwnProposal {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
        /// By whom.
        by: PrincipalId,
    },
    /// The version is approved.
    #[error("version {version} of model {model} was approved by {by} already")]
    AlreadyApproved {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
        /// By whom.
        by: PrincipalId,
    },
    /// The version is not approved.
    #[error("version {version} of model {model} is not approved")]
    NotApproved {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
    },
    /// The version is retired.
    #[error("version {version} of model {model} is archived")]
    Archived {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
    },
    /// The version serves.
    #[error("version {version} of model {model} serves")]
    Serves {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
    },
    /// Aliases name the version.
    #[error("version {version} of model {model} is named by {aliases}")]
    HasAliases {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
        /// The aliases, in words.
        aliases: String,
    },
    /// Nothing served before.
    #[error("no version of model {model} served before {}", serving_text(*.serving))]
    NothingBefore {
        /// The model.
        model: ModelName,
        /// What serves.
        serving: Option<VersionNumber>,
    },
    /// The version never served.
    #[error("version {version} of model {model} has never served")]
    NeverServed {
        /// The model.
        model: ModelName,
        /// The version.
        version: VersionNumber,
    },
    /// Someone else was quicker.
    #[error("{what} was changed by {by} meanwhile (ledger sequence {sequence}): it is {now} now")]
    Overtaken {
        /// What was changed.
        what: String,
        /// What it is now.
        now: String,
        /// By whom.
        by: PrincipalId,
        /// By which event.
        sequence: u64,
    },
}

fn newest_text(newest: Option<VersionNumber>) -> String {
    newest.map_or_else(|| "; it has none yet".to_owned(), |newest| format!("; the newest is {newest}"))
}

fn answered_text(answered: &str) -> String {
    if answered.is_empty() { String::new() } else { format!(": {answered}") }
}

fn serving_text(serving: Option<VersionNumber>) -> String {
    serving.map_or_else(|| "now".to_owned(), |version| format!("version {version}"))
}
