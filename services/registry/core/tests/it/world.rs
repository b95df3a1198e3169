//! A ledger in memory with people who ask.

use footplate_es::{Decide, Evolve};
use footplate_events::facts::{LoggedArtifact, Outcome, RunArtifactsLogged, RunCreated, RunSealed};
use footplate_events::{Envelope, Event, Recorded, Subject};
use footplate_registry_core::{Allowed, Command, Facts, Model, Refusal, Registry, RunRecord, Source};
use footplate_types::*;

pub(crate) fn project() -> ProjectName {
    ProjectName::parse("vision").unwrap()
}

pub(crate) fn name() -> ModelName {
    ModelName::parse("digits").unwrap()
}

pub(crate) fn who(text: &str) -> PrincipalId {
    PrincipalId::parse(text).unwrap()
}

pub(crate) fn v(number: u32) -> VersionNumber {
    VersionNumber(number)
}

pub(crate) fn alias(text: &str) -> AliasName {
    AliasName::parse(text).unwrap()
}

pub(crate) fn path(text: &str) -> ArtifactPath {
    ArtifactPath::parse(text).unwrap()
}

pub(crate) fn run_id() -> RunId {
    RunId::from_bytes([7; 16])
}

pub(crate) fn logged(at: &str, content: &str) -> LoggedArtifact {
    let bytes = content.len() as u64;
    LoggedArtifact { path: path(at), digest: Digest::of(content.as_bytes()), bytes, attempt: AttemptNumber(0), rank: Rank(0) }
}

pub(crate) fn sealed(outcome: Outcome, complete: bool) -> RunSealed {
    let missing = if complete { Vec::new() } else { vec!["logs of rank 3".to_owned()] };
    RunSealed {
        outcome,
        attempt: AttemptNumber(0),
        complete,
        missing,
        points: 0,
        artifacts: 1,
        log_bytes: 0,
        record: Digest::of(b"record"),
        objectives: std::collections::BTreeMap::new(),
    }
}

pub(crate) fn opened() -> Event {
    let name = DisplayName::parse("train").unwrap();
    let experiment = ExperimentId::of(&project(), &name);
    RunCreated { name: name.clone(), experiment, experiment_name: name, body: None, hypothesis: String::new() }.into()
}

/// The record, for a path, of a sealed run with these files.
pub(crate) fn record(at: &str, files: &[(&str, &str)], seal: RunSealed) -> RunRecord {
    let artifacts = files.iter().map(|(at, content)| logged(at, content)).collect();
    told(at, vec![opened(), RunArtifactsLogged { artifacts }.into(), seal.into()])
}

/// The record, for a path, of a run of which this is told.
pub(crate) fn told(at: &str, events: Vec<Event>) -> RunRecord {
    let mut record = RunRecord::of(path(at));
    for (index, event) in events.into_iter().enumerate() {
        record.evolve(&recorded(index as u64 + 1, &who("ada"), Subject::run(&project(), run_id()), event));
    }
    record
}

pub(crate) fn source() -> Source {
    let record = record("model.bin", &[("model.bin", "weights")], sealed(Outcome::Succeeded, true));
    record.source(run_id(), Allowed::default()).unwrap()
}

pub(crate) fn recorded(sequence: u64, by: &PrincipalId, subject: Subject, event: Event) -> Recorded {
    let id = EventId::derived(&[b"world", &sequence.to_be_bytes()]);
    let time = Timestamp::from_millis(sequence as i64 * 1_000);
    let envelope = Envelope {
        id,
        subject,
        event,
        source: "registry/test".to_owned(),
        time,
        actor: by.clone(),
        correlation: id,
        causation: None,
        trace: None,
    };
    Recorded { sequence, recorded_at: time, envelope }
}

/// What stands in the ledger, and the view of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) ledger: Vec<Recorded>,
    pub(crate) view: Registry,
}

impl World {
    /// A model with so many versions.
    pub(crate) fn with_versions(count: u32) -> Self {
        let mut world = Self::default();
        world.does("ada", Command::Create { note: "digits".to_owned() });
        for _ in 0..count {
            world.does("ada", Command::Register { source: source(), note: String::new() });
        }
        world
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.ledger.len() as u64
    }

    pub(crate) fn model(&self) -> Model {
        self.view.model(&project(), &name()).cloned().unwrap_or_else(|| Model::new(project(), name()))
    }

    pub(crate) fn facts(by: &str) -> Facts {
        Facts { by: who(by), is_only_member: false, body: None, seen: None }
    }

    /// Appends as the broker does: only when nothing came to the aggregate since `expected`.
    pub(crate) fn append(&mut self, by: &PrincipalId, subject: Subject, expected: u64, event: Event) -> bool {
        let last = self.ledger.iter().rev().find(|known| known.envelope.subject == subject).map_or(0, |known| known.sequence);
        if last != expected {
            return false;
        }
        let recorded = recorded(self.sequence() + 1, by, subject, event);
        self.view.evolve(&recorded);
        self.ledger.push(recorded);
        true
    }

    /// Decides on everything that stands, and appends.
    pub(crate) fn ask(&mut self, command: Command, facts: &Facts) -> Result<Vec<Event>, Refusal> {
        let model = self.model();
        let events = model.decide(command, facts)?;
        for event in &events {
            let (subject, expected) = model.place_of(event);
            assert!(self.append(&facts.by, subject, expected, event.clone()));
        }
        Ok(events)
    }

    pub(crate) fn does(&mut self, by: &str, command: Command) -> Vec<Event> {
        self.ask(command, &Self::facts(by)).unwrap()
    }

    pub(crate) fn refuses(&mut self, by: &str, command: Command) -> Refusal {
        self.ask(command, &Self::facts(by)).unwrap_err()
    }

    /// Proposed by one, approved by another.
    pub(crate) fn approved(&mut self, version: u32) {
        self.does("ada", Command::Propose { version: v(version), reason: String::new() });
        self.does("bob", Command::Approve { version: v(version), reason: String::new() });
    }

    pub(crate) fn promoted(&mut self, version: u32) {
        self.approved(version);
        self.does("ada", promote(version));
    }
}

pub(crate) fn promote(version: u32) -> Command {
    Command::Promote { version: v(version), reason: "it is better".to_owned() }
}

pub(crate) fn roll_back(to: Option<u32>) -> Command {
    Command::RollBack { to: to.map(v), reason: "it answers slowly".to_owned() }
}

pub(crate) fn set_alias(text: &str, version: u32) -> Command {
    Command::SetAlias { alias: alias(text), version: v(version), reason: String::new() }
}

pub(crate) fn archive(version: u32, free_aliases: bool) -> Command {
    Command::Archive { version: v(version), free_aliases, reason: String::new() }
}
