//! Credentials of the broker, issued with the operator's keys: for nodes that join, and for whoever subscribes to a project's events.

use super::{broker::trust, knobs};
use footplate_credentials::{
    Access, Begin, MirrorError, MirrorLimits, Operator, Resolver, ResolverError, Revocation, Servers, Subscription, UserCreds,
    ensure_consumer, ensure_project_mirror, now_seconds, remove_consumer, revoke_subscriber,
};
use footplate_eventlog::jetstream::Permissions;
use footplate_registry_server::{BrokerAnswer, BrokerConsumer, BrokerCredentials, BrokerDoor, BrokerDoorError};
use footplate_service::config::Config;
use footplate_types::{NodeName, ProjectName, SubscriptionName, Timestamp};
use futures::FutureExt as _;
use std::path::Path;
use std::sync::Arc;

/// Who holds the operator's keys, and where the broker is.
pub(super) struct OperatorDoor {
    operator: Operator,
    servers: Servers,
    limits: MirrorLimits,
    /// One at a time: an account is told as a whole, and the last word stands, so that of two at once one could undo the other's revocation.
    telling: tokio::sync::Mutex<()>,
}

impl OperatorDoor {
    /// Over a broker at `servers`, with the limits of the settings.
    pub(super) fn over(operator: Operator, servers: Servers, config: &Config) -> Arc<dyn BrokerDoor> {
        let replicas = u32::try_from(config.get(&knobs::NATS_REPLICAS)).unwrap_or(1);
        let limits = MirrorLimits { bytes: config.get(&knobs::MIRROR_BYTES).0, replicas, ..MirrorLimits::default() };
        Arc::new(Self { operator, servers, limits, telling: tokio::sync::Mutex::new(()) })
    }

    /// The one of a deployment, where its settings name the operator's folder.
    ///
    /// # Errors
    /// A folder that cannot be used.
    pub(super) fn of_settings(config: &Config) -> Result<Option<Arc<dyn BrokerDoor>>, String> {
        let folder = config.get(&knobs::NATS_OPERATOR);
        if folder.is_empty() {
            return Ok(None);
        }
        let operator = Operator::open(Path::new(&folder)).map_err(|error| format!("nats.operator: {error}"))?;
        let (ca_file, client_certificate) = trust(config).map_err(|error| error.to_string())?;
        Ok(Some(Self::over(operator, Servers { addresses: config.get(&knobs::NATS_URL), ca_file, client_certificate }, config)))
    }
}

fn told(credentials: &UserCreds) -> BrokerCredentials {
    BrokerCredentials { user: credentials.public().to_owned(), text: credentials.to_text() }
}

fn seconds(expires: Option<Timestamp>) -> Option<i64> {
    expires.map(|end| end.as_millis().div_euclid(1_000))
}

fn of_resolver(error: &ResolverError) -> BrokerDoorError {
    match error {
        ResolverError::Unreachable { .. } | ResolverError::Silent(_) => BrokerDoorError::Away(error.to_string()),
        ResolverError::NotPermitted { .. } | ResolverError::Refused(_) | ResolverError::Folder(_) => {
            BrokerDoorError::Refused(error.to_string())
        }
    }
}

fn of_mirror(error: &MirrorError) -> BrokerDoorError {
    match error {
        MirrorError::Resolver(error) => of_resolver(error),
        MirrorError::NoRoom { .. } => BrokerDoorError::NoRoom(error.to_string()),
        MirrorError::Silent { .. } => BrokerDoorError::Away(error.to_string()),
        _ => BrokerDoorError::Refused(error.to_string()),
    }
}

impl BrokerDoor for OperatorDoor {
    fn address(&self) -> String {
        self.servers.addresses.clone()
    }

    fn node(&self, node: &NodeName, expires: Option<Timestamp>) -> BrokerCredentials {
        let Permissions { publish, subscribe } = Permissions::of_node(node);
        told(&self.operator.platform_user(node.as_str(), &Access::new(publish, subscribe), now_seconds(), seconds(expires)))
    }

    fn revoke_node<'a>(&'a self, user: &'a str) -> BrokerAnswer<'a> {
        async move {
            let _one = self.telling.lock().await;
            let account = self.operator.platform_account().to_owned();
            let refused = |error: footplate_credentials::FolderError| BrokerDoorError::Refused(error.to_string());
            self.operator.revoke(&Revocation { account, user: user.to_owned(), at: now_seconds() }).map_err(refused)?;
            let token = self.operator.platform_token(now_seconds()).map_err(refused)?;
            let resolver = Resolver::connect(&self.servers, &self.operator, now_seconds()).await.map_err(|error| of_resolver(&error))?;
            resolver.push(&token).await.map_err(|error| of_resolver(&error))
        }
        .boxed()
    }

    fn subscriber(&self, project: &ProjectName, name: &SubscriptionName, expires: Option<Timestamp>) -> BrokerCredentials {
        told(&self.operator.project(project).subscriber(name.as_str(), now_seconds(), seconds(expires)))
    }

    fn subscribe<'a>(&'a self, project: &'a ProjectName, consumer: &'a BrokerConsumer) -> BrokerAnswer<'a> {
        async move {
            let _one = self.telling.lock().await;
            let mirror = ensure_project_mirror(&self.servers, &self.operator, project, &self.limits, now_seconds()).await;
            mirror.map_err(|error| of_mirror(&error))?;
            let wanted = Subscription {
                name: consumer.name.to_string(),
                filter: Some(consumer.filter.clone()),
                begin: consumer.from.map_or(Begin::New, Begin::At),
            };
            let made = ensure_consumer(&self.servers, &self.operator, project, &wanted, now_seconds()).await;
            made.map_err(|error| of_mirror(&error))
        }
        .boxed()
    }

    fn unsubscribe<'a>(&'a self, project: &'a ProjectName, name: &'a SubscriptionName, user: &'a str) -> BrokerAnswer<'a> {
        async move {
            let _one = self.telling.lock().await;
            let revoked = revoke_subscriber(&self.servers, &self.operator, project, user, &self.limits, now_seconds()).await;
            revoked.map_err(|error| of_mirror(&error))?;
            let removed = remove_consumer(&self.servers, &self.operator, project, name.as_str(), now_seconds()).await;
            removed.map_err(|error| of_mirror(&error))
        }
        .boxed()
    }
}
