//! The core's "no" in the words of the API.

use footplate_api::{Refusal, reason};
use footplate_registry_core::{Refusal as No, SourceRefusal};

/// A decision's no.
pub(crate) fn refused(no: No) -> Refusal {
    let told = no.to_string();
    match no {
        No::Invalid(invalid) => invalid.into(),
        No::NoSuchModel { model } => Refusal::new(&reason::MODEL_NOT_FOUND, told).field("model").value(model),
        No::ModelExists { model } => Refusal::new(&reason::ID_TAKEN, told).field("name").value(model),
        No::NoSuchVersion { version, .. } => Refusal::new(&reason::VERSION_NOT_FOUND, told).field("version").value(version),
        No::NoVersions { .. } => Refusal::new(&reason::VERSION_NOT_FOUND, told).next("register one: `footplate model register`"),
        No::NothingInStage { stage, .. } => Refusal::new(&reason::VERSION_NOT_FOUND, told).field("stage").value(stage.as_str()),
        No::NoSuchAlias { alias, there, .. } => Refusal::new(&reason::ALIAS_NOT_FOUND, told).field("alias").value(alias).allowed(there),
        No::TooManyAliases { .. } => Refusal::new(&reason::TOO_LARGE, told).field("alias").next("remove aliases that nobody uses"),
        No::ProposalOpen { version, .. } => Refusal::new(&reason::PROPOSAL_OPEN, told).field("version").value(version),
        No::NotProposed { version, .. } => Refusal::new(&reason::NOT_PROPOSED, told).field("version").value(version),
        No::OwnProposal { version, .. } => Refusal::new(&reason::OWN_PROPOSAL, told).field("version").value(version),
        No::AlreadyApproved { version, .. } => Refusal::new(&reason::ALREADY_APPROVED, told).field("version").value(version),
        No::NotApproved { version, .. } => Refusal::new(&reason::NOT_APPROVED, told).field("version").value(version),
        No::Archived { version, .. } => Refusal::new(&reason::VERSION_ARCHIVED, told).field("version").value(version),
        No::Serves { version, .. } => Refusal::new(&reason::VERSION_SERVES, told).field("version").value(version),
        No::HasAliases { version, .. } => Refusal::new(&reason::VERSION_HAS_ALIASES, told).field("version").value(version),
        No::NothingBefore { .. } => Refusal::new(&reason::NEVER_SERVED, told),
        No::NeverServed { version, .. } => Refusal::new(&reason::NEVER_SERVED, told).field("to").value(version),
        No::Overtaken { .. } => Refusal::new(&reason::OVERTAKEN, told),
    }
}

/// A run's no.
pub(crate) fn source_refused(no: SourceRefusal) -> Refusal {
    let told = no.to_string();
    match no {
        SourceRefusal::NoSuchRun { run } => Refusal::new(&reason::RUN_NOT_FOUND, told).field("run_id").value(run),
        SourceRefusal::NotSealed { run } => Refusal::new(&reason::RUN_NOT_SEALED, told).field("run_id").value(run),
        SourceRefusal::NotSucceeded { run, .. } => Refusal::new(&reason::RUN_NOT_SUCCEEDED, told).field("run_id").value(run),
        SourceRefusal::Incomplete { run, .. } => Refusal::new(&reason::RUN_INCOMPLETE, told).field("run_id").value(run),
        SourceRefusal::NoSuchArtifact { path, there, .. } => {
            Refusal::new(&reason::ARTIFACT_NOT_FOUND, told).field("path").value(path).allowed(there)
        }
        SourceRefusal::TooManyFiles { path, .. } => {
            Refusal::new(&reason::TOO_LARGE, told).field("path").value(path).next("pack them into one file, or name a folder of fewer")
        }
    }
}
