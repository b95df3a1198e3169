//! TrackerViewService: the proof that the view can be rebuilt.

use crate::view::{View, ViewReport, verify};
use footplate_api::v1::{VerifyViewsRequest, VerifyViewsResponse, ViewDigest, tracker_view_service_server::TrackerViewService};
use tonic::{Request, Response, Status};

/// The service.
#[derive(Clone)]
pub(crate) struct Views {
    view: View,
}

impl Views {
    /// The service over the view.
    pub(crate) fn new(view: View) -> Self {
        Self { view }
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
        let reports = verify(&self.view, request.get_ref().at_least).await?;
        Ok(Response::new(VerifyViewsResponse { views: reports.into_iter().map(digest_out).collect() }))
    }
}
