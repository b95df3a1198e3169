//! `JobService`: submissions, requests, reads.

mod array;
mod asks;
mod decisions;
mod history;
mod pipeline;
mod read;
mod show;
mod submit;
mod together;

use crate::shell::Shell;
use footplate_api::server::named_project;
use footplate_api::server::principal;
use footplate_api::v1::{
    CancelArrayResponse, ExplainJobResponse, GetJobRequest, GetJobResponse, JobRequest, JobRequestResponse, ListJobsRequest,
    ListJobsResponse, ReprioritizeJobRequest, SubmitArrayRequest, SubmitArrayResponse, SubmitJobRequest, SubmitJobResponse,
    SubmitPipelineRequest, SubmitPipelineResponse, WatchDecisionsRequest, job_service_server::JobService,
};
use footplate_api::{Refusal, reason};
use footplate_events::facts::{JobCancelRequested, JobHoldRequested, JobReleaseRequested, JobReprioritizeRequested};
use footplate_scheduler_core::{DEPTH_MAX, Refusal as No};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Jobs {
    shell: Shell,
    /// Ends the streams.
    stopping: CancellationToken,
}

impl Jobs {
    pub(crate) fn new(shell: Shell, stopping: CancellationToken) -> Self {
        Self { shell, stopping }
    }
}

/// A core's no, as clients are told.
pub(crate) fn refused(no: No) -> Refusal {
    let told = no.to_string();
    match no {
        No::Invalid(invalid) => {
            let refusal = Refusal::new(&reason::INVALID_SPEC, told).field(invalid.field).value(invalid.value);
            refusal.allowed(invalid.allowed)
        }
        No::NoSuchQueue { queue, there } => Refusal::new(&reason::QUEUE_NOT_FOUND, told).field("queue.name").value(queue).allowed(there),
        No::QueueClosed { queue } => Refusal::new(&reason::QUEUE_CLOSED, told).field("queue.name").value(queue),
        No::NeverFits { .. } => Refusal::new(&reason::NO_NODE_FITS, told).field("resources"),
        No::OverQuota { .. } => Refusal::new(&reason::QUOTA_EXCEEDED, told).field("resources"),
        No::NotALeaf { queue, below } => Refusal::new(&reason::QUEUE_NOT_A_LEAF, told).field("queue.name").value(queue).allowed(below),
        No::BadParent { parent, .. } => {
            let refusal = Refusal::new(&reason::QUEUE_TREE, told).field("parent").value(parent);
            refusal.allowed(format!("none, or an open queue without jobs of its own that stands elsewhere; at most {DEPTH_MAX} deep"))
        }
        No::OverGuarantee { what, asked, allowed, .. } => {
            Refusal::new(&reason::QUEUE_TREE, told).field(format!("guarantee_{what}")).value(asked).allowed(allowed)
        }
        No::NoSuchRun { run, .. } => Refusal::new(&reason::JOB_NOT_FOUND, told).field("after").value(run),
        No::QueueInUse { queue, .. } => {
            Refusal::new(&reason::QUEUE_CLOSED, told).field("name").value(queue).next("cancel its jobs or wait for them, then close it")
        }
    }
}

#[tonic::async_trait]
impl JobService for Jobs {
    type WatchDecisionsStream = decisions::Decisions;

    async fn watch_decisions(&self, request: Request<WatchDecisionsRequest>) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        Ok(Response::new(self.decisions(request.into_inner()).await?))
    }

    async fn submit_job(&self, request: Request<SubmitJobRequest>) -> Result<Response<SubmitJobResponse>, Status> {
        let actor = principal(&request)?;
        Ok(Response::new(self.submit(request.into_inner(), actor).await?))
    }

    async fn submit_pipeline(&self, request: Request<SubmitPipelineRequest>) -> Result<Response<SubmitPipelineResponse>, Status> {
        let actor = principal(&request)?;
        Ok(Response::new(self.pipeline(request.into_inner(), actor).await?))
    }

    async fn submit_array(&self, request: Request<SubmitArrayRequest>) -> Result<Response<SubmitArrayResponse>, Status> {
        let actor = principal(&request)?;
        Ok(Response::new(self.array(request.into_inner(), actor).await?))
    }

    async fn get_job(&self, request: Request<GetJobRequest>) -> Result<Response<GetJobResponse>, Status> {
        Ok(Response::new(self.get(request.into_inner()).await?))
    }

    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Result<Response<ListJobsResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn cancel_job(&self, request: Request<JobRequest>) -> Result<Response<JobRequestResponse>, Status> {
        self.ask(request, |request, reason| JobCancelRequested { request, reason }.into()).await
    }

    async fn cancel_array(&self, request: Request<JobRequest>) -> Result<Response<CancelArrayResponse>, Status> {
        self.ask_array(request, |request, reason| JobCancelRequested { request, reason }.into()).await
    }

    async fn hold_job(&self, request: Request<JobRequest>) -> Result<Response<JobRequestResponse>, Status> {
        self.ask(request, |request, reason| JobHoldRequested { request, reason }.into()).await
    }

    async fn release_job(&self, request: Request<JobRequest>) -> Result<Response<JobRequestResponse>, Status> {
        self.ask(request, |request, _| JobReleaseRequested { request }.into()).await
    }

    async fn reprioritize_job(&self, request: Request<ReprioritizeJobRequest>) -> Result<Response<JobRequestResponse>, Status> {
        let priority = request.get_ref().priority;
        let request = request.map(|asked| JobRequest {
            project: asked.project,
            run_id: asked.run_id,
            reason: String::new(),
            request_id: asked.request_id,
            wait: asked.wait,
        });
        self.ask(request, move |request, _| JobReprioritizeRequested { request, priority }.into()).await
    }

    async fn explain_job(&self, request: Request<GetJobRequest>) -> Result<Response<ExplainJobResponse>, Status> {
        let request = request.into_inner();
        let project = named_project(&request.project)?;
        Ok(Response::new(self.explain(&project, &request).await?))
    }
}
