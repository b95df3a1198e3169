//! The shell of the registry: models, their versions, who approved them, what serves; and who may do what: projects, principals, tokens.
//!
//! Every rule stands in the core; here are the ledger and the wire. It reacts to nothing, so it has no leader: any instance takes writes, each
//! expecting that nothing came to the aggregate since it looked. It holds no bytes and asks no other service: what a run recorded it reads from
//! the ledger.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod access;
mod lineage;
mod models;
mod read;
mod refused;
mod shell;
mod show;
mod views;
mod write;

use crate::access::AccessDesk;
pub use crate::access::{BrokerAnswer, BrokerConsumer, BrokerCredentials, BrokerDoor, BrokerDoorError};
use crate::{models::Models, shell::Shell, views::Views};
use footplate_api::server::ServerParts;
use footplate_api::v1::principal_service_server::PrincipalServiceServer;
use footplate_api::v1::project_service_server::ProjectServiceServer;
use footplate_api::v1::subscription_service_server::SubscriptionServiceServer;
use footplate_api::v1::token_service_server::TokenServiceServer;
use footplate_api::v1::{registry_service_server::RegistryServiceServer, registry_view_service_server::RegistryViewServiceServer};
use footplate_clock::SharedClock;
use footplate_eventlog::{Keeper, Ledger, Live, follow, snapshot};
use footplate_events::{Aggregate, Subject};
pub use footplate_registry_core::{ModelUri, Pick, Reference, RunUri};
use footplate_registry_core::{Registry, SERVICE};
use footplate_service::Context;
use footplate_shell::AccessGate;
use footplate_types::{Digest, PrincipalId, ProjectName, ServiceName};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Tells whether someone is the only member of a project: only then may they approve what they proposed themselves.
#[derive(Clone)]
pub struct Membership(Arc<IsOnly>);

/// Whether a principal is the only member of a project.
type IsOnly = dyn Fn(&ProjectName, &PrincipalId) -> bool + Send + Sync;

impl Membership {
    /// What tells it.
    pub fn new(is_only_member: impl Fn(&ProjectName, &PrincipalId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_only_member))
    }

    pub(crate) fn is_only_member(&self, project: &ProjectName, principal: &PrincipalId) -> bool {
        (self.0)(project, principal)
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Membership")
    }
}

/// A principal that whoever starts the platform vouches for: it is there, with this token, once the registry is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// Who.
    pub principal: PrincipalId,
    /// SHA-256 of its token.
    pub token: Digest,
    /// Whether it is an admin of the platform.
    pub is_admin: bool,
    /// A project that it makes, if nobody has.
    pub project: Option<ProjectName>,
}

/// How the registry runs.
#[derive(Clone)]
pub struct Config {
    /// This instance, such as `host-1/4711`.
    pub instance: String,
    /// The longest a read waits for "at least N", and a write for the writes of its model before it.
    pub wait: Duration,
    /// Who is alone in a project.
    pub membership: Membership,
    /// The first principals.
    pub bootstrap: Vec<Bootstrap>,
    /// Who issues credentials of the broker; absent where nobody does.
    pub door: Option<Arc<dyn BrokerDoor>>,
    /// Where the view is kept between two starts; absent: every start reads the whole ledger.
    pub snapshots: Option<Keeper>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("instance", &self.instance).field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl Config {
    /// The defaults for an instance: nobody is alone in a project.
    pub fn new(instance: impl Into<String>) -> Self {
        Self {
            instance: instance.into(),
            wait: Duration::from_secs(10),
            membership: Membership::new(|_, _| false),
            bootstrap: Vec::new(),
            door: None,
            snapshots: None,
        }
    }
}

/// The filters of the ledger that the registry's view folds.
pub fn filters() -> Vec<String> {
    [Aggregate::Model, Aggregate::ModelVersion].map(|kind| Subject::filter(None, Some(kind))).to_vec()
}

/// A running registry: its part of the public API.
#[derive(Clone)]
pub struct Handle {
    models: Models,
    access: AccessDesk,
    views: Views,
    live: Live<Registry>,
}

impl Handle {
    /// Adds the registry's services.
    #[must_use]
    pub fn parts(&self, parts: ServerParts) -> ServerParts {
        parts
            .service(RegistryServiceServer::new(self.models.clone()))
            .service(ProjectServiceServer::new(self.access.clone()))
            .service(PrincipalServiceServer::new(self.access.clone()))
            .service(TokenServiceServer::new(self.access.clone()))
            .service(SubscriptionServiceServer::new(self.access.clone()))
            .service(RegistryViewServiceServer::new(self.views.clone()))
    }

    /// Its view, for tests and tools in the same process.
    pub fn live(&self) -> &Live<Registry> {
        &self.live
    }
}

/// What the view's bytes in a snapshot mean: to be raised whenever the state, how it is folded or what is folded changes.
const FORM: &str = "1";

/// Starts the registry's tasks under `context` and gives its part of the API. `gate` is the process's own: what is changed here it goes by.
pub async fn start(config: &Config, gate: &AccessGate, ledger: &Ledger, clock: &SharedClock, context: &Context) -> Handle {
    let service = ServiceName::parse(SERVICE).expect("a literal that is valid");
    let ledger = &ledger.of(&service);
    let snapshots = config.snapshots.as_ref().map(|keeper| keeper.of(SERVICE, FORM));
    let live: Live<Registry> = snapshot::open(snapshots.clone(), ledger).await;
    let token = context.shutdown.token();
    context.supervisor.spawn_infallible("registry view", follow(ledger.clone(), filters(), live.clone(), token.clone()));
    if let Some(snapshots) = snapshots {
        context.supervisor.spawn_infallible("registry snapshots", snapshots.keep(ledger.clone(), live.clone(), token.clone()));
    }
    let latch = context.readiness.latch("registry view");
    let (read, behind, until) = (live.clone(), ledger.clone(), token);
    context.supervisor.spawn_infallible("registry start", async move {
        if read.caught_up(&behind, |why| latch.pending(why), &until).await {
            latch.ready();
        }
    });
    let access = footplate_shell::Shell::new(SERVICE, &config.instance, ledger.clone(), gate.live().clone(), clock.clone(), config.wait);
    start_bootstrap(config, &access, context);
    let shell = Shell::new(ledger.clone(), live.clone(), clock.clone(), config);
    Handle {
        models: Models::new(shell),
        access: AccessDesk::new(access, config.door.clone()),
        views: Views::new(ledger.clone(), live.clone(), config.wait),
        live,
    }
}

fn start_bootstrap(config: &Config, access: &footplate_shell::Shell<footplate_access::Access>, context: &Context) {
    if config.bootstrap.is_empty() {
        return;
    }
    let latch = context.readiness.latch("first principals");
    let (access, wanted, token) = (access.clone(), config.bootstrap.clone(), context.shutdown.token());
    context.supervisor.spawn_infallible("first principals", async move {
        let is_done = tokio::select! {
            () = token.cancelled() => false,
            () = access::bootstrap(access, wanted, |why| latch.pending(why)) => true,
        };
        if is_done {
            latch.ready();
        }
    });
}
