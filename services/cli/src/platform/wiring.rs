//! Tracker and scheduler, from the settings.

use super::knobs;
use super::services::{StartError, Wiring};
use super::snapshots::snapshots;
use footplate_api::server::ServerParts;
use footplate_blobs::Blobs;
use footplate_clock::SharedClock;
use footplate_eventlog::Ledger;
use footplate_series::embedded::Embedded;
use footplate_service::Context;
use footplate_types::Millis;
use std::sync::Arc;

/// Starts the scheduler.
pub(super) async fn scheduler(
    wiring: &Wiring<'_>,
    instance: String,
    (ledger, blobs): (&Ledger, &Blobs),
    clock: &SharedClock,
    context: &Context,
    parts: ServerParts,
) -> ServerParts {
    let config = wiring.config;
    let mut scheduler = footplate_scheduler_server::Config::new(instance);
    scheduler.lease = wiring.leader_lease;
    scheduler.wait = config.get(&knobs::READ_WAIT);
    scheduler.policy.ready_within = Millis(config.get(&knobs::READY_WITHIN).as_millis() as u64);
    scheduler.snapshots = Some(snapshots(config, blobs));
    footplate_scheduler_server::start(&scheduler, ledger, clock, context).await.parts(parts)
}

/// Starts the tracker over its series store.
pub(super) async fn tracker(
    wiring: &Wiring<'_>,
    instance: String,
    (ledger, blobs): (&Ledger, &Blobs),
    clock: &SharedClock,
    context: &Context,
    parts: ServerParts,
) -> Result<ServerParts, StartError> {
    let config = wiring.config;
    let folder = wiring.data.join("series");
    let series = {
        let folder = folder.clone();
        tokio::task::spawn_blocking(move || Embedded::open(&folder)).await
    };
    let unusable = |reason: String| StartError::Series { folder: folder.display().to_string(), reason };
    let series = series.map_err(|error| unusable(error.to_string()))?.map_err(|error| unusable(error.to_string()))?;
    let mut tracker = footplate_tracker_server::Config::new(instance, Some(wiring.data.join("tracker")));
    tracker.lease = wiring.leader_lease;
    tracker.seal_deadline = config.get(&knobs::SEAL_WITHIN);
    tracker.wait = config.get(&knobs::READ_WAIT);
    let started = footplate_tracker_server::start(&tracker, ledger, Arc::new(series), blobs.clone(), clock, context).await;
    let handle = started.map_err(|error| StartError::Service { service: "tracker", reason: error.to_string() })?;
    Ok(handle.parts(parts))
}
