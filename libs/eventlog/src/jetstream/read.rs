//! Reading without a consumer: pages by direct get, the last message and the ends from the leader, plain listening.

use super::Core;
use super::api::{self, ApiError};
use super::streams;
use crate::port::{Bounds, Page, ReadError, Stored, StreamName};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, RawMessageError};
use async_nats::{HeaderMap, Message};
use footplate_types::Timestamp;
use futures::{StreamExt, stream::BoxStream};
use serde_json::json;
use std::time::Duration;

/// How long the next message of a page may take.
const READ_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes that one direct get asks for.
const READ_BYTES: u64 = 8 << 20;
/// The most messages that one direct get asks for.
const READ_MESSAGES: usize = 1_000;

/// Statuses of a direct get.
mod status {
    pub(super) const END_OF_BATCH: u16 = 204;
    pub(super) const NOT_FOUND: u16 = 404;
}

/// What one direct get brought.
struct Got {
    messages: Vec<Stored>,
    more: bool,
}

/// Reads a page. On a cluster any replica may answer a direct get, so that its "nothing more" is confirmed by the leader.
pub(super) async fn page(core: &Core, stream: StreamName, filter: &str, from: u64, most: usize) -> Result<Page, ReadError> {
    let mut page = Page::default();
    let mut next = from.max(1);
    while page.messages.len() < most {
        let wanted = (most - page.messages.len()).min(READ_MESSAGES);
        let got = direct(core, stream, filter, next, wanted).await?;
        next = got.messages.last().map_or(next, |stored| stored.sequence + 1);
        page.messages.extend(got.messages);
        if got.more {
            continue;
        }
        if core.config.replicas <= 1 {
            return Ok(page);
        }
        match following(core, stream, filter, next).await? {
            None => return Ok(page),
            Some(stored) if page.messages.len() < most => {
                next = stored.sequence + 1;
                page.messages.push(stored);
            }
            Some(_) => {}
        }
    }
    page.next = Some(next);
    Ok(page)
}

async fn direct(core: &Core, stream: StreamName, filter: &str, from: u64, most: usize) -> Result<Got, ReadError> {
    if !core.is_connected() {
        return Err(ReadError::Unavailable("not connected".to_owned()));
    }
    let inbox = core.client.new_inbox();
    let mut answers = core.client.subscribe(inbox.clone()).await.map_err(away)?;
    let ask = json!({ "seq": from, "next_by_subj": filter, "batch": most, "max_bytes": READ_BYTES });
    let subject = format!("$JS.API.DIRECT.GET.{}", stream.as_str());
    core.client.publish_with_reply(subject, inbox, ask.to_string().into()).await.map_err(away)?;
    let mut got = Got { messages: Vec::new(), more: false };
    loop {
        let answer = tokio::time::timeout(READ_WITHIN, answers.next()).await.map_err(|_| away("no answer to a direct get"))?;
        let answer = answer.ok_or_else(|| away("the connection is closed"))?;
        match answer.status.map(|status| status.as_u16()) {
            None => got.messages.push(of_direct(answer)?),
            Some(status::END_OF_BATCH) => {
                let pending = answer.headers.as_ref().and_then(|headers| number(headers, "Nats-Num-Pending"));
                got.more = pending.is_some_and(|pending| pending > 0);
                return Ok(got);
            }
            Some(status::NOT_FOUND) => return Ok(got),
            Some(503) => return Err(away("nobody answers a direct get (starting, or no such stream)")),
            Some(other) => return Err(ReadError::Refused(format!("direct get: {other} {}", answer.description.unwrap_or_default()))),
        }
    }
}

fn of_direct(message: Message) -> Result<Stored, ReadError> {
    let message = StreamMessage::try_from(message).map_err(|error| ReadError::Refused(error.to_string()))?;
    Ok(of_stream(message))
}

fn of_stream(message: StreamMessage) -> Stored {
    let nanos = i64::try_from(message.time.unix_timestamp_nanos()).unwrap_or(i64::MAX);
    Stored {
        sequence: message.sequence,
        subject: message.subject.to_string(),
        headers: plain_headers(&message.headers),
        payload: message.payload,
        recorded_at: Timestamp::from_nanos(nanos),
    }
}

/// The publisher's headers without the broker's own, by name.
pub(super) fn plain_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut plain: Vec<(String, String)> = Vec::with_capacity(headers.len());
    for (name, values) in headers.iter() {
        let name: &str = name.as_ref();
        if !name.starts_with("Nats-") || name == footplate_events::header::MESSAGE_ID {
            plain.extend(values.iter().map(|value| (name.to_owned(), value.as_str().to_owned())));
        }
    }
    plain.sort_unstable();
    plain
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name).and_then(|value| value.as_str().parse().ok())
}

