//! `SweepService`: searches begun, shown, stopped and resumed.

use crate::config::{DocumentError, read_object, set_values};
use crate::convert::{sweep_in, sweep_out, trial_out};
use crate::shell::Shell;
use footplate_api::server::{named_project, principal};
use footplate_api::v1::{
    CreateSweepRequest, CreateSweepResponse, GetSweepRequest, GetSweepResponse, ListSweepsRequest, ListSweepsResponse, ListTrialsRequest,
    ListTrialsResponse, ResumeSweepRequest, StopSweepRequest, SweepWriteResponse, sweep_service_server::SweepService,
};
use footplate_api::{Refusal, reason};
use footplate_blobs::Blobs;
use footplate_events::facts::{DocumentRef, SweepCreated, SweepResumed, SweepStopRequested, cut_text};
use footplate_events::{Event, PAYLOAD_MAX, Subject};
use footplate_shell::{TRIES, repeated};
use footplate_sweep_core::{Standing, Sweep, TRIALS_MAX, check, sample_point};
use footplate_types::{Digest, EventId, Invalid, PrincipalId, ProjectName, SweepId, TrialNumber};
use std::ops::Bound;
use tonic::{Request, Response, Status};

/// The most characters of an idempotency key.
const KEY_MAX: usize = 256;
/// The largest sweep as its event holds it: a trial's event may be this much larger, for its labels, its run and its documents.
const SWEEP_BYTES_MAX: usize = PAYLOAD_MAX - (8 << 10);
/// Rows of a page when the client names no number.
const PAGE_DEFAULT: u32 = 100;
/// The most rows of a page.
const PAGE_MAX: u32 = 500;

#[derive(Clone)]
pub(crate) struct SweepDoor {
    shell: Shell,
    blobs: Blobs,
}

/// A fault of a sweep, as clients are told.
fn unfit(invalid: Invalid) -> Refusal {
    let told = invalid.to_string();
    Refusal::new(&reason::INVALID_SWEEP, told).field(invalid.field).value(invalid.value).allowed(invalid.allowed)
}

/// How many rows a page has.
fn page_of(size: u32) -> Result<usize, Refusal> {
    match size {
        0 => Ok(PAGE_DEFAULT as usize),
        1..=PAGE_MAX => Ok(size as usize),
        other => Err(Invalid::new("page_size", other, format!("1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")).into()),
    }
}

/// The number that a page token of ours is; `None` for the first page.
fn token_of(text: &str) -> Result<Option<u64>, Refusal> {
    let foreign = |_| Refusal::new(&reason::INVALID_PAGE_TOKEN, "the page token is none of ours").field("page_token");
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(foreign) }
}

/// A trial's event says of the sweep's what it needs, and little more: where that fits, every trial will.
fn check_bytes(fact: &SweepCreated) -> Result<(), Refusal> {
    let bytes = serde_json::to_vec(fact).map_err(Refusal::internal)?.len();
    if bytes <= SWEEP_BYTES_MAX {
        return Ok(());
    }
    let allowed = format!("a space and a job of at most {SWEEP_BYTES_MAX} bytes together: fewer or shorter choices, labels, texts");
    Err(unfit(Invalid::new("space", format!("{bytes} bytes"), allowed)))
}

fn key_of(key: &str) -> Result<(), Refusal> {
    if key.chars().count() <= KEY_MAX {
        return Ok(());
    }
    let refusal = Refusal::new(&reason::INVALID_FIELD, "the request id is too long").field("request_id").value(key);
    Err(refusal.allowed(format!("at most {KEY_MAX} characters")))
}

impl SweepDoor {
    pub(crate) fn new(shell: Shell, blobs: Blobs) -> Self {
        Self { shell, blobs }
    }

