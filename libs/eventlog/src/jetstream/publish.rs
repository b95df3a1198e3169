//! Publishing: one message, or an atomic batch by hand (the client crate has none).

use super::Core;
use super::api::{Refusal, code};
use super::probe;
use crate::port::{BATCH_MAX, Expect, Message, PublishError, StreamName};
use async_nats::client::{RequestError, RequestErrorKind};
use async_nats::{HeaderMap, HeaderName, HeaderValue, Request};
use bytes::Bytes;
use serde::Deserialize;
use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

/// How long an answer may take before the outcome counts as unknown.
const PUBLISH_WITHIN: Duration = Duration::from_secs(5);
/// How often a refusal that names no sequence is tried again with the same expectation (on a cluster it may be spurious).
const SPURIOUS_TRIES: u32 = 10;
/// The first pause before such a try; doubled up to [`SPURIOUS_PAUSE_MAX`].
const SPURIOUS_PAUSE: Duration = Duration::from_micros(500);
/// The longest pause before such a try.
const SPURIOUS_PAUSE_MAX: Duration = Duration::from_millis(5);

static EXPECTED_SEQUENCE: HeaderName = HeaderName::from_static("Nats-Expected-Last-Subject-Sequence");
static EXPECTED_SUBJECT: HeaderName = HeaderName::from_static("Nats-Expected-Last-Subject-Sequence-Subject");
static EXPECTED_STREAM: HeaderName = HeaderName::from_static("Nats-Expected-Stream");
static BATCH_ID: HeaderName = HeaderName::from_static("Nats-Batch-Id");
static BATCH_SEQUENCE: HeaderName = HeaderName::from_static("Nats-Batch-Sequence");
static BATCH_COMMIT: HeaderName = HeaderName::from_static("Nats-Batch-Commit");

/// What JetStream answers to a publication.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    seq: u64,
    error: Option<Refusal>,
}

/// A refusal that may be spurious, or one that is not.
enum Refused {
    Maybe,
    Surely(PublishError),
}

/// Publishes one message.
pub(super) async fn single(core: &Core, stream: StreamName, message: Message, expect: Expect) -> Result<u64, PublishError> {
    let mut pause = SPURIOUS_PAUSE;
    for _ in 0..SPURIOUS_TRIES {
        let headers = headers(stream, &message, &expect)?;
        match sent(core, &message.subject, headers, message.payload.clone()).await {
            Err(Refused::Maybe) => tokio::time::sleep(pause).await,
            Err(Refused::Surely(error)) => return Err(error),
            Ok(sequence) => return Ok(sequence),
        }
        pause = (pause * 2).min(SPURIOUS_PAUSE_MAX);
    }
    Err(PublishError::Conflict)
}

/// Publishes messages as one atomic batch.
pub(super) async fn batch(core: &Core, stream: StreamName, messages: Vec<(Message, Expect)>) -> Result<u64, PublishError> {
    if messages.is_empty() || messages.len() > BATCH_MAX {
        return Err(PublishError::Refused(format!("a batch has 1 to {BATCH_MAX} messages, not {}", messages.len())));
    }
    if messages.len() == 1 {
        let (message, expect) = messages.into_iter().next().ok_or_else(|| PublishError::Refused("an empty batch".to_owned()))?;
        return single(core, stream, message, expect).await;
    }
    let mut pause = SPURIOUS_PAUSE;
    for _ in 0..SPURIOUS_TRIES {
        match one_batch(core, stream, &messages).await {
            Err(Refused::Maybe) => tokio::time::sleep(pause).await,
            Err(Refused::Surely(error)) => return Err(error),
            Ok(sequence) => return Ok(sequence),
        }
        pause = (pause * 2).min(SPURIOUS_PAUSE_MAX);
    }
    Err(PublishError::Conflict)
}

/// Headers are made as messages go out, so that the broker works on the first ones meanwhile. Without a commit nothing is stored.
async fn one_batch(core: &Core, stream: StreamName, messages: &[(Message, Expect)]) -> Result<u64, Refused> {
    let id = footplate_clock::event_id().to_string();
    let last = messages.len();
    for (number, (message, expect)) in (1..).zip(messages) {
        let mut headers = headers(stream, message, expect).map_err(Refused::Surely)?;
        headers.insert(BATCH_ID.clone(), id.as_str());
        headers.insert(BATCH_SEQUENCE.clone(), number.to_string());
        if number == last {
            headers.insert(BATCH_COMMIT.clone(), "1");
            return sent(core, &message.subject, headers, message.payload.clone()).await;
        }
        if number == 1 {
            opened(core, message, headers).await?;
        } else if core.client.publish_with_headers(message.subject.clone(), headers, message.payload.clone()).await.is_err() {
            return Err(Refused::Surely(PublishError::Unavailable("the connection is closed".to_owned())));
        }
    }
    Err(Refused::Surely(PublishError::Refused("an empty batch".to_owned())))
}

