//! TrackerViewService: the proof that the view can be rebuilt.

use crate::view::{View, ViewReport, verify};
use crate::webhooks;
use footplate_api::v1::{VerifyViewsRequest, VerifyViewsResponse, ViewDigest, tracker_view_service_server::TrackerViewService};
use footplate_eventlog::Live;
use footplate_shell::verified;
use footplate_tracker_core::Webhooks;
use tonic::{Request, Response, Status};

/// The service.
#[derive(Clone)]
pub(crate) struct Views {
    view: View,
    webhooks: Live<Webhooks>,
}

impl Views {
    /// The service over both views.
    pub(crate) fn new(view: View, webhooks: Live<Webhooks>) -> Self {
        Self { view, webhooks }
    }
}

fn digest_out(report: ViewReport) -> ViewDigest {
    ViewDigest {
        service: "tracker".to_owned(),
        view: report.view.to_owned(),
        sequence: report.sequence,
        living: report.living.to_string(),
        rebuilt: report.rebuilt.to_string(),
        equal: report.difference.is_empty() && report.living == report.rebuilt,
        difference: report.difference,
        events: report.events,
        rebuild_ms: u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX),
    }
}

#[tonic::async_trait]
impl TrackerViewService for Views {
    async fn verify_views(&self, request: Request<VerifyViewsRequest>) -> Result<Response<VerifyViewsResponse>, Status> {
        let at_least = request.get_ref().at_least;
        let reports = verify(&self.view, at_least).await?;
        let (ledger, wait) = (self.view.ledger(), self.view.wait());
        let webhooks = verified(("tracker", "webhooks"), ledger, &webhooks::filters(), &self.webhooks, at_least, wait).await?;
        let views = reports.into_iter().map(digest_out).chain(webhooks.views);
        Ok(Response::new(VerifyViewsResponse { views: views.collect() }))
    }
}