    async fn create(&self, request: CreateSweepRequest, actor: PrincipalId) -> Result<CreateSweepResponse, Refusal> {
        let project = named_project(&request.project)?;
        key_of(&request.request_id)?;
        let spec = request.spec.as_ref().ok_or_else(|| Refusal::new(&reason::MISSING_FIELD, "the sweep asks for nothing").field("spec"))?;
        let mut fact = sweep_in(spec).map_err(unfit)?;
        fact.points = check(&fact).map_err(unfit)?;
        check_bytes(&fact)?;
        self.check_documents(&fact).await?;
        if request.dry_run {
            return Ok(CreateSweepResponse { sweep_id: String::new(), sequence: 0, points: fact.points });
        }
        let key = request.request_id.as_str();
        let id = match key {
            "" => footplate_clock::sweep_id(),
            key => SweepId::derived(&[project.as_str().as_bytes(), b"sweep", key.as_bytes()]),
        };
        let points = fact.points;
        let body = fact.body;
        let subject = Subject::sweep(&project, id);
        // The same creation at two instances is one event: whoever comes second finds it standing and answers the same.
        let event = EventId::derived(&[b"sweep created", id.as_bytes(), body.as_bytes()]);
        let envelope = self.shell.envelope(event, subject.clone(), fact, actor);
        if let Some(sequence) = self.shell.append(envelope, 0).await? {
            return Ok(CreateSweepResponse { sweep_id: id.to_string(), sequence, points });
        }
        self.repeated(id, &subject, key, body).await
    }

    /// The answer when the id stands already: the same sweep, or a conflict.
    async fn repeated(&self, id: SweepId, subject: &Subject, key: &str, body: Digest) -> Result<CreateSweepResponse, Refusal> {
        let (events, _) = self.shell.aggregate(subject).await?;
        let first = events.into_iter().find_map(|recorded| match recorded.envelope.event {
            Event::SweepCreated(fact) => Some((fact, recorded.sequence)),
            _ => None,
        });
        match first {
            Some((fact, sequence)) if fact.body == body => {
                Ok(CreateSweepResponse { sweep_id: id.to_string(), sequence, points: fact.points })
            }
            Some((fact, _)) => {
                let told = format!("request id {key:?} was used for sweep {id} ({:?}) with another body", fact.name.as_str());
                Err(Refusal::new(&reason::IDEMPOTENCY_KEY_REUSED, told).field("request_id").value(id))
            }
            None => Err(Refusal::internal(format!("{subject} was refused as taken and was never created"))),
        }
    }

    /// Looks whether the documents that every trial stands on are there, and whether the config can take the space.
    async fn check_documents(&self, fact: &SweepCreated) -> Result<(), Refusal> {
        let mut config = match &fact.job.config {
            Some(document) => self.document("job.config", document).await?,
            None => serde_json::Map::new(),
        };
        set_values(&mut config, &sample_point(&fact.space)).map_err(unfit)?;
        if let Some(document) = &fact.job.document {
            self.document("job.document", document).await?;
        }
        Ok(())
    }

    async fn document(&self, field: &str, document: &DocumentRef) -> Result<serde_json::Map<String, serde_json::Value>, Refusal> {
        read_object(&self.blobs, document).await.map_err(|error| match error {
            DocumentError::Unfit(why) => unfit(Invalid::new(field, document.digest, format!("a stored JSON object: {why}"))),
            DocumentError::Away(why) => Refusal::new(&reason::STORE_AWAY, why),
        })
    }

