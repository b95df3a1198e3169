//! A real nats-server under an operator of its own.

use async_nats::{Client, ConnectOptions};
use footplate_credentials::{Access, Operator, ServerConfig, UserCreds, now_seconds};
use footplate_testkit::{NatsServer, nats};
use tempfile::TempDir;

/// A server, its operator, and the folder of both.
pub(crate) struct Served {
    pub(crate) server: NatsServer,
    pub(crate) operator: Operator,
    pub(crate) home: TempDir,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let operator = Operator::create(&home.path().join("operator")).unwrap();
        let config = ServerConfig::new(&operator, &home.path().join("accounts"), now_seconds()).unwrap();
        let server = nats().config(config.as_str()).start().await;
        Self { server, operator, home }
    }

    /// Somebody of the platform's account who may do everything there.
    pub(crate) async fn platform(&self) -> Client {
        connect(&self.server, &self.operator.platform_user("everything", &Access::new([">"], [">"]), now_seconds(), None)).await.unwrap()
    }
}

pub(crate) async fn connect(server: &NatsServer, creds: &UserCreds) -> Result<Client, async_nats::ConnectError> {
    ConnectOptions::with_credentials(&creds.to_text()).unwrap().connect(server.url()).await
}
