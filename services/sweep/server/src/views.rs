//! `SweepViewService`: the proof that the view can be rebuilt from the ledger.

use footplate_api::v1::{VerifyViewsRequest, VerifyViewsResponse, sweep_view_service_server::SweepViewService};
use footplate_eventlog::{Ledger, Live};
use footplate_shell::verified;
use footplate_sweep_core::{SERVICE, Sweeps};
use std::time::Duration;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Views {
    ledger: Ledger,
    live: Live<Sweeps>,
    wait: Duration,
}

impl Views {
    pub(crate) fn new(ledger: Ledger, live: Live<Sweeps>, wait: Duration) -> Self {
        Self { ledger, live, wait }
    }
}

#[tonic::async_trait]
impl SweepViewService for Views {
    async fn verify_views(&self, request: Request<VerifyViewsRequest>) -> Result<Response<VerifyViewsResponse>, Status> {
        let at_least = request.into_inner().at_least;
        let verified = verified((SERVICE, "sweeps"), &self.ledger, &crate::filters(), &self.live, at_least, self.wait).await?;
        Ok(Response::new(verified))
    }
}