    /// Appends what a client wants of a sweep, built on everything that stands in the ledger now; `may` says no, or yes, or that it is already so.
    async fn change(
        &self,
        (project, sweep_id, request_id): (&str, &str, &str),
        actor: PrincipalId,
        event: impl Into<Event>,
        may: impl Fn(SweepId, &Sweep) -> Result<Wanted, Refusal> + Send + Sync,
    ) -> Result<SweepWriteResponse, Refusal> {
        let event = event.into();
        let project = named_project(project)?;
        key_of(request_id)?;
        self.shell.caught_up().await?;
        let id = crate::shell::sweep_of(&self.shell, &project, sweep_id)?;
        let subject = Subject::sweep(&project, id);
        let event_id = match request_id {
            "" => footplate_clock::event_id(),
            key => EventId::derived(&[b"sweep", id.as_bytes(), key.as_bytes()]),
        };
        for _ in 0..TRIES {
            let (events, expected) = self.shell.aggregate(&subject).await?;
            if let Some(sequence) = repeated(&events, event_id, &event, request_id)? {
                return Ok(SweepWriteResponse { sweep_id: id.to_string(), sequence });
            }
            self.shell.at_least(expected).await?;
            let decided = {
                let state = self.shell.live.read();
                let sweep = state.sweep(&id).ok_or_else(|| Refusal::internal(format!("{subject} left the view")))?;
                may(id, sweep)?
            };
            if decided == Wanted::IsSo {
                return Ok(SweepWriteResponse { sweep_id: id.to_string(), sequence: expected });
            }
            let envelope = self.shell.envelope(event_id, subject.clone(), event.clone(), actor.clone());
            if let Some(sequence) = self.shell.append(envelope, expected).await? {
                return Ok(SweepWriteResponse { sweep_id: id.to_string(), sequence });
            }
        }
        Err(Refusal::new(&reason::CHANGED_MEANWHILE, format!("sweep {id} was changed by others at the same time")))
    }

    async fn found(&self, project: &str, sweep_id: &str, at_least: u64) -> Result<(ProjectName, SweepId), Refusal> {
        let project = named_project(project)?;
        self.shell.at_least(at_least).await?;
        let id = crate::shell::sweep_of(&self.shell, &project, sweep_id)?;
        Ok((project, id))
    }

    async fn get(&self, request: GetSweepRequest) -> Result<GetSweepResponse, Refusal> {
        let (_, id) = self.found(&request.project, &request.sweep_id, request.at_least).await?;
        let (state, view_sequence) = self.shell.live.read_at();
        Ok(GetSweepResponse { sweep: state.sweep(&id).map(|sweep| sweep_out(id, sweep, true)), view_sequence })
    }

    async fn list(&self, request: ListSweepsRequest) -> Result<ListSweepsResponse, Refusal> {
        let project = named_project(&request.project)?;
        let most = page_of(request.page_size)?;
        let before = token_of(&request.page_token)?.unwrap_or(u64::MAX);
        self.shell.at_least(request.at_least).await?;
        let state = self.shell.live.read();
        let is_wanted = |sweep: &Sweep| sweep.project == project && sweep.created_sequence < before;
        let mut found: Vec<(SweepId, &Sweep)> =
            state.sweeps().iter().filter(|(_, sweep)| is_wanted(sweep)).map(|(id, sweep)| (*id, sweep)).collect();
        found.sort_by_key(|(_, sweep)| std::cmp::Reverse(sweep.created_sequence));
        let more = found.len() > most;
        found.truncate(most);
        let next_page_token = found.last().filter(|_| more).map(|(_, sweep)| sweep.created_sequence.to_string()).unwrap_or_default();
        let sweeps = found.into_iter().map(|(id, sweep)| sweep_out(id, sweep, false)).collect();
        Ok(ListSweepsResponse { sweeps, next_page_token })
    }

    async fn list_trials(&self, request: ListTrialsRequest) -> Result<ListTrialsResponse, Refusal> {
        let most = page_of(request.page_size)?;
        let after = token_of(&request.page_token)?.unwrap_or(0);
        let after = TrialNumber(u32::try_from(after).unwrap_or(u32::MAX));
        let (_, id) = self.found(&request.project, &request.sweep_id, request.at_least).await?;
        let state = self.shell.live.read();
        let Some(sweep) = state.sweep(&id) else { return Ok(ListTrialsResponse::default()) };
        let mut rest = sweep.trials.range((Bound::Excluded(after), Bound::Unbounded));
        let trials: Vec<_> = rest.by_ref().take(most).map(|(number, trial)| trial_out(*number, trial)).collect();
        let more = rest.next().is_some();
        let next_page_token = trials.last().filter(|_| more).map(|trial| trial.number.to_string()).unwrap_or_default();
        Ok(ListTrialsResponse { trials, next_page_token })
    }
}

