//! Requests to JetStream's own API, as JSON, and what its refusals mean.

use crate::port::{PublishError, ReadError};
use async_nats::client::{RequestError, RequestErrorKind};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// How long an API request may take.
pub(super) const API_WITHIN: Duration = Duration::from_secs(5);

/// JetStream's error codes that we tell apart.
pub(super) mod code {
    pub(in super::super) const STREAM_NOT_FOUND: u64 = 10_059;
    pub(in super::super) const STREAM_NAME_EXISTS: u64 = 10_058;
    pub(in super::super) const WRONG_LAST_SEQUENCE: u64 = 10_071;
    /// Refused because of another message in flight on the subject: the sequence is not named, and the refusal may be spurious.
    pub(in super::super) const WRONG_LAST_SEQUENCE_CONSTANT: u64 = 10_164;
    pub(in super::super) const STREAM_CREATE_STORE: u64 = 10_049;
    /// A batch that was given up (a restart, too slow, too many at once): nothing of it is stored.
    pub(super) const BATCH_GONE: [u64; 3] = [10_175, 10_176, 10_210];
    /// No room: account, server, memory, storage, store failure (maximum bytes), maximum bytes of the stream.
    pub(in super::super) const FULL: [u64; 6] = [10_002, 10_023, 10_028, 10_047, 10_077, 10_122];
    /// Temporarily away: cluster, stream offline, too many requests.
    pub(super) const AWAY: [u64; 4] = [10_008, 10_118, 10_167, 10_194];
}

/// An error as JetStream tells it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Refusal {
    /// JetStream's own code.
    #[serde(default)]
    pub(super) err_code: u64,
    /// In words.
    #[serde(default)]
    pub(super) description: String,
}

/// Why an API request gave no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApiError {
    Away(String),
    Refused(Refusal),
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Away(why) => f.write_str(why),
            Self::Refused(refusal) => write!(f, "{} ({})", refusal.description, refusal.err_code),
        }
    }
}

impl From<ApiError> for ReadError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Away(why) => Self::Unavailable(why),
            ApiError::Refused(refusal) if code::AWAY.contains(&refusal.err_code) => Self::Unavailable(refusal.description),
            ApiError::Refused(refusal) => Self::Refused(format!("{} ({})", refusal.description, refusal.err_code)),
        }
    }
}

impl Refusal {
    /// What a refused publication means to its publisher. In every case nothing was stored.
    pub(super) fn of_publish(self) -> PublishError {
        let text = format!("{} ({})", self.description, self.err_code);
        match self.err_code {
            code::WRONG_LAST_SEQUENCE | code::WRONG_LAST_SEQUENCE_CONSTANT => PublishError::Conflict,
            other if code::FULL.contains(&other) => PublishError::Full(text),
            other if code::AWAY.contains(&other) || code::BATCH_GONE.contains(&other) => PublishError::Unavailable(text),
            _ => PublishError::Refused(text),
        }
    }
}

/// Asks `$JS.API.<subject>`.
pub(super) async fn ask(client: &async_nats::Client, subject: &str, body: &Value) -> Result<Value, ApiError> {
    let payload = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).map_err(|error| ApiError::Away(error.to_string()))? };
    let request = async_nats::Request::new().payload(payload.into()).timeout(Some(API_WITHIN));
    let answer = client.send_request(format!("$JS.API.{subject}"), request).await.map_err(away)?;
    let mut value: Value =
        serde_json::from_slice(&answer.payload).map_err(|error| ApiError::Away(format!("unreadable answer: {error}")))?;
    let Some(error) = value.get_mut("error").map(Value::take) else { return Ok(value) };
    let refusal: Refusal = serde_json::from_value(error).map_err(|error| ApiError::Away(error.to_string()))?;
    if code::AWAY.contains(&refusal.err_code) {
        return Err(ApiError::Away(format!("{} ({})", refusal.description, refusal.err_code)));
    }
    Err(ApiError::Refused(refusal))
}

fn away(error: RequestError) -> ApiError {
    let text = match error.kind() {
        RequestErrorKind::NoResponders => "JetStream does not answer (not enabled, starting, or without a leader)".to_owned(),
        _ => error.to_string(),
    };
    ApiError::Away(text)
}
