//! The shell of sweep: clients' sweeps, the leader that suggests, prunes and finishes trials, the objective as workers log it.
//!
//! Every rule stands in the core; here are the ledger, the documents of trials and the wire. It writes sweeps and trials, and no job: the
//! scheduler submits a trial's job when it sees that the trial is suggested.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod config;
mod convert;
mod leader;
mod objective;
mod prepare;
mod shell;
mod sweeps;
mod views;

use crate::{leader::Lead, objective::Objectives, prepare::Preparer, shell::Shell, sweeps::SweepDoor, views::Views};
use footplate_api::server::ServerParts;
use footplate_api::v1::{sweep_service_server::SweepServiceServer, sweep_view_service_server::SweepViewServiceServer};
use footplate_blobs::Blobs;
use footplate_clock::SharedClock;
use footplate_eventlog::leader::{Standing, lead_watched};
use footplate_eventlog::{Keeper, LeaseConfig, Ledger, Live, follow, snapshot};
use footplate_events::{Aggregate, Subject};
use footplate_service::Context;
use footplate_sweep_core::{SERVICE, Sweeps};
use footplate_types::ServiceName;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How sweep runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// This instance, such as `host-1/4711`.
    pub instance: String,
    /// The leader's lease.
    pub lease: Duration,
    /// The longest a read waits for "at least N".
    pub wait: Duration,
    /// Where the view is kept between two starts; absent: every start reads the whole ledger.
    pub snapshots: Option<Keeper>,
}

impl Config {
    /// The defaults for an instance.
    pub fn new(instance: impl Into<String>) -> Self {
        Self { instance: instance.into(), lease: Duration::from_secs(10), wait: Duration::from_secs(10), snapshots: None }
    }
}

/// The filters of the ledger that the view folds: sweeps, their trials, and runs for their seals.
pub fn filters() -> Vec<String> {
    [Aggregate::Sweep, Aggregate::Trial, Aggregate::Run].map(|kind| Subject::filter(None, Some(kind))).to_vec()
}

fn service() -> ServiceName {
    ServiceName::parse(SERVICE).expect("a literal that is valid")
}

/// A running sweep service: its part of the public API.
#[derive(Clone)]
pub struct Handle {
    sweeps: SweepDoor,
    views: Views,
    live: Live<Sweeps>,
}

impl Handle {
    /// Adds the services.
    #[must_use]
    pub fn parts(&self, parts: ServerParts) -> ServerParts {
        parts.service(SweepServiceServer::new(self.sweeps.clone())).service(SweepViewServiceServer::new(self.views.clone()))
    }

    /// Its view, for tests and tools in the same process.
    pub fn live(&self) -> &Live<Sweeps> {
        &self.live
    }
}

/// What the view's bytes in a snapshot mean: to be raised whenever the state, how it is folded or what is folded changes.
const FORM: &str = "1";

/// Starts the tasks under `context` and gives its part of the API.
pub async fn start(config: &Config, ledger: &Ledger, blobs: &Blobs, clock: &SharedClock, context: &Context) -> Handle {
    let ledger = &ledger.of(&service());
    let snapshots = config.snapshots.as_ref().map(|keeper| keeper.of(SERVICE, FORM));
    let live: Live<Sweeps> = snapshot::open(snapshots.clone(), ledger).await;
    let wake = Arc::new(Notify::new());
    let token = context.shutdown.token();
    let (standing, stands) = watch::channel(Standing::Candidate);
    let objectives = Objectives::new(wake.clone());

    context.supervisor.spawn_infallible("sweep view", follow(ledger.clone(), filters(), live.clone(), token.clone()));
    if let Some(snapshots) = snapshots {
        context.supervisor.spawn_infallible("sweep snapshots", snapshots.keep(ledger.clone(), live.clone(), token.clone()));
    }
    let latch = context.readiness.latch("sweep view");
    let (read, behind, until) = (live.clone(), ledger.clone(), token.clone());
    context.supervisor.spawn_infallible("sweep start", async move {
        if read.caught_up(&behind, |why| latch.pending(why), &until).await {
            latch.ready();
        }
    });
    let watching = objectives.clone().watch(ledger.clone(), live.clone(), stands, token.clone());
    context.supervisor.spawn_infallible("sweep objectives", watching);
    let decider = Lead::new(Preparer::new(blobs.clone()), objectives, wake.clone());
    let lease = LeaseConfig { service: service(), instance: config.instance.clone(), lease: config.lease };
    let leading = lead_watched(ledger.clone(), lease, live.clone(), decider, wake, standing, token);
    context.supervisor.spawn_infallible("sweep leader", async move {
        if let Err(error) = leading.await {
            tracing::error!(%error, "this instance does not lead; it goes on answering, and must be upgraded to lead");
        }
    });

    let shell = Shell::new(SERVICE, &config.instance, ledger.clone(), live.clone(), clock.clone(), config.wait);
    Handle { sweeps: SweepDoor::new(shell, blobs.clone()), views: Views::new(ledger.clone(), live.clone(), config.wait), live }
}
