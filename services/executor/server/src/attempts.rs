//! `AttemptService`: attempts as the executor sees them.

use footplate_api::server::named_project;
use footplate_api::types::{AttemptSummary, MemberSummary};
use footplate_api::v1::{ListAttemptsRequest, ListAttemptsResponse, attempt_service_server::AttemptService};
use footplate_api::{Refusal, reason};
use footplate_eventlog::Live;
use footplate_events::facts::{Exit, WorkerExit};
use footplate_executor_core::{AttemptState, Executor, MemberPhase, MemberState};
use footplate_shell::{Named, resolve};
use footplate_types::{AttemptId, MemberIndex, RunId};
use std::time::Duration;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Attempts {
    live: Live<Executor>,
    read_wait: Duration,
}

impl Attempts {
    pub(crate) fn new(live: Live<Executor>, read_wait: Duration) -> Self {
        Self { live, read_wait }
    }
}

/// The run that a request names, by id or unique prefix, in its project.
pub(crate) fn find_run(state: &Executor, project: &str, run: &str) -> Result<RunId, Status> {
    // Never another one than the request names: the caller was let in for that one alone.
    let project = named_project(project)?;
    let own = state.runs_of(&project);
    Ok(resolve(&Named { what: "run", field: "run_id", unknown: &reason::RUN_NOT_FOUND, project: Some(&project) }, run, own)?)
}

fn exit_text(worker: &WorkerExit) -> String {
    match &worker.exit {
        Exit::Code(code) => format!("rank {}: exit {code}", worker.rank),
        Exit::Signal(signal) => format!("rank {}: signal {signal}", worker.rank),
        Exit::NotStarted(why) => format!("rank {}: not started: {why}", worker.rank),
        Exit::Unknown(why) => format!("rank {}: unknown: {why}", worker.rank),
    }
}

fn member_summary(index: MemberIndex, member: &MemberState) -> MemberSummary {
    let exits = match &member.phase {
        MemberPhase::Exited(exited) => match &exited.not_started {
            Some(why) => vec![format!("not started: {why}")],
            None => exited.workers.iter().map(exit_text).collect(),
        },
        _ => Vec::new(),
    };
    MemberSummary {
        member: index.0,
        node: member.node.to_string(),
        first_rank: member.first_rank.0,
        workers: member.workers,
        state: member.phase.as_str().to_owned(),
        exits,
        ..MemberSummary::default()
    }
}

fn summary(id: &AttemptId, attempt: &AttemptState) -> AttemptSummary {
    AttemptSummary {
        attempt: id.attempt.0,
        members: attempt.members.iter().map(|(index, member)| member_summary(*index, member)).collect(),
        checkpoint_step: attempt.checkpoint.as_ref().map(|checkpoint| checkpoint.step),
        ..AttemptSummary::default()
    }
}

#[tonic::async_trait]
impl AttemptService for Attempts {
    async fn list_attempts(&self, request: Request<ListAttemptsRequest>) -> Result<Response<ListAttemptsResponse>, Status> {
        let request = request.into_inner();
        self.live
            .at_least(request.at_least, self.read_wait)
            .await
            .map_err(|behind| Refusal::new(&reason::VIEW_BEHIND, behind.to_string()))?;
        let state = self.live.read();
        let run = find_run(&state, &request.project, &request.run_id)?;
        let attempts = state.attempts_of(run).map(|(id, attempt)| summary(id, attempt)).collect();
        Ok(Response::new(ListAttemptsResponse { attempts }))
    }
}
