//! `SweepViewService`: the proof that the view can be rebuilt from the ledger.

use footplate_api::v1::{VerifyViewsRequest, VerifyViewsResponse, ViewDigest, sweep_view_service_server::SweepViewService};
use footplate_api::{Refusal, reason};
use footplate_eventlog::{Ledger, Live, verify::verify_view};
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
        let verified = verify_view(&self.ledger, &crate::filters(), &self.live, request.into_inner().at_least, self.wait)
            .await
            .map_err(|error| Refusal::new(&reason::VIEW_BEHIND, error.to_string()))?;
        let view = ViewDigest {
            service: SERVICE.to_owned(),
            view: "sweeps".to_owned(),
            sequence: verified.sequence,
            living: verified.living.to_string(),
            rebuilt: verified.rebuilt.to_string(),
            equal: verified.is_equal(),
            difference: verified.difference.unwrap_or_default(),
            events: verified.events,
            rebuild_ms: verified.rebuild.as_millis() as u64,
        };
        Ok(Response::new(VerifyViewsResponse { views: vec![view] }))
    }
}