/// Sends the first message of a batch as a request, so that a stream without batches says so. Without a commit nothing is stored, so a
/// lost answer is a definite no.
async fn opened(core: &Core, message: &Message, headers: HeaderMap) -> Result<(), Refused> {
    match requested(core, &message.subject, headers, message.payload.clone()).await {
        Ok(answer) if answer.is_empty() => Ok(()),
        Ok(answer) => read_answer(&answer).map(|_| ()),
        Err(PublishError::Unknown(why)) => Err(Refused::Surely(PublishError::Unavailable(why))),
        Err(PublishError::Stuck(why)) => Err(Refused::Surely(PublishError::Full(why))),
        Err(error) => Err(Refused::Surely(error)),
    }
}

async fn sent(core: &Core, subject: &str, headers: HeaderMap, payload: Bytes) -> Result<u64, Refused> {
    let answer = requested(core, subject, headers, payload).await.map_err(Refused::Surely)?;
    read_answer(&answer)
}

fn read_answer(answer: &[u8]) -> Result<u64, Refused> {
    match serde_json::from_slice::<Answer>(answer) {
        Ok(Answer { error: Some(refusal), .. }) if refusal.err_code == code::WRONG_LAST_SEQUENCE_CONSTANT => Err(Refused::Maybe),
        Ok(Answer { error: Some(refusal), .. }) => Err(Refused::Surely(refusal.of_publish())),
        Ok(Answer { seq, error: None }) if seq > 0 => Ok(seq),
        Ok(_) => Err(Refused::Surely(PublishError::Unknown("an answer without a sequence".to_owned()))),
        Err(error) => Err(Refused::Surely(PublishError::Unknown(format!("unreadable answer: {error}")))),
    }
}

/// One request. A connection that breaks while the answer is awaited makes the outcome unknown at once; a silence is asked about.
async fn requested(core: &Core, subject: &str, headers: HeaderMap, payload: Bytes) -> Result<Bytes, PublishError> {
    let mut disconnections = core.disconnections.subscribe();
    if !core.is_connected() {
        return Err(PublishError::Unavailable("not connected".to_owned()));
    }
    let request = Request::new().headers(headers).payload(payload).timeout(Some(PUBLISH_WITHIN));
    let answer = tokio::select! {
        biased;
        answer = core.client.send_request(subject.to_owned(), request) => answer,
        _ = disconnections.changed() => return Err(PublishError::Unknown("the connection broke before the answer".to_owned())),
    };
    match answer {
        Ok(message) => Ok(message.payload),
        Err(error) if error.kind() == RequestErrorKind::TimedOut => match probe::no_room(core).await {
            Some(why) => Err(PublishError::Stuck(why)),
            None => Err(failed(error)),
        },
        Err(error) => Err(failed(error)),
    }
}

fn failed(error: RequestError) -> PublishError {
    match error.kind() {
        RequestErrorKind::NoResponders => {
            PublishError::Unavailable("no stream takes the subject (starting, or without a leader)".to_owned())
        }
        RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => PublishError::Refused(error.to_string()),
        RequestErrorKind::TimedOut | RequestErrorKind::Other => PublishError::Unknown(error.to_string()),
    }
}

fn headers(stream: StreamName, message: &Message, expect: &Expect) -> Result<HeaderMap, PublishError> {
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers.iter() {
        let refused = |what: &str| PublishError::Refused(format!("{what} of header {name:?} is not one"));
        let header = match name {
            Cow::Borrowed(name) => HeaderName::from_static(name),
            Cow::Owned(name) => HeaderName::from_str(name).map_err(|_| refused("name"))?,
        };
        headers.insert(header, HeaderValue::from_str(value).map_err(|_| refused("value"))?);
    }
    headers.insert(EXPECTED_STREAM.clone(), stream.as_str());
    match expect {
        Expect::Any => {}
        Expect::Subject(sequence) => headers.insert(EXPECTED_SEQUENCE.clone(), sequence.to_string()),
        Expect::Other { subject, sequence } => {
            headers.insert(EXPECTED_SEQUENCE.clone(), sequence.to_string());
            headers.insert(EXPECTED_SUBJECT.clone(), subject.as_str());
        }
    }
    Ok(headers)
}
