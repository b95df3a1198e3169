//! A real nats-server under an operator, and everybody who connects to it.

use crate::servers;
use footplate_credentials::{Access, Operator, Resolver, Revocation, ServerConfig, UserCreds, now_seconds};
use footplate_eventlog::jetstream::{Credentials, JetStreamBroker, JetStreamConfig, Permissions, node_inbox_prefix, service_inbox_prefix};
use footplate_testkit::{NatsServer, nats};
use footplate_types::{NodeName, ServiceName};
use tempfile::TempDir;

pub(crate) const SERVICES: [&str; 6] = ["tracker", "scheduler", "executor", "sweep", "gpu-inventory", "registry"];

pub(crate) fn services() -> [ServiceName; 6] {
    SERVICES.map(|name| ServiceName::parse(name).unwrap())
}

/// A server under an operator of its own.
pub(crate) struct Principals {
    pub(crate) server: NatsServer,
    pub(crate) operator: Operator,
    home: TempDir,
}

impl Principals {
    pub(crate) async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let operator = Operator::create(&home.path().join("operator")).unwrap();
        let config = ServerConfig::new(&operator, &home.path().join("accounts"), now_seconds()).unwrap();
        let server = nats().config(config.as_str()).start().await;
        Self { server, operator, home }
    }

    fn issued(&self, name: &str, permissions: Permissions) -> UserCreds {
        // A moment ago, so that a revocation of this second voids it and nobody waits for the next.
        self.operator.platform_user(name, &Access::new(permissions.publish, permissions.subscribe), now_seconds() - 2, None)
    }

    pub(crate) fn service(&self, service: &ServiceName) -> UserCreds {
        self.issued(service.as_str(), Permissions::of_service(service))
    }

    pub(crate) fn node(&self, node: &NodeName) -> UserCreds {
        self.issued(node.as_str(), Permissions::of_node(node))
    }

    /// Voids what a user holds.
    pub(crate) async fn revoke(&self, user: &UserCreds) {
        let account = self.operator.platform_account().to_owned();
        self.operator.revoke(&Revocation { account, user: user.public().to_owned(), at: now_seconds() - 1 }).unwrap();
        let resolver = Resolver::connect(&self.server.url(), &self.operator, now_seconds()).await.unwrap();
        resolver.push(&self.operator.platform_token(now_seconds()).unwrap()).await.unwrap();
    }

    fn config(&self, name: &str, creds: &UserCreds) -> JetStreamConfig {
        let file = self.home.path().join(format!("{name}.creds"));
        creds.write(&file).unwrap();
        let mut config = servers::config(&self.server);
        config.credentials = Credentials::File(file);
        config
    }

    pub(crate) async fn service_broker(&self, service: &ServiceName) -> JetStreamBroker {
        let mut config = self.config(service.as_str(), &self.service(service));
        config.inbox_prefix = Some(service_inbox_prefix(service));
        JetStreamBroker::connect(config).await.unwrap()
    }

    pub(crate) async fn node_broker(&self, node: &NodeName) -> JetStreamBroker {
        let mut config = self.config(node.as_str(), &self.node(node));
        config.inbox_prefix = Some(node_inbox_prefix(node));
        config.manage_streams = false;
        config.direct_reads = true;
        JetStreamBroker::connect(config).await.unwrap()
    }

    /// Somebody who may do everything in the platform's account.
    pub(crate) async fn platform_broker(&self) -> JetStreamBroker {
        let all = self.operator.platform_user("everything", &Access::new([">"], [">"]), now_seconds(), None);
        JetStreamBroker::connect(self.config("everything", &all)).await.unwrap()
    }
}
