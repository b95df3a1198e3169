//! The services of one process, put together over one broker and one port.

use super::{knobs, objects, segments, snapshots::snapshots};
use crate::output::Exit;
use footplate_api::server::ServerParts;
use footplate_blobs::Blobs;
use footplate_clock::{SharedClock, SystemClock};
use footplate_eventlog::{Archive, Broker, Ledger};
use footplate_registry_server::{Bootstrap, BrokerDoor, Membership};
use footplate_service::Context;
use footplate_service::config::Config;
use footplate_shell::AccessGate;
use footplate_types::ServiceName;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A service of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Experiments, runs, metrics, artifacts.
    Tracker,
    /// Queues, jobs, assignments.
    Scheduler,
    /// Attempts, logs.
    Executor,
    /// Sweeps, trials.
    Sweep,
    /// Nodes, GPUs.
    GpuInventory,
    /// Models, their versions and aliases.
    Registry,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Tracker, Self::Scheduler, Self::Executor, Self::Sweep, Self::GpuInventory, Self::Registry];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tracker => "tracker",
            Self::Scheduler => "scheduler",
            Self::Executor => "executor",
            Self::Sweep => "sweep",
            Self::GpuInventory => "gpu-inventory",
            Self::Registry => "registry",
        }
    }

    /// Its name, as the ledger knows it.
    pub fn name(self) -> ServiceName {
        ServiceName::parse(self.as_str()).expect("the name of a service is one")
    }

    /// Reads its name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == name)
    }
}

/// Why a service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The object store.
    #[error("the object store {place} cannot be used: {reason}")]
    Objects {
        /// The folder or bucket.
        place: String,
        /// Why.
        reason: String,
        /// How a process ends for it.
        exit: Exit,
    },
    /// The series store.
    #[error("the series store {folder} cannot be used: {reason}")]
    Series {
        /// The folder.
        folder: String,
        /// Why.
        reason: String,
    },
    /// The series store in a cluster does not answer.
    #[error("{0}")]
    SeriesAway(String),
    /// The series store in a cluster is not to be used like this: its address, credentials, schema.
    #[error("{0}")]
    SeriesRefused(String),
    /// A setting that cannot be used.
    #[error("{0}")]
    Setting(String),
    /// The service itself.
    #[error("the {service} did not start: {reason}")]
    Service {
        /// Which.
        service: &'static str,
        /// Why.
        reason: String,
    },
}

impl StartError {
    /// How a process ends that cannot start for it.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::SeriesAway(_) => Exit::Unavailable,
            Self::SeriesRefused(_) => Exit::Refused,
            Self::Setting(_) => Exit::Usage,
            Self::Objects { exit, .. } => *exit,
            Self::Series { .. } | Self::Service { .. } => Exit::Failed,
        }
    }
}

/// What services are started with.
pub struct Wiring<'a> {
    /// The settings.
    pub config: &'a Config,
    /// The broker.
    pub broker: Arc<dyn Broker>,
    /// Where this process stores.
    pub data: &'a Path,
    /// Shutdown, tasks, readiness, metrics.
    pub context: &'a Context,
    /// The lease of each service's leader.
    pub leader_lease: Duration,
    /// The principals that whoever starts this process vouches for.
    pub bootstrap: Vec<Bootstrap>,
    /// Who issues credentials of the broker, where anyone does.
    pub door: Option<Arc<dyn BrokerDoor>>,
}

/// The parts of a server with the started services.
pub struct Started {
    /// What is served.
    pub parts: ServerParts,
}

/// Starts services and gives what they serve.
///
/// # Errors
/// Stores that cannot be used.
pub async fn start(services: &[Service], wiring: &Wiring<'_>) -> Result<Started, StartError> {
    let clock = SystemClock::shared();
    let blobs = objects::open(wiring.config, wiring.data)?;
    objects::check(&blobs, wiring.config, wiring.data).await?;
    let (ledger, archive) = segments::ledger(&wiring.broker, &blobs);
    if services.contains(&Service::Tracker) {
        objects::keep_swept(&blobs, wiring.context);
    }
    let gate = AccessGate::start(&ledger, &clock, wiring.context);
    let parts = ServerParts::new().readiness(wiring.context.readiness.clone()).metrics(&wiring.context.metrics);
    let mut parts = parts.gate(Arc::new(gate.clone()));
    for service in services {
        // Boxed: all of it in one future nests too deep for the compiler.
        parts = Box::pin(start_one(*service, wiring, (&ledger, &archive, &blobs, &gate), &clock, parts)).await?;
    }
    Ok(Started { parts })
}

async fn start_one(
    service: Service,
    wiring: &Wiring<'_>,
    (ledger, archive, blobs, gate): (&Ledger, &Archive, &Blobs, &AccessGate),
    clock: &SharedClock,
    parts: ServerParts,
) -> Result<ServerParts, StartError> {
    let config = wiring.config;
    let instance = knobs::instance(config);
    let context = wiring.context.within(service.as_str());
    match service {
        Service::Executor => {
            let mut executor = footplate_executor_server::Config::new(instance);
            executor.lease = wiring.leader_lease;
            executor.margin = config.get(&knobs::NODE_MARGIN);
            executor.read_wait = config.get(&knobs::READ_WAIT);
            executor.snapshots = Some(snapshots(config, blobs));
            Ok(footplate_executor_server::start(&executor, ledger, blobs, clock, &context).await.parts(parts))
        }
        Service::GpuInventory => {
            let mut inventory = footplate_gpu_inventory_server::Config::new(instance);
            inventory.lease = wiring.leader_lease;
            inventory.margin = config.get(&knobs::NODE_MARGIN);
            inventory.wait = config.get(&knobs::READ_WAIT);
            inventory.snapshots = Some(snapshots(config, blobs));
            Ok(footplate_gpu_inventory_server::start(&inventory, ledger, clock, &context).await.parts(parts))
        }
        Service::Sweep => {
            let mut sweep = footplate_sweep_server::Config::new(instance);
            sweep.lease = wiring.leader_lease;
            sweep.wait = config.get(&knobs::READ_WAIT);
            sweep.snapshots = Some(snapshots(config, blobs));
            Ok(footplate_sweep_server::start(&sweep, ledger, blobs, clock, &context).await.parts(parts))
        }
        Service::Registry => {
            let mut registry = footplate_registry_server::Config::new(instance);
            registry.wait = config.get(&knobs::READ_WAIT);
            registry.snapshots = Some(snapshots(config, blobs));
            registry.bootstrap.clone_from(&wiring.bootstrap);
            registry.door.clone_from(&wiring.door);
            let access = gate.live().clone();
            registry.membership = Membership::new(move |project, who| access.read().is_only_member(project, who));
            Ok(footplate_registry_server::start(&registry, gate, ledger, clock, &context).await.parts(parts))
        }
        Service::Scheduler => Ok(super::wiring::scheduler(wiring, instance, (ledger, blobs), clock, &context, parts).await),
        Service::Tracker => super::wiring::tracker(wiring, instance, (ledger, archive, blobs), clock, &context, parts).await,
    }
}
