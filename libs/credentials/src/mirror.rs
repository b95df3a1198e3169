//! Making, mending and removing the mirror of a project.

use crate::folder::FolderError;
use crate::keeper::{Answer, Keeper, code};
use crate::operator::{Operator, Revocation};
use crate::project::{MIRROR, MirrorLimits};
use crate::resolver::{Resolver, ResolverError};
use crate::servers::Servers;
use footplate_types::{Invalid, ProjectName};
use serde_json::Value;

/// Why a project has no mirror.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The platform's own things have none.
    #[error("project: \"_\" is not allowed; allowed: a project of people")]
    Platform,
    /// Something that was asked for is none.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The server could not be told.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// The operator's folder cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// JetStream says no.
    #[error("JetStream refuses it for the mirror of project {project}: {reason} ({code})")]
    Refused {
        /// Which.
        project: String,
        /// Why.
        reason: String,
        /// JetStream's own code.
        code: u64,
    },
    /// The account has no JetStream.
    #[error(
        "there is no room for the mirror of project {project}: the server gives its account no JetStream of {bytes} bytes ({reason}); give \
         the server more, or the mirror less"
    )]
    NoRoom {
        /// Which.
        project: String,
        /// How much was asked for.
        bytes: u64,
        /// What the server says.
        reason: String,
    },
    /// JetStream says nothing in time.
    #[error("JetStream does not answer about the mirror of project {project}: {reason}; try again")]
    Silent {
        /// Which.
        project: String,
        /// Why.
        reason: String,
    },
}

/// A mirror that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    /// The first sequence that it holds; sequences are the ledger's own.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// How many events.
    pub events: u64,
    /// How many it has yet to get.
    pub behind: u64,
}

/// Sees to it that a project has its account and, in it, its mirror of the ledger, with these limits. Doing it again changes nothing, or
/// brings both in line with other limits; a failure in the middle is mended by doing it again. Every wait is bounded.
///
/// # Errors
/// When the server cannot be told, has no room, or does not answer in time.
pub async fn ensure_project_mirror(
    servers: impl Into<Servers>,
    operator: &Operator,
    project: &ProjectName,
    limits: &MirrorLimits,
    now: i64,
) -> Result<MirrorStatus, MirrorError> {
    let servers = servers.into();
    if project.as_str() == "_" {
        return Err(MirrorError::Platform);
    }
    let account = operator.project(project);
    let resolver = Resolver::connect(&servers, operator, now).await?;
    resolver.push(&account.token(operator, limits, now)?).await?;
    let keeper = Keeper::connect(&servers, operator, project, now).await?;
    let made = ensure(&keeper, &account.mirror(limits), limits).await;
    keeper.close().await;
    made
}

async fn ensure(keeper: &Keeper, wanted: &Value, limits: &MirrorLimits) -> Result<MirrorStatus, MirrorError> {
    let limits = Some(limits);
    let body = wanted.to_string();
    let info = match keeper.ask(&format!("STREAM.INFO.{MIRROR}"), "").await? {
        Answer::Done(info) if in_line(wanted, &info["config"]) => info,
        Answer::Done(_) => keeper.done(keeper.ask(&format!("STREAM.UPDATE.{MIRROR}"), &body).await?, limits)?,
        Answer::Refused { code: code::STREAM_NOT_FOUND, .. } => {
            keeper.done(keeper.ask(&format!("STREAM.CREATE.{MIRROR}"), &body).await?, limits)?
        }
        refused @ Answer::Refused { .. } => keeper.done(refused, limits)?,
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let state = &info["state"];
    Ok(MirrorStatus {
        first: number(&state["first_seq"]),
        last: number(&state["last_seq"]),
        events: number(&state["messages"]),
        behind: number(&info["mirror"]["lag"]),
    })
}

/// Voids what a subscriber of a project holds, and ends its connections. It is written down before the server is told, so that after a
/// failure doing it again is enough. The limits are those of the project's mirror.
///
/// # Errors
/// When it cannot be written down, or the server cannot be told.
pub async fn revoke_subscriber(
    servers: impl Into<Servers>,
    operator: &Operator,
    project: &ProjectName,
    user: &str,
    limits: &MirrorLimits,
    now: i64,
) -> Result<(), MirrorError> {
    let servers = servers.into();
    let account = operator.project(project);
    operator.revoke(&Revocation { account: account.public().to_owned(), user: user.to_owned(), at: now })?;
    let token = account.token(operator, limits, now)?;
    Ok(Resolver::connect(&servers, operator, now).await?.push(&token).await?)
}

/// Makes the server forget a project's account: its subscribers are disconnected and let in no more.
///
/// # Errors
/// When the server cannot be told.
pub async fn remove_project(servers: impl Into<Servers>, operator: &Operator, project: &ProjectName, now: i64) -> Result<(), MirrorError> {
    let servers = servers.into();
    let resolver = Resolver::connect(&servers, operator, now).await?;
    resolver.delete(operator, &[operator.project(project).public()], now).await?;
    Ok(())
}

/// Whether a stream is as it must be; JetStream leaves out what is zero.
fn in_line(wanted: &Value, found: &Value) -> bool {
    let Some(fields) = wanted.as_object() else { return false };
    fields.iter().all(|(field, must)| match (must, &found[field]) {
        (must, is) if must == is => true,
        (Value::Object(must), Value::Object(_)) => must.iter().all(|(below, value)| found[field].get(below) == Some(value)),
        (Value::Number(number), Value::Null) => number.as_u64() == Some(0),
        _ => false,
    })
}
