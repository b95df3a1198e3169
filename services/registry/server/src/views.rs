//! `RegistryViewService`: the proof that the view can be rebuilt from the ledger.

use footplate_api::v1::{VerifyViewsRequest, VerifyViewsResponse, registry_view_service_server::RegistryViewService};
use footplate_eventlog::{Ledger, Live};
use footplate_registry_core::{Registry, SERVICE};
use footplate_shell::verified;
use std::time::Duration;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Views {
    ledger: Ledger,
    live: Live<Registry>,
    wait: Duration,
}

impl Views {
    pub(crate) fn new(ledger: Ledger, live: Live<Registry>, wait: Duration) -> Self {
        Self { ledger, live, wait }
    }
}

#[tonic::async_trait]
impl RegistryViewService for Views {
    async fn verify_views(&self, request: Request<VerifyViewsRequest>) -> Result<Response<VerifyViewsResponse>, Status> {
        let at_least = request.into_inner().at_least;
        let verified = verified((SERVICE, "models"), &self.ledger, &crate::filters(), &self.live, at_least, self.wait).await?;
        Ok(Response::new(verified))
    }
}
