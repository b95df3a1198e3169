//! Small facts for these tests: what a node's owner decides, what clients write about experiments.

use footplate_es::{Cause, Decision, Evolve};
use footplate_events::facts::{ExperimentNoted, NodeHealthChanged};
use footplate_events::{Envelope, Event, Recorded, Subject};
use footplate_types::{DisplayName, EventId, ExperimentId, NodeName, PrincipalId, ProjectName, ServiceName};
use std::collections::BTreeMap;

/// The service that owns nodes.
pub(crate) fn inventory() -> ServiceName {
    ServiceName::parse("gpu-inventory").unwrap()
}

/// A project.
pub(crate) fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

/// The subject of an experiment.
pub(crate) fn experiment(name: &str) -> Subject {
    Subject::experiment(&project(), ExperimentId::of(&project(), &DisplayName::parse(name).unwrap()))
}

/// The subject of a node.
pub(crate) fn node(name: &str) -> Subject {
    Subject::node(&NodeName::parse(name).unwrap())
}

/// A note about an experiment.
pub(crate) fn note(subject: &Subject, id: EventId, text: &str) -> Envelope {
    Envelope {
        id,
        subject: subject.clone(),
        event: ExperimentNoted { note: text.to_owned() }.into(),
        source: "tracker/test".to_owned(),
        time: footplate_clock::now(),
        actor: PrincipalId::parse("test").unwrap(),
        correlation: id,
        causation: None,
        trace: None,
    }
}

/// A fact that a leader decides on about a node.
pub(crate) fn health(name: &str, reason: &str, cause: Option<Cause>) -> Decision {
    Decision::new(node(name), NodeHealthChanged { gpu: None, healthy: true, reason: reason.to_owned() }, cause)
}

/// Notes and health, in ledger order: all that these tests look at.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Sequence, id and text of everything folded.
    pub(crate) events: Vec<(u64, EventId, String)>,
    /// The last text of each subject.
    pub(crate) last: BTreeMap<String, String>,
}

impl Seen {
    /// The texts in ledger order.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.events.iter().map(|(_, _, text)| text.as_str()).collect()
    }
}

impl Evolve for Seen {
    fn evolve(&mut self, recorded: &Recorded) {
        let text = match &recorded.envelope.event {
            Event::ExperimentNoted(fact) => fact.note.clone(),
            Event::NodeHealthChanged(fact) => fact.reason.clone(),
            _ => return,
        };
        assert!(text != "break the view", "a note that the view cannot bear");
        self.last.insert(recorded.envelope.subject.to_string(), text.clone());
        self.events.push((recorded.sequence, recorded.envelope.id, text));
    }
}
