//! Verbs of `event`: the ledger, decoded.

pub mod show;
pub mod tail;

use footplate_api::v1::Event;
use serde_json::{Value, json};

/// An event as data: its envelope, and its payload as JSON rather than as text.
fn data(event: &Event) -> Value {
    let payload = serde_json::from_str(&event.data).unwrap_or_else(|_| Value::String(event.data.clone()));
    json!({
        "sequence": event.sequence, "id": event.id, "type": event.r#type, "subject": event.subject, "project": event.project,
        "aggregate": event.aggregate, "aggregateId": event.aggregate_id, "source": event.source, "time": event.time,
        "recordedAt": event.recorded_at, "actor": event.actor, "correlationId": event.correlation_id, "causationId": event.causation_id,
        "traceId": trace_id(event), "traceparent": event.traceparent, "data": payload,
    })
}

/// The trace of an event (the second part of its `traceparent`); empty when it has none.
fn trace_id(event: &Event) -> &str {
    event.traceparent.split('-').nth(1).unwrap_or_default()
}
