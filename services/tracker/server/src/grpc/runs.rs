//! RunService.

use super::convert::{inputs_in, outcome_in, params_in, run_out, tags_in};
use super::search::Search;
use super::{actor_of, lineage, project_of};
use crate::metrics::Reads;
use crate::view::View;
use crate::write::{Author, Writer};
use footplate_api::v1::{self, run_service_server::RunService};
use footplate_api::{Refusal, reason};
use footplate_clock::SharedClock;
use footplate_events::facts::{RunNoted, SessionEnd};
use footplate_tracker_core::{Run, RunCommand};
use footplate_types::{AttemptNumber, Digest, DisplayName, ParamKey, ProjectName, Rank, RunId, SessionId};
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

/// The longest that WaitRun waits.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// How long WaitRun waits when nothing is asked.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// The experiment of a run that names none.
const DEFAULT_EXPERIMENT: &str = "default";

/// The service.
#[derive(Clone)]
pub(crate) struct Runs {
    view: View,
    writer: Writer,
    reads: Reads,
    clock: SharedClock,
    shutdown: CancellationToken,
}

impl Runs {
    /// The service over its parts.
    pub(crate) fn new(view: View, writer: Writer, reads: Reads, clock: SharedClock, shutdown: CancellationToken) -> Self {
        Self { view, writer, reads, clock, shutdown }
    }

    async fn shown(&self, run: &Run) -> Result<footplate_api::types::Run, Refusal> {
        let latest = self.reads.shown(run.id).await?;
        Ok(run_out(run, &latest, self.clock.now()))
    }

    /// The run that a write is about, and who writes.
    async fn target<T: prost::Message>(&self, request: &Request<T>, of: Target<'_>) -> Result<(ProjectName, RunId, Author), Refusal> {
        let project = project_of(request, of.project)?;
        let run = self.view.resolve(&project, of.run_id).await?.id;
        let author = Author::client(actor_of(request), of.request_id, of.method, &request.get_ref().encode_to_vec());
        Ok((project, run, author))
    }

    async fn write<T: prost::Message>(
        &self,
        request: &Request<T>,
        of: Target<'_>,
        command: RunCommand,
    ) -> Result<Response<v1::WriteResponse>, Status> {
        let (project, run, author) = self.target(request, of).await?;
        let sequence = self.writer.run(&project, run, &author, command).await?;
        Ok(Response::new(v1::WriteResponse { sequence }))
    }

    async fn create(&self, request: &Request<v1::CreateRunRequest>) -> Result<v1::CreateRunResponse, Refusal> {
        let message = request.get_ref();
        let project = project_of(request, &message.project)?;
        let name = DisplayName::parse(&message.name).map_err(|invalid| invalid.of("name"))?;
        let experiment = if message.experiment.is_empty() { DEFAULT_EXPERIMENT } else { &message.experiment };
        let experiment = DisplayName::parse(experiment).map_err(|invalid| invalid.of("experiment"))?;
        let (params, tags) = (params_in(&message.params)?, tags_in(&message.tags)?);
        let run = match (message.run_id.as_str(), message.request_id.as_str()) {
            ("", "") => footplate_clock::run_id(),
            ("", key) => RunId::for_key(&project, "run", key),
            (id, _) => RunId::parse(id).map_err(|invalid| invalid.of("run_id"))?,
        };
        let body = body_of(message);
        // The id of the event is the request's own, not only its key's: another body under the key is decided on, and refused.
        let author = Author::client(actor_of(request), &message.request_id, "CreateRun", body.as_bytes());
        let hypothesis = message.hypothesis.clone();
        let command = RunCommand::Create { name, experiment: experiment.clone(), body, hypothesis };
        self.writer.experiment_named(&project, &experiment, "", &author.next("experiment")).await?;
        let mut sequence = self.writer.create(&project, run, &author, command).await?;
        if !params.is_empty() {
            self.view.at_least(sequence).await?;
            let command = RunCommand::LogParams { attempt: AttemptNumber(0), rank: Rank(0), params };
            sequence = self.writer.run(&project, run, &author.next("params"), command).await?;
        }
        if !tags.is_empty() {
            self.view.at_least(sequence).await?;
            let command = RunCommand::SetTags { set: tags, removed: Vec::new() };
            sequence = self.writer.run(&project, run, &author.next("tags"), command).await?;
        }
        Ok(v1::CreateRunResponse { run_id: run.to_string(), sequence })
    }

    /// Waits until the run is done, the time is over, or the caller's own deadline is near.
    async fn wait(&self, request: &Request<v1::WaitRunRequest>) -> Result<v1::WaitRunResponse, Refusal> {
        let message = request.get_ref();
        let project = project_of(request, &message.project)?;
        let id = self.view.resolve(&project, &message.run_id).await?.id;
        let asked = if message.timeout_ms == 0 { WAIT_DEFAULT } else { Duration::from_millis(message.timeout_ms).min(WAIT_MAX) };
        let deadline = tokio::time::Instant::now() + asked;
        let mut position = self.view.live().changes();
        loop {
            position.borrow_and_update();
            let run = self.view.run(&project, id).ok_or_else(|| Refusal::new(&reason::RUN_NOT_FOUND, format!("no run {id}")))?;
            let done = if message.ended_is_enough { run.ended.is_some() } else { run.seal.is_some() };
            let over = tokio::time::Instant::now() >= deadline || self.shutdown.is_cancelled();
            if done || over {
                return Ok(v1::WaitRunResponse { done, run: Some(self.shown(&run).await?) });
            }
            tokio::select! {
                () = self.shutdown.cancelled() => {}
                () = tokio::time::sleep_until(deadline) => {}
                _ = position.changed() => {}
            }
        }
    }
}

