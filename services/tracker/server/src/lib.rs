//! The shell of the tracker: records runs, stores metrics, seals, searches, shows the ledger, posts events to webhooks.
//!
//! It holds nothing that the ledger, the series store and the object store do not: its view is folded from the ledger and may be thrown
//! away. It never decides anything about compute, and never talks to another
//! service; of the world outside it reaches only what webhooks name and is not inside.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod error;
mod figures;
mod grpc;
mod leader;
mod metrics;
mod view;
mod webhooks;
mod write;

use crate::figures::Figures;
use crate::grpc::{Artifacts, BlobDoor, Events, Experiments, MetricDoor, Runs, Views};
use crate::leader::{Leading, Work};
use crate::metrics::{Consumer, Ingest, Publisher, Reads};
use crate::view::{File, State, View};
use crate::webhooks::Desk;
use crate::write::Writer;
use footplate_api::server::ServerParts;
use footplate_api::v1::{
    artifact_service_server::ArtifactServiceServer, blob_service_server::BlobServiceServer, event_service_server::EventServiceServer,
    experiment_service_server::ExperimentServiceServer, metric_service_server::MetricServiceServer, run_service_server::RunServiceServer,
    tracker_view_service_server::TrackerViewServiceServer, webhook_service_server::WebhookServiceServer,
};
use footplate_blobs::Blobs;
use footplate_clock::SharedClock;
use footplate_eventlog::archive::{Archive, ArchiveConfig};
use footplate_eventlog::leader::{Standing, lead_watched};
use footplate_eventlog::{LeaseConfig, Ledger, LedgerItem, Live, ReadError};
use footplate_series::{SeriesError, SeriesStore, embedded::Embedded};
use footplate_service::{Context, Latch};
use footplate_tracker_core::SealPolicy;
use footplate_types::ServiceName;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub use crate::metrics::{ConsumerConfig, Reached};
pub use crate::view::{FileError, SCHEMA};
pub use crate::webhooks::{AllowedInside, Lookup, WebhookConfig, WebhookKey};
pub use footplate_tracker_core::RetryPolicy as WebhookRetry;

/// The largest message that the doors for bytes take.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// The wait between two tries to reach the ledger's end at the start.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How often the ledger is asked at the start while the broker is away: a minute or more, then the start fails.
const ASK_TIMES: u32 = 300;

/// How the tracker runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// This instance, such as `host-1/4711`.
    pub instance: String,
    /// The folder of the view's file; absent to keep it in memory alone.
    pub folder: Option<PathBuf>,
    /// The leader's lease.
    pub lease: Duration,
    /// How long after its end a run is sealed even though something is missing.
    pub seal_deadline: Duration,
    /// The longest a read waits for "at least N", a batch for its acknowledgement, and a write for the writes of its run before it.
    pub wait: Duration,
    /// How many writes may wait in one line (that of a run, and of those that share its line) behind the one that is being done.
    pub writers_waiting_max: usize,
    /// The largest upload, in bytes.
    pub upload_max: u64,
    /// The most points that wait in memory for the series store.
    pub tail_points: u64,
    /// How many sessions' progress is remembered at once; others are looked up in the store when they go on.
    pub sessions_max: usize,
    /// How metrics are stored.
    pub consumer: ConsumerConfig,
    /// The archive of the ledger, which the leader writes; absent to leave the whole ledger to the broker.
    pub archive: Option<(Archive, ArchiveConfig)>,
    /// How webhooks are sent.
    pub webhooks: WebhookConfig,
}

impl Config {
    /// The defaults for an instance whose view's file lies in `folder`.
    pub fn new(instance: impl Into<String>, folder: Option<PathBuf>) -> Self {
        let seconds = Duration::from_secs;
        Self {
            instance: instance.into(),
            folder,
            lease: seconds(10),
            seal_deadline: seconds(60),
            wait: seconds(10),
            writers_waiting_max: 512,
            upload_max: 1 << 40,
            tail_points: 1_000_000,
            sessions_max: 20_000,
            consumer: ConsumerConfig::default(),
            archive: None,
            webhooks: WebhookConfig::default(),
        }
    }
}

