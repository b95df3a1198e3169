//! Asking JetStream about what lies in a project's account, as the user that makes and mends it.

use crate::mirror::MirrorError;
use crate::operator::Operator;
use crate::project::{KEEPER_INBOX, MirrorLimits};
use crate::resolver::connected;
use crate::servers::Servers;
use async_nats::Client;
use async_nats::client::RequestErrorKind;
use footplate_types::ProjectName;
use serde_json::Value;
use std::time::Duration;

/// How long an answer is waited for.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long a project's account may take to have its JetStream; one that the server has no room for never has it.
const ENABLED_WITHIN: Duration = Duration::from_secs(3);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// JetStream: not enabled (yet) for the account.
const NOT_ENABLED: [u64; 2] = [10_039, 10_076];
/// JetStream: no room in the account, on the server, in the stream's maximum.
const NO_ROOM: [u64; 4] = [10_002, 10_023, 10_047, 10_122];

/// JetStream's codes that its askers tell apart.
pub(crate) mod code {
    pub(crate) const STREAM_NOT_FOUND: u64 = 10_059;
    pub(crate) const CONSUMER_NOT_FOUND: u64 = 10_014;
}

/// A connection to a project's account.
pub(crate) struct Keeper {
    client: Client,
    project: ProjectName,
}

/// What JetStream answers.
pub(crate) enum Answer {
    Done(Value),
    Refused { reason: String, code: u64 },
}

impl Keeper {
    pub(crate) async fn connect(servers: &Servers, operator: &Operator, project: &ProjectName, now: i64) -> Result<Self, MirrorError> {
        if project.as_str() == "_" {
            return Err(MirrorError::Platform);
        }
        let creds = operator.project(project).keeper(now);
        let client = connected(servers, "footplate mirrors", "a user of a project", &creds.to_text(), KEEPER_INBOX).await?;
        Ok(Self { client, project: project.clone() })
    }

    /// What was done; a refusal as an error.
    pub(crate) fn done(&self, answer: Answer, limits: Option<&MirrorLimits>) -> Result<Value, MirrorError> {
        let project = self.project.to_string();
        match (answer, limits) {
            (Answer::Done(value), _) => Ok(value),
            (Answer::Refused { reason, code }, Some(limits)) if NOT_ENABLED.contains(&code) || NO_ROOM.contains(&code) => {
                Err(MirrorError::NoRoom { project, bytes: limits.bytes, reason })
            }
            (Answer::Refused { reason, code }, _) => Err(MirrorError::Refused { project, reason, code }),
        }
    }

    /// Asks `$JS.API.<what>`. An account that the server has just learned of has its JetStream a moment later.
    pub(crate) async fn ask(&self, what: &str, body: &str) -> Result<Answer, MirrorError> {
        let began = tokio::time::Instant::now();
        let silent = |reason: String| MirrorError::Silent { project: self.project.to_string(), reason };
        loop {
            match self.client.request(format!("$JS.API.{what}"), body.to_owned().into()).await {
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

    /// Ends the connection once everything is sent.
    pub(crate) async fn close(self) {
        // A connection that is gone already is ended, too.
        let _ = self.client.drain().await;
    }
}
