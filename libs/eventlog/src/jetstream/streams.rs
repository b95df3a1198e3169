//! The seven streams: what they must be, making them, and telling where they differ.

use super::api::{self, ApiError, code};
use super::config::JetStreamConfig;
use crate::port::StreamName;
use serde_json::{Value, json};

/// Consumers a stream may have; unset means 1,000 at the broker, and a refusal after that.
const CONSUMERS_MAX: u64 = 5_000;
/// How long the broker remembers the ids of events: a help, never the guard.
const LEDGER_DUPLICATE_WINDOW_S: u64 = 120;
/// The same for streams whose messages carry no id.
const OTHER_DUPLICATE_WINDOW_S: u64 = 10;
/// How often making a stream is tried: a file store that was just removed may refuse its name for a moment.
const CREATE_TRIES: u32 = 5;

/// What a replicated stream is. A killed server of a cluster cuts a stream back to its last snapshot before it reads its log again, and nats-server 2.15.1
/// cannot cut back into a compressed block ("smb.truncate: … s2: corrupt input"): two kills in a row leave the stream without a leader for good.
const NOT_COMPRESSED: &str = "none";

const NANOS: u64 = 1_000_000_000;

/// What a stream must be, as JetStream's JSON.
pub(super) fn wanted(stream: StreamName, config: &JetStreamConfig) -> Value {
    let single = config.replicas <= 1;
    let discard_new = !stream.keeps_last_only();
    let asynchronous = single && matches!(stream, StreamName::Reports | StreamName::Logs | StreamName::Settled | StreamName::Assignments);
    let window = if stream == StreamName::Ledger { LEDGER_DUPLICATE_WINDOW_S } else { OTHER_DUPLICATE_WINDOW_S };
    let mut wanted = json!({
        "name": stream.as_str(),
        "subjects": stream.subjects(),
        "retention": "limits",
        "max_consumers": CONSUMERS_MAX,
        "max_msgs": -1,
        "max_bytes": config.bytes.of(stream),
        "max_age": 0,
        "max_msgs_per_subject": if stream.keeps_last_only() { 1 } else { -1 },
        "max_msg_size": -1,
        "discard": if discard_new { "new" } else { "old" },
        "storage": "file",
        "num_replicas": config.replicas.max(1),
        "duplicate_window": window * NANOS,
        "compression": if single { "s2" } else { NOT_COMPRESSED },
        "allow_direct": true,
        "allow_atomic": matches!(stream, StreamName::Ledger | StreamName::Metrics),
    });
    if asynchronous {
        wanted["persist_mode"] = json!("async");
    }
    if stream == StreamName::Assignments {
        wanted["republish"] = json!({ "src": "fp.assign.>", "dest": "fp.assigned.>" });
    }
    wanted
}

/// Where a stream differs from what it must be, as `field: is X, must be Y`.
pub(super) fn differences(wanted: &Value, found: &Value) -> Vec<String> {
    let Some(fields) = wanted.as_object() else { return Vec::new() };
    let mut differing = Vec::new();
    for (field, must) in fields {
        let is = found.get(field).unwrap_or(&Value::Null);
        if !same(must, is) {
            differing.push(format!("{field}: is {is}, must be {must}"));
        }
    }
    let is_async = found.get("persist_mode").and_then(Value::as_str) == Some("async");
    if is_async && wanted.get("persist_mode").is_none() {
        differing.push("persist_mode: is \"async\", must be the default".to_owned());
    }
    differing
}

/// JetStream leaves out what is false, zero or empty.
fn same(must: &Value, is: &Value) -> bool {
    match (must, is) {
        (Value::Bool(false), Value::Null) => true,
        (Value::Number(number), Value::Null) => number.as_u64() == Some(0),
        // A republish rule comes back with more fields than it was given.
        (Value::Object(must), Value::Object(is)) => must.iter().all(|(field, value)| is.get(field) == Some(value)),
        (must, is) => must == is,
    }
}

/// Makes a stream, or brings the one that is there in line.
pub(super) async fn ensure(client: &async_nats::Client, stream: StreamName, config: &JetStreamConfig) -> Result<(), ApiError> {
    let wanted = wanted(stream, config);
    for attempt in 1.. {
        match info(client, stream).await {
            Ok(found) => {
                let differing = differences(&wanted, &found["config"]);
                if differing.is_empty() {
                    return Ok(());
                }
                tracing::info!(stream = stream.as_str(), ?differing, "bringing a stream in line");
                return api::ask(client, &format!("STREAM.UPDATE.{}", stream.as_str()), &wanted).await.map(|_| ()).map_err(|error| {
                    match error {
                        ApiError::Refused(mut refusal) => {
                            refusal.description = format!("{}; {}", refusal.description, differing.join("; "));
                            ApiError::Refused(refusal)
                        }
                        away => away,
                    }
                });
            }
            Err(ApiError::Refused(refusal)) if refusal.err_code == code::STREAM_NOT_FOUND => {}
            Err(error) => return Err(error),
        }
        match api::ask(client, &format!("STREAM.CREATE.{}", stream.as_str()), &wanted).await {
            Ok(_) => return Ok(()),
            // Another service was quicker, or the old store is not gone yet: look again.
            Err(ApiError::Refused(refusal))
                if attempt < CREATE_TRIES && [code::STREAM_NAME_EXISTS, code::STREAM_CREATE_STORE].contains(&refusal.err_code) =>
            {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A stream's configuration and state.
pub(super) async fn info(client: &async_nats::Client, stream: StreamName) -> Result<Value, ApiError> {
    api::ask(client, &format!("STREAM.INFO.{}", stream.as_str()), &Value::Null).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_are_as_the_design_says() {
        let mut config = JetStreamConfig::single("nats://x", "test");
        let ledger = wanted(StreamName::Ledger, &config);
        assert_eq!((&ledger["discard"], &ledger["allow_atomic"], &ledger["max_age"]), (&json!("new"), &json!(true), &json!(0)));
        assert!(ledger.get("persist_mode").is_none());
        assert_eq!(ledger["compression"], json!("s2"));
        let assignments = wanted(StreamName::Assignments, &config);
        assert_eq!((&assignments["persist_mode"], &assignments["max_msgs_per_subject"]), (&json!("async"), &json!(1)));
        assert_eq!(assignments["republish"]["dest"], json!("fp.assigned.>"));
        assert!(wanted(StreamName::Beats, &config).get("persist_mode").is_none());
        config.replicas = 3;
        assert!(wanted(StreamName::Logs, &config).get("persist_mode").is_none());
        assert!(StreamName::ALL.iter().all(|stream| wanted(*stream, &config)["compression"] == json!("none")));
    }

    #[test]
    fn a_difference_is_named_and_an_absent_default_is_none() {
        let must = json!({ "allow_atomic": false, "max_age": 0, "discard": "new" });
        assert_eq!(differences(&must, &json!({ "discard": "new" })), Vec::<String>::new());
        assert_eq!(differences(&must, &json!({ "discard": "old" })), ["discard: is \"old\", must be \"new\""]);
        assert_eq!(differences(&must, &json!({ "discard": "new", "persist_mode": "async" })).len(), 1);
    }
}
