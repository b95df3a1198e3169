//! What the registry asks of whoever holds the keys of the broker's operator.

use footplate_types::{NodeName, ProjectName, SubscriptionName, Timestamp};
use futures::future::BoxFuture;
use std::fmt;

/// Credentials of the broker, as they are told once.
#[derive(Clone)]
pub struct BrokerCredentials {
    /// The user's public key: what a revocation names.
    pub user: String,
    /// The text of a credentials file.
    pub text: String,
}

impl fmt::Debug for BrokerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BrokerCredentials").field(&self.user).finish()
    }
}

/// A consumer that is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerConsumer {
    /// Its name.
    pub name: SubscriptionName,
    /// What it gives: a subject, or a wildcard.
    pub filter: String,
    /// The sequence that it begins at; what comes next when absent.
    pub from: Option<u64>,
}

/// Why the broker was not told.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BrokerDoorError {
    /// It does not answer.
    #[error("{0}")]
    Away(String),
    /// It has no room.
    #[error("{0}")]
    NoRoom(String),
    /// It does not want to.
    #[error("{0}")]
    Refused(String),
}

/// What a call to the broker gives.
pub type BrokerAnswer<'a> = BoxFuture<'a, Result<(), BrokerDoorError>>;

/// Issues credentials of the broker and takes them back. Each call may be repeated.
pub trait BrokerDoor: Send + Sync + 'static {
    /// Where the broker is.
    fn address(&self) -> String;
    /// Credentials of a node's agent.
    fn node(&self, node: &NodeName, expires: Option<Timestamp>) -> BrokerCredentials;
    /// Voids a node's credentials, and ends what is connected with them.
    fn revoke_node<'a>(&'a self, user: &'a str) -> BrokerAnswer<'a>;
    /// Credentials that read a project's mirror of the ledger, and nothing else.
    fn subscriber(&self, project: &ProjectName, name: &SubscriptionName, expires: Option<Timestamp>) -> BrokerCredentials;
    /// Sees to it that a project's mirror and a consumer of it are there.
    fn subscribe<'a>(&'a self, project: &'a ProjectName, consumer: &'a BrokerConsumer) -> BrokerAnswer<'a>;
    /// Voids a subscriber's credentials, and removes its consumer.
    fn unsubscribe<'a>(&'a self, project: &'a ProjectName, name: &'a SubscriptionName, user: &'a str) -> BrokerAnswer<'a>;
}
