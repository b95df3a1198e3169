//! The shell of the scheduler: clients' submissions and requests, the leader that decides, the assignments of the nodes.
//!
//! Every rule stands in the core; here are the ledger, the broker and the wire. It writes queues, jobs and requests about jobs, and nodes'
//! assignments, which are a function of the ledger; it never speaks to an agent or to another service.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod capacity;
mod desk;
mod jobs;
mod leader;
mod measures;
mod queues;
mod shell;
mod trials;
mod views;

use crate::{jobs::Jobs, leader::Lead, measures::Measures, queues::Queues, shell::Shell, trials::Trials, views::Views};
use footplate_api::server::ServerParts;
use footplate_api::v1::{
    job_service_server::JobServiceServer, queue_service_server::QueueServiceServer,
    scheduler_view_service_server::SchedulerViewServiceServer,
};
use footplate_clock::SharedClock;
use footplate_eventlog::{Keeper, LeaseConfig, Ledger, Live, Standing, follow, lead_watched, snapshot};
use footplate_events::{Aggregate, Subject};
pub use footplate_scheduler_core::Policy;
use footplate_scheduler_core::{SERVICE, State};
use footplate_service::Context;
use footplate_types::ServiceName;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How the scheduler runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// This instance, such as `host-1/4711`.
    pub instance: String,
    /// The leader's lease.
    pub lease: Duration,
    /// The longest a read waits for "at least N", and a write for its answer.
    pub wait: Duration,
    /// The knobs of the decisions.
    pub policy: Policy,
    /// Where the view is kept between two starts; absent: every start reads the whole ledger.
    pub snapshots: Option<Keeper>,
}

impl Config {
    /// The defaults for an instance.
    pub fn new(instance: impl Into<String>) -> Self {
        Self {
            instance: instance.into(),
            lease: Duration::from_secs(10),
            wait: Duration::from_secs(10),
            policy: Policy::default(),
            snapshots: None,
        }
    }
}

/// The filters of the ledger that the scheduler's view folds.
pub fn filters() -> Vec<String> {
    let kinds = [Aggregate::Queue, Aggregate::Job, Aggregate::JobRequest, Aggregate::Attempt, Aggregate::Node, Aggregate::Trial];
    let mut filters = kinds.map(|kind| Subject::filter(None, Some(kind))).to_vec();
    filters.push(Subject::term(&service()).to_string());
    filters
}

fn service() -> ServiceName {
    ServiceName::parse(SERVICE).expect("a literal that is valid")
}

/// A running scheduler: its part of the public API.
#[derive(Clone)]
pub struct Handle {
    jobs: Jobs,
    queues: Queues,
    views: Views,
    live: Live<State>,
}

impl Handle {
    /// Adds the scheduler's services.
    #[must_use]
    pub fn parts(&self, parts: ServerParts) -> ServerParts {
        parts
            .service(JobServiceServer::new(self.jobs.clone()))
            .service(QueueServiceServer::new(self.queues.clone()))
            .service(SchedulerViewServiceServer::new(self.views.clone()))
    }

    /// Its view, for tests and tools in the same process.
    pub fn live(&self) -> &Live<State> {
        &self.live
    }
}

/// What the view's bytes in a snapshot mean: to be raised whenever the state, how it is folded or what is folded changes.
const FORM: &str = "4";

/// Starts the scheduler's tasks under `context` and gives its part of the API.
pub async fn start(config: &Config, ledger: &Ledger, clock: &SharedClock, context: &Context) -> Handle {
    let ledger = &ledger.of(&service());
    let snapshots = config.snapshots.as_ref().map(|keeper| keeper.of("scheduler", FORM));
    let live: Live<State> = snapshot::open(snapshots.clone(), ledger).await;
    let token = context.shutdown.token();
    let (standing, stands) = watch::channel(Standing::Candidate);
    let measures = Measures::register(&context.metrics, clock, &stands);

    let view = follow(ledger.clone(), filters(), live.clone(), token.clone());
    context.supervisor.spawn_infallible("scheduler view", view);
    if let Some(snapshots) = snapshots {
        context.supervisor.spawn_infallible("scheduler snapshots", snapshots.keep(ledger.clone(), live.clone(), token.clone()));
    }
    let counting = measures::keep_counting(live.clone(), measures.clone(), token.clone());
    context.supervisor.spawn_infallible("scheduler measures", counting);
    let latch = context.readiness.latch("scheduler view");
    let (read, behind, until) = (live.clone(), ledger.clone(), token.clone());
    context.supervisor.spawn_infallible("scheduler start", async move {
        if read.caught_up(&behind, |why| latch.pending(why), &until).await {
            latch.ready();
        }
    });
    let trials = Trials::new(ledger.clone(), clock.clone(), config);
    let decider = Lead::new(ledger.broker().clone(), config.policy.clone(), trials, measures);
    let lease = LeaseConfig { service: service(), instance: config.instance.clone(), lease: config.lease };
    let wake = Arc::new(Notify::new());
    let leading = lead_watched(ledger.clone(), lease, live.clone(), decider, wake, standing, token.clone());
    context.supervisor.spawn_infallible("scheduler leader", async move {
        if let Err(error) = leading.await {
            tracing::error!(%error, "this instance does not lead; it goes on answering, and must be upgraded to lead");
        }
    });

    let shell = Shell::new(service().as_str(), &config.instance, ledger.clone(), live.clone(), clock.clone(), config.wait);
    Handle {
        jobs: Jobs::new(shell.clone(), token),
        queues: Queues::new(shell),
        views: Views::new(ledger.clone(), live.clone(), config.wait),
        live,
    }
}
