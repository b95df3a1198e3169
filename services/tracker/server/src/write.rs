//! Writes of runs and experiments: decide on the view, append expecting the aggregate's last event, decide again when another came first.

use crate::error::{experiment_refused, run_refused};
use crate::figures::Figures;
use crate::view::View;
use footplate_api::server::Lines;
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_es::{Cause, Decide};
use footplate_eventlog::AppendError;
use footplate_events::{Envelope, Event, Subject, Trace};
use footplate_shell::{TRIES, not_appended};
use footplate_tracker_core::{Experiment, ExperimentCommand, Run, RunCommand, RunFacts};
use footplate_types::{DisplayName, EventId, ExperimentId, PrincipalId, ProjectName, RunId};
use std::sync::Arc;

/// Who writes, and what the write answers.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    /// Who.
    pub actor: PrincipalId,
    /// The trace of the request.
    pub trace: Option<Trace>,
    /// The event that this write answers; absent for clients.
    pub cause: Option<Cause>,
    /// The id of the event: fixed by the request's idempotency key, the report's place, or minted.
    pub id: EventId,
}

impl Author {
    /// A client, with the id that its idempotency key and the request's bytes fix (or a minted one): the same request is the same event.
    pub(crate) fn client(actor: PrincipalId, request_id: &str, method: &str, body: &[u8]) -> Self {
        let id = if request_id.is_empty() {
            footplate_clock::event_id()
        } else {
            EventId::derived(&[b"request", request_id.as_bytes(), method.as_bytes(), body])
        };
        let trace = footplate_service::current_traceparent().as_deref().and_then(Trace::parse);
        Self { actor, trace, cause: None, id }
    }

    /// The tracker itself, answering an event.
    pub(crate) fn answering(cause: Cause, target: &Subject, what: &str) -> Self {
        let id = EventId::caused(&cause.id, "tracker", &format!("{target}/{what}"), 0);
        Self { actor: cause.actor.clone(), trace: cause.trace.clone(), cause: Some(cause), id }
    }

    /// The same author with another event id, derived from its own: for the second event of one request.
    #[must_use]
    pub(crate) fn next(&self, what: &str) -> Self {
        Self { id: EventId::derived(&[b"next", self.id.as_bytes(), what.as_bytes()]), ..self.clone() }
    }
}

/// The writer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Writer {
    view: View,
    clock: SharedClock,
    source: Arc<str>,
    figures: Figures,
    lines: Arc<Lines>,
}

impl Writer {
    /// A writer that shows itself as `tracker/<instance>`.
    pub(crate) fn new(view: View, clock: SharedClock, config: &crate::Config, figures: Figures) -> Self {
        let lines = Arc::new(Lines::new(config.writers_waiting_max, config.wait));
        Self { view, clock, source: format!("tracker/{}", config.instance).into(), figures, lines }
    }

    /// The view it decides on.
    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    fn envelope(&self, subject: Subject, event: Event, author: &Author, chain: Option<EventId>) -> Envelope {
        let correlation = author.cause.as_ref().map(|cause| cause.correlation).or(chain).unwrap_or(author.id);
        Envelope {
            id: author.id,
            subject,
            event,
            source: self.source.to_string(),
            time: self.clock.now(),
            actor: author.actor.clone(),
            correlation,
            causation: author.cause.as_ref().map(|cause| cause.id),
            trace: author.trace.clone(),
        }
    }

    /// Decides and appends about a run. Answers with the sequence of the write, or of the run's last event when there was nothing to write.
    pub(crate) async fn run(&self, project: &ProjectName, run: RunId, author: &Author, command: RunCommand) -> Result<u64, Refusal> {
        let decide = |state: &Run| state.decide(command.clone(), &RunFacts).map_err(run_refused);
        self.run_with(project, run, author, decide).await
    }