/// Why the tracker does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The series store is in use by another tracker, or cannot be opened.
    #[error(transparent)]
    Series(#[from] SeriesError),
    /// The view's file cannot be made.
    #[error(transparent)]
    File(#[from] FileError),
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] ReadError),
    /// Webhooks cannot be sent.
    #[error("webhooks cannot be sent: {0}")]
    Webhooks(String),
}

/// Opens the embedded series store of a folder. One tracker may have it open: a second is told so.
///
/// # Errors
/// When another process has it open, or it cannot be read.
pub async fn open_series(folder: &Path) -> Result<Arc<dyn SeriesStore>, StartError> {
    let folder = folder.to_owned();
    let opened = tokio::task::spawn_blocking(move || Embedded::open(&folder)).await;
    let opened = opened.map_err(|_| SeriesError::Closed)?;
    Ok(Arc::new(opened?))
}

/// A running tracker: its part of the public API.
#[derive(Clone)]
pub struct Handle {
    runs: Runs,
    experiments: Experiments,
    metrics: MetricDoor,
    artifacts: Artifacts,
    blobs: BlobDoor,
    events: Events,
    views: Views,
    webhooks: Desk,
    live: Live<State>,
    stored: watch::Receiver<Reached>,
}

impl Handle {
    /// Adds the tracker's services.
    #[must_use]
    pub fn parts(&self, parts: ServerParts) -> ServerParts {
        let blobs = BlobServiceServer::new(self.blobs.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let metrics = MetricServiceServer::new(self.metrics.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        parts
            .service(RunServiceServer::new(self.runs.clone()))
            .service(ExperimentServiceServer::new(self.experiments.clone()))
            .service(metrics)
            .service(ArtifactServiceServer::new(self.artifacts.clone()))
            .service(blobs)
            .service(EventServiceServer::new(self.events.clone()))
            .service(TrackerViewServiceServer::new(self.views.clone()))
            .service(WebhookServiceServer::new(self.webhooks.clone()))
    }

    /// The ledger sequence that the view stands at, as it moves.
    pub fn position(&self) -> watch::Receiver<u64> {
        self.live.changes()
    }

    /// Up to where everything in METRICS is stored, as it moves.
    pub fn stored(&self) -> watch::Receiver<Reached> {
        self.stored.clone()
    }
}

/// Starts the tracker's tasks under `context` and gives its part of the API.
///
/// # Errors
/// When its file cannot be made or the ledger not be read.
pub async fn start(
    config: &Config,
    ledger: &Ledger,
    series: Arc<dyn SeriesStore>,
    blobs: Blobs,
    clock: &SharedClock,
    context: &Context,
) -> Result<Handle, StartError> {
    let service = ServiceName::parse("tracker").expect("a literal that is valid");
    let ledger = &ledger.of(&service);
    let figures = Figures::registered(&context.metrics.within("tracker"));
    let token = context.shutdown.token();
    let (file, state, position) = open_view(config, ledger).await?;
    let live = Live::new(state, position);
    let view = View::new(ledger.clone(), live.clone(), Arc::new(file), config.wait);
    let writer = Writer::new(view.clone(), clock.clone(), config, figures.clone());

    let store = Arc::new(footplate_series::Live::new(series, config.tail_points));
    let (consumer, consuming) = Consumer::new(view.clone(), store, config.consumer, figures.clone(), token.clone());
    let reads = Reads::new(view.clone(), consumer.clone());
    let publisher = Publisher::start(ledger.broker().clone());
    let ingest = Ingest::new(view.clone(), consumer.clone(), publisher, config, clock.clone(), figures.clone());

    context.supervisor.spawn_infallible("tracker view", view::follow(view.clone(), figures.clone(), token.clone()));
    context.supervisor.spawn_infallible("tracker metrics", consuming);
    context.supervisor.spawn_infallible("tracker start", caught_up(view.clone(), context.readiness.latch("tracker view"), token.clone()));
    let lease = LeaseConfig { service, instance: config.instance.clone(), lease: config.lease };
    let (standing, stands) = watch::channel(Standing::Candidate);
    let leading = lead_watched(ledger.clone(), lease, live.clone(), Leading, Arc::new(Notify::new()), standing, token.clone());
    // Without a leader nothing is sealed, yet reads and other writes go on: it is told, and does not end the service.
    context.supervisor.spawn_infallible("tracker lease", async move {
        if let Err(error) = leading.await {
            tracing::error!(%error, "this instance does not lead the tracker: no report is folded and no run sealed by it");
        }
    });
    if let Some((archive, archiving)) = config.archive.clone() {
        let keeping = leader::archive::keep(archive, archiving, figures.clone(), stands.clone(), token.clone());
        context.supervisor.spawn_infallible("archive of the ledger", keeping);
    }
    let sending = (&figures, stands.clone());
    let (desk, hooks) = webhooks::start(config, ledger, &blobs, clock, sending, context).map_err(StartError::Webhooks)?;
    let work = Work {
        writer: writer.clone(),
        broker: ledger.broker().clone(),
        reads: reads.clone(),
        blobs: blobs.clone(),
        clock: clock.clone(),
        seal: SealPolicy { deadline: config.seal_deadline },
        figures,
    };
    context.supervisor.spawn_infallible("tracker leader", work.run(stands, token.clone()));

    Ok(Handle {
        runs: Runs::new(view.clone(), writer.clone(), reads.clone(), clock.clone(), token.clone()),
        experiments: Experiments::new(view.clone(), writer.clone()),
        metrics: MetricDoor::new(view.clone(), ingest, reads, token.clone()),
        artifacts: Artifacts::new(view.clone(), writer, blobs.clone()),
        blobs: BlobDoor::new(blobs, config.upload_max),
        events: Events::new(view.clone(), token.clone()),
        views: Views::new(view, hooks),
        webhooks: desk,
        live,
        stored: consumer.stored(),
    })
}

/// Ready when the view has read the ledger that was there at the start.
async fn caught_up(view: View, latch: Latch, shutdown: CancellationToken) {
    let reading = async {
        while let Err(refusal) = view.catch_up().await {
            latch.pending(refusal.message);
            tokio::time::sleep(ASK_AGAIN).await;
        }
        latch.ready();
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = reading => {}
    }
}

/// The view's file with what it holds. A file of another ledger, or one that cannot be read, is begun anew.
async fn open_view(config: &Config, ledger: &Ledger) -> Result<(File, State, u64), StartError> {
    let folder = config.folder.clone();
    let open = move || -> Result<_, FileError> {
        let file = match folder {
            Some(folder) => File::open(&folder)?,
            None => File::in_memory()?,
        };
        let (position, last) = file.position()?;
        let state = file.load()?;
        Ok((file, state, position, last))
    };
    let opened = tokio::task::spawn_blocking(open).await.map_err(|error| ReadError::Refused(error.to_string()))?;
    let (file, state, position, last) = opened?;
    match state {
        Some(state) if fits_once_asked(ledger, position, last.as_ref()).await? => Ok((file, state, position)),
        _ => {
            tracing::info!(position, "the view's file does not fit the ledger; it is built again");
            let cleared = tokio::task::spawn_blocking(move || file.begin_anew().map(|()| file)).await;
            let file = cleared.map_err(|error| ReadError::Refused(error.to_string()))??;
            Ok((file, State::default(), 0))
        }
    }
}

/// [`fits`], asked until the broker answers: one that is restarted meanwhile must not end a start.
async fn fits_once_asked(ledger: &Ledger, position: u64, last: Option<&(u64, String)>) -> Result<bool, ReadError> {
    for _ in 1..ASK_TIMES {
        match fits(ledger, position, last).await {
            Err(ReadError::Unavailable(reason)) => tracing::warn!(%reason, "the start waits for the broker"),
            answered => return answered,
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
    fits(ledger, position, last).await
}

/// Whether the rows were folded from this ledger: it reaches as far, and has the same event where the rows' last one stood (unless that
/// has left the broker).
async fn fits(ledger: &Ledger, position: u64, last: Option<&(u64, String)>) -> Result<bool, ReadError> {
    if position > ledger.end().await? {
        return Ok(false);
    }
    let Some((sequence, id)) = last else { return Ok(true) };
    let (items, _) = ledger.read("fp.ledger.>", *sequence, 1).await?;
    let other = |item: &LedgerItem| match item {
        LedgerItem::Fact(recorded) => recorded.sequence == *sequence && recorded.envelope.id.to_string() != *id,
        LedgerItem::Unknown { .. } | LedgerItem::Poison { .. } | LedgerItem::Position(_) => item.sequence() == *sequence,
    };
    Ok(!items.iter().any(other))
}
