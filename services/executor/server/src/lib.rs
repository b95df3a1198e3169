//! The shell of the executor: reads agents' reports and beats, leads, archives logs, answers clients.
//!
//! It holds no state that the ledger and the object store do not: everything in memory is rebuilt at the start. Never decides by
//! itself what is true of an attempt; that is the core's.

mod attempts;
mod leader;
mod logs;
mod views;

use crate::{attempts::Attempts, leader::Lead, logs::Logs, views::Views};
use footplate_api::server::ServerParts;
use footplate_api::v1::{
    attempt_service_server::AttemptServiceServer, executor_view_service_server::ExecutorViewServiceServer,
    log_service_server::LogServiceServer,
};
use footplate_blobs::Blobs;
use footplate_clock::SharedClock;
use footplate_eventlog::beats::{self, SharedBeats};
use footplate_eventlog::inbox::Inbox;
use footplate_eventlog::{Keeper, LeadError, LeaseConfig, Ledger, Live, follow, lead, snapshot};
use footplate_events::{Aggregate, Subject};
use footplate_executor_core::Executor;
use footplate_service::Context;
use footplate_types::ServiceName;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How the executor runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// This instance, such as `host-1/4711`.
    pub instance: String,
    /// The leader's lease.
    pub lease: Duration,
    /// What is waited beyond a node's lease and kill time before it is fenced.
    pub margin: Duration,
    /// The longest a read waits for "at least N".
    pub read_wait: Duration,
    /// Where the view is kept between two starts; absent: every start reads the whole ledger.
    pub snapshots: Option<Keeper>,
}

impl Config {
    /// The defaults for an instance.
    pub fn new(instance: impl Into<String>) -> Self {
        let seconds = Duration::from_secs;
        Self { instance: instance.into(), lease: seconds(10), margin: seconds(15), read_wait: seconds(10), snapshots: None }
    }
}

/// The filters of the ledger that the executor's view folds.
pub fn filters() -> Vec<String> {
    [Aggregate::Job, Aggregate::Attempt, Aggregate::Node, Aggregate::NodeRequest].map(|kind| Subject::filter(None, Some(kind))).to_vec()
}

/// A running executor: its part of the public API.
#[derive(Clone)]
pub struct Handle {
    attempts: Attempts,
    logs: Logs,
    views: Views,
    live: Live<Executor>,
}

impl Handle {
    /// Adds the executor's services.
    #[must_use]
    pub fn parts(&self, parts: ServerParts) -> ServerParts {
        parts
            .service(AttemptServiceServer::new(self.attempts.clone()))
            .service(LogServiceServer::new(self.logs.clone()))
            .service(ExecutorViewServiceServer::new(self.views.clone()))
    }

    /// Its view, for tests and tools in the same process.
    pub fn live(&self) -> &Live<Executor> {
        &self.live
    }
}

/// An instance that may not lead goes on answering; a person must upgrade it.
async fn may_not_lead(leading: impl Future<Output = Result<(), LeadError>>) {
    if let Err(error) = leading.await {
        tracing::error!(%error, "this instance does not lead; it goes on answering");
    }
}

/// What the view's bytes in a snapshot mean: to be raised whenever the state, how it is folded or what is folded changes.
const FORM: &str = "2";

/// Starts the executor's tasks under `context` and gives its part of the API. `elapsed` of the clock is what leases are measured by.
pub async fn start(config: &Config, ledger: &Ledger, blobs: &Blobs, clock: &SharedClock, context: &Context) -> Handle {
    let service = ServiceName::parse("executor").expect("a literal that is valid");
    let ledger = &ledger.of(&service);
    let broker = ledger.broker().clone();
    let snapshots = config.snapshots.as_ref().map(|keeper| keeper.of("executor", FORM));
    let live: Live<Executor> = snapshot::open(snapshots.clone(), ledger).await;
    let wake = Arc::new(Notify::new());
    let inbox = Inbox::new("executor", wake.clone());
    let watch = SharedBeats::default();
    let archive = logs::Archive::new(blobs.clone(), wake.clone());
    let token = context.shutdown.token();

    context.supervisor.spawn_infallible("executor view", follow(ledger.clone(), filters(), live.clone(), token.clone()));
    if let Some(snapshots) = snapshots {
        context.supervisor.spawn_infallible("executor snapshots", snapshots.keep(ledger.clone(), live.clone(), token.clone()));
    }
    let latch = context.readiness.latch("executor view");
    let (read, behind, until) = (live.clone(), ledger.clone(), token.clone());
    context.supervisor.spawn_infallible("executor start", async move {
        if read.caught_up(&behind, |why| latch.pending(why), &until).await {
            latch.ready();
        }
    });
    context.supervisor.spawn_infallible("executor reports", inbox.clone().fill(broker.clone(), token.clone()));
    context
        .supervisor
        .spawn_infallible("executor beats", beats::watch(broker.clone(), watch.clone(), clock.clone(), wake.clone(), token.clone()));
    context
        .supervisor
        .spawn_infallible("executor logs", logs::collect(broker.clone(), archive.clone(), live.clone(), clock.clone(), token.clone()));
    let decider = Lead::new(broker.clone(), inbox, watch, archive.clone(), config.margin, clock.clone());
    let lease = LeaseConfig { service, instance: config.instance.clone(), lease: config.lease };
    let leading = lead(ledger.clone(), lease, live.clone(), decider, wake, token);
    context.supervisor.spawn_infallible("executor leader", may_not_lead(leading));
    Handle {
        attempts: Attempts::new(live.clone(), config.read_wait),
        logs: Logs::new(live.clone(), broker, archive),
        views: Views::new(ledger.clone(), live.clone(), config.read_wait),
        live,
    }
}