    /// The same with a decision of the caller's: at most one event. An event of the author's id that the run remembers is this write.
    pub(crate) async fn run_with(
        &self,
        project: &ProjectName,
        run: RunId,
        author: &Author,
        decide: impl Fn(&Run) -> Result<Vec<Event>, Refusal>,
    ) -> Result<u64, Refusal> {
        let subject = Subject::run(project, run);
        let _turn = self.lines.turn(run.shard(), "run", run).await?;
        for attempt in 0..TRIES {
            let state = self.view.known(project, run);
            let state = state.unwrap_or_else(|| Arc::new(Run::new(project.clone(), run)));
            if let Some(sequence) = state.remembered(&author.id) {
                return Ok(sequence);
            }
            let events = match decide(&state) {
                // A view that has not read on may not know the run yet: what it refuses is decided again at the ledger's end.
                Err(refusal) if attempt == 0 && refusal.reason == reason::RUN_NOT_FOUND.word => {
                    self.view.catch_up().await?;
                    continue;
                }
                decided => decided?,
            };
            let Some(event) = events.into_iter().next() else { return Ok(state.sequence) };
            let chain = state.chain.as_ref().map(|chain| chain.correlation);
            let envelope = self.envelope(subject.clone(), event, author, chain);
            match self.view.ledger().append(envelope, state.version).await {
                Ok(sequence) => {
                    // The next in line decides on this event; a view that is slow only makes it decide twice.
                    let _ = self.view.at_least(sequence).await;
                    return Ok(sequence);
                }
                Err(AppendError::Conflict { .. }) => {
                    self.figures.conflicts.inc();
                    self.view.catch_up().await?;
                }
                Err(error) => return Err(not_appended(self.view.ledger(), &subject.to_string(), error)),
            }
        }
        let message = format!("run {run} was changed by others {TRIES} times in a row");
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, message))
    }

    /// Has the experiment of that name. Answers with its id and the sequence of its last event.
    pub(crate) async fn experiment_named(
        &self,
        project: &ProjectName,
        name: &DisplayName,
        note: &str,
        author: &Author,
    ) -> Result<(ExperimentId, u64), Refusal> {
        let id = ExperimentId::of(project, name);
        let command = ExperimentCommand::Create { name: name.clone(), note: note.to_owned() };
        self.experiment(project, id, author, command).await.map(|sequence| (id, sequence))
    }

    /// Decides and appends about an experiment.
    pub(crate) async fn experiment(
        &self,
        project: &ProjectName,
        id: ExperimentId,
        author: &Author,
        command: ExperimentCommand,
    ) -> Result<u64, Refusal> {
        let subject = Subject::experiment(project, id);
        for _ in 0..TRIES {
            let state = self.view.experiment(project, id);
            let state = state.unwrap_or_else(|| Arc::new(Experiment::new(project.clone(), id)));
            let events = state.decide(command.clone(), &()).map_err(experiment_refused)?;
            let Some(event) = events.into_iter().next() else { return Ok(state.sequence) };
            let envelope = self.envelope(subject.clone(), event, author, None);
            match self.view.ledger().append(envelope, state.version).await {
                Ok(sequence) => return Ok(sequence),
                Err(AppendError::Conflict { .. }) => {
                    self.figures.conflicts.inc();
                    self.view.catch_up().await?;
                }
                Err(error) => return Err(not_appended(self.view.ledger(), &subject.to_string(), error)),
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, format!("experiment {id} was changed by others {TRIES} times in a row")))
    }

    /// Opens a run. The same request gives the same run; another body under the same id is refused, naming the first.
    pub(crate) async fn create(&self, project: &ProjectName, run: RunId, author: &Author, command: RunCommand) -> Result<u64, Refusal> {
        // Whoever expects 0 first looks the id up at the ledger's end: ids are never reused, not even in another project.
        self.view.catch_up().await?;
        let owner = self.view.live().read().owner(run).cloned();
        if let Some(owner) = owner.filter(|owner| owner != project) {
            tracing::warn!(%run, %owner, %project, "a run id of another project was asked for");
            return Err(Refusal::new(&reason::ID_TAKEN, format!("run id {run} is taken; choose another")).field("run_id").value(run));
        }
        self.run(project, run, author, command).await
    }
}
