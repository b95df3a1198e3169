//! Making, mending and removing the mirror of a project.

use crate::creds::UserCreds;
use crate::folder::FolderError;
use crate::operator::Operator;
use crate::project::{KEEPER_INBOX, MIRROR, MirrorLimits, ProjectAccount};
use crate::resolver::{Resolver, ResolverError, connected};
use async_nats::Client;
use async_nats::client::RequestErrorKind;
use footplate_types::ProjectName;
use serde_json::Value;
use std::time::Duration;

/// How long an answer about a mirror is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long a project's account may take to have its JetStream; one that the server has no room for never has it.
const ENABLED_WITHIN: Duration = Duration::from_secs(3);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// JetStream: no such stream.
const STREAM_NOT_FOUND: u64 = 10_059;
/// JetStream: not enabled (yet) for the account.
const NOT_ENABLED: [u64; 2] = [10_039, 10_076];

/// JetStream: no room in the account, on the server, in the stream's maximum.
const NO_ROOM: [u64; 4] = [10_002, 10_023, 10_047, 10_122];

/// Why a project has no mirror.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The platform's own things have none.
    #[error("project: \"_\" is not allowed; allowed: a project of people")]
    Platform,
    /// The server could not be told.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// The operator's folder cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// JetStream says no.
    #[error("the mirror of project {project} cannot be made or brought in line: {reason} ({code})")]
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
        "there is no room for the mirror of project {project}: the server gives its account no JetStream of {bytes} bytes ({reason}); give the server \
         more, or the mirror less"
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
    servers: &str,
    operator: &Operator,
    project: &ProjectName,
    limits: &MirrorLimits,
    now: i64,
) -> Result<MirrorStatus, MirrorError> {
    if project.as_str() == "_" {
        return Err(MirrorError::Platform);
    }
    let account = operator.project(project);
    let resolver = Resolver::connect(servers, operator, now).await?;
    resolver.push(&account.token(operator, limits, now)?).await?;
    let keeper: UserCreds = account.keeper(now);
    let client = connected(servers, "footplate mirrors", "a user of a project", &keeper.to_text(), KEEPER_INBOX).await?;
    let made = Asking { client: &client, account: &account }.ensure(limits).await;
    let _ = client.drain().await;
    made
}

/// Makes the server forget a project's account: its subscribers are disconnected and let in no more.
///
/// # Errors
/// When the server cannot be told.
pub async fn remove_project(servers: &str, operator: &Operator, project: &ProjectName, now: i64) -> Result<(), MirrorError> {
    let resolver = Resolver::connect(servers, operator, now).await?;
    resolver.delete(operator, &[operator.project(project).public()], now).await?;
    Ok(())
}

struct Asking<'a> {
    client: &'a Client,
    account: &'a ProjectAccount,
}

enum Answer {
    Done(Value),
    Refused { reason: String, code: u64 },
}

impl Asking<'_> {
    async fn ensure(&self, limits: &MirrorLimits) -> Result<MirrorStatus, MirrorError> {
        let wanted = self.account.mirror(limits);
        let info = match self.ask("INFO", "").await? {
            Answer::Done(info) if in_line(&wanted, &info["config"]) => info,
            Answer::Done(_) => self.done(self.ask("UPDATE", &wanted.to_string()).await?, limits)?,
            Answer::Refused { code: STREAM_NOT_FOUND, .. } => self.done(self.ask("CREATE", &wanted.to_string()).await?, limits)?,
            refused @ Answer::Refused { .. } => self.done(refused, limits)?,
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

    fn done(&self, answer: Answer, limits: &MirrorLimits) -> Result<Value, MirrorError> {
        let project = self.account.project().to_string();
        match answer {
            Answer::Done(value) => Ok(value),
            Answer::Refused { reason, code } if NOT_ENABLED.contains(&code) || NO_ROOM.contains(&code) => {
                Err(MirrorError::NoRoom { project, bytes: limits.bytes, reason })
            }
            Answer::Refused { reason, code } => Err(MirrorError::Refused { project, reason, code }),
        }
    }

    /// Asks about the mirror. An account that the server has just learned of has its JetStream a moment later.
    async fn ask(&self, what: &str, body: &str) -> Result<Answer, MirrorError> {
        let began = tokio::time::Instant::now();
        let silent = |reason: String| MirrorError::Silent { project: self.account.project().to_string(), reason };
        loop {
            let answer = self.client.request(format!("$JS.API.STREAM.{what}.{MIRROR}"), body.to_owned().into()).await;
            match answer {
                Ok(message) => {
                    let answer: Value = serde_json::from_slice(&message.payload).map_err(|error| silent(error.to_string()))?;
                    let Some(code) = answer["error"]["err_code"].as_u64() else { return Ok(Answer::Done(answer)) };
                    if !NOT_ENABLED.contains(&code) || began.elapsed() >= ENABLED_WITHIN {
                        let reason = answer["error"]["description"].as_str().unwrap_or_default().to_owned();
                        return Ok(Answer::Refused { reason, code });
                    }
                }
                // An account without JetStream has nobody who answers.
                Err(error) if error.kind() == RequestErrorKind::NoResponders && began.elapsed() >= ENABLED_WITHIN => {
                    return Ok(Answer::Refused { reason: "nobody answers there".to_owned(), code: NOT_ENABLED[0] });
                }
                Err(error) if began.elapsed() >= ANSWER_WITHIN => return Err(silent(error.to_string())),
                Err(_) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
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
