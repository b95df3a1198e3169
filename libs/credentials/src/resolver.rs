//! Telling a running nats-server about accounts.

use crate::folder::FolderError;
use crate::operator::{Operator, SYSTEM_INBOX};
use crate::servers::Servers;
use async_nats::client::RequestErrorKind;
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use serde_json::Value;
use std::time::Duration;

/// How long a connection may take.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The pause between two attempts.
pub(crate) const CONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Why a server could not be told.
#[derive(Debug, thiserror::Error)]
pub enum ResolverError {
    /// Nobody answers there.
    #[error("no NATS server at {servers}: {reason}")]
    Unreachable {
        /// Where.
        servers: String,
        /// Why.
        reason: String,
    },
    /// It serves another operator, or none.
    #[error(
        "the NATS server at {servers} does not take {who} of this operator: {reason}; start it with the configuration of this \
         operator's folder"
    )]
    NotPermitted {
        /// Where.
        servers: String,
        /// Who.
        who: &'static str,
        /// Why.
        reason: String,
    },
    /// It says no.
    #[error("the NATS server refuses the account's token: {0}")]
    Refused(String),
    /// It says nothing: whether it was told is not known; telling it again does no harm.
    #[error("the NATS server does not answer about accounts: {0}; it needs `resolver {{ type: full }}`")]
    Silent(String),
    /// The operator's folder cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// A connection of the system user, which tells a server (and through it its cluster) about accounts.
#[derive(Clone, Debug)]
pub struct Resolver {
    client: Client,
}

impl Resolver {
    /// Connects as the system user.
    ///
    /// # Errors
    /// When nobody answers in time, or the server is not this operator's.
    pub async fn connect(servers: impl Into<Servers>, operator: &Operator, now: i64) -> Result<Self, ResolverError> {
        let creds = operator.system_user(now);
        let client = connected(&servers.into(), "footplate accounts", "the system user", &creds.to_text(), SYSTEM_INBOX).await?;
        Ok(Self { client })
    }

    /// Tells of an account, new or changed. Users whom its token revokes are disconnected at once.
    ///
    /// # Errors
    /// When it refuses or does not answer in time.
    pub async fn push(&self, account_token: &str) -> Result<(), ResolverError> {
        self.ask("$SYS.REQ.CLAIMS.UPDATE", account_token.to_owned()).await.and_then(answered)
    }

    /// Makes it forget accounts: their users are disconnected and let in no more. What their streams hold stays on the server's disk.
    ///
    /// # Errors
    /// When it refuses or does not answer in time.
    pub async fn delete(&self, operator: &Operator, accounts: &[&str], now: i64) -> Result<(), ResolverError> {
        self.ask("$SYS.REQ.CLAIMS.DELETE", operator.deletion(accounts, now)).await.and_then(answered)
    }

    /// The token that it holds for an account.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn lookup(&self, account: &str) -> Result<Option<String>, ResolverError> {
        let answer = self.ask(&format!("$SYS.REQ.ACCOUNT.{account}.CLAIMS.LOOKUP"), String::new()).await?;
        let token = String::from_utf8(answer).map_err(|_| ResolverError::Silent("an unreadable answer".to_owned()))?;
        Ok((!token.is_empty()).then_some(token))
    }

    /// The public keys of the accounts that it knows.
    ///
    /// # Errors
    /// When it does not answer in time.
    pub async fn list(&self) -> Result<Vec<String>, ResolverError> {
        let answer = self.ask("$SYS.REQ.CLAIMS.LIST", String::new()).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| ResolverError::Silent(error.to_string()))?;
        let accounts = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(accounts.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    async fn ask(&self, subject: &str, body: String) -> Result<Vec<u8>, ResolverError> {
        let request = async_nats::Request::new().payload(body.into()).timeout(Some(ANSWER_WITHIN));
        match self.client.send_request(subject.to_owned(), request).await {
            Ok(answer) => Ok(answer.payload.to_vec()),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                Err(ResolverError::Silent("nobody listens for accounts".to_owned()))
            }
            Err(error) => Err(ResolverError::Silent(error.to_string())),
        }
    }
}

fn answered(answer: Vec<u8>) -> Result<(), ResolverError> {
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| ResolverError::Silent(error.to_string()))?;
    if answer["data"]["code"] == 200 {
        return Ok(());
    }
    match answer["error"]["description"].as_str() {
        Some(refused) => Err(ResolverError::Refused(refused.to_owned())),
        None => Err(ResolverError::Silent("an answer without a word".to_owned())),
    }
}

/// Connects with credentials, trying again while the server does not answer.
pub(crate) async fn connected(
    servers: &Servers,
    name: &str,
    who: &'static str,
    creds: &str,
    inbox_prefix: &str,
) -> Result<Client, ResolverError> {
    let deadline = tokio::time::Instant::now() + CONNECT_WITHIN;
    let addresses = servers.list();
    loop {
        let not_permitted = |reason: String| ResolverError::NotPermitted { servers: servers.addresses.clone(), who, reason };
        let options = ConnectOptions::with_credentials(creds).map_err(|error| not_permitted(error.to_string()))?;
        let options = servers.trusted(options.name(name).custom_inbox_prefix(inbox_prefix).request_timeout(Some(ANSWER_WITHIN)));
        match options.connect(addresses.clone()).await {
            Ok(client) => return Ok(client),
            Err(error) if matches!(error.kind(), ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication) => {
                return Err(not_permitted(error.to_string()));
            }
            Err(error) if tokio::time::Instant::now() >= deadline => {
                return Err(ResolverError::Unreachable { servers: servers.addresses.clone(), reason: error.to_string() });
            }
            Err(_) => tokio::time::sleep(CONNECT_PAUSE).await,
        }
    }
}
