//! Tracker and scheduler, from the settings.

use super::knobs;
use super::principals::local_token;
use super::services::{StartError, Wiring};
use super::snapshots::snapshots;
use footplate_api::server::ServerParts;
use footplate_blobs::Blobs;
use footplate_clock::SharedClock;
use footplate_eventlog::{Archive, Ledger};
use footplate_series::{
    SeriesStore,
    embedded::Embedded,
    scylla::{Address, Scylla},
};
use footplate_service::Context;
use footplate_service::config::Config;
use footplate_tracker_server::{AllowedInside, WebhookConfig, WebhookKey};
use footplate_types::Millis;
use std::path::Path;
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
    (ledger, archive, blobs): (&Ledger, &Archive, &Blobs),
    clock: &SharedClock,
    context: &Context,
    parts: ServerParts,
) -> Result<ServerParts, StartError> {
    let config = wiring.config;
    let series = match config.get(&knobs::SERIES) {
        address if address.is_empty() => embedded_series(&wiring.data.join("series")).await?,
        address => clustered_series(&address, &instance).await?,
    };
    let mut tracker = footplate_tracker_server::Config::new(instance, Some(wiring.data.join("tracker")));
    tracker.lease = wiring.leader_lease;
    tracker.seal_deadline = config.get(&knobs::SEAL_WITHIN);
    tracker.wait = config.get(&knobs::READ_WAIT);
    tracker.archive = Some((archive.clone(), super::segments::archiving(config)));
    tracker.webhooks = webhooks(config, wiring.data)?;
    let started = footplate_tracker_server::start(&tracker, ledger, series, blobs.clone(), clock, context).await;
    let handle = started.map_err(|error| StartError::Service { service: "tracker", reason: error.to_string() })?;
    Ok(handle.parts(parts))
}

/// How webhooks are sent.
fn webhooks(config: &Config, data: &Path) -> Result<WebhookConfig, StartError> {
    let wrong = |reason: String| StartError::Setting(reason);
    let key = match config.get(&knobs::WEBHOOKS_KEY) {
        key if key.is_empty() => local_token(&data.join("webhook-key")).map_err(wrong)?,
        key => key,
    };
    let allowed_inside = AllowedInside::parse(&config.get(&knobs::WEBHOOKS_ALLOW_INSIDE)).map_err(|invalid| wrong(invalid.to_string()))?;
    let mut webhooks = WebhookConfig { key: WebhookKey::new(&key), allowed_inside, ..WebhookConfig::default() };
    webhooks.retry.give_up = Millis(u64::try_from(config.get(&knobs::WEBHOOKS_GIVE_UP).as_millis()).unwrap_or(u64::MAX));
    Ok(webhooks)
}

/// The series store in the data folder.
async fn embedded_series(folder: &Path) -> Result<Arc<dyn SeriesStore>, StartError> {
    let unusable = |reason: String| StartError::Series { folder: folder.display().to_string(), reason };
    let opening = folder.to_owned();
    let opened = tokio::task::spawn_blocking(move || Embedded::open(&opening)).await;
    let opened = opened.map_err(|error| unusable(error.to_string()))?.map_err(|error| unusable(error.to_string()))?;
    Ok(Arc::new(opened))
}

/// The series store in a cluster, where this process goes by a name of its own.
async fn clustered_series(address: &str, instance: &str) -> Result<Arc<dyn SeriesStore>, StartError> {
    let address = Address::parse(address).map_err(|invalid| StartError::SeriesRefused(invalid.to_string()))?;
    let writer = format!("{instance}/{}", footplate_clock::session_id());
    match Scylla::connect(&address, &writer).await {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) if error.is_transient() => Err(StartError::SeriesAway(error.to_string())),
        Err(error) => Err(StartError::SeriesRefused(error.to_string())),
    }
}
