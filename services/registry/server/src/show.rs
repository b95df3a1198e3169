//! From the core's state to the messages of the API.

use footplate_api::{types, v1};
use footplate_events::facts::Outcome;
use footplate_registry_core::{Answer, Mark, Model, Version};

fn mark(mark: &Mark) -> v1::ModelMark {
    v1::ModelMark { by: mark.by.to_string(), at: mark.at.to_string(), reason: mark.reason.clone(), sequence: mark.sequence }
}

fn outcome(outcome: Outcome) -> types::Outcome {
    match outcome {
        Outcome::Succeeded => types::Outcome::Succeeded,
        Outcome::Failed => types::Outcome::Failed,
        Outcome::Cancelled => types::Outcome::Cancelled,
    }
}

pub(crate) fn model(model: &Model) -> v1::Model {
    let alias = |(name, alias): (&footplate_types::AliasName, &footplate_registry_core::Alias)| v1::ModelAlias {
        alias: name.to_string(),
        version: alias.version.0,
        set: Some(mark(&alias.mark)),
    };
    v1::Model {
        name: model.name.to_string(),
        project: model.project.to_string(),
        note: model.note.clone(),
        created: model.created.as_ref().map(mark),
        versions: u32::try_from(model.versions.len()).unwrap_or(u32::MAX),
        serving: model.serving.map_or(0, |version| version.0),
        serving_changed: model.serving_changed.as_ref().map(mark),
        staging: model.staging.map_or(0, |version| version.0),
        aliases: model.aliases.iter().map(alias).collect(),
        history: model.history.iter().map(|version| version.0).collect(),
        sequence: model.changed,
    }
}

/// A version as lists show it: without its files and evaluations.
pub(crate) fn brief(model: &Model, version: &Version) -> v1::ModelVersion {
    let (approval, answered) = match version.proposal.as_ref().map(|proposal| &proposal.answer) {
        None => ("none", None),
        Some(None) => ("proposed", None),
        Some(Some(Answer::Approved(by))) => ("approved", Some(by)),
        Some(Some(Answer::Rejected(by))) => ("rejected", Some(by)),
    };
    v1::ModelVersion {
        model: model.name.to_string(),
        project: model.project.to_string(),
        version: version.number.0,
        stage: version.stage.as_str().to_owned(),
        aliases: model.aliases_of(version.number).map(ToString::to_string).collect(),
        run_id: version.run.to_string(),
        attempt: version.attempt.0,
        path: version.path.to_string(),
        digest: version.digest.to_string(),
        bytes: version.bytes,
        files: Vec::new(),
        outcome: outcome(version.outcome).into(),
        complete: version.complete,
        note: version.note.clone(),
        registered: Some(mark(&version.registered)),
        evaluations: Vec::new(),
        figures: version.figures.iter().map(|(name, figure)| (name.to_string(), *figure)).collect(),
        approval: approval.to_owned(),
        proposed: version.proposal.as_ref().map(|proposal| mark(&proposal.mark)),
        answered: answered.map(mark),
        as_only_member: version.approval.as_ref().is_some_and(|approval| approval.as_only_member),
        staged: version.staged.as_ref().map(mark),
        has_served: version.has_served,
        sequence: version.sequence,
    }
}

/// A version, whole.
pub(crate) fn version(model: &Model, version: &Version) -> v1::ModelVersion {
    let file = |file: &footplate_events::facts::ModelFile| v1::ModelFile {
        path: file.path.to_string(),
        digest: file.digest.to_string(),
        bytes: file.bytes,
    };
    let evaluation = |evaluation: &footplate_registry_core::Evaluation| v1::Evaluation {
        figures: evaluation.figures.iter().map(|(name, figure)| (name.to_string(), *figure)).collect(),
        data: evaluation.data.as_ref().map(|data| data.name.clone()).unwrap_or_default(),
        data_digest: evaluation.data.as_ref().and_then(|data| data.digest).map(|digest| digest.to_string()).unwrap_or_default(),
        note: evaluation.note.clone(),
        mark: Some(mark(&evaluation.mark)),
    };
    v1::ModelVersion {
        files: version.files.iter().map(file).collect(),
        evaluations: version.evaluations.iter().map(evaluation).collect(),
        ..brief(model, version)
    }
}
