//! The answer of a service's view service: the proof that its view can be rebuilt from the ledger.

use footplate_api::v1::{VerifyViewsResponse, ViewDigest};
use footplate_api::{Refusal, reason};
use footplate_es::Project;
use footplate_eventlog::{Ledger, Live, verify::verify_view};
use std::time::Duration;

/// Rebuilds the view `name` of a service from the ledger, as far as the living one stands and at least to `at_least`, and compares both.
///
/// # Errors
/// `VIEW_BEHIND` when the view does not stand there in time.
pub async fn verified<S>(
    (service, name): (&str, &str),
    ledger: &Ledger,
    filters: &[String],
    live: &Live<S>,
    at_least: u64,
    wait: Duration,
) -> Result<VerifyViewsResponse, Refusal>
where
    S: Project + Send + Sync,
{
    let verified = verify_view(ledger, filters, live, at_least, wait).await;
    let verified = verified.map_err(|error| Refusal::new(&reason::VIEW_BEHIND, error.to_string()))?;
    let view = ViewDigest {
        service: service.to_owned(),
        view: name.to_owned(),
        sequence: verified.sequence,
        living: verified.living.to_string(),
        rebuilt: verified.rebuilt.to_string(),
        equal: verified.is_equal(),
        difference: verified.difference.unwrap_or_default(),
        events: verified.events,
        rebuild_ms: u64::try_from(verified.rebuild.as_millis()).unwrap_or(u64::MAX),
    };
    Ok(VerifyViewsResponse { views: vec![view] })
}
