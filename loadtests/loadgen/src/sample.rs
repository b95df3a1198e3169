//! Events such as clients write, of the size that they have (a run's opening, a run's tags), and their encoded form for the bare broker.

use anyhow::Result;
use footplate_eventlog::Message;
use footplate_events::facts::{RunCreated, RunTagsSet};
use footplate_events::{Envelope, Event, Subject, Trace};
use footplate_types::{DisplayName, EventId, ExperimentId, ParamKey, PrincipalId, ProjectName, RunId};
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes events of aggregates that nobody has used before.
pub(crate) struct Sample {
    project: ProjectName,
    actor: PrincipalId,
    next: AtomicU64,
    life: [u8; 8],
}

impl Sample {
    /// A source of events.
    pub(crate) fn new() -> Result<Self> {
        let life = footplate_clock::entropy();
        Ok(Self { project: ProjectName::parse("vision")?, actor: PrincipalId::parse("user:load")?, next: AtomicU64::new(1), life })
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn bytes(&self, number: u64) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.life);
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// A run that nobody has used.
    pub(crate) fn run(&self) -> Subject {
        Subject::run(&self.project, RunId::from_bytes(self.bytes(self.number())))
    }

    /// The first event of a run.
    pub(crate) fn opening(&self) -> Result<Envelope> {
        let number = self.number();
        let event = RunCreated {
            name: DisplayName::parse(&format!("resnet50 warm-up {number}"))?,
            experiment: ExperimentId::from_bytes(self.bytes(0)),
            experiment_name: DisplayName::parse("learning rates")?,
            body: None,
            hypothesis: "a longer warm-up lets the larger batch train without the dip at step 2,000".to_owned(),
        };
        Ok(self.envelope(Subject::run(&self.project, RunId::from_bytes(self.bytes(number))), event))
    }

    /// A later event of a run.
    pub(crate) fn tags(&self, run: &Subject) -> Result<Envelope> {
        let number = self.number();
        let set = [(ParamKey::parse("stage")?, format!("epoch {number}")), (ParamKey::parse("owner")?, "vision team".to_owned())];
        Ok(self.envelope(run.clone(), RunTagsSet { set: set.into(), removed: Vec::new() }))
    }

    fn envelope(&self, subject: Subject, event: impl Into<Event>) -> Envelope {
        let id = EventId::from_bytes(self.bytes(self.number()));
        Envelope {
            id,
            subject,
            event: event.into(),
            source: "tracker/host-1".to_owned(),
            time: footplate_clock::now(),
            actor: self.actor.clone(),
            correlation: id,
            causation: None,
            trace: Trace::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        }
    }

    /// First events of `count` runs.
    pub(crate) fn openings(&self, count: usize) -> Result<Vec<Envelope>> {
        (0..count).map(|_| self.opening()).collect()
    }
}

/// An event as the broker stores it.
pub(crate) fn encoded(envelope: &Envelope) -> Result<Message> {
    let (headers, payload) = footplate_events::encode(envelope)?;
    Ok(Message { subject: envelope.subject.to_string(), headers: headers.into(), payload: payload.into() })
}
