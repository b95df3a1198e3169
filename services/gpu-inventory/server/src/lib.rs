//! The shell of gpu-inventory: reads agents' reports and beats, leads, answers operators.
//!
//! It holds no state that the ledger does not; it says that a node is lost, and releases nothing.

mod leader;
mod nodes;
mod views;

use crate::{leader::Lead, nodes::Nodes, views::Views};
use footplate_api::server::ServerParts;
use footplate_api::v1::{inventory_view_service_server::InventoryViewServiceServer, node_service_server::NodeServiceServer};
use footplate_clock::SharedClock;
use footplate_eventlog::beats::{self, SharedBeats};
use footplate_eventlog::inbox::Inbox;
use footplate_eventlog::{Keeper, LeadError, LeaseConfig, Ledger, Live, follow, lead, snapshot};
use footplate_events::{Aggregate, Subject};
use footplate_gpu_inventory_core::Inventory;
use footplate_service::Context;
use footplate_shell::Shell;
use footplate_types::ServiceName;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How gpu-inventory runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// This instance, such as `host-1/4711`.
    pub instance: String,
    /// The leader's lease.
    pub lease: Duration,
    /// What is waited beyond a node's lease before it counts as lost.
    pub margin: Duration,
    /// The longest a read waits for "at least N", and a write for its answer.
    pub wait: Duration,
    /// Where the view is kept between two starts; absent: every start reads the whole ledger.
    pub snapshots: Option<Keeper>,
}

impl Config {
    /// The defaults for an instance.
    pub fn new(instance: impl Into<String>) -> Self {
        let seconds = Duration::from_secs;
        Self { instance: instance.into(), lease: seconds(10), margin: seconds(15), wait: seconds(10), snapshots: None }
    }
}

/// The filters of the ledger that the inventory's view folds.
pub fn filters() -> Vec<String> {
    [Aggregate::Node, Aggregate::NodeRequest].map(|kind| Subject::filter(None, Some(kind))).to_vec()
}

/// A running gpu-inventory: its part of the public API.
#[derive(Clone)]
pub struct Handle {
    nodes: Nodes,
    views: Views,
    live: Live<Inventory>,
}

impl Handle {
    /// Adds the inventory's services.
    #[must_use]
    pub fn parts(&self, parts: ServerParts) -> ServerParts {
        parts.service(NodeServiceServer::new(self.nodes.clone())).service(InventoryViewServiceServer::new(self.views.clone()))
    }

    /// Its view, for tests and tools in the same process.
    pub fn live(&self) -> &Live<Inventory> {
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
const FORM: &str = "3";

/// Starts the inventory's tasks under `context` and gives its part of the API.
pub async fn start(config: &Config, ledger: &Ledger, clock: &SharedClock, context: &Context) -> Handle {
    let service = ServiceName::parse("gpu-inventory").expect("a literal that is valid");
    let ledger = &ledger.of(&service);
    let broker = ledger.broker().clone();
    let snapshots = config.snapshots.as_ref().map(|keeper| keeper.of("gpu-inventory", FORM));
    let live: Live<Inventory> = snapshot::open(snapshots.clone(), ledger).await;
    let wake = Arc::new(Notify::new());
    let inbox = Inbox::new("gpu-inventory", wake.clone());
    let watch = SharedBeats::default();
    let token = context.shutdown.token();

    context.supervisor.spawn_infallible("gpu-inventory view", follow(ledger.clone(), filters(), live.clone(), token.clone()));
    if let Some(snapshots) = snapshots {
        context.supervisor.spawn_infallible("gpu-inventory snapshots", snapshots.keep(ledger.clone(), live.clone(), token.clone()));
    }
    let latch = context.readiness.latch("gpu-inventory view");
    let (read, behind, until) = (live.clone(), ledger.clone(), token.clone());
    context.supervisor.spawn_infallible("gpu-inventory start", async move {
        if read.caught_up(&behind, |why| latch.pending(why), &until).await {
            latch.ready();
        }
    });
    context.supervisor.spawn_infallible("gpu-inventory reports", inbox.clone().fill(broker.clone(), token.clone()));
    let beats = beats::watch(broker.clone(), watch.clone(), clock.clone(), wake.clone(), token.clone());
    context.supervisor.spawn_infallible("gpu-inventory beats", beats);
    let decider = Lead::new(broker, inbox, watch.clone(), config.margin, clock.clone());
    let lease = LeaseConfig { service, instance: config.instance.clone(), lease: config.lease };
    let leading = lead(ledger.clone(), lease, live.clone(), decider, wake, token);
    context.supervisor.spawn_infallible("gpu-inventory leader", may_not_lead(leading));
    let shell = Shell::new("gpu-inventory", &config.instance, ledger.clone(), live.clone(), clock.clone(), config.wait);
    Handle { nodes: Nodes::new(shell, watch), views: Views::new(ledger.clone(), live.clone(), config.wait), live }
}
