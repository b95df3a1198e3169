//! Writes: decide on the view, append expecting the aggregate's last event, decide again when another came first.

use crate::refused::{refused, source_refused};
use crate::shell::Shell;
use footplate_api::{Refusal, reason};
use footplate_es::{Decide, Evolve};
use footplate_events::{Event, Subject};
use footplate_registry_core::{Allowed, Command, Facts, Model, Remembered, RunRecord, Source};
use footplate_shell::TRIES;
use footplate_types::{ArtifactPath, Digest, EventId, ModelName, PrincipalId, ProjectName, RunId, VersionNumber};
use prost::Message;

/// Who calls, under which idempotency key.
pub(crate) struct Caller {
    pub(crate) actor: PrincipalId,
    /// Empty for none.
    pub(crate) request_id: String,
}

/// Who asks about what, in which words.
pub(crate) struct Asked {
    pub(crate) project: ProjectName,
    model: ModelName,
    actor: PrincipalId,
    id: EventId,
    body: Option<Digest>,
    /// The ledger sequence that the caller looked at; 0 for the moment of the call.
    seen: u64,
}

impl Asked {
    /// A request about a model. An idempotency key fixes the event's id, whatever is asked with it; method and body are told by a digest.
    pub(crate) fn new(project: ProjectName, model: ModelName, caller: Caller, method: &str, body: &impl Message) -> Self {
        let Caller { actor, request_id } = caller;
        let (id, body) = match request_id.as_str() {
            "" => (footplate_clock::event_id(), None),
            key => {
                let id = [b"registry", project.as_str().as_bytes(), model.as_str().as_bytes(), key.as_bytes()];
                let body = [method.as_bytes().to_vec(), body.encode_to_vec()].join(&0);
                (EventId::derived(&id), Some(Digest::of(&body)))
            }
        };
        Self { project, model, actor, id, body, seen: 0 }
    }

    /// With what the caller had seen.
    #[must_use]
    pub(crate) fn seen(self, seen: u64) -> Self {
        Self { seen, ..self }
    }
}

/// What a write answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The ledger sequence of the write, or of the last event of the model when there was nothing to write.
    pub(crate) sequence: u64,
    /// The version that it is about.
    pub(crate) version: Option<VersionNumber>,
}

/// What a look at the view leads to.
// Made and used up at once, one a write: not worth a box.
#[allow(clippy::large_enum_variant)]
enum Planned {
    Done(Written),
    Append { event: Event, subject: Subject, expected: u64 },
}

impl Shell {
    /// Decides and appends.
    pub(crate) async fn write(&self, asked: &Asked, command: Command) -> Result<Written, Refusal> {
        // Who asks has seen what stands now, unless they say what they saw; both before they wait for their turn.
        self.at_least(asked.seen).await?;
        self.caught_up().await?;
        let facts = Facts {
            by: asked.actor.clone(),
            is_only_member: self.membership.is_only_member(&asked.project, &asked.actor),
            body: asked.body,
            seen: Some(if asked.seen == 0 { self.live.position() } else { asked.seen }),
        };
        let _turn = self.turn(&asked.project, &asked.model).await?;
        for _ in 0..TRIES {
            let (event, subject, expected) = match self.plan(asked, &command, &facts)? {
                Planned::Done(written) => return Ok(written),
                Planned::Append { event, subject, expected } => (event, subject, expected),
            };
            match self.append(self.envelope(asked.id, subject, event, asked.actor.clone()), expected).await? {
                Some(sequence) => return self.confirmed(asked, sequence).await,
                None => self.caught_up().await?,
            }
        }
        let told = format!("model {} was changed by others at the same time", asked.model);
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, told))
    }

    fn plan(&self, asked: &Asked, command: &Command, facts: &Facts) -> Result<Planned, Refusal> {
        let state = self.live.read();
        let unknown;
        let model = match state.model(&asked.project, &asked.model) {
            Some(model) => model,
            None => {
                unknown = Model::new(asked.project.clone(), asked.model.clone());
                &unknown
            }
        };
        if let Some(known) = model.remembered(&asked.id) {
            return same(&known, asked).map(Planned::Done);
        }
        let event = model.decide(command.clone(), facts).map_err(refused)?.into_iter().next();
        let Some(event) = event else { return Ok(Planned::Done(Written { sequence: model.changed, version: model.serving })) };
        let (subject, expected) = model.place_of(&event);
        Ok(Planned::Append { event, subject, expected })
    }

    /// The event that stands under this id may be another instance's, of the same key with another body.
    async fn confirmed(&self, asked: &Asked, sequence: u64) -> Result<Written, Refusal> {
        // It is written; whoever cannot see it yet is answered all the same.
        if self.at_least(sequence).await.is_err() {
            return Ok(Written { sequence, version: None });
        }
        let state = self.live.read();
        let known = state.model(&asked.project, &asked.model).and_then(|model| model.remembered(&asked.id));
        known.map_or(Ok(Written { sequence, version: None }), |known| same(&known, asked))
    }

    /// The artifact of a run that a version is to be made of, as the ledger has it.
    pub(crate) async fn source(&self, project: &ProjectName, run: RunId, path: ArtifactPath, allowed: Allowed) -> Result<Source, Refusal> {
        let mut record = RunRecord::of(path);
        self.each_fact(&Subject::run(project, run), |recorded| record.evolve(&recorded)).await?;
        if !record.began() {
            // A run with a job begins with the job's submission.
            self.each_fact(&Subject::job(project, run), |recorded| record.evolve(&recorded)).await?;
        }
        record.source(run, allowed).map_err(source_refused)
    }

    /// What the same request, sent before under its key, has registered: then its run need not be read again.
    pub(crate) async fn registered_before(&self, asked: &Asked) -> Result<Option<(Written, Digest)>, Refusal> {
        if asked.body.is_none() {
            return Ok(None);
        }
        self.caught_up().await?;
        let state = self.live.read();
        let Some(model) = state.model(&asked.project, &asked.model) else { return Ok(None) };
        let Some(known) = model.remembered(&asked.id) else { return Ok(None) };
        let written = same(&known, asked)?;
        let version = written.version.and_then(|number| model.versions.get(&number));
        Ok(version.map(|version| (written, version.digest)))
    }
}

fn same(known: &Remembered, asked: &Asked) -> Result<Written, Refusal> {
    if known.body == asked.body {
        return Ok(Written { sequence: known.sequence, version: known.version });
    }
    let told = format!("the request id was used for another request about model {} (ledger sequence {})", asked.model, known.sequence);
    Err(Refusal::new(&reason::IDEMPOTENCY_KEY_REUSED, told).field("request_id"))
}
