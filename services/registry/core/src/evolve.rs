//! What each event makes of a model.

use crate::decide::FIGURES_SHOWN_MAX;
use crate::model::{
    Alias, Answer, Approval, EVALUATIONS_MAX, Evaluation, HISTORY_MAX, Mark, Model, Proposal, RECENT_MAX, Remembered, Version,
};
use footplate_es::Evolve;
use footplate_events::facts::{ModelArchived, ModelStaged, ModelVersionRegistered, Stage};
use footplate_events::{Aggregate, Event, Recorded};
use footplate_types::{Digest, ModelVersionId, VersionNumber};
use std::collections::{BTreeMap, VecDeque};

/// The version on whose aggregate an event belongs; `None` for an event of the model itself (or of anything else).
pub(crate) fn version_of(event: &Event) -> Option<VersionNumber> {
    match event {
        Event::ModelVersionRegistered(fact) => Some(fact.version),
        Event::ModelVersionEvaluated(fact) => Some(fact.version),
        Event::ModelVersionProposed(fact) => Some(fact.version),
        Event::ModelVersionApproved(fact) => Some(fact.version),
        Event::ModelVersionRejected(fact) => Some(fact.version),
        _ => None,
    }
}

/// Under which body an event was asked for, and which version it is about.
fn asked(event: &Event) -> (Option<Digest>, Option<VersionNumber>) {
    match event {
        Event::ModelCreated(fact) => (fact.body, None),
        Event::ModelPromoted(fact) => (fact.body, Some(fact.to.version)),
        Event::ModelRolledBack(fact) => (fact.body, Some(fact.to.version)),
        Event::ModelStaged(fact) => (fact.body, Some(fact.version)),
        Event::ModelArchived(fact) => (fact.body, Some(fact.version)),
        Event::ModelAliasSet(fact) => (fact.body, Some(fact.to.version)),
        Event::ModelAliasRemoved(fact) => (fact.body, Some(fact.version)),
        Event::ModelVersionRegistered(fact) => (fact.body, Some(fact.version)),
        Event::ModelVersionEvaluated(fact) => (fact.body, Some(fact.version)),
        Event::ModelVersionProposed(fact) => (fact.body, Some(fact.version)),
        Event::ModelVersionApproved(fact) => (fact.body, Some(fact.version)),
        Event::ModelVersionRejected(fact) => (fact.body, Some(fact.version)),
        _ => (None, None),
    }
}

impl Evolve for Model {
    fn evolve(&mut self, recorded: &Recorded) {
        let (subject, event) = (&recorded.envelope.subject, &recorded.envelope.event);
        if subject.project != self.project || subject.model_id() != Some(self.id) {
            return;
        }
        self.apply(recorded);
        // Nothing is known of a model before it is created, or of a version before it is registered.
        let known = match subject.aggregate {
            Aggregate::ModelVersion => {
                let version = ModelVersionId::parse(subject.id()).ok().and_then(|id| self.versions.get_mut(&id.version));
                version.map(|version| version.sequence = recorded.sequence).is_some()
            }
            _ => {
                self.sequence = recorded.sequence;
                self.created.is_some()
            }
        };
        if known {
            self.changed = recorded.sequence;
            let (body, version) = asked(event);
            let event = recorded.envelope.id;
            bounded(&mut self.recent, Remembered { event, sequence: recorded.sequence, body, version }, RECENT_MAX);
        }
    }
}

fn bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    queue.push_back(item);
    if queue.len() > most {
        queue.pop_front();
    }
}

impl Model {
    fn apply(&mut self, recorded: &Recorded) {
        match &recorded.envelope.event {
            Event::ModelCreated(fact) => {
                if self.created.is_none() {
                    self.note.clone_from(&fact.note);
                    self.created = Some(Mark::of(recorded, ""));
                }
            }
            Event::ModelPromoted(fact) => self.serves(fact.to.version, Mark::of(recorded, &fact.reason)),
            Event::ModelRolledBack(fact) => self.serves(fact.to.version, Mark::of(recorded, &fact.reason)),
            Event::ModelStaged(fact) => self.staged(fact, Mark::of(recorded, &fact.reason)),
            Event::ModelArchived(fact) => self.archived(fact, Mark::of(recorded, &fact.reason)),
            Event::ModelAliasSet(fact) => {
                let alias = Alias { version: fact.to.version, mark: Mark::of(recorded, &fact.reason) };
                self.aliases.insert(fact.alias.clone(), alias);
            }
            Event::ModelAliasRemoved(fact) => {
                self.aliases.remove(&fact.alias);
            }
            Event::ModelVersionRegistered(fact) => self.registered(fact, recorded),
            event => self.of_version(event, recorded),
        }
    }