/// What a client wants of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// It is to be written.
    Write,
    /// It is so already.
    IsSo,
}

/// Whether a sweep may be stopped.
fn stop(id: SweepId, sweep: &Sweep, cancel: bool) -> Result<Wanted, Refusal> {
    if sweep.standing() == Standing::Finished {
        return Err(Refusal::new(&reason::SWEEP_STATE, format!("sweep {id} is finished")).field("sweep_id"));
    }
    if sweep.stop.as_ref().is_some_and(|stop| stop.cancel || !cancel) {
        return Ok(Wanted::IsSo);
    }
    Ok(Wanted::Write)
}

/// Whether a sweep may go on, with so many trials where they are named.
fn resume(id: SweepId, sweep: &Sweep, trials: Option<u32>) -> Result<Wanted, Refusal> {
    if let Some(wanted) = trials.filter(|wanted| !(1..=TRIALS_MAX).contains(wanted)) {
        return Err(unfit(Invalid::new("trials", wanted, format!("1 to {TRIALS_MAX}"))));
    }
    if sweep.exhausted && sweep.stop.is_none() {
        let told = format!("sweep {id} has tried every point of its grid");
        return Err(Refusal::new(&reason::SWEEP_STATE, told).field("trials").next("begin another sweep with a wider space"));
    }
    let raises = trials.is_some_and(|wanted| sweep.budget.is_some_and(|budget| wanted > budget));
    if sweep.stop.is_none() && !raises {
        let told = format!("sweep {id} is {}, and nothing more is asked of it", sweep.standing().as_str());
        return Err(Refusal::new(&reason::SWEEP_STATE, told).field("trials").next("resume a stopped sweep, or name more trials"));
    }
    Ok(Wanted::Write)
}

#[tonic::async_trait]
impl SweepService for SweepDoor {
    async fn create_sweep(&self, request: Request<CreateSweepRequest>) -> Result<Response<CreateSweepResponse>, Status> {
        let actor = principal(&request)?;
        Ok(Response::new(self.create(request.into_inner(), actor).await?))
    }

    async fn get_sweep(&self, request: Request<GetSweepRequest>) -> Result<Response<GetSweepResponse>, Status> {
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn list_sweeps(&self, request: Request<ListSweepsRequest>) -> Result<Response<ListSweepsResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn list_trials(&self, request: Request<ListTrialsRequest>) -> Result<Response<ListTrialsResponse>, Status> {
        Ok(Response::new(SweepDoor::list_trials(self, request.into_inner()).await?))
    }

    async fn stop_sweep(&self, request: Request<StopSweepRequest>) -> Result<Response<SweepWriteResponse>, Status> {
        let actor = principal(&request)?;
        let request = request.into_inner();
        let named = (request.project.as_str(), request.sweep_id.as_str(), request.request_id.as_str());
        let event = SweepStopRequested { cancel: request.cancel, reason: cut_text(&request.reason) };
        let answer = self.change(named, actor, event, |id, sweep| stop(id, sweep, request.cancel)).await?;
        Ok(Response::new(answer))
    }

    async fn resume_sweep(&self, request: Request<ResumeSweepRequest>) -> Result<Response<SweepWriteResponse>, Status> {
        let actor = principal(&request)?;
        let request = request.into_inner();
        let named = (request.project.as_str(), request.sweep_id.as_str(), request.request_id.as_str());
        let event = SweepResumed { trials: request.trials };
        let answer = self.change(named, actor, event, |id, sweep| resume(id, sweep, request.trials)).await?;
        Ok(Response::new(answer))
    }
}