/// The first message on `filter` from `from` on, from the leader.
pub(super) async fn following(core: &Core, stream: StreamName, filter: &str, from: u64) -> Result<Option<Stored>, ReadError> {
    let handle = core.context.get_stream_no_info(stream.as_str()).await.map_err(away)?;
    found(handle.get_first_raw_message_by_subject(filter, from).await)
}

/// The message at a sequence, from the leader.
pub(super) async fn at(core: &Core, stream: StreamName, sequence: u64) -> Result<Option<Stored>, ReadError> {
    let handle = core.context.get_stream_no_info(stream.as_str()).await.map_err(away)?;
    found(handle.get_raw_message(sequence).await)
}

/// The last message on a subject, from the leader.
pub(super) async fn last(core: &Core, stream: StreamName, subject: &str) -> Result<Option<Stored>, ReadError> {
    if !core.is_connected() {
        return Err(ReadError::Unavailable("not connected".to_owned()));
    }
    if core.config.direct_reads {
        return direct_last(core, stream, subject).await;
    }
    let handle = core.context.get_stream_no_info(stream.as_str()).await.map_err(away)?;
    found(handle.get_last_raw_message_by_subject(subject).await)
}

/// The last message on a subject from any replica; the subject stands in the request's own, so that permissions can name it.
async fn direct_last(core: &Core, stream: StreamName, subject: &str) -> Result<Option<Stored>, ReadError> {
    let request = async_nats::Request::new().timeout(Some(api::API_WITHIN));
    let answer = core.client.send_request(format!("$JS.API.DIRECT.GET.{}.{subject}", stream.as_str()), request).await.map_err(away)?;
    match answer.status.map(|status| status.as_u16()) {
        None => of_direct(answer).map(Some),
        Some(status::NOT_FOUND) => Ok(None),
        Some(other) => Err(ReadError::Refused(format!("direct get: {other} {}", answer.description.unwrap_or_default()))),
    }
}

fn found(answer: Result<StreamMessage, RawMessageError>) -> Result<Option<Stored>, ReadError> {
    match answer {
        Ok(message) => Ok(Some(of_stream(message))),
        Err(error) => match error.kind() {
            LastRawMessageErrorKind::NoMessageFound => Ok(None),
            LastRawMessageErrorKind::JetStream(refusal) => {
                let refusal = api::Refusal { err_code: refusal.error_code().0, description: refusal.to_string() };
                Err(ApiError::Refused(refusal).into())
            }
            LastRawMessageErrorKind::InvalidSubject => Err(ReadError::Refused(error.to_string())),
            LastRawMessageErrorKind::Other => Err(away(error)),
        },
    }
}

/// The ends of a stream, from the leader.
pub(super) async fn bounds(core: &Core, stream: StreamName) -> Result<Bounds, ReadError> {
    if !core.is_connected() {
        return Err(ReadError::Unavailable("not connected".to_owned()));
    }
    let info = streams::info(&core.client, stream).await?;
    let state = |field: &str| info["state"][field].as_u64().unwrap_or(0);
    let (last, messages) = (state("last_seq"), state("messages"));
    let first = if messages == 0 { last + 1 } else { state("first_seq") };
    let created = info["created"].as_str().and_then(|text| Timestamp::parse(text).ok());
    let created = created.ok_or_else(|| ReadError::Refused(format!("{} does not tell when it was made", stream.as_str())))?;
    Ok(Bounds { first, last, messages, bytes: state("bytes"), created })
}

/// Removes what lies below `below`.
pub(super) async fn purge(core: &Core, stream: StreamName, filter: Option<String>, below: u64) -> Result<(), ReadError> {
    // To JetStream a sequence of 0 means no bound at all.
    if below <= 1 {
        return Ok(());
    }
    let mut ask = json!({ "seq": below });
    if let Some(filter) = filter {
        ask["filter"] = json!(filter);
    }
    api::ask(&core.client, &format!("STREAM.PURGE.{}", stream.as_str()), &ask).await?;
    Ok(())
}

/// Listens to a plain subject; returns when the broker knows of it.
pub(super) async fn listen(core: &Core, subject: String) -> Result<BoxStream<'static, Stored>, ReadError> {
    let messages = core.client.subscribe(subject).await.map_err(away)?;
    core.client.flush().await.map_err(away)?;
    Ok(messages.map(republished).boxed())
}

fn republished(message: Message) -> Stored {
    let headers = message.headers.unwrap_or_default();
    let time = headers.get("Nats-Time-Stamp").and_then(|value| Timestamp::parse(value.as_str()).ok());
    Stored {
        sequence: number(&headers, "Nats-Sequence").unwrap_or(0),
        subject: message.subject.to_string(),
        headers: plain_headers(&headers),
        payload: message.payload,
        recorded_at: time.unwrap_or_default(),
    }
}

fn away(error: impl std::fmt::Display) -> ReadError {
    ReadError::Unavailable(error.to_string())
}
