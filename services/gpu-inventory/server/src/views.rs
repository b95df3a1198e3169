//! `InventoryViewService`: the proof that the view can be rebuilt from the ledger.

use footplate_api::v1::{VerifyViewsRequest, VerifyViewsResponse, inventory_view_service_server::InventoryViewService};
use footplate_eventlog::{Ledger, Live};
use footplate_gpu_inventory_core::Inventory;
use footplate_shell::verified;
use std::time::Duration;
use tonic::{Request, Response, Status};

#[derive(Clone)]
pub(crate) struct Views {
    ledger: Ledger,
    live: Live<Inventory>,
    wait: Duration,
}

impl Views {
    pub(crate) fn new(ledger: Ledger, live: Live<Inventory>, wait: Duration) -> Self {
        Self { ledger, live, wait }
    }
}

#[tonic::async_trait]
impl InventoryViewService for Views {
    async fn verify_views(&self, request: Request<VerifyViewsRequest>) -> Result<Response<VerifyViewsResponse>, Status> {
        let at_least = request.into_inner().at_least;
        let verified = verified(("gpu-inventory", "nodes"), &self.ledger, &crate::filters(), &self.live, at_least, self.wait).await?;
        Ok(Response::new(verified))
    }
}
