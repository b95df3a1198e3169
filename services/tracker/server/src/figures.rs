//! The tracker's metrics.

use footplate_service::Metrics;
use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

/// Counters and gauges. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// The ledger sequence that the view stands at.
    pub view_position: Gauge,
    /// Events that this build does not understand.
    pub not_understood: Counter,
    /// Writes of the view's file that failed.
    pub file_failures: Counter,
    /// Metric batches acknowledged to clients.
    pub batches_acked: Counter,
    /// Metric points acknowledged to clients.
    pub points_acked: Counter,
    /// Points whose client time is implausible.
    pub implausible_times: Counter,
    /// Messages of METRICS that are stored.
    pub messages_stored: Counter,
    /// Points stored.
    pub points_stored: Counter,
    /// Messages of METRICS that were refused (unreadable, or a node speaking for a run that is not placed on it).
    pub messages_refused: Counter,
    /// The METRICS sequence up to which everything is stored.
    pub metrics_position: Gauge,
    /// Reports folded into the ledger.
    pub reports_folded: Counter,
    /// Reports refused.
    pub reports_refused: Counter,
    /// Runs sealed complete.
    pub sealed_complete: Counter,
    /// Runs sealed incomplete.
    pub sealed_incomplete: Counter,
    /// Runs that have ended and wait for their seal, or whose config is not read yet.
    pub open_runs: Gauge,
    /// Appends that another event came before.
    pub conflicts: Counter,
    /// The ledger sequence up to which everything stands in segments.
    pub archived_position: Gauge,
    /// Segments of the ledger.
    pub archived_segments: Gauge,
    /// Their bytes.
    pub archived_bytes: Gauge,
    /// Looks of the archiver that failed.
    pub archive_failures: Counter,
    /// Aggregates that have left the broker.
    pub gone_aggregates: Gauge,
    /// Events of theirs.
    pub gone_events: Gauge,
    /// Events that webhooks have taken.
    pub webhook_deliveries: Counter,
    /// Tries of events that webhooks have not taken.
    pub webhook_failures: Counter,
    /// Of those, tries that were not sent because the address is inside.
    pub webhook_denied: Counter,
    /// Webhooks that were paused because an event was not taken for too long.
    pub webhooks_paused: Counter,
    /// Webhooks that this instance sends for.
    pub webhooks_sending: Gauge,
}

impl Figures {
    /// Figures that the process's metrics show.
    pub(crate) fn registered(metrics: &Metrics) -> Self {
        let figures = Self::default();
        metrics.register(|registry| {
            let mut counter = |name: &str, help: &str, counter: &Counter| registry.register(name, help, counter.clone());
            counter("not_understood", "Events that this build does not understand", &figures.not_understood);
            counter("file_failures", "Writes of the view's file that failed", &figures.file_failures);
            counter("batches_acked", "Metric batches acknowledged to clients", &figures.batches_acked);
            counter("points_acked", "Metric points acknowledged to clients", &figures.points_acked);
            counter("implausible_times", "Metric points with an implausible client time", &figures.implausible_times);
            counter("messages_stored", "Messages of METRICS stored", &figures.messages_stored);
            counter("points_stored", "Metric points stored", &figures.points_stored);
            counter("messages_refused", "Messages of METRICS refused", &figures.messages_refused);
            counter("reports_folded", "Reports of agents folded into the ledger", &figures.reports_folded);
            counter("reports_refused", "Reports of agents refused", &figures.reports_refused);
            counter("sealed_complete", "Runs sealed complete", &figures.sealed_complete);
            counter("sealed_incomplete", "Runs sealed incomplete", &figures.sealed_incomplete);
            counter("conflicts", "Appends that another event came before", &figures.conflicts);
            counter("archive_failures", "Looks of the archiver that failed", &figures.archive_failures);
            counter("webhook_deliveries", "Events that webhooks have taken", &figures.webhook_deliveries);
            counter("webhook_failures", "Tries of events that webhooks have not taken", &figures.webhook_failures);
            counter("webhook_denied", "Tries of webhooks whose address is inside", &figures.webhook_denied);
            counter("webhooks_paused", "Webhooks paused because an event was not taken", &figures.webhooks_paused);
            let mut gauge = |name: &str, help: &str, gauge: &Gauge| registry.register(name, help, gauge.clone());
            gauge("archived_position", "Ledger sequence up to which everything stands in segments", &figures.archived_position);
            gauge("archived_segments", "Segments of the ledger in the object store", &figures.archived_segments);
            gauge("archived_bytes", "Bytes of those segments", &figures.archived_bytes);
            gauge("gone_aggregates", "Aggregates that have left the broker, or are about to", &figures.gone_aggregates);
            gauge("gone_events", "Events of theirs", &figures.gone_events);
            gauge("webhooks_sending", "Webhooks that this instance sends for", &figures.webhooks_sending);
            registry.register("view_position", "Ledger sequence of the view", figures.view_position.clone());
            registry.register("metrics_position", "METRICS sequence up to which everything is stored", figures.metrics_position.clone());
            registry.register("open_runs", "Runs that wait for their seal or their config", figures.open_runs.clone());
        });
        figures
    }
}