    fn of_version(&mut self, event: &Event, recorded: &Recorded) {
        let Some(version) = version_of(event).and_then(|number| self.versions.get_mut(&number)) else { return };
        let open = |version: &Version| version.proposal.as_ref().is_some_and(|proposal| proposal.answer.is_none());
        match event {
            Event::ModelVersionEvaluated(fact) => {
                let (figures, data, note) = (fact.figures.clone(), fact.data.clone(), fact.note.clone());
                let evaluation = Evaluation { figures, data, note, mark: Mark::of(recorded, "") };
                version.figures.extend(fact.figures.clone());
                bounded(&mut version.evaluations, evaluation, EVALUATIONS_MAX);
                let held = |version: &Version| version.evaluations.iter().map(|evaluation| evaluation.figures.len()).sum::<usize>();
                while held(version) > FIGURES_SHOWN_MAX && version.evaluations.len() > 1 {
                    version.evaluations.pop_front();
                }
            }
            Event::ModelVersionProposed(fact) => {
                version.proposal = Some(Proposal { mark: Mark::of(recorded, &fact.reason), answer: None });
            }
            Event::ModelVersionApproved(fact) if open(version) => {
                let mark = Mark::of(recorded, &fact.reason);
                version.approval = Some(Approval { mark: mark.clone(), as_only_member: fact.as_only_member });
                if let Some(proposal) = &mut version.proposal {
                    proposal.answer = Some(Answer::Approved(mark));
                }
            }
            Event::ModelVersionRejected(fact) if open(version) => {
                if let Some(proposal) = &mut version.proposal {
                    proposal.answer = Some(Answer::Rejected(Mark::of(recorded, &fact.reason)));
                }
            }
            _ => {}
        }
    }

    fn registered(&mut self, fact: &ModelVersionRegistered, recorded: &Recorded) {
        let version = Version {
            number: fact.version,
            run: fact.run,
            attempt: fact.attempt,
            path: fact.path.clone(),
            digest: fact.digest,
            bytes: fact.bytes,
            files: fact.files.clone(),
            outcome: fact.outcome,
            complete: fact.complete,
            note: fact.note.clone(),
            registered: Mark::of(recorded, ""),
            body: fact.body,
            stage: Stage::None,
            staged: None,
            has_served: false,
            evaluations: VecDeque::new(),
            figures: BTreeMap::new(),
            proposal: None,
            approval: None,
            sequence: recorded.sequence,
        };
        self.versions.entry(fact.version).or_insert(version);
    }

    /// Moves a version, and keeps the two places that hold one at most in step.
    fn stands(&mut self, number: VersionNumber, stage: Stage, mark: &Mark) {
        let Some(version) = self.versions.get_mut(&number) else { return };
        version.stage = stage;
        version.staged = Some(mark.clone());
        if self.staging == Some(number) {
            self.staging = None;
        }
        if self.serving == Some(number) && stage != Stage::Production {
            self.serving = None;
            self.serving_changed = Some(mark.clone());
        }
    }

    fn serves(&mut self, number: VersionNumber, mark: Mark) {
        if let Some(former) = self.serving.filter(|former| *former != number) {
            self.stands(former, Stage::None, &mark);
        }
        self.stands(number, Stage::Production, &mark);
        if let Some(version) = self.versions.get_mut(&number) {
            version.has_served = true;
            self.serving = Some(number);
            self.serving_changed = Some(mark);
            bounded(&mut self.history, number, HISTORY_MAX);
        }
    }

    fn staged(&mut self, fact: &ModelStaged, mark: Mark) {
        if fact.to == Stage::Staging
            && let Some(former) = self.staging.filter(|former| *former != fact.version)
        {
            self.stands(former, Stage::None, &mark);
        }
        self.stands(fact.version, fact.to, &mark);
        if fact.to == Stage::Staging && self.versions.contains_key(&fact.version) {
            self.staging = Some(fact.version);
        }
    }

    fn archived(&mut self, fact: &ModelArchived, mark: Mark) {
        self.stands(fact.version, Stage::Archived, &mark);
        for alias in &fact.freed {
            self.aliases.remove(alias);
        }
    }
}
