//! `ExecutorViewService`: the proof that the view can be rebuilt from the ledger.

use footplate_api::v1::{VerifyViewsRequest, VerifyViewsResponse, executor_view_service_server::ExecutorViewService};
use footplate_eventlog::{Ledger, Live};
use footplate_executor_core::Executor;
use footplate_shell::verified;
use std::time::Duration;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Views {
    ledger: Ledger,
    live: Live<Executor>,
    wait: Duration,
}

impl Views {
    pub(crate) fn new(ledger: Ledger, live: Live<Executor>, wait: Duration) -> Self {
        Self { ledger, live, wait }
    }
}

#[tonic::async_trait]
impl ExecutorViewService for Views {
    async fn verify_views(&self, request: Request<VerifyViewsRequest>) -> Result<Response<VerifyViewsResponse>, Status> {
        let at_least = request.into_inner().at_least;
        let verified = verified(("executor", "attempts"), &self.ledger, &crate::filters(), &self.live, at_least, self.wait).await?;
        Ok(Response::new(verified))
    }
}
