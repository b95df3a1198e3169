//! Who may do what at the broker, as NATS JWTs: an operator's keys in a folder, the platform's account, an account a project, users with
//! lists of what they may publish and subscribe to, and telling a running nats-server about all of it.
//!
//! Whoever can read the operator's folder can make anybody, so it lies where only the platform's own user reads. This crate keeps no user's
//! seed, writes no secret into an error or a log, and knows nothing about events: what a service or a node needs is its caller's to say.
//! Signing is a function of its arguments: the time stands among them.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod claims;
mod creds;
mod folder;
mod jwt;
mod keeper;
mod key;
mod mirror;
mod operator;
mod project;
mod resolver;
mod server_config;
mod servers;
mod subscription;

pub use claims::{Access, AccountLimits};
pub use creds::{KnownUser, UserCreds, user_of, write_secret};
pub use folder::FolderError;
pub use jwt::{Decoded, JwtError, decode};
pub use key::{Key, KeyError, KeyKind};
pub use mirror::{MirrorError, MirrorStatus, ensure_project_mirror, remove_project, revoke_subscriber};
pub use operator::{Operator, Revocation};
pub use project::{DELIVER_PREFIX, MIRROR, MirrorLimits, ProjectAccount};
pub use resolver::{Resolver, ResolverError};
pub use server_config::ServerConfig;
pub use servers::Servers;
pub use subscription::{Begin, Subscription, ensure_consumer, remove_consumer};

/// Seconds since 1970 of the wall clock: what JWTs count in.
pub fn now_seconds() -> i64 {
    footplate_clock::now().as_nanos().div_euclid(1_000_000_000)
}
