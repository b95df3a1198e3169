//! The shapes of a pure core: decide, evolve, project; and the harness that tests it.
//!
//! No async, no I/O, no clock, no randomness: what a decision needs of the world comes in as facts.

pub mod harness;

use footplate_events::{Envelope, Event, Recorded, Subject};
use footplate_types::EventId;

/// A state that says yes (with events) or no to a command. Pure: the same state, command and facts give the same answer.
pub trait Decide {
    /// What is asked.
    type Command;
    /// What was looked up beforehand: the clock, minted ids, other aggregates' states.
    type Facts;
    /// A business "no", told so that the caller knows what to do next.
    type Refusal;

    /// The events that the command leads to; none when it is already so.
    fn decide(&self, command: Self::Command, facts: &Self::Facts) -> Result<Vec<Event>, Self::Refusal>;
}

/// A state that follows from events. Total and infallible: an event that does not fit leaves the state as it is.
pub trait Evolve {
    /// Takes in one event, in ledger order.
    fn evolve(&mut self, recorded: &Recorded);
}

/// A view over many aggregates. Like [`Evolve`], and it may be thrown away and built again: equal prefixes give equal views.
pub trait Project: Evolve + Default {
    /// A text that is equal for equal views (keys in order), for the comparison of a rebuilt view with the living one.
    fn fingerprint(&self) -> String;
}

/// One event that a leader decided on, before it has an envelope.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The aggregate that it belongs to.
    pub subject: Subject,
    /// The fact.
    pub event: Event,
    /// The recorded event that this one answers: its actor, correlation and trace are carried on.
    pub cause: Option<Cause>,
    /// Tells apart several events of one reactor with one cause and one subject.
    pub ordinal: u32,
}

/// What a caused event carries on of its cause.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cause {
    /// The cause's id.
    pub id: EventId,
    /// Who began the chain.
    pub actor: footplate_events::Actor,
    /// The chain.
    pub correlation: EventId,
    /// Its trace.
    pub trace: Option<footplate_events::Trace>,
}

impl Cause {
    /// The cause that an envelope is.
    pub fn of(envelope: &Envelope) -> Self {
        Self { id: envelope.id, actor: envelope.actor.clone(), correlation: envelope.correlation, trace: envelope.trace.clone() }
    }
}

impl Decision {
    /// A decision about `subject`, answering `cause`.
    pub fn new(subject: Subject, event: impl Into<Event>, cause: Option<Cause>) -> Self {
        Self { subject, event: event.into(), cause, ordinal: 0 }
    }

    /// The id of the event: hash(cause, reactor, target, ordinal) when it has a cause, so that the same reaction is the same event.
    /// The type of the event is part of the target: one cause may lead to several facts about one aggregate.
    pub fn id(&self, reactor: &str) -> Option<EventId> {
        let target = format!("{}/{}", self.subject, self.event.event_type());
        self.cause.as_ref().map(|cause| EventId::caused(&cause.id, reactor, &target, self.ordinal))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use footplate_events::facts::{NodeHealthChanged, NodeLost};
    use footplate_types::{Epoch, NodeName};

    #[test]
    fn the_same_reaction_is_the_same_event_and_any_other_is_another() {
        let actor = footplate_types::PrincipalId::parse("ada").unwrap();
        let cause = |byte| Cause {
            id: EventId::from_bytes([byte; 16]),
            actor: actor.clone(),
            correlation: EventId::from_bytes([9; 16]),
            trace: None,
        };
        let healthy = |reason: &str| NodeHealthChanged { gpu: None, healthy: true, reason: reason.to_owned() };
        let node = |name: &str| Subject::node(&NodeName::parse(name).unwrap());
        let one = Decision::new(node("n1"), healthy("as before"), Some(cause(1)));
        let id = one.id("gpu-inventory").unwrap();
        // Who decides it again, after a restart or as the next leader, may word it otherwise.
        assert_eq!(Decision::new(node("n1"), healthy("again"), Some(cause(1))).id("gpu-inventory"), Some(id));
        let lost = NodeLost { epoch: Epoch(1), reason: String::new() };
        let others = [
            Decision::new(node("n1"), healthy("as before"), Some(cause(2))).id("gpu-inventory"),
            Decision::new(node("n2"), healthy("as before"), Some(cause(1))).id("gpu-inventory"),
            Decision::new(node("n1"), lost, Some(cause(1))).id("gpu-inventory"),
            Decision { ordinal: 1, ..one.clone() }.id("gpu-inventory"),
            one.id("executor"),
        ];
        let distinct: std::collections::BTreeSet<EventId> = others.iter().map(|other| other.unwrap()).chain([id]).collect();
        assert_eq!(distinct.len(), others.len() + 1);
        assert_eq!(Decision { cause: None, ..one }.id("gpu-inventory"), None, "what answers nothing gets an id of its own");
    }
}