/// What a write names.
struct Target<'a> {
    method: &'a str,
    project: &'a str,
    run_id: &'a str,
    request_id: &'a str,
}

/// Digest of a create request without its idempotency key and id: the same key with another body is refused.
fn body_of(message: &v1::CreateRunRequest) -> Digest {
    let body = v1::CreateRunRequest { request_id: String::new(), run_id: String::new(), ..message.clone() };
    Digest::of(&body.encode_to_vec())
}

fn keys_in(keys: &[String]) -> Result<Vec<ParamKey>, Refusal> {
    keys.iter().map(|key| ParamKey::parse(key).map_err(|invalid| invalid.of("removed").into())).collect()
}

#[tonic::async_trait]
impl RunService for Runs {
    async fn create_run(&self, request: Request<v1::CreateRunRequest>) -> Result<Response<v1::CreateRunResponse>, Status> {
        Ok(Response::new(self.create(&request).await?))
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        self.view.at_least(message.at_least).await?;
        let run = self.view.resolve(&project, &message.run_id).await?;
        let view_sequence = self.view.live().position();
        Ok(Response::new(v1::GetRunResponse { run: Some(self.shown(&run).await?), view_sequence }))
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        self.view.at_least(message.at_least).await?;
        let search = Search { view: &self.view, reads: &self.reads, now: self.clock.now() };
        Ok(Response::new(search.list(&project, message).await?))
    }

    async fn wait_run(&self, request: Request<v1::WaitRunRequest>) -> Result<Response<v1::WaitRunResponse>, Status> {
        Ok(Response::new(self.wait(&request).await?))
    }

    async fn log_params(&self, request: Request<v1::LogParamsRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let message = request.get_ref();
        let params = params_in(&message.params).map_err(Refusal::from)?;
        let command = RunCommand::LogParams { attempt: AttemptNumber(0), rank: Rank(0), params };
        let of = Target { method: "LogParams", project: &message.project, run_id: &message.run_id, request_id: &message.request_id };
        self.write(&request, of, command).await
    }

    async fn set_tags(&self, request: Request<v1::SetTagsRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let message = request.get_ref();
        let set = tags_in(&message.set).map_err(Refusal::from)?;
        let command = RunCommand::SetTags { set, removed: keys_in(&message.removed)? };
        let of = Target { method: "SetTags", project: &message.project, run_id: &message.run_id, request_id: &message.request_id };
        self.write(&request, of, command).await
    }

    async fn note_run(&self, request: Request<v1::NoteRunRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let message = request.get_ref();
        let (hypothesis, conclusion, note) = (message.hypothesis.clone(), message.conclusion.clone(), message.note.clone());
        let command = RunCommand::Note(RunNoted { hypothesis, conclusion, note });
        let of = Target { method: "NoteRun", project: &message.project, run_id: &message.run_id, request_id: &message.request_id };
        self.write(&request, of, command).await
    }

    async fn log_inputs(&self, request: Request<v1::LogInputsRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let message = request.get_ref();
        let command = RunCommand::LogInputs(inputs_in(&message.inputs).map_err(Refusal::from)?);
        let of = Target { method: "LogInputs", project: &message.project, run_id: &message.run_id, request_id: &message.request_id };
        self.write(&request, of, command).await
    }

    async fn finish_run(&self, request: Request<v1::FinishRunRequest>) -> Result<Response<v1::WriteResponse>, Status> {
        let message = request.get_ref();
        let outcome = outcome_in(message.outcome).map_err(Refusal::from)?;
        let session = |end: &v1::SessionEnd| -> Result<SessionEnd, Refusal> {
            let session = SessionId::parse(&end.session).map_err(|invalid| invalid.of("sessions.session"))?;
            Ok(SessionEnd { rank: Rank(0), session, batches: end.batches })
        };
        let sessions = message.sessions.iter().map(session).collect::<Result<_, _>>()?;
        let command = RunCommand::Finish { outcome, message: message.message.clone(), sessions };
        let of = Target { method: "FinishRun", project: &message.project, run_id: &message.run_id, request_id: &message.request_id };
        self.write(&request, of, command).await
    }

    async fn get_lineage(&self, request: Request<v1::GetLineageRequest>) -> Result<Response<v1::GetLineageResponse>, Status> {
        let message = request.get_ref();
        let project = project_of(&request, &message.project)?;
        let run: Arc<Run> = self.view.resolve(&project, &message.run_id).await?;
        Ok(Response::new(lineage::of(self.view.ledger(), &project, run.id).await?))
    }
}
