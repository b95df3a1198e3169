//! An experiment: a name that groups runs. It stands from its own events, or from the first submission that names it.

use footplate_es::{Decide, Evolve};
use footplate_events::facts::{ExperimentCreated, ExperimentNoted, TEXT_MAX};
use footplate_events::{Aggregate, Event, Recorded};
use footplate_types::{DisplayName, ExperimentId, Invalid, ProjectName, Timestamp};
use serde::{Deserialize, Serialize};

/// A named group of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// The tenant.
    pub project: ProjectName,
    /// Its id, derived from its name.
    pub id: ExperimentId,
    /// Its name; absent before it is known.
    pub name: Option<DisplayName>,
    /// What it is about.
    pub note: String,
    /// When it was first named, by the broker's clock.
    pub created_at: Timestamp,
    /// Whether it has an event of its own (or only submissions that name it).
    pub recorded: bool,
    /// Ledger sequence of the last event about it.
    pub sequence: u64,
    /// Ledger sequence of the last event of its aggregate: what an append expects.
    pub version: u64,
}

/// What is asked of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentCommand {
    /// Have it, by name.
    Create {
        /// Its name.
        name: DisplayName,
        /// What it is about; empty leaves what stands.
        note: String,
    },
    /// Replace its description.
    Note(String),
}

/// A "no".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentRefusal {
    /// There is no such experiment in this project.
    #[error("there is no experiment {0} in this project")]
    NotFound(ExperimentId),
    /// A field is not allowed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Experiment {
    /// An experiment of which nothing is known yet.
    pub fn new(project: ProjectName, id: ExperimentId) -> Self {
        Self { project, id, name: None, note: String::new(), created_at: Timestamp::default(), recorded: false, sequence: 0, version: 0 }
    }

    fn named(&mut self, name: &DisplayName, recorded: &Recorded) {
        if self.name.is_none() {
            self.name = Some(name.clone());
            self.created_at = recorded.recorded_at;
        }
    }
}

impl Decide for Experiment {
    type Command = ExperimentCommand;
    type Facts = ();
    type Refusal = ExperimentRefusal;

    /// At most two events, which are two appends: a name that only submissions have used is recorded first.
    fn decide(&self, command: ExperimentCommand, _facts: &()) -> Result<Vec<Event>, ExperimentRefusal> {
        match command {
            ExperimentCommand::Create { name, note } => {
                check_note(&note)?;
                if !self.recorded {
                    return Ok(vec![ExperimentCreated { name, note }.into()]);
                }
                let is_news = !note.is_empty() && note != self.note;
                Ok(if is_news { vec![ExperimentNoted { note }.into()] } else { Vec::new() })
            }
            ExperimentCommand::Note(note) => {
                check_note(&note)?;
                let name = self.name.clone().ok_or(ExperimentRefusal::NotFound(self.id))?;
                if !self.recorded {
                    return Ok(vec![ExperimentCreated { name, note }.into()]);
                }
                Ok(if note == self.note { Vec::new() } else { vec![ExperimentNoted { note }.into()] })
            }
        }
    }
}

fn check_note(note: &str) -> Result<(), Invalid> {
    let count = note.chars().count();
    if count > TEXT_MAX {
        return Err(Invalid::new("note", format!("{count} characters"), format!("at most {TEXT_MAX} characters")));
    }
    Ok(())
}

impl Evolve for Experiment {
    fn evolve(&mut self, recorded: &Recorded) {
        let subject = &recorded.envelope.subject;
        if subject.project != self.project {
            return;
        }
        match &recorded.envelope.event {
            Event::ExperimentCreated(fact) if subject.aggregate == Aggregate::Experiment && subject.id() == self.id.to_string() => {
                self.named(&fact.name, recorded);
                self.recorded = true;
                self.note.clone_from(&fact.note);
                self.sequence = recorded.sequence;
                self.version = recorded.sequence;
            }
            Event::ExperimentNoted(fact) if subject.id() == self.id.to_string() => {
                self.note.clone_from(&fact.note);
                self.sequence = recorded.sequence;
                self.version = recorded.sequence;
            }
            Event::RunCreated(fact) if fact.experiment == self.id => {
                self.named(&fact.experiment_name, recorded);
                self.sequence = recorded.sequence;
            }
            Event::JobSubmitted(fact) if ExperimentId::of(&self.project, &fact.spec.experiment) == self.id => {
                self.named(&fact.spec.experiment, recorded);
                self.sequence = recorded.sequence;
            }
            _ => {}
        }
    }
}

/// The experiments that an event is about.
pub fn named_by(recorded: &Recorded) -> Option<ExperimentId> {
    let subject = &recorded.envelope.subject;
    match &recorded.envelope.event {
        Event::RunCreated(fact) => Some(fact.experiment),
        Event::JobSubmitted(fact) => Some(ExperimentId::of(&subject.project, &fact.spec.experiment)),
        Event::ExperimentCreated(_) | Event::ExperimentNoted(_) => ExperimentId::parse(subject.id()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use footplate_es::harness::Story;
    use footplate_events::Subject;

    fn project() -> ProjectName {
        ProjectName::parse("vision").unwrap()
    }

    fn name(text: &str) -> DisplayName {
        DisplayName::parse(text).unwrap()
    }

    #[test]
    fn names_that_differ_in_case_are_two_experiments() {
        assert_ne!(ExperimentId::of(&project(), &name("Net")), ExperimentId::of(&project(), &name("net")));
    }

    #[test]
    fn creating_it_again_is_no_event_and_a_new_note_is_one() {
        let id = ExperimentId::of(&project(), &name("digits"));
        let mut story = Story::new();
        let mut experiment = Experiment::new(project(), id);
        let events = experiment.decide(ExperimentCommand::Create { name: name("digits"), note: String::new() }, &()).unwrap();
        assert_eq!(events.len(), 1);
        experiment.evolve(story.record(Subject::experiment(&project(), id), events[0].clone()));
        assert_eq!(experiment.version, 1);
        assert_eq!(experiment.decide(ExperimentCommand::Create { name: name("digits"), note: String::new() }, &()).unwrap(), []);
        let noted = experiment.decide(ExperimentCommand::Note("two layers".to_owned()), &()).unwrap();
        experiment.evolve(story.record(Subject::experiment(&project(), id), noted[0].clone()));
        assert_eq!(experiment.note, "two layers");
    }

    #[test]
    fn an_unknown_experiment_cannot_be_noted() {
        let id = ExperimentId::of(&project(), &name("digits"));
        let refused = Experiment::new(project(), id).decide(ExperimentCommand::Note("x".to_owned()), &());
        assert_eq!(refused, Err(ExperimentRefusal::NotFound(id)));
    }
}
